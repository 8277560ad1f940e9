"""Probabilities and decisions: by brute force, by frequency, and whatever can be wrong."""

import math
import re

import numpy as np
import pytest
from examples import random_layers

import potstill as ps
from potstill.policy import Layer
from potstill.policy.draw import uniform
from potstill.spaces.finite import choose


def by_hand(policy, context, eligible, floor):
    """The specification once more, in plain Python floats."""
    h = [float(x) for x in policy.problem.encode(context)]
    for i, (weight, bias) in enumerate(policy.layers):
        z = [sum(x * float(w) for x, w in zip(h, weight[:, j], strict=True)) + float(bias[j]) for j in range(len(bias))]
        h = z if i == len(policy.layers) - 1 else [math.tanh(x) for x in z]
    names = policy.problem.actions.names
    allowed = [eligible is None or name in eligible for name in names]
    weights = [math.exp(z - max(h)) if ok else 0.0 for z, ok in zip(h, allowed, strict=True)]
    m = sum(allowed)
    return [(1 - m * floor) * w / sum(weights) + floor if ok else 0.0 for w, ok in zip(weights, allowed, strict=True)]


@pytest.mark.parametrize("eligible", [None, ["480p"], ["360p", "1080p"], ["1080p", "360p", "480p"]])
@pytest.mark.parametrize("floor", [0.0, 0.05, 0.25])
def test_probabilities_are_the_specifications(policy, context, eligible, floor):
    p = policy.probabilities(context, eligible=eligible, floor=floor)
    assert p.dtype == np.float32
    np.testing.assert_allclose(p, by_hand(policy, context, eligible, floor), atol=1e-6)
    assert p.sum() == pytest.approx(1, abs=1e-6)
    decision = policy.decide(context, id="x", eligible=eligible, floor=floor)
    assert decision.propensity == p[policy.problem.actions.index(decision.action)]


def test_before_the_first_batch_all_actions_are_equal(problem, context):
    p = ps.Policy.uniform(problem).probabilities(context)
    np.testing.assert_array_equal(p, np.float32(0.25))


def test_a_decision_carries_what_the_log_needs(policy, context):
    decision = policy.decide(context, id="upload-123")
    assert (decision.id, decision.policy, decision.eligible, decision.floor) == ("upload-123", 3, None, None)
    assert repr(decision).startswith("Decision(id='upload-123', action=")
    restricted = policy.decide(context, id="upload-123", eligible=["360p", "720p"], floor=0.1)
    assert (restricted.eligible, restricted.floor) == (("360p", "720p"), 0.1)


def test_the_same_id_gives_the_same_decision_and_a_new_one_is_made_if_none_is_given(policy, context):
    assert policy.decide(context, id="a") == policy.decide(context, id="a")
    assert policy.decide(context).id != policy.decide(context).id
    assert len(policy.decide(context).id) == 32


@pytest.mark.parametrize("eligible", [None, ["360p", "720p", "1080p"]])
def test_actions_are_taken_as_often_as_their_probabilities_say(policy, context, eligible):
    """Chi-square over at most 4 actions and 50,000 ids; false alarm 1e-6 (3 degrees of freedom: 30.7)."""
    n = 50_000
    row = policy.problem.encode(context)
    mask = None if eligible is None else policy.problem.actions.restrict(eligible).allowed[0]
    actions, propensities = policy.decide_many(np.tile(row, (n, 1)), [str(i) for i in range(n)], eligible=mask)
    expected = n * policy.probabilities(context, eligible=eligible).astype(float)
    counts = np.bincount(actions, minlength=4)
    possible = expected > 0
    assert (counts[~possible] == 0).all()
    assert ((counts - expected)[possible] ** 2 / expected[possible]).sum() < 30.7
    np.testing.assert_allclose(propensities, (expected / n)[actions], rtol=1e-6)


def test_many_at_once_decide_as_one_by_one(policy):
    rng = np.random.default_rng(0)
    rows = [
        {"bandwidth_kbps": float(b), "connection": c, "hd_screen": bool(h)}
        for b, c, h in zip(
            rng.uniform(0, 1e5, 50), rng.choice(["2g", "wifi", "?"], 50), rng.random(50) < 0.5, strict=True
        )
    ]
    ids = [f"é{i}" for i in range(50)]
    actions, propensities = policy.decide_many(rows, ids)
    for i, row in enumerate(rows):
        decision = policy.decide(row, id=ids[i])
        assert decision.action == policy.problem.actions.names[actions[i]]
        assert decision.propensity == pytest.approx(propensities[i], abs=1e-6)


def test_the_draw_is_the_inverse_of_the_cumulative_probabilities(policy, context):
    p = policy.probabilities(context).astype(float)
    salt = bytes.fromhex(policy.metadata.salt)
    for i in range(200):
        u = uniform(str(i), salt)
        expected = next(k for k in range(4) if p[: k + 1].sum() > u * p.sum())
        assert policy.decide(context, id=str(i)).action == policy.problem.actions.names[expected]


def test_an_impossible_action_is_never_chosen_at_the_edges():
    p = np.float32([[0, 0.5, 0, 0.5, 0]] * 4)
    assert choose(p, np.array([0.0, 0.5, np.nextafter(0.5, 0), np.nextafter(1, 0)])).tolist() == [1, 3, 1, 3]


def test_eligible_actions_keep_an_answer_when_all_are_improbable(problem, context):
    layer = Layer(np.zeros((7, 4), np.float32), np.float32([1000, 0, 0, -1000]))
    policy = ps.Policy.build(problem, [layer], version=1)
    np.testing.assert_array_equal(
        policy.probabilities(context, eligible=["480p", "720p"]), np.float32([0, 0.5, 0.5, 0])
    )
    assert policy.probabilities(context, floor=0.01).min() == np.float32(0.01)


@pytest.mark.parametrize("runtime", ["numpy", None])
def test_eligible_may_be_anything_that_can_be_gone_through(problem, context, runtime):
    policy = ps.Policy.uniform(problem)
    policy = policy if runtime is None else policy.with_runtime(runtime)
    wanted = policy.decide(context, id="x", eligible=("360p", "720p"))
    for eligible in (["360p", "720p"], np.array(["360p", "720p"]), iter(["360p", "720p"])):
        decision = policy.decide(context, id="x", eligible=eligible)
        assert decision == wanted
        assert {type(name) for name in decision.eligible} == {str}


def test_the_policys_own_floor(policy, context):
    floored = policy.with_floor(0.1)
    np.testing.assert_array_equal(floored.probabilities(context), policy.probabilities(context, floor=0.1))
    assert floored.decide(context, id="x").floor is None
    assert floored.probabilities(context, floor=0).min() == policy.probabilities(context).min()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"eligible": []}, "eligible is empty"),
        ({"eligible": ["8k"]}, "unknown action '8k'"),
        ({"eligible": "360p"}, "eligible must be a list of action names, got '360p'"),
        ({"eligible": [3]}, "unknown action 3 (int)"),
        ({"floor": 0.3}, "floor must be a number from 0 to 1/4"),
        ({"floor": -0.1}, "floor must be a number from 0 to 1/4"),
        ({"floor": math.nan}, "floor must be a number from 0 to 1/4"),
        ({"floor": "0.1"}, "floor must be a number from 0 to 1/4"),
        ({"floor": True}, "floor must be a number from 0 to 1/4"),
        ({"id": ""}, "a decision's id must be a non-empty string"),
    ],
)
def test_bad_arguments_are_named(policy, context, arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        policy.decide(context, **arguments)


def test_bad_batches_are_named(policy):
    contexts = np.zeros((3, 7), np.float32)
    with pytest.raises(ValueError, match="as many ids as contexts are needed, got 2 for 3"):
        policy.decide_many(contexts, ["a", "b"])
    with pytest.raises(ValueError, match=r"eligible must be bool\[4\] or bool\[3, 4\], got shape \(3, 5\)"):
        policy.decide_many(contexts, ["a", "b", "c"], eligible=np.ones((3, 5), bool))
    with pytest.raises(ValueError, match="eligible has a row without any action"):
        policy.decide_many(contexts, ["a", "b", "c"], eligible=np.eye(3, 4, dtype=bool) & [True, True, False, False])


def test_a_linear_policy_and_one_without_features(problem, context):
    linear = ps.Policy.build(problem, random_layers(problem, hidden=()), version=1)
    np.testing.assert_allclose(linear.probabilities(context), by_hand(linear, context, None, 0.0), atol=1e-6)
    bare = ps.Problem(name="bare", context=[], actions=problem.actions)
    policy = ps.Policy.build(bare, random_layers(bare), version=1)
    np.testing.assert_allclose(policy.probabilities({}), by_hand(policy, {}, None, 0.0), atol=1e-6)
