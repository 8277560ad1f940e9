"""Students of two towers: faithful to the teacher, also for items that were never observed, and ordinary policies."""

import msgspec
import numpy as np
import pytest

import potstill as ps
from potstill.distill.network import forward, random_layers, with_columns
from potstill.distill.towers import NewcomersLearning, has_towers, rated
from potstill.errors import InvalidOption
from potstill.keys import Key
from potstill.policy import NEW_ITEM, Tower, outputs
from potstill.problem import Observations
from potstill.teachers import CatalogLinearTS, LinearTS

K, D, E = 40, 3, 3
STUDENT = ps.Student(hidden=(32,), steps=400, batch=256, contexts=1024)
RNG = np.random.default_rng(0)
FEATURES, COEFFICIENTS = RNG.random((K + 5, E)), RNG.standard_normal((D + 1, E + 1))
EFFECTS = 0.4 * RNG.standard_normal(K + 5)
# The last five are like those that are best in the middle of all contexts.
FEATURES[K:] = FEATURES[:K][np.argsort(FEATURES[:K] @ COEFFICIENTS[:, 1:].T @ [1, 0.5, 0.5, 0.5])[-5:]]


def problem(places, retired=()):
    items = [{"id": f"i{place}", "v": FEATURES[place].tolist()} for place in places]
    space = ps.Catalog(features=[ps.Vector("v", size=E)], items=items, retired=retired)
    return ps.Problem(name="p", context=[ps.Vector("c", size=D)], actions=space)


def ones(values):
    return np.concatenate([np.ones((len(values), 1)), values], axis=1)


def observed(of, n=1500, seed=0):
    rng = np.random.default_rng(seed)
    names = of.actions.names
    places = np.array([int(name[1:]) for name in names])
    x, actions = rng.random((n, D)).astype(np.float32), rng.integers(len(names), size=n).astype(np.int32)
    means = np.einsum("ni,ij,nj->n", ones(x), COEFFICIENTS, ones(FEATURES[places[actions]])) + EFFECTS[places[actions]]
    rewards = means + rng.standard_normal(n)
    return Observations.from_columns(
        of, contexts=x, actions=actions, rewards=rewards, propensities=np.full(n, 1 / len(names))
    )


@pytest.fixture(scope="module")
def still():
    made = ps.Still(problem(range(K)), student=STUDENT, seed=3)
    made.update(observed(made.problem))
    return made


CONTEXTS = np.random.default_rng(8).random((48, D)).astype(np.float32)


def distance(one, other):
    return float(np.abs(one - other).sum(axis=1).mean() / 2)


def test_it_decides_as_its_teacher_does(still):
    p = CatalogLinearTS(draws=4096).propensities(still.state, CONTEXTS, Key(1))
    q = still.policy.probabilities_many(CONTEXTS)
    assert distance(p, np.full_like(p, 1 / K)) > 0.5
    assert distance(p, q) < 0.08


def test_an_item_without_observations_is_explored_as_its_teacher_would(still):
    wider = problem(range(K + 5))
    state = still.teacher.with_actions(still.state, still.problem, wider, {})
    p = CatalogLinearTS(draws=4096).propensities(state, CONTEXTS, Key(1))
    tower = still.policy.tower
    effects = np.concatenate([tower.effects, np.tile(NEW_ITEM, (5, 1))])
    columns = Tower(tower.layers, effects).columns(wider.actions.encoded, "tanh")
    q = ps.Policy.build(wider, [*still.policy.layers[:-1], columns], version=1).probabilities_many(CONTEXTS)
    assert p[:, K:].sum() > 0.1 * len(CONTEXTS)
    # A softmax knows nothing of how alike the new ones are: beside four others of their kind they get a third too much.
    assert distance(p, q) < 0.3
    assert 0.7 < q[:, K:].sum() / p[:, K:].sum() < 1.5


def test_its_file_is_that_of_an_ordinary_policy_with_the_tower_beside(still):
    again = ps.Policy.from_bytes(still.policy.to_bytes())
    assert again.to_bytes() == still.policy.to_bytes()
    assert again.metadata.format == 4
    columns = again.tower.columns(still.problem.actions.encoded, "tanh")
    for one, other in zip(again.layers[-1], columns, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(again.tower.effects, still.teacher.item_effects(still.state))
    oracle = again.with_runtime("numpy").probabilities_many(CONTEXTS)
    np.testing.assert_allclose(still.policy.probabilities_many(CONTEXTS), oracle, rtol=2e-5)


def test_equal_stills_make_equal_policies(still):
    again = ps.Still(problem(range(K)), student=STUDENT, seed=3)
    again.update(observed(again.problem))
    assert again.policy.to_bytes() == still.policy.to_bytes()


def test_a_changed_catalogue_goes_on_from_the_same_towers(still):
    changed = problem([*range(3, K), K, K + 1], retired=["i5"])
    later = ps.Still(changed, student=STUDENT, seed=3)
    later.recall(still.policy, still.memory(), still.problem)
    report = later.update(observed(changed, n=300, seed=1))
    assert report.warm
    assert later.seen.observations == 1800
    p = CatalogLinearTS(draws=4096).propensities(
        later.state, CONTEXTS, Key(1), np.broadcast_to(changed.actions.chosen, (48, K - 1))
    )
    q = later.policy.probabilities_many(CONTEXTS)
    assert (q[:, changed.actions.index("i5")] == 0).all()
    assert distance(p, q) < 0.08


def test_changed_features_are_taken_over_and_other_features_are_learnt_again(still):
    items = [dict(item) for item in still.problem.actions.items]
    items[0]["v"] = [1.0, 1.0, 1.0]
    space = ps.Catalog(features=still.problem.actions.features, items=items)
    later = ps.Still(msgspec.structs.replace(still.problem, actions=space), student=STUDENT, seed=3)
    later.recall(still.policy, still.memory(), still.problem)
    assert later.state.items[0].tolist() == [1, 1, 1]
    narrow = ps.Catalog(features=[ps.Vector("v", size=E, low=0, high=2)], items=items)
    other = ps.Still(msgspec.structs.replace(still.problem, actions=narrow), student=STUDENT, seed=3)
    with pytest.raises(ValueError, match="the features of items have changed"):
        other.recall(still.policy, still.memory(), still.problem)


def test_newcomers_are_mixed_from_items_and_rated_by_some_rows(still):
    items = rated(still.problem, still.teacher, still.state, Key(2))
    space, known = items.problem.actions, set(still.problem.actions.names)
    assert items.known == K
    assert items.learning.newcomers == len(space) - K == 10
    assert not known & {item["id"] for item in space.items[K:]}
    assert all(item["v"] in FEATURES.tolist() for item in space.items[K:])
    np.testing.assert_array_equal(items.inputs[K:, -2:], np.tile(NEW_ITEM, (10, 1)))
    labels = items.learning.label(still.teacher, items.state, CONTEXTS, Key(3))
    assert (labels[:, :K] >= 0).all()
    come = (labels[:, K:] >= 0).sum(axis=1)
    assert 10 < (come == 0).sum() < 40
    assert come.max() > 5
    np.testing.assert_allclose(np.maximum(labels, 0).sum(axis=1), 1, atol=1e-5)


def test_the_network_that_is_trained_is_the_one_that_is_served():
    *hidden, one, two = random_layers([(D, 6), (6, 5), (E + 2, 4), (4, 6)], Key(1))
    items, contexts = RNG.random((7, E + 2)).astype(np.float32), RNG.random((9, D)).astype(np.float32)
    trained = forward(with_columns(hidden, [one, two], "tanh", items), "tanh", contexts)
    columns = Tower([one, two], items[:, E:]).columns(items[:, :E], "tanh")
    np.testing.assert_allclose(trained, outputs([*hidden, columns], "tanh", contexts), atol=1e-5)


def test_teachers_of_names_have_ordinary_students():
    listed = problem(range(4))
    assert not has_towers(LinearTS(), listed.actions)
    made = ps.Still(listed, LinearTS(), student=STUDENT)
    made.update(observed(listed, n=100))
    assert made.policy.tower is None


@pytest.mark.parametrize(
    ("student", "why"),
    [
        (ps.Student.auto("1s"), "is not searched for"),
        (ps.Student(masked=True), "takes no masks"),
        (ps.Student(hidden=()), "needs a hidden layer"),
    ],
)
def test_what_a_student_of_two_towers_cannot_do_is_refused(student, why):
    with pytest.raises(InvalidOption, match=why):
        ps.Still(problem(range(4)), student=student)


def test_labels_without_newcomers_are_of_the_catalogue():
    learning = NewcomersLearning(4, newcomers=1)
    labels = np.array([[0.5, 0.5, 0, -1], [0.25, 0.25, 0.25, 0.25]], np.float32)
    wrong, _ = learning.check(labels)
    assert not wrong.any()
    np.testing.assert_allclose(learning.divergence(np.zeros((2, 4)), labels), [np.log(3 / 2), 0], atol=1e-6)
