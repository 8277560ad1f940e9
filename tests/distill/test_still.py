"""The whole circle in small: Algorithm 1 with any batch size, repeatable, and harmless when it fails."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

import potstill as ps
from potstill.keys import Key
from potstill.lab.problems.environment import Simulation
from potstill.lab.problems.wheel import Wheel
from potstill.lab.runs.trial import Distilled, Undistilled, play
from potstill.teachers import LinearTS, NeuralLinearTS, Recipe, Uniform, from_config
from potstill.teachers.conformance import PROBLEM, example_contexts, example_observations

SMALL = ps.Student(hidden=(32, 32))


def batches(still, sizes):
    """Rewards rise with speed for the last action; the still's own decisions are observed."""
    key = Key(5)
    for i, n in enumerate(sizes):
        contexts = example_contexts(n, key.child(i))
        actions, propensities = still.policy.decide_many(contexts, [f"{i}-{j}" for j in range(n)])
        rewards = (actions - 1) * (contexts[:, 0] - 0.5) + 0.1 * key.child("noise", i).generator().standard_normal(n)
        yield ps.Observations.from_columns(
            PROBLEM, contexts=contexts, actions=actions, rewards=rewards, propensities=propensities
        )


def test_uniform_before_the_first_batch_and_better_after_some():
    still = ps.Still(PROBLEM, LinearTS(), student=SMALL, seed=0)
    np.testing.assert_array_equal(still.policy.probabilities_many(example_contexts(5)), np.float32(1 / 3))
    sizes = [300, 1, 57, 900]
    reports = [still.update(observations) for observations in batches(still, sizes)]
    assert [report.version for report in reports] == [1, 2, 3, 4]
    assert [report.observations for report in reports] == sizes
    assert [report.contexts for report in reports] == list(np.cumsum(sizes))
    assert still.policy.version == 4
    fast, slow = ({"speed": s, "place": "home", "new": True} for s in (9.0, 1.0))
    assert still.policy.probabilities(fast)[2] > 0.9
    assert still.policy.probabilities(slow)[0] > 0.9


def test_the_policy_imitates_the_teacher_on_contexts_it_never_saw():
    still = ps.Still(PROBLEM, LinearTS(), student=SMALL, seed=0)
    for observations in batches(still, [300, 300]):
        report = still.update(observations, contexts=example_contexts(5000, Key(77)))
    assert report.contexts == 5600
    assert report.exactness.kind == "exact"
    assert report.fidelity.kl_mean < 0.01
    fresh = example_contexts(2000, Key(99))
    labels = still.teacher.propensities(still.state, fresh, Key(0)).astype(float)
    p = still.policy.probabilities_many(fresh).astype(float)
    kl = np.sum(np.where(labels > 0, labels * np.log(np.maximum(labels, 1e-30) / p), 0), axis=1)
    assert kl.mean() < 0.01


def test_two_runs_with_one_seed_are_identical_and_another_seed_is_not():
    def run(seed):
        still = ps.Still(PROBLEM, LinearTS(), student=SMALL, seed=seed)
        for observations in batches(still, [200, 200]):
            still.update(observations, contexts=example_contexts(500))
        return still.policy.to_bytes()

    assert run(3) == run(3)
    assert run(3) != run(4)


def test_the_policy_file_says_where_it_comes_from():
    still = ps.Still(PROBLEM, LinearTS(discount=0.9), student=SMALL, seed=11, floor=0.01)
    report = [still.update(observations) for observations in batches(still, [100, 50])][-1]
    metadata = ps.Policy.from_bytes(still.policy.to_bytes()).metadata
    assert (metadata.version, metadata.parent, metadata.floor) == (2, 1, 0.01)
    assert metadata.lineage.observations == 150
    assert metadata.lineage.seed == 11
    assert from_config(metadata.lineage.teacher) == LinearTS(discount=0.9)
    assert metadata.lineage.exactness == {"kind": "exact"}
    assert metadata.fidelity["kl_mean"] == report.fidelity.kl_mean
    assert report.fidelity.smallest_propensity >= np.float32(0.01)


def test_the_regret_price_is_the_papers_term():
    declared = msgspec.structs.replace(PROBLEM, reward=ps.Reward(low=-5.0, high=25.0))
    still = ps.Still(declared, LinearTS(), student=SMALL)
    f = still.update(replace(example_observations(300), problem=declared)).fidelity
    assert f.reward_range == 30
    assert f.regret_price == pytest.approx(30 * np.sqrt(f.kl_mean / 2))
    assert abs(f.cost) <= f.regret_price


@pytest.mark.parametrize("reward", [ps.Reward(), ps.Reward(low=0.0), ps.Reward(high=9.0)])
def test_rewards_seen_so_far_bound_nothing(reward):
    """A first batch of zero rewards would otherwise say that imitation can cost nothing."""
    open_ended = msgspec.structs.replace(PROBLEM, reward=reward)
    still = ps.Still(open_ended, LinearTS(), student=SMALL)
    zeros = replace(example_observations(300), problem=open_ended, rewards=np.zeros(300))
    f = still.update(zeros).fidelity
    assert f.kl_mean > 0
    assert (f.reward_range, f.regret_price) == (None, None)
    assert f.cost == pytest.approx(0, abs=1e-9)


def test_the_cost_of_imitation_is_that_of_the_teachers_means():
    """By the teacher's closed form, on the contexts that were held out."""
    still = ps.Still(PROBLEM, LinearTS(), student=SMALL)
    observed = example_observations(400)
    f = still.update(observed).fidelity
    everywhere = still.teacher.mean_rewards(still.state, observed.contexts)
    wanted = still.teacher.propensities(still.state, observed.contexts, Key(0))
    gap = ((wanted - still.policy.probabilities_many(observed.contexts)) * everywhere).sum(axis=1)
    assert gap.min() - 1e-6 <= f.cost <= gap.max() + 1e-6
    assert f.cost == pytest.approx(gap.mean(), abs=4 * gap.std() / np.sqrt(f.contexts))


def test_what_was_read_again_is_what_was_learnt_from():
    still = ps.Still(PROBLEM, NeuralLinearTS(hidden=(8,), recipe=Recipe(steps=20)), student=SMALL, seed=0)
    parts, told = [example_observations(30), example_observations(40), example_observations(50)], []
    still.update(parts[:1], earlier=[])
    still.update(parts[1:2], earlier=parts[:1])
    assert still.policy.metadata.lineage.observations == 70
    report = still.update(parts[2:], earlier=parts[1:2], on_progress=lambda *done: told.append(done))
    assert (report.observations, int(still.state.learnt), still.policy.metadata.lineage.observations) == (50, 90, 90)
    assert told[:2] == [(40, 360), (90, 360)]
    assert still.update([], contexts=example_contexts(5), earlier=parts).observations == 0
    assert int(still.state.learnt) == 90


def test_an_update_that_fails_changes_nothing(monkeypatch):
    still = ps.Still(PROBLEM, LinearTS(), student=SMALL)
    still.update(example_observations(100))
    before = (still.policy, still.state)

    def broken(*_, **__):
        raise MemoryError("out of memory while imitating")

    with monkeypatch.context() as patch:
        patch.setattr("potstill.distill.still.imitate", broken)
        with pytest.raises(MemoryError):
            still.update(example_observations(50))
    assert (still.policy, still.state) == before
    assert still.update(example_observations(50)).contexts == 150


def test_what_cannot_be_distilled_is_refused(problem):
    still = ps.Still(PROBLEM, Uniform(), student=SMALL)
    with pytest.raises(
        ps.InvalidObservation, match="nothing to distil on: give at least one observation or one context"
    ):
        still.update(ps.Observations.none(PROBLEM))
    with pytest.raises(ps.InvalidObservation, match="observations of problem 'video-upload'"):
        still.update(ps.Observations.none(problem))
    with pytest.raises(ps.InvalidObservation, match="update takes Observations, got dict"):
        still.update([{"reward": 1.0}])
    assert still.update(ps.Observations.none(PROBLEM), contexts=example_contexts(1)).version == 1


@pytest.mark.parametrize("teacher", ["linear-ts", LinearTS])
def test_what_is_no_teacher_is_refused(teacher):
    with pytest.raises(TypeError, match=r"teacher must be a teacher such as LinearTS\(\), got"):
        ps.Still(PROBLEM, teacher)


def test_a_floor_changes_neither_imitation_nor_its_measure():
    """A floor of 0.2 lifted the divergence from 0.001 to 0.9, and a gate refused every version."""
    stills = [ps.Still(PROBLEM, LinearTS(), student=SMALL, floor=floor) for floor in (0.0, 0.02, 0.2)]
    [batch] = batches(stills[0], [500])
    measured = [still.update(batch).fidelity for still in stills]
    assert [report.kl_mean for report in measured] == [measured[0].kl_mean] * 3
    assert [report.regret_price for report in measured] == [measured[0].regret_price] * 3
    assert measured[0].floor_tv == 0 < measured[1].floor_tv < measured[2].floor_tv
    assert measured[2].smallest_propensity >= np.float32(0.2)


def test_a_floor_is_kept_by_every_version():
    still = ps.Still(PROBLEM, LinearTS(), student=SMALL, floor=0.05)
    still.update(example_observations(2000))
    assert still.policy.probabilities_many(example_contexts(500)).min() >= np.float32(0.05)


def wheel_regret(seed, distilled):
    """Regret of 4 batches of 500 on the wheel, of Linear-TS acting itself or through its distilled policy."""
    world = Simulation(Wheel(), 2000, Key(seed))
    agent = (
        Distilled(world.problem, LinearTS(), SMALL, seed) if distilled else Undistilled(world.problem, LinearTS(), seed)
    )
    return sum(turn.regret for turn in play(world, agent, [500] * 4, seed))


def test_distilled_linear_ts_has_the_regret_of_linear_ts_on_the_wheel():
    """Paired over 8 seeds; the difference lies within 4 standard errors of 0 (false alarm about 0.5 % at 7 df)."""
    difference = np.array([wheel_regret(s, True) - wheel_regret(s, False) for s in range(8)])
    standard_error = difference.std(ddof=1) / np.sqrt(len(difference))
    assert abs(difference.mean()) < 4 * standard_error
