"""Observations that are read in parts: what a network learns from them is what it learns from the whole."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from teachers.parts import Parts

from potstill.keys import Key
from potstill.problem import Observations
from potstill.teachers import NeuralGreedy, NeuralLinearTS, Recipe
from potstill.teachers.conformance import PROBLEM, example_contexts, example_observations
from potstill.teachers.neural import network, train
from potstill.teachers.neural import parts as reading
from potstill.teachers.neural.network import Data

KEY = Key(3)
QUICK = {"hidden": (8,), "recipe": Recipe(steps=30, batch=8)}


cut = st.lists(st.integers(0, 60), max_size=5)


@given(cut)
def test_the_overview_of_parts_is_that_of_the_whole(cuts):
    observations = example_observations()
    found = reading.scan(Parts(observations, cuts), "inverse-propensity")
    assert found.rows.tolist() == [len(part) for part in Parts(observations, cuts).parts]
    np.testing.assert_allclose(found.units, network.units_of(observations.rewards), rtol=1e-12)
    assert found.weight == pytest.approx((1 / observations.propensities.astype(np.float64)).mean(), rel=1e-9)


def test_rewards_far_from_zero_keep_their_spread():
    observations = example_observations()
    far = Observations(
        PROBLEM, observations.contexts, observations.actions, observations.rewards + 1e9, observations.propensities
    )
    assert reading.scan(Parts(far, [20, 41]), "equal").units.scale == pytest.approx(
        observations.rewards.std(), rel=1e-6
    )


@given(cut, st.sets(st.integers(0, 59), min_size=1))
def test_rows_are_gathered_from_whichever_part_they_are_in(cuts, wanted):
    observations, rows = example_observations(), np.array(sorted(wanted))
    parts = Parts(observations, cuts)
    found = reading.gather(parts, reading.scan(parts, "equal"), rows, "equal")
    for name in ("contexts", "actions", "rewards"):
        np.testing.assert_array_equal(getattr(found, name), getattr(observations, name)[rows])
    assert (found.weights == 1).all()


def test_of_many_observations_only_those_of_the_minibatches_are_looked_at():
    n, recipe = 5000, Recipe(steps=20, batch=16)
    rng = np.random.default_rng(0)
    data = Data(rng.random((n, 3), np.float32), rng.integers(2, size=n), rng.random((2, n)), np.ones((2, n)))
    drawn = train.minibatches(n, 2, recipe, KEY)
    assert len(drawn.rows) <= 2 * 20 * 16
    plain = KEY.generator().integers(n, size=(2, 20, 16), dtype=np.int32)
    np.testing.assert_array_equal(drawn.rows[drawn.drawn], plain)
    start = network.random((3, 8, 2), 2, KEY)
    everything = train.Minibatches(n, 0, np.arange(n), plain)
    ours = train.fit(network.Start(start, noise=0.1), data, recipe, KEY)
    theirs = train.fit_to(start, data, everything, recipe, 0.1)
    for a, b in zip((*ours.weights, *ours.biases), (*theirs.weights, *theirs.biases), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("teacher", [NeuralLinearTS(**QUICK), NeuralGreedy(**QUICK)], ids=["linear", "greedy"])
@pytest.mark.parametrize("size", [60, 1500])
def test_an_update_in_parts_learns_what_an_update_learns(teacher, size):
    """Also where there are more observations than a run looks at. They differ by the order of additions alone."""
    observations = example_observations(size)
    prior, parts = teacher.init(PROBLEM), Parts(observations, [7, 7, 50])
    whole, read = teacher.update(prior, observations, KEY), teacher.reread(prior, parts, KEY)
    assert parts.read == len(parts.parts) * teacher.passes
    assert (len(read.memory.actions), int(read.learnt)) == (0, size)
    for a, b in zip(read.networks.weights, whole.networks.weights, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    contexts = example_contexts(30)
    p, q = (teacher.propensities(state, contexts, KEY) for state in (whole, read))
    np.testing.assert_allclose(p, q, atol=1e-4)


@pytest.mark.parametrize("teacher", [NeuralLinearTS(**QUICK), NeuralGreedy(**QUICK)], ids=["linear", "greedy"])
def test_going_on_in_parts_is_going_on(teacher):
    """With a twentieth of news, for which few steps are taken, and noise that was learnt before."""
    earlier, later = example_observations(190), example_observations(10, Key(4))
    everything = Parts(Observations.joined(PROBLEM, [earlier, later]), [100])
    whole = teacher.update(teacher.update(teacher.init(PROBLEM), earlier, KEY), later, KEY)
    read = teacher.reread(teacher.reread(teacher.init(PROBLEM), Parts(earlier, [70]), KEY), everything, KEY)
    assert int(whole.noise.judged) == int(read.noise.judged) == 190
    for a, b in zip(read.networks.weights, whole.networks.weights, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_observations_may_have_been_thrown_away_since():
    teacher = NeuralGreedy(**QUICK)
    state = teacher.reread(teacher.init(PROBLEM), Parts(example_observations(100), [70]), KEY)
    after = teacher.reread(state, Parts(example_observations(40, Key(4)), [7]), KEY)
    assert int(after.learnt) == 40
    assert np.isfinite(after.networks.weights[0]).all()


def test_observations_count_by_their_propensities_in_parts_too():
    observations = example_observations()
    rare = np.where(observations.actions == 1, 0.05, 0.9).astype(np.float32)
    skewed = Observations(PROBLEM, observations.contexts, observations.actions, observations.rewards, rare)
    teacher = NeuralLinearTS(**QUICK, weighting="inverse-propensity")
    whole = teacher.update(teacher.init(PROBLEM), skewed, KEY)
    read = teacher.reread(teacher.init(PROBLEM), Parts(skewed, [1, 20, 59]), KEY)
    np.testing.assert_allclose(read.posterior.alpha, whole.posterior.alpha, rtol=1e-9)
    assert read.posterior.alpha[1] > 2 * read.posterior.alpha[0]


def test_a_state_without_its_observations_is_not_taught_on_as_if_there_were_none():
    teacher = NeuralLinearTS(**QUICK)
    read = teacher.reread(teacher.init(PROBLEM), Parts(example_observations(40)), KEY)
    with pytest.raises(ValueError, match="learnt from 40 observations that it does not hold; pass all of them again"):
        teacher.update(read, example_observations(5), KEY)


def test_a_window_is_kept_in_memory_and_nothing_is_read_again():
    assert NeuralLinearTS(window=100).passes == 0
    assert NeuralGreedy(window=100).passes == 0


def test_no_observations_leave_the_prior():
    teacher = NeuralLinearTS(**QUICK)
    prior = teacher.init(PROBLEM)
    assert teacher.reread(prior, Parts(example_observations(0)), KEY) is prior
