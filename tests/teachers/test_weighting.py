"""Inverse-propensity weights are normalised over all observations, however these are divided into parts and updates."""

import numpy as np
import pytest
from safetensors.numpy import save

from potstill.keys import Key
from potstill.problem import Observations
from potstill.teachers import (
    TEACHERS,
    GaussianProcessTS,
    InvalidState,
    LinearTS,
    LinUCB,
    NeuralGreedy,
    NeuralLinearTS,
    Recipe,
    load_state,
    metadata_of,
    pack,
    save_state,
    unpack,
)
from potstill.teachers.conformance import (
    PROBLEM,
    example_contexts,
    example_observations,
    parts_are_read_as_the_whole,
    shards_add_up,
)
from potstill.teachers.linear import Sums

KEY = Key(5)
WEIGHTED = "inverse-propensity"
_ROWS = example_observations(90)
#: Propensities from 0.02 to 1, the rarest first.
SORTED = Observations(
    PROBLEM, _ROWS.contexts, _ROWS.actions, _ROWS.rewards, np.geomspace(0.02, 1, 90).astype(np.float32)
)
QUICK = {"hidden": (8,), "recipe": Recipe(steps=20, noise=0.1), "weighting": WEIGHTED}


def summarised(teacher, observations, cuts):
    parts = np.split(np.arange(len(observations)), cuts)
    total = teacher.summarise(observations[parts[0]])
    for rows in parts[1:]:
        total = total + teacher.summarise(observations[rows])
    return total


def assert_close(one, other):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


@pytest.mark.parametrize("cuts", [[45], [1], [30, 60], [10, 11, 80], [0]])
@pytest.mark.parametrize("discount", [1.0, 0.7])
def test_shards_sorted_by_propensity_add_up(cuts, discount):
    teacher = LinearTS(weighting=WEIGHTED, discount=discount)
    earlier = teacher.update(teacher.init(PROBLEM), example_observations(50, Key(2)), KEY)
    whole = teacher.absorb(earlier, teacher.summarise(SORTED))
    sharded = teacher.absorb(earlier, summarised(teacher, SORTED, cuts))
    assert_close(whole.posterior, sharded.posterior)
    p, q = (teacher.propensities(state, example_contexts(20), KEY) for state in (whole, sharded))
    np.testing.assert_allclose(p, q, atol=1e-6)


def test_several_updates_are_one():
    teacher = LinearTS(weighting=WEIGHTED)
    once = teacher.update(teacher.init(PROBLEM), SORTED, KEY)
    twice = teacher.update(teacher.update(teacher.init(PROBLEM), SORTED[:45], KEY), SORTED[45:], KEY)
    assert_close(once.posterior, twice.posterior)


def test_discounted_updates_by_definition():
    """An earlier observation has its inverse propensity times the discount, and all weights have their own mean."""
    discount, (first, second) = 0.6, (SORTED[:45], SORTED[45:])
    teacher = LinearTS(weighting=WEIGHTED, discount=discount)
    state = teacher.update(teacher.update(teacher.init(PROBLEM), first, KEY), second, KEY)
    inverse = 1 / SORTED.propensities.astype(np.float64)
    factor = np.repeat([discount, 1.0], 45)
    weights = inverse * factor * (factor.sum() / (inverse * factor).sum())
    n = np.bincount(SORTED.actions, weights, minlength=3)
    np.testing.assert_allclose(state.posterior.alpha, teacher.alpha + n / 2, rtol=1e-6)
    x = np.concatenate([SORTED.contexts.astype(np.float64), np.ones((90, 1))], axis=1)
    ones = SORTED.actions == 1
    precision = (x[ones] * weights[ones, None]).T @ x[ones] + teacher.precision * np.eye(x.shape[1])
    root = state.posterior.root[1]
    np.testing.assert_allclose(root @ root.T, precision, rtol=1e-6, atol=1e-9)


def test_the_bounds_of_lin_ucb_count_observations_not_weights():
    state = LinUCB(weighting=WEIGHTED).update(LinUCB(weighting=WEIGHTED).init(PROBLEM), SORTED, KEY)
    assert state.sums.normalised().n.sum() == pytest.approx(90)


def test_the_process_weighs_all_it_remembers_alike():
    teacher = GaussianProcessTS(weighting=WEIGHTED, fit_steps=0)
    once = teacher.update(teacher.init(PROBLEM), SORTED, KEY)
    twice = teacher.update(teacher.update(teacher.init(PROBLEM), SORTED[:45], KEY), SORTED[45:], KEY)
    for one, other in zip(*(teacher.joint(state, example_contexts(5)) for state in (once, twice)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)


def test_a_window_is_weighed_by_itself():
    teacher = GaussianProcessTS(weighting=WEIGHTED, fit_steps=0, window=45)
    once = teacher.update(teacher.init(PROBLEM), SORTED[45:], KEY)
    twice = teacher.update(teacher.update(teacher.init(PROBLEM), SORTED[:45], KEY), SORTED[45:], KEY)
    for one, other in zip(*(teacher.joint(state, example_contexts(5)) for state in (once, twice)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["linear-ts", "diagonal-linear-ts", "lin-ucb"])
def test_shards_of_every_summarising_teacher(name):
    shards_add_up(TEACHERS[name](weighting=WEIGHTED))


@pytest.mark.parametrize("teacher", [NeuralLinearTS(**QUICK), NeuralGreedy(**QUICK)], ids=["linear", "greedy"])
def test_parts_are_read_again_as_the_whole(teacher):
    parts_are_read_as_the_whole(teacher)


class PerShard(LinearTS, frozen=True):
    """Weights that are normalised in each shard, as Potstill did first."""

    def summarise(self, observations):
        stats = super().summarise(observations)
        return stats._replace(sums=stats.normalised(), rows=stats.rows)


def test_the_conformance_check_notices_weights_of_shards():
    with pytest.raises(AssertionError, match="shards must add up"):
        shards_add_up(PerShard(weighting=WEIGHTED))


def test_states_with_equal_weights_are_what_they_were():
    teacher = LinearTS()
    state = teacher.update(teacher.init(PROBLEM), SORTED, KEY)
    data = pack(state, teacher, PROBLEM)
    assert set(metadata_of(data)) == {"problem", "teacher"}
    assert isinstance(state.sums, Sums)
    assert_close(unpack(data, teacher.init(PROBLEM), teacher, PROBLEM).sums, state.sums)


def test_an_earlier_state_with_weights_is_refused(tmp_path):
    teacher, path = LinearTS(weighting=WEIGHTED), tmp_path / "state"
    save_state(path, teacher, teacher.update(teacher.init(PROBLEM), SORTED, KEY), PROBLEM)
    assert load_state(path, teacher, PROBLEM).sums.rows == 90
    # As it was written then: the same metadata without a format, and sums without the number of rows.
    plain = LinearTS().init(PROBLEM)
    arrays = {f"state.{i}.{j}": np.ascontiguousarray(a) for i, part in enumerate(plain) for j, a in enumerate(part)}
    stated = {name: value for name, value in metadata_of(path.read_bytes()).items() if name != "format"}
    path.write_bytes(save(arrays, stated))
    with pytest.raises(InvalidState, match="its format is 1 and this version of Potstill reads format 2 of LinearTS"):
        load_state(path, teacher, PROBLEM)


def test_an_earlier_memory_with_weights_is_refused(tmp_path):
    """Its arrays have the same names, and weights of another meaning."""
    teacher, path = GaussianProcessTS(weighting=WEIGHTED, fit_steps=0), tmp_path / "state"
    state = teacher.update(teacher.init(PROBLEM), SORTED, KEY)
    data = pack(state, teacher, PROBLEM)
    assert metadata_of(data)["format"] == "2"
    path.write_bytes(data.replace(b'"format":"2"', b'"format":"1"'))
    with pytest.raises(InvalidState, match="reads format 2 of GaussianProcessTS; learn from the observations again"):
        load_state(path, teacher, PROBLEM)
