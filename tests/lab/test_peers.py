"""Other libraries in our trials: the same batches and seeds, and a fair fit."""

import sys

import msgspec
import numpy as np
import pytest

from potstill.keys import Key
from potstill.lab import Wheel
from potstill.lab.peers import PEERS, MissingPackage
from potstill.lab.problems.scenarios import scenario
from potstill.lab.runs.algorithms import ALGORITHMS
from potstill.lab.runs.run_spec import RunSpec
from potstill.lab.runs.workers import Task, turns_of
from potstill.problem import Continuous, Discrete, Numeric, Observations, Problem, Reward

SMALL = msgspec.structs.replace(scenario("wheel"), decisions=300, batch=100)
STEP = Problem(name="step", context=[Numeric("x", low=0, high=1)], actions=Discrete(["low", "middle", "high"]))

installed = pytest.mark.parametrize(
    "peer",
    [
        pytest.param(peer, id=peer.name, marks=pytest.mark.skipif(bool(peer.why_not()), reason=peer.why_not() or ""))
        for peer in PEERS
        if not peer.number
    ],
)
of_numbers = pytest.mark.parametrize(
    "peer",
    [
        pytest.param(peer, id=peer.name, marks=pytest.mark.skipif(bool(peer.why_not()), reason=peer.why_not() or ""))
        for peer in PEERS
        if peer.number
    ],
)


def observed(n, seed):
    """Rewards that are linear in x: ``low`` earns 1 - x, ``high`` x, and ``middle`` 0."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, 1)).astype(np.float32)
    actions = rng.integers(3, size=n)
    rewards = np.choose(actions, [1 - x[:, 0], 0 * x[:, 0], x[:, 0]]).astype(np.float64)
    return Observations(STEP, x, actions.astype(np.int32), rewards, np.full(n, 1 / 3, np.float32))


@installed
def test_learns_what_a_line_can_say(peer):
    agent = peer.make(STEP, 0)
    for batch in range(3):
        agent.learn(observed(500, batch))
    actions, propensities = agent.choose(np.array([[0.02]] * 50 + [[0.98]] * 50, np.float32))
    # SquareCB goes on exploring by design; the others are all but certain by now.
    assert (actions[:50] == 0).mean() > 0.8
    assert (actions[50:] == 2).mean() > 0.8
    assert np.all((propensities > 0) & (propensities <= 1))


@installed
def test_equal_seeds_give_equal_trials(peer):
    task = Task("wheel", "peers", peer.name, 0, 5)
    one, other = ([(turn.reward, turn.regret) for turn in turns_of(task, SMALL)] for _ in range(2))
    assert one == other
    assert len(one) == 3


@installed
def test_shares_the_first_batch_with_our_own(peer):
    theirs = next(turns_of(Task("wheel", "peers", peer.name, 0, 5), SMALL))
    ours = next(turns_of(Task("wheel", "paper", "linear-ts", 0, 5), SMALL))
    assert (theirs.regret, theirs.reward) == (ours.regret, ours.reward)


DOSE = Problem(
    name="dose",
    context=[Numeric("x", low=0, high=1)],
    actions=Continuous("dose", 10, 50),
    reward=Reward(low=0.0, high=1.0),
)


@of_numbers
def test_a_number_is_learnt_where_it_does_not_depend_on_the_context(peer):
    """The reward falls with the distance to 20; CATS keeps exploring, and learns to the width of a leaf."""
    agent, rng = peer.make(DOSE, 0), np.random.default_rng(0)
    for _ in range(8):
        x, doses = rng.random((500, 1), np.float32), 10 + 40 * rng.random(500)
        rewards = 1 - np.abs(doses - 20) / 40
        agent.learn(Observations(DOSE, x, doses, rewards, np.full(500, 1 / 40, np.float32)))
    chosen, densities = agent.choose(rng.random((200, 1), np.float32))
    assert abs(np.median(chosen) - 20) < 8
    assert (densities > 0).all()
    assert ((chosen >= 10) & (chosen <= 50)).all()


@of_numbers
def test_equal_seeds_give_equal_trials_of_numbers(peer):
    small = msgspec.structs.replace(scenario("bidding"), decisions=120, batch=60)
    task = Task("bidding", "peers", peer.name, 0, 5)
    one, other = ([(turn.reward, turn.regret) for turn in turns_of(task, small)] for _ in range(2))
    assert one == other
    ours = next(turns_of(Task("bidding", "potstill", "continuous-linear-ts", 0, 5), small))
    assert (ours.reward, ours.regret) == one[0]


@installed
def test_a_batch_of_one_is_decided_too(peer):
    agent = peer.make(STEP, 0)
    agent.learn(observed(30, 0))
    actions, propensities = agent.choose(np.array([[0.5]], np.float32))
    assert actions.shape == propensities.shape == (1,)


def test_vowpal_draws_as_often_as_it_says():
    pytest.importorskip("vowpalwabbit")
    agent = ALGORITHMS["vw-squarecb"].make(STEP, 0, "peers")
    agent.learn(observed(200, 0))
    n = 4000
    actions, propensities = agent.choose(np.full((n, 1), 0.5, np.float32))
    for action in np.unique(actions):
        p = float(propensities[actions == action][0])
        # Five standard deviations: a false alarm in fewer than 1 of 500,000 runs, had the seed not been fixed.
        assert abs((actions == action).mean() - p) < 5 * np.sqrt(p * (1 - p) / n)


def test_an_intercept_is_what_a_fit_on_encoded_contexts_needs():
    """A reward that does not vanish with x: without the column of ones it could not be learnt."""
    pytest.importorskip("mabwiser")
    x = np.zeros((100, 1), np.float32)
    actions = np.arange(100, dtype=np.int32) % 3
    agent = ALGORITHMS["mabwiser-linucb-0.1"].make(STEP, 0, "peers")
    agent.learn(Observations(STEP, x, actions, np.where(actions == 1, 1.0, 0.0), np.full(100, 1 / 3, np.float32)))
    assert set(agent.choose(x)[0]) == {1}


def test_settings_hold_the_librarys_version():
    pytest.importorskip("mabwiser")
    settings = ALGORITHMS["mabwiser-lints"].settings("peers")
    assert settings["package"] == "mabwiser"
    assert settings["version"][0].isdigit()
    assert settings["options"] == {"policy": "LinTS", "alpha": 1.0}


def test_a_missing_library_gives_the_line_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "mabwiser", None)
    monkeypatch.setattr("potstill.lab.peers.find_spec", lambda package: None if package == "mabwiser" else object())
    lints = ALGORITHMS["mabwiser-lints"]
    with pytest.raises(
        MissingPackage, match=r"needs mabwiser, which is not installed: pip install 'potstill\[peers\]'"
    ):
        lints.make(Wheel().problem, Key(0).integer(), "peers")
    experiment = RunSpec.of(problems=["wheel"], algorithms=["peers"])
    assert "mabwiser-lints" not in {a.name for _, a in experiment.pairs["wheel"]}
    assert "pip install 'potstill[peers]'" in experiment.skipped["MABWiser LinTS on Wheel, δ = 0.95"]


def test_with_no_library_at_all_the_run_is_refused(monkeypatch):
    monkeypatch.setattr("potstill.lab.peers.find_spec", lambda package: None)
    with pytest.raises(ValueError, match=r"nothing is left to run: .*pip install 'potstill\[peers\]'"):
        RunSpec.of(problems=["wheel"], algorithms=["peers"])
