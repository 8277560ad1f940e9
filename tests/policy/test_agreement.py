"""Runtimes agree on propensities to a stated relative precision, however far apart the scores are.

The reference is float64; the native kernel, the exported C and ONNX Runtime compute in float32.
"""

import itertools

import numpy as np
import pytest
from conformance.runtimes import OnnxRuntime
from native_examples import needs_native

import potstill as ps
from potstill.policy import UNDERFLOW, Layer

ROUNDOFF = 2.0**-24
#: features, hidden layers, actions, scale of the last weights, of the others, activation
NETWORKS = {
    "few": (5, (8,), 3, 50.0, 1.0, "tanh"),
    "small scores": (38, (100, 100), 7, 1.0, 2.0, "tanh"),
    "far apart": (20, (50,), 4, 20.0, 1.0, "tanh"),
    "sharp hidden units": (38, (100, 100), 7, 10.0, 30.0, "tanh"),
    "relu": (20, (50, 50, 50), 4, 20.0, 2.0, "relu"),
    "linear": (200, (), 20, 100.0, 0.0, "tanh"),
    "wide": (100, (512, 512), 50, 40.0, 2.0, "tanh"),
    "many actions": (38, (300,), 1000, 10.0, 1.0, "tanh"),
}


def make(name):
    features, hidden, actions, last, others, activation = NETWORKS[name]
    rng = np.random.default_rng(list(name.encode()))
    context = [ps.Numeric(f"x{i}", low=0, high=1) for i in range(features)]
    problem = ps.Problem(name="agreement", context=context, actions=ps.Discrete([f"a{k}" for k in range(actions)]))
    sizes = (features, *hidden, actions)
    scales = [others] * len(hidden) + [last]
    layers = [
        Layer(
            (scale * rng.standard_normal((i, o)) / np.sqrt(i)).astype(np.float32),
            rng.standard_normal(o).astype(np.float32),
        )
        for (i, o), scale in zip(itertools.pairwise(sizes), scales, strict=True)
    ]
    contexts = rng.random((500, features)).astype(np.float32)
    return ps.Policy.build(problem, layers, version=1, activation=activation), contexts


def exact(policy, contexts):
    """Log-probabilities in long double, by the formulas of docs/policy-format.md."""
    hidden = contexts.astype(np.longdouble)
    for layer in policy.layers[:-1]:
        y = hidden @ layer.weight.astype(np.longdouble) + layer.bias
        hidden = np.tanh(y) if policy.metadata.activation == "tanh" else np.maximum(y, 0)
    z = hidden @ policy.layers[-1].weight.astype(np.longdouble) + policy.layers[-1].bias
    z -= z.max(axis=1, keepdims=True)
    return z - np.log(np.exp(z).sum(axis=1, keepdims=True))


def errors_in_roundoffs(policy, contexts, p):
    """Errors of log-probabilities, in roundoffs, relative to the scale that `agreement` states."""
    wanted = exact(policy, contexts)
    large = wanted > np.log(UNDERFLOW)
    error = np.abs(np.log(np.where(large, p, 1.0)) - np.where(large, wanted, 0.0)).max(axis=1)
    return (error / policy.agreement(contexts) * 16).max()


@pytest.mark.parametrize("name", NETWORKS)
def test_numpy_is_the_definition(name):
    policy, contexts = make(name)
    p = policy.with_runtime("numpy").probabilities_many(contexts)
    normal = p >= np.finfo(np.float32).tiny
    np.testing.assert_allclose(p[normal], np.exp(exact(policy, contexts))[normal].astype(float), rtol=1.01 * ROUNDOFF)


@needs_native
@pytest.mark.parametrize("name", NETWORKS)
def test_the_native_kernel_keeps_the_agreement(name):
    policy, contexts = make(name)
    # 16 are allowed, and the largest seen is 6.
    assert errors_in_roundoffs(policy, contexts, policy.with_runtime("native").probabilities_many(contexts)) < 8


@pytest.mark.parametrize("name", NETWORKS)
def test_onnx_runtime_keeps_the_agreement(name):
    policy, contexts = make(name)
    session = OnnxRuntime(policy)
    p = [session.probabilities({"encoded": row, "floor": None, "eligible": None}) for row in contexts[:50].tolist()]
    assert errors_in_roundoffs(policy, contexts[:50], np.stack(p)) < 8


def test_scores_that_do_not_matter_do_not_loosen_the_agreement():
    policy, contexts = make("small scores")
    tight = policy.agreement(contexts)
    bias = policy.layers[-1].bias.copy()
    bias[2] = -1e4  # as for an action that no policy was trained on
    adapted = ps.Policy.build(policy.problem, [*policy.layers[:-1], Layer(policy.layers[-1].weight, bias)], version=2)
    assert (adapted.agreement(contexts) <= tight).all()
    others = np.arange(len(bias)) != 2
    assert (policy.agreement(contexts, eligible=others) <= tight).all()
    alone = adapted.agreement(contexts, eligible=~others | (np.arange(len(bias)) == 3))
    np.testing.assert_array_equal(alone, adapted.agreement(contexts, eligible=np.arange(len(bias)) == 3))


def test_the_agreement_of_an_ordinary_policy_is_tight():
    policy, contexts = make("small scores")
    assert policy.agreement(contexts).max() < 2e-5
