"""Synthetic contexts: they could come, they are reproducible, and a student learns from them."""

import numpy as np
import pytest
from finite_imitation import imitate
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import rel_entr, softmax

import potstill as ps
from potstill.distill import synthetic
from potstill.distill.imitate import split
from potstill.distill.student import Student
from potstill.distill.synthetic import between, children
from potstill.keys import Key
from potstill.policy.network import outputs

PROBLEM = ps.Problem(
    name="synthetic",
    context=[
        ps.Categorical("connection", ["wifi", "4g", "3g"]),
        ps.Numeric("bandwidth", low=10, high=1000, scale="log", missing="flag"),
        ps.Boolean("hd", missing="flag"),
        ps.Numeric("battery", low=0, high=1),
        ps.Categorical("country", ["at", "ch", "de", "fr"]),
    ],
    actions=ps.Discrete(["low", "middle", "high"]),
)


def seen(n, seed=0):
    """Contexts as they are logged, some values missing."""
    rng = np.random.default_rng(seed)

    def sometimes(values):
        return [None if rng.random() < 0.2 else value for value in values.tolist()]

    return PROBLEM.encode_many(
        {
            "connection": sometimes(rng.choice(["wifi", "4g", "3g", "edge"], n)),
            "bandwidth": sometimes(rng.uniform(10, 1000, n)),
            "hd": sometimes(rng.random(n) < 0.3),
            "battery": rng.random(n),
            "country": sometimes(rng.choice(["at", "ch", "de", "fr"], n)),
        }
    )


def values(contexts):
    """The encoded values of each feature, as one set each."""
    ends = np.cumsum([len(feature.labels) for feature in PROBLEM.context])[:-1]
    return [set(map(tuple, block.tolist())) for block in np.split(contexts, ends, axis=1)]


@given(st.integers(1, 40), st.integers(0, 60), st.integers(0, 1000))
def test_each_feature_of_a_child_has_a_value_that_was_seen(parents, count, seed):
    made = children(PROBLEM, seen(parents), count, Key(seed))
    assert made.shape == (count, PROBLEM.width)
    assert made.dtype == np.float32
    assert all(new <= known for new, known in zip(values(made), values(seen(parents)), strict=True))


def test_children_combine_what_no_parent_did():
    parents = seen(50)
    made = children(PROBLEM, parents, 2000, Key(0))
    assert len(np.unique(np.concatenate([parents, made]), axis=0)) > 1000


def test_both_parents_give_half():
    """The share of 20,000 features that come from the parent of ones, within 5 standard errors."""
    parents = np.stack([np.zeros(PROBLEM.width, np.float32), np.ones(PROBLEM.width, np.float32)])
    share = children(PROBLEM, parents, 4000, Key(0)).mean()
    assert abs(share - 0.5) < 5 * 0.5 / np.sqrt(4000)


@given(st.integers(1, 40), st.integers(0, 60), st.integers(0, 1000))
def test_near_children_lie_between_two_parents(parents, count, seed):
    known, made = seen(parents), between(PROBLEM, seen(parents), count, Key(seed))
    assert made.shape == (count, PROBLEM.width)
    assert made.dtype == np.float32
    assert ((made >= known.min(axis=0)) & (made <= known.max(axis=0))).all()
    # A number without a flag may lie between two that were seen; anything else is a value that was seen.
    for i, (new, old) in enumerate(zip(values(made), values(known), strict=True)):
        assert i == 3 or new <= old


def test_half_of_the_numbers_of_near_children_are_those_of_a_parent():
    """20,000 children, so that 5 standard errors are 0.018."""
    parents = seen(200)
    own = np.isin(between(PROBLEM, parents, 20_000, Key(1))[:, 8], parents[:, 8]).mean()
    assert abs(own - 0.5) < 0.018


def test_near_children_stay_in_clusters():
    """No child is between two clusters, where crossed ones are."""
    problem = ps.Problem(
        name="clusters",
        context=[ps.Numeric("x", low=0, high=1), ps.Numeric("y", low=0, high=1)],
        actions=ps.Discrete(["a", "b"]),
    )
    parents = np.random.default_rng(1).random((400, 2)) * 0.1 + 0.9 * (np.arange(400) % 2)[:, None]

    def outside(made):
        return ((made[:, 0] > 0.5) != (made[:, 1] > 0.5)).mean()

    assert outside(between(problem, parents.astype(np.float32), 1000, Key(2))) == 0
    assert outside(children(problem, parents.astype(np.float32), 1000, Key(2))) > 0.1


def test_steps_are_followed_more_closely_with_near_children():
    """Labels with a step in the battery, of 150 contexts."""

    def stepped(contexts):
        p = np.where((contexts[:, 8:9] > 0.37) ^ (contexts[:, :1] > 0.5), 0.98, 0.01)
        return np.concatenate([p, 1 - p - 0.005, np.full_like(p, 0.005)], axis=1).astype(np.float32)

    def error(student):
        contexts, key = seen(150), Key(3)
        more = synthetic(PROBLEM, contexts, student, key)
        labels = stepped(np.concatenate([contexts, more]))
        layers = imitate(contexts, labels, student, key, synthetic=more).layers
        fresh = seen(2000, seed=98)
        return (
            np.abs(softmax(outputs(layers, "tanh", fresh).astype(float), axis=1) - stepped(fresh)).sum(axis=1).mean()
            / 2
        )

    assert error(Student.sharp(hidden=(32, 32), contexts=4096, steps=600)) < 0.5 * error(
        Student(hidden=(32, 32), contexts=0)
    )


@pytest.mark.parametrize(("n", "wanted", "expected"), [(30, 100, 70), (100, 100, 0), (130, 100, 0), (30, 0, 0)])
def test_there_are_as_many_as_are_lacking(n, wanted, expected):
    assert len(synthetic(PROBLEM, seen(n), Student(contexts=wanted), Key(0))) == expected


def test_equal_keys_give_equal_contexts_and_others_do_not():
    one, same, other = (synthetic(PROBLEM, seen(30), Student(), Key(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_no_parent_is_held_out():
    contexts, key = seen(60), Key(5)
    held_out = split(60, 0.1, key.child("rows"))[1]
    contexts[:, 8] = np.arange(60) / 60  # the battery tells rows apart
    made = synthetic(PROBLEM, contexts, Student(contexts=3000), key)
    assert len(held_out) == 6
    assert not np.isin(made[:, 8], contexts[held_out, 8]).any()
    assert np.isin(made[:, 8], contexts[:, 8]).all()


def teacher(contexts):
    weights = np.random.default_rng(8).standard_normal((contexts.shape[1], 3)) * 2
    return softmax(np.sin(2 * contexts @ weights) * 2, axis=1).astype(np.float32)


def divergence(layers, contexts):
    student = softmax(outputs(layers, "tanh", contexts).astype(float), axis=1)
    return rel_entr(teacher(contexts), student).sum(axis=1).mean()


def imitated(contexts, student, key):
    more = synthetic(PROBLEM, contexts, student, key)
    return imitate(contexts, teacher(np.concatenate([contexts, more])), student, key, synthetic=more)


def test_a_student_of_few_contexts_is_closer_to_its_teacher_on_others():
    fresh, recipe = seen(2000, seed=99), {"hidden": (32, 32), "steps": 400}
    without, with_them = (imitated(seen(100), Student(**recipe, contexts=n), Key(0)).layers for n in (0, 2048))
    assert divergence(with_them, fresh) < 0.5 * divergence(without, fresh)


def test_it_is_measured_on_contexts_that_were_seen():
    contexts = seen(100)
    imitation = imitated(contexts, Student(hidden=(8,), steps=50, contexts=512), Key(0))
    assert len(imitation.held_out) == 10
    assert imitation.held_out.max() < 100
    assert imitation.kl == pytest.approx(divergence(imitation.layers, contexts[imitation.held_out]), rel=1e-4)


def test_a_still_labels_them_too_and_counts_them_not():
    labelled = []

    def label(contexts):
        labelled.append(len(contexts))
        return np.full((len(contexts), 3), 1 / 3)

    still = ps.Still(PROBLEM, ps.teachers.FunctionTeacher(label), student=Student(hidden=(8,), steps=50, contexts=256))
    report = still.update(ps.Observations.none(PROBLEM), contexts=seen(40))
    more = synthetic(PROBLEM, seen(40), still.student, Key(0).child("batch", 0).child("imitate"))
    assert (len(more), report.contexts) == (216, 40)
    # Those that are alike are labelled once.
    assert labelled[-1] == len(np.unique(np.concatenate([seen(40), more]), axis=0))
