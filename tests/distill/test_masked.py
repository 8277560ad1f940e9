"""A student of masks imitates Thompson sampling on the eligible actions, which renormalising does not."""

import msgspec
import numpy as np
import pytest

import potstill as ps
from potstill.distill import Student
from potstill.distill.imitate import divided
from potstill.distill.masked import inputs_of, labelled, learning_of, masks_per_context
from potstill.errors import InvalidOption
from potstill.keys import Key
from potstill.spaces import masked_learning, masks_of_size
from potstill.spaces.masked import random_masks
from potstill.teachers import EXACT, Exactness, FunctionTeacher, LinearTS

ACTIONS = [f"dose {i}" for i in range(8)]
SMALL = Student(hidden=(48, 48), steps=1500)


@pytest.fixture(scope="module")
def problem():
    return ps.Problem(
        name="doses",
        context=[ps.Numeric("age", low=0, high=1), ps.Numeric("weight", low=0, high=1)],
        actions=ps.Discrete(ACTIONS),
        reward=ps.Reward(low=-2, high=2),
    )


def observations(problem, n=400, seed=0):
    """Rewards fall with the distance of a dose from the right one: neighbours compete."""
    rng = np.random.default_rng(seed)
    contexts = rng.random((n, 2)).astype(np.float32)
    actions = rng.integers(len(ACTIONS), size=n)
    rewards = -np.abs(actions / 7 - contexts.mean(axis=1)) + 0.3 * rng.standard_normal(n)
    return ps.Observations.from_columns(
        problem, contexts=contexts, actions=actions, rewards=rewards.clip(-2, 2), propensities=np.full(n, 1 / 8)
    )


def distilled(problem, student, **options):
    still = ps.Still(problem, LinearTS(), student=student, seed=3, **options)
    return still, still.update(observations(problem))


@pytest.fixture(scope="module")
def both(problem):
    return distilled(problem, SMALL), distilled(problem, msgspec.structs.replace(SMALL, masked=True))


def test_a_student_of_masks_follows_its_teacher_on_subsets_as_closely_as_on_all_actions(both, problem):
    """On contexts and masks of its own. Renormalising is several times as far off, and its report says so."""
    (plain, plain_report), (masked, masked_report) = both
    contexts = np.random.default_rng(11).random((300, 2)).astype(np.float32)
    eligible = masks_of_size(300, 8, 4, Key(12))
    exact = masked.teacher.propensities(masked.state, contexts, Key(0), eligible)
    off = {
        still.policy.masked: np.abs(still.policy.probabilities_many(contexts, eligible=eligible) - exact).sum(1).mean()
        / 2
        for still in (plain, masked)
    }
    assert off[True] < 0.02 < 0.04 < off[False]
    assert masked_report.fidelity.tv_mean < 0.02
    for report, still in ((plain_report, plain), (masked_report, masked)):
        assert [part.actions for part in report.fidelity.eligible] == [2, 4]
        by_half = report.fidelity.eligible[-1]
        assert by_half.tv_mean == pytest.approx(off[still.policy.masked], rel=0.35)
        assert by_half.tv_mean <= by_half.tv_max <= 1
        assert still.policy.metadata.fidelity["eligible"][-1]["tv_mean"] == by_half.tv_mean


def test_the_policy_is_of_format_3_and_survives_its_file(both, tmp_path):
    (plain, _), (masked, _) = both
    masked.policy.save(tmp_path / "masked.policy")
    again = ps.Policy.load(tmp_path / "masked.policy")
    context = {"age": 0.4, "weight": 0.9}
    assert again.masked
    assert again.metadata.format == 3
    assert plain.policy.metadata.format == 1
    assert b"masked" not in plain.policy.to_bytes()
    assert again.decide(context, id="a", eligible=ACTIONS[3:]) == masked.policy.decide(
        context, id="a", eligible=ACTIONS[3:]
    )
    everything = again.probabilities(context, eligible=ACTIONS)
    np.testing.assert_array_equal(everything, again.probabilities(context))


def test_equal_batches_make_equal_policies(both, problem):
    (_, _), (masked, _) = both
    again, _ = distilled(problem, msgspec.structs.replace(SMALL, masked=True))
    assert again.policy.to_bytes() == masked.policy.to_bytes()


def test_a_warm_start_passes_between_both_kinds(problem):
    """Inputs of masks begin at weight 0, so that a student of masks starts as the policy it continues."""
    still, _ = distilled(problem, SMALL)
    masked = ps.Still(problem, LinearTS(), student=msgspec.structs.replace(SMALL, masked=True, steps=50), seed=3)
    masked.recall(still.policy, still.memory())
    report = masked.update(observations(problem, seed=1))
    assert report.warm
    back = ps.Still(problem, LinearTS(), student=SMALL, seed=3)
    back.recall(masked.policy, masked.memory())
    assert back.update(observations(problem, seed=2)).warm
    assert not back.policy.masked


def test_a_search_finds_a_student_of_masks(problem):
    auto = Student.auto("1s", masked=True, steps=100, hidden=(8,))
    auto = msgspec.structs.replace(auto, networks=((8,),), step_counts=(100,))
    still = ps.Still(problem, LinearTS(), student=auto, seed=0)
    report = still.update(observations(problem, 100))
    assert still.policy.masked
    assert report.choice.tried[0].bytes == 4 * ((2 + 8 + 1) * 8 + 9 * 8)


def test_distances_between_actions_are_minimised_under_masks(problem):
    """W₁ of a row is that of its eligible actions alone."""
    near = msgspec.structs.replace(problem, actions=ps.Discrete(ACTIONS, positions=list(range(8))))
    learning = masked_learning(near.actions)
    labels = np.full((1, 8), -1, np.float32)
    labels[0, [1, 4]] = 0.25, 0.75
    scores = np.zeros((1, 8), np.float32)
    scores[0, 6] = 50  # not eligible, so that it does not count
    assert float(learning.wasserstein(scores, labels)[0]) == pytest.approx(0.25 * 3 / 7, abs=1e-6)
    student = Student(hidden=(8,), steps=60, masked=True, distance="wasserstein")
    report = ps.Still(near, LinearTS(), student=student).update(observations(near, 60))
    assert report.fidelity.w1_mean < 3


def test_what_cannot_be_is_refused(problem):
    function = FunctionTeacher(lambda contexts: np.full((len(contexts), 8), 1 / 8))
    with pytest.raises(InvalidOption, match="propensities of FunctionTeacher takes no `eligible`; add that parameter"):
        ps.Still(problem, function, student=Student(masked=True))
    number = ps.Problem(name="price", context=[], actions=ps.Continuous("price", low=1, high=9))
    with pytest.raises(InvalidOption, match="needs a list of actions"):
        ps.Still(number, student=Student(masked=True))
    with pytest.raises(ValueError, match="Student: masked must be True or False, got 1"):
        Student(masked=1)


def test_a_teacher_that_cannot_label_masks_still_distils(problem):
    function = FunctionTeacher(lambda contexts: np.full((len(contexts), 8), 1 / 8))
    report = ps.Still(problem, function, student=Student(steps=50)).update(observations(problem, 50))
    assert report.fidelity.eligible == ()


def test_random_masks_have_every_size_and_no_row_without_a_choice():
    eligible = random_masks(40_000, 5, Key(1))
    sizes = np.bincount(eligible.sum(axis=1), minlength=6) / 40_000
    assert (sizes[:2] == 0).all()
    # All sizes alike, beside an eighth of rows with all actions; four standard errors are below 0.009.
    np.testing.assert_allclose(sizes[2:5], 7 / 32, atol=0.009)
    assert sizes[5] == pytest.approx(1 / 8 + 7 / 32, abs=0.009)
    np.testing.assert_allclose(eligible.mean(axis=0), eligible.mean(), atol=0.01)
    assert (masks_of_size(30, 7, 3, Key(2)).sum(axis=1) == 3).all()
    assert random_masks(20, 2, Key(3)).all()


def test_every_mask_of_a_context_is_on_the_same_side_of_the_split():
    trained_on, judged, held_out = divided(40, 100, Student(held_out=0.3), Key(4), repeats=4)
    rows = np.concatenate([trained_on, judged])
    assert np.array_equal(np.sort(rows), np.arange(100))
    # 10 observed contexts four times, then 15 synthetic ones four times.
    context = np.where(rows < 40, rows % 10, 10 + (rows - 40) % 15)
    sides = np.isin(rows, judged)
    assert all(len(set(sides[context == one])) == 1 for one in range(25))
    assert set(held_out[: len(held_out) // 4]) < set(range(10))


def test_labels_hold_their_masks_and_contexts_are_labelled_several_times(problem):
    teacher, student = LinearTS(), Student(masked=True)
    state = teacher.update(teacher.init(problem), observations(problem), Key(0))
    contexts = np.random.default_rng(0).random((50, 2)).astype(np.float32)
    learning = learning_of(student, problem.actions)
    found = labelled(learning, teacher, state, contexts, contexts[:7], Key(1))
    assert found.repeats == 16
    assert found.labels.shape == (57 * 16, 8)
    wrong, _ = learning.check(found.labels)
    assert not wrong.any()
    together = np.concatenate([found.contexts, found.synthetic])
    np.testing.assert_array_equal(together[:, 2:], found.labels < 0)
    np.testing.assert_array_equal(found.contexts[:50, :2], found.contexts[50:100, :2])
    eligible = found.labels >= 0
    p = teacher.propensities(state, together[:, :2], Key(0), eligible)
    np.testing.assert_allclose(np.maximum(found.labels, 0), p, atol=1e-6)
    np.testing.assert_array_equal(inputs_of(together[:, :2], found.labels), together)


def test_retired_actions_are_eligible_in_no_mask(problem):
    names = list(problem.actions.names)
    fewer = msgspec.structs.replace(problem, actions=ps.Discrete(names, retired=[names[2], names[5]]))
    chosen, learning = np.array(fewer.actions.chosen), masked_learning(fewer.actions)
    teacher, student = LinearTS(), Student(masked=True, steps=300)
    state = teacher.update(teacher.init(fewer), observations(fewer), Key(0))
    contexts = np.random.default_rng(0).random((400, 2)).astype(np.float32)
    eligible = labelled(learning, teacher, state, contexts, contexts[:0], Key(1)).labels >= 0
    assert not eligible[:, ~chosen].any()
    assert set(eligible.sum(axis=1).tolist()) == {2, 3, 4, 5, 6}
    still = ps.Still(fewer, teacher, student=student)
    assert [one.actions for one in still.update(observations(fewer)).fidelity.eligible] == [2, 3]
    exact = teacher.propensities(state, contexts, Key(0), np.broadcast_to(chosen, (400, 8)))
    found = still.policy.distribution(contexts).p
    assert (found[:, ~chosen] == 0).all()
    assert np.abs(found - exact).sum(axis=1).mean() / 2 < 0.05


def test_wrong_labels_are_refused(problem):
    learning = masked_learning(problem.actions)
    good = np.array([[0.5, 0.5, *[-1.0] * 6]], np.float32)
    assert not learning.check(good)[0].any()
    for wrong in (np.full((1, 8), -1, np.float32), 2 * good, np.full((1, 8), np.nan, np.float32), good - 0.1):
        assert learning.check(wrong.astype(np.float32))[0].all()


def test_memory_and_time_bound_the_masks_of_a_context():
    assert masks_per_context(4096, 20, EXACT) == 16
    assert masks_per_context(32_768, 20, EXACT) == 2
    assert masks_per_context(1_000_000, 20, EXACT) == 1
    assert masks_per_context(4096, 20, Exactness("sampled", draws=10)) == 4
    assert masks_per_context(4096, 10_000, EXACT) == 1
