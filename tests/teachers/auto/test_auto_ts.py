import numpy as np
import pytest

from potstill.errors import InvalidOption
from potstill.keys import Key
from potstill.problem import Discrete, Numeric, Observations, Problem
from potstill.teachers import AutoTS, EmpiricalLinearTS, digest, pack, unpack
from potstill.teachers.auto import CANDIDATES

PROBLEM = Problem(
    name="auto", context=[Numeric("x", low=-1, high=1), Numeric("y", low=-1, high=1)], actions=Discrete(["a", "b"])
)
BOTH = AutoTS(candidates=("linear", "neural-linear"))


def batch(n, seed, reward):
    rng = np.random.default_rng(seed)
    x, actions = rng.uniform(0, 1, (n, 2)).astype(np.float32), rng.integers(0, 2, n).astype(np.int32)
    rewards = reward(x, actions) + 0.1 * rng.normal(size=n)
    return Observations(PROBLEM, x, actions, rewards.astype(np.float64), np.full(n, 0.5, np.float32))


def crossed(x, actions):
    """An exclusive or, which no linear model can predict."""
    return np.where(((x[:, 0] > 0.5) ^ (x[:, 1] > 0.5)) == (actions == 1), 1.0, 0.0)


def straight(x, actions):
    return np.where(actions == 1, x[:, 0], x[:, 1])


def learnt(teacher, reward, batches=6, n=200):
    state = teacher.init(PROBLEM)
    for i in range(batches):
        state = teacher.update(state, batch(n, i, reward), Key(i))
    return state


def test_a_network_wins_where_rewards_are_not_linear():
    assert BOTH.weights(learnt(BOTH, crossed)).tolist() == [0.0, 1.0]


def test_the_linear_candidate_keeps_its_weight_where_rewards_are_linear():
    assert BOTH.weights(learnt(BOTH, straight))[0] > 0.5


def test_propensities_are_the_weighted_means_of_the_candidates():
    state, contexts = learnt(BOTH, straight, batches=2, n=40), batch(100, 9, straight).contexts
    weights = BOTH.weights(state)
    assert (weights > 0).all()
    own = [CANDIDATES[n].propensities(s, contexts, Key(0)) for n, s in zip(BOTH.candidates, state.states, strict=True)]
    assert np.allclose(
        BOTH.propensities(state, contexts, Key(0)), sum(w * p for w, p in zip(weights, own, strict=True))
    )


def test_a_candidate_that_does_not_decide_learns_again_when_the_data_have_grown():
    teacher = AutoTS(candidates=("linear", "neural-linear"), revisit=2.0)
    state = learnt(teacher, crossed, batches=6, n=200)
    assert teacher.weights(state)[0] == 0
    behind = int(state.learnt[0])
    assert behind < state.learnt[1] == 1200
    assert len(state.backlog.actions) == 1200 - behind
    grown = teacher.update(state, batch(2 * behind, 7, crossed), Key(7))
    assert grown.learnt.tolist() == [1200 + 2 * behind] * 2
    assert not len(grown.backlog.actions)
    # It has then learnt from all observations, including those that it had left out.
    everything = Observations.joined(
        PROBLEM, [*(batch(200, i, crossed) for i in range(6)), batch(2 * behind, 7, crossed)]
    )
    linear = EmpiricalLinearTS()
    alone = linear.update(linear.init(PROBLEM), everything, Key(0))
    assert np.allclose(grown.states[0].posterior.mean, alone.posterior.mean)


def test_a_restored_state_continues_to_the_bit():
    state, new = learnt(BOTH, crossed, batches=4), batch(200, 11, crossed)
    restored = unpack(pack(state, BOTH, PROBLEM), BOTH.init(PROBLEM), BOTH, PROBLEM)
    one, other = (BOTH.update(s, new, Key(3)) for s in (state, restored))
    assert digest(one, BOTH, PROBLEM) == digest(other, BOTH, PROBLEM)


def test_the_selection_names_weights_and_scores():
    found = BOTH.selection(learnt(BOTH, crossed))
    assert found["neural-linear"]["weight"] == 1
    assert found["neural-linear"]["log_score"] == 0
    assert found["linear"]["log_score"] < -5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"candidates": ("linaer",)}, "linaer.*linear"),
        ({"candidates": ()}, "one or more different names"),
        ({"candidates": ("linear", "linear")}, "one or more different names"),
        ({"revisit": 0.5}, "revisit must be 1 or more, got 0.5"),
        ({"revisit": float("nan")}, "revisit must be 1 or more, got nan"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(InvalidOption, match=message):
        AutoTS(**options)
