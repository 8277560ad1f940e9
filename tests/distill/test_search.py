"""A student chosen by held-out divergence: the smallest that is good enough, kept while it is."""

import itertools
import re
from typing import NamedTuple

import msgspec
import numpy as np
import pytest
from scipy.special import softmax

import potstill as ps
from potstill.distill import AutoStudent, StudentChoice, TriedStudent, student_from_config
from potstill.distill.choice import smallest_within
from potstill.distill.search import Search, SearchRows, choose_student
from potstill.keys import Key
from potstill.spaces.finite_learning import FiniteLearning
from potstill.teachers.conformance import PROBLEM, example_observations

#: A search that always ends before its budget.
AUTO = ps.Student.auto(budget="9d", networks=((), (8,), (8, 8)), step_counts=(50, 100), hidden=(16,), steps=100)
LONG = msgspec.structs.replace(AUTO, step_counts=(300, 600), base=ps.Student(hidden=(16,), steps=600))
LEARNING = FiniteLearning(3)


def rows(bend, n=1500):
    """Labels of a teacher whose scores are linear in the context, or bent."""
    rng = np.random.default_rng(0)
    contexts = rng.random((n, PROBLEM.width), dtype=np.float32)
    scores = contexts @ rng.standard_normal((PROBLEM.width, 3)) + bend * np.sin(9 * contexts[:, :1]) * [1, 0, -1]
    return SearchRows.in_memory(contexts, contexts[:0], softmax(scores, axis=1).astype(np.float32), AUTO.base, Key(1))


def searched(bend, auto=AUTO, clock=lambda: 0.0):
    return Search(auto, PROBLEM, LEARNING, rows(bend), Key(1), clock).run()


@pytest.fixture(scope="module")
def straight():
    return searched(0.0, LONG)


@pytest.fixture(scope="module")
def bent():
    return searched(2.0, LONG)


def test_halving_keeps_the_better_networks(bent):
    """The base, three networks with 300 steps, and the better two of them with 600."""
    assert len(bent) == 6
    fewest = [one for one in bent if one.steps == 300]
    assert {one.hidden for one in fewest} == set(AUTO.networks)
    more = {one.hidden for one in bent if one.steps == 600}
    assert more == {(16,), *(one.hidden for one in fewest[:2])}
    assert [one.kl for one in bent] == sorted(one.kl for one in bent)


def test_a_linear_teacher_gets_a_linear_student_and_a_bent_one_does_not(straight, bent):
    assert smallest_within(straight, AUTO).hidden == ()
    chosen = smallest_within(bent, AUTO)
    assert chosen.hidden != ()
    assert chosen.kl <= 1.1 * bent[0].kl + 0.001
    assert all(one.kl > 1.1 * bent[0].kl + 0.001 for one in bent if one.bytes < chosen.bytes)


def test_size_is_that_of_the_weights_and_speed_is_measured(bent):
    sizes = {one.hidden: one.bytes for one in bent}
    width = PROBLEM.width
    assert sizes[()] == 4 * (width + 1) * 3
    assert sizes[8, 8] == 4 * ((width + 1) * 8 + 9 * 8 + 9 * 3)
    assert all(0 < one.microseconds < 10_000 for one in bent)


def test_of_equal_networks_the_fewest_steps_and_ties_within_the_tolerance_go_to_the_smaller():
    def one(hidden, steps, kl, size):
        return TriedStudent(hidden=hidden, steps=steps, kl=kl, bytes=size)

    tried = [one((9,), 200, 0.100, 90), one((9,), 100, 0.105, 90), one((2,), 100, 0.112, 20), one((), 50, 0.09, 999)]
    exact = ps.Student.auto(tolerance=0.2, negligible=0.0)
    assert smallest_within(tried, exact).kl == 0.105
    assert smallest_within(tried, msgspec.structs.replace(exact, negligible=0.01)).kl == 0.112
    assert smallest_within(tried, msgspec.structs.replace(exact, tolerance=0.0)).kl == 0.09


def test_the_base_is_tried_whatever_the_budget():
    """The clock has passed the deadline at the second look."""
    found = searched(2.0, msgspec.structs.replace(AUTO, budget="1s"), itertools.count().__next__)
    assert [(one.hidden, one.steps) for one in found] == [((16,), 100)]


def test_a_search_that_is_cut_off_leaves_out_what_is_not_finished():
    """A look per round of 50 steps, and one after each student: the network of 8 units is cut off."""
    found = searched(2.0, msgspec.structs.replace(AUTO, budget="3s"), itertools.count().__next__)
    assert {(one.hidden, one.steps) for one in found} == {((16,), 100), ((), 50)}


class Trained(NamedTuple):
    student: ps.Student
    kl: float


def choose(earlier, kl, found):
    """Choose with students whose divergence is given by their layers; returns the choice and what was trained."""
    trained = []

    class Found:
        def run(self):
            return found

    def train(student):
        trained.append((student.hidden, student.steps))
        return Trained(student, kl[student.hidden])

    chosen = choose_student(AUTO, earlier, train, Found, version=7)
    return chosen, trained


SEARCHED = [
    TriedStudent(hidden=(8,), steps=100, kl=0.010, bytes=100),
    TriedStudent(hidden=(), steps=50, kl=0.0102, bytes=10),
]


def test_without_an_earlier_choice_the_student_is_searched_for():
    chosen, trained = choose(None, {(): 0.02}, SEARCHED)
    assert trained == [((), 50)]
    assert (chosen.choice.version, chosen.choice.kl, chosen.choice.hidden) == (7, 0.02, ())
    assert chosen.imitated.student == msgspec.structs.replace(AUTO.base, hidden=(), steps=50)


def earlier(kl, hidden=(8,), steps=100):
    return StudentChoice(auto=AUTO, version=3, kl=kl, hidden=hidden, steps=steps, tried=SEARCHED)


def test_an_earlier_choice_is_kept_until_its_divergence_has_doubled():
    before = earlier(0.010)
    kept, trained = choose(before, {(8,): 0.021}, None)  # 2 × 0.010 + 0.001
    assert (kept.choice, kept.seconds, trained) == (before, 0.0, [((8,), 100)])
    again, trained = choose(before, {(8,): 0.0211, (): 0.012}, SEARCHED)
    assert (again.choice.version, again.choice.kl, trained) == (7, 0.012, [((8,), 100), ((), 50)])
    assert "0.021 nats, is above 2 × 0.01 + 0.001, from the search for version 3" in again.why


def test_a_search_that_finds_the_same_student_does_not_train_it_twice():
    again, trained = choose(earlier(0.001, (), 50), {(): 0.5}, SEARCHED)
    assert (again.choice.version, again.choice.kl, trained) == (7, 0.5, [((), 50)])


def updated(student, batches=1):
    still = ps.Still(PROBLEM, ps.teachers.LinearTS(), student=student, seed=2)
    reports = [still.update(example_observations(200)) for _ in range(batches)]
    return still, reports


def test_the_policy_is_that_of_the_chosen_student():
    """Trained directly it comes out the same, to the bit of its weights; so a lineage is enough to make it again."""
    still, (report, second) = updated(AUTO, 2)
    lineage = still.policy.metadata.lineage
    chosen = msgspec.convert(lineage.student, ps.Student)
    assert (chosen.hidden, chosen.steps) == (report.choice.hidden, report.choice.steps)
    direct, _ = updated(chosen, 2)
    direct.choice = lineage.choice
    for one, other in zip(still.policy.layers, direct.policy.layers, strict=True):
        np.testing.assert_array_equal(one.weight, other.weight)
    assert (second.choice.searched, second.choice.version) == (False, 1)


def test_a_search_measures_what_training_gives():
    """By the same rows, minibatches and first layers; programs round differently."""
    still, (report,) = updated(AUTO)
    (tried,) = [one for one in report.choice.tried if (one.hidden, one.steps) == ((8, 8), 100)]
    assert report.choice.hidden == (8, 8)
    assert tried.kl == pytest.approx(still.policy.metadata.lineage.choice["kl"], rel=1e-3)


def test_the_lineage_has_the_choice_without_timings_and_the_report_has_size_and_speed():
    still, (report,) = updated(AUTO)
    record = still.policy.metadata.lineage.choice
    assert (record["version"], record["hidden"], record["steps"]) == (1, report.choice.hidden, report.choice.steps)
    assert record["kl"] == pytest.approx(report.fidelity.kl_mean, rel=1e-3)  # through float32 probabilities
    assert "microseconds" not in record["tried"][0]
    assert len(record["tried"]) == len(report.choice.tried)
    assert report.choice.file_bytes == len(still.policy.to_bytes())
    assert 0 < report.choice.microseconds < 10_000
    read = ps.Policy.from_bytes(still.policy.to_bytes()).metadata.lineage
    assert StudentChoice.of(read, AUTO) == msgspec.convert(record, StudentChoice)


def test_a_choice_is_recalled_with_its_policy_and_other_settings_search_again():
    still, _ = updated(AUTO)
    later = ps.Still(PROBLEM, ps.teachers.LinearTS(), student=msgspec.structs.replace(AUTO, budget="8d"), seed=2)
    later.recall(still.policy, still.memory())
    assert not later.update(example_observations(50)).choice.searched
    other = ps.Still(PROBLEM, ps.teachers.LinearTS(), student=msgspec.structs.replace(AUTO, tolerance=0.5), seed=2)
    other.recall(still.policy, still.memory())
    report = other.update(example_observations(50))
    assert (report.choice.searched, report.choice.why) == (True, "there is no earlier choice with these settings")


class Shards:
    """Labels in shards, in memory."""

    rows = (700, 500, 300)

    def read(self, shard):
        rng = np.random.default_rng(shard)
        contexts = rng.random((self.rows[shard], 3), dtype=np.float32)
        return contexts, softmax(contexts @ np.eye(3, 4), axis=1).astype(np.float32)


def test_streamed_labels_are_searched_on_without_what_is_held_out():
    found = SearchRows.streamed(Shards(), AUTO.base, FiniteLearning(4), Key(1))
    held_out = {row.tobytes() for row in found.held_out.contexts}
    assert len(held_out) >= 100
    assert not held_out & {row.tobytes() for row in found.trained_on.contexts}
    assert len(found.trained_on.labels) > 1000


@pytest.mark.parametrize(
    ("config", "refusal"),
    [
        ({"auto": "soon"}, "Student.auto: budget must look like '30s'"),
        ({"auto": {"budget": "30s", "tolerance": -1.0}}, "tolerance must be 0 or more"),
        ({"auto": {"again": 0.5}}, "again must be 1 or more"),
        ({"auto": {"step_counts": [200, 100]}}, "each larger than the one before"),
        ({"auto": {"networks": [[0]]}}, "networks must be lists"),
        ({"auto": {"budgets": "1s"}}, "unknown key 'budgets' (did you mean 'budget'"),
        ({"auto": {"base": {}}}, "state the options of the student beside auto"),
        ({"auto": "30s", "hiden": [8]}, "unknown key 'hiden'"),
    ],
)
def test_settings_that_do_not_fit_are_named(config, refusal):
    with pytest.raises(ValueError, match=re.escape(refusal)):
        student_from_config(config)


def test_options_beside_auto_are_those_of_the_base():
    assert student_from_config({"hidden": [8]}) == ps.Student(hidden=(8,))
    assert student_from_config({"masked": True}) == ps.Student.masks()
    assert student_from_config({"masked": True, "steps": 9}, ps.teachers.ForestTS()).synthetic == "near"
    assert student_from_config({"masked": True, "steps": 9}).steps == 9
    found = student_from_config({"auto": "10s", "activation": "relu"})
    assert found == ps.Student.auto(budget="10s", activation="relu")
    assert found == AutoStudent(budget="10s", base=ps.Student(activation="relu"))
