"""Helpers of the native kernel's tests: a policy with every kind of feature, and comparisons with the oracle."""

import numpy as np
import pytest
from examples import random_layers

import potstill as ps
from potstill.policy import Layer
from potstill.policy.draw import uniform
from potstill.policy.runtime import why_not_native

#: Marks a test file that needs the kernel.
needs_native = pytest.mark.skipif(why_not_native() is not None, reason=f"no native kernel: {why_not_native()}")

FEATURES = [
    ps.Numeric("speed", low=-10, high=10),
    ps.Numeric("price", low=0.01, high=1e6, scale="log", missing=3.0),
    ps.Numeric("age", low=0, high=120, missing="flag"),
    ps.Categorical("place", ["home", "work", "straße", "東京", "a" * 300]),
    ps.Categorical("plan", ["free", "paid"], missing="error"),
    ps.Boolean("new"),
    ps.Boolean("plugged in", missing="flag"),
    ps.Boolean("größe\0", missing=True),
]
GOOD = {"speed": 1.5, "price": 20, "age": None, "place": "home", "plan": "free", "new": True, "plugged in": False}


def make_problem(features=FEATURES, actions=5):
    return ps.Problem(name="native", context=features, actions=ps.Discrete([f"action {i}" for i in range(actions)]))


def make_policy(problem=None, hidden=(20, 12), *, seed=0, scale=1.0, **options):
    problem = problem or make_problem()
    plain = random_layers(problem, hidden, seed)
    if options.get("masked"):
        masks = np.random.default_rng(seed).standard_normal((len(problem.actions), len(plain[0].bias)))
        plain[0] = Layer(np.concatenate([plain[0].weight, masks.astype(np.float32)]), plain[0].bias)
    layers = [Layer(scale * weight / np.float32(np.sqrt(max(len(weight), 1))), bias) for weight, bias in plain]
    return ps.Policy.build(problem, layers, version=3, **options).with_runtime("native")


def assert_agree(policy, context, decision_id, eligible=None, floor=None):
    """Probabilities within 1e-6, the same draw, and the same action unless the draw lies on an edge."""
    oracle = policy.with_runtime("numpy")
    options = {"eligible": eligible, "floor": floor}
    p, expected = policy.probabilities(context, **options), oracle.probabilities(context, **options)
    np.testing.assert_allclose(p, expected, atol=1e-6, rtol=0)
    decision, same = (each.decide(context, id=decision_id, **options) for each in (policy, oracle))
    assert (decision.id, decision.policy, decision.eligible, decision.floor) == (
        same.id, same.policy, same.eligible, same.floor,
    )  # fmt: skip
    assert decision.propensity == p[policy.problem.actions.index(decision.action)]
    if decision.action == same.action:
        assert decision.propensity == pytest.approx(same.propensity, abs=1e-6)
    else:
        u = uniform(decision_id, bytes.fromhex(policy.metadata.salt))
        assert np.abs(np.cumsum(expected, dtype=float) - u).min() < 1e-6


def outcome(call):
    """Result of a call: its value or its error."""
    try:
        return call()
    except Exception as error:
        return type(error), str(error)


def assert_same_outcome(policy, context, **options):
    """Both runtimes agree, or raise the same error message."""
    expected = outcome(lambda: policy.with_runtime("numpy").decide(context, **options))
    found = outcome(lambda: policy.decide(context, **options))
    if isinstance(expected, ps.Decision) and isinstance(found, ps.Decision):
        assert (found.id, found.action, found.eligible) == (expected.id, expected.action, expected.eligible)
        assert found.propensity == pytest.approx(expected.propensity, abs=1e-6)
    else:
        assert found == expected


def kernel_parts():
    from potstill.policy.native_runtime import _definition

    policy = make_policy()
    return {
        "features": tuple(map(_definition, FEATURES)),
        "layers": tuple((layer.weight, layer.bias) for layer in policy.layers),
        "actions": policy.problem.actions.names,
        "activation": "tanh",
        "salt": bytes(16),
        "floor": 0.0,
        "version": 3,
        "decision": ps.Decision,
        "array": np.ndarray,
        "edges": None,
        "masked": False,
    }


def make_kernel(**changes):
    from potstill.policy import _native

    return _native.Kernel(**kernel_parts() | changes)
