"""Imitation on problems whose answer is known, at the edges, and with everything that must not happen."""

import jax
import msgspec
import numpy as np
import pytest
from finite_imitation import imitate
from scipy.special import rel_entr, softmax

from potstill.distill.student import Student
from potstill.distill.train import compilations, learning_rate
from potstill.keys import Key
from potstill.policy import Layer
from potstill.policy.network import outputs

SMALL = Student(hidden=(16,), steps=400)
BRIEF = msgspec.structs.replace(SMALL, hidden=(8,), steps=100)
BRIEF_PAPER = msgspec.structs.replace(Student.paper(), hidden=(8,), steps=100)


def contexts(n, seed=0, d=5):
    """Uniform features, the first of which keeps to a corner of its range and the second of which is constant."""
    x = np.random.default_rng(seed).random((n, d), np.float32)
    if d > 1:
        x[:, 0] = 0.5 + x[:, 0] / 100
        x[:, 1] = 0.25
    return x


def teacher(x, seed=0, actions=3, drift=0.0):
    """Labels of a softmax network with four hidden units; another drift is a teacher that has learnt some more."""
    rng = np.random.default_rng(seed)
    stretched = np.concatenate([(x[:, :1] - 0.5) * 100, x[:, 1:]], axis=1)
    hidden = np.tanh(stretched @ (rng.standard_normal((x.shape[1], 4)) * 2))
    return softmax(hidden @ (rng.standard_normal((4, actions)) * 2 + drift * np.eye(4, actions)), axis=1)


def divergence(layers, x, labels, activation="tanh"):
    """KL(labels ‖ student) of each row, by the definition of the policy."""
    return rel_entr(labels, softmax(outputs(layers, activation, x).astype(float), axis=1)).sum(axis=1)


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))


@pytest.fixture(scope="module")
def known():
    """A problem, and the student that imitates it."""
    x = contexts(4000)
    labels = teacher(x)
    return x, labels, imitate(x, labels, SMALL, Key(0))


def test_a_network_of_the_students_kind_is_recovered_on_contexts_it_never_saw(known):
    _, _, imitation = known
    fresh = contexts(2000, seed=9)
    assert divergence(imitation.layers, fresh, teacher(fresh)).mean() < 1e-3


def test_the_reported_divergence_is_that_of_the_returned_layers_on_the_held_out_rows(known):
    x, labels, imitation = known
    rows = imitation.held_out
    assert len(rows) == len(np.unique(rows)) == 400
    assert imitation.kl == pytest.approx(divergence(imitation.layers, x[rows], labels[rows]).mean(), abs=2e-6)


def test_layers_are_plain_float32_of_the_students_shape(known):
    _, _, imitation = known
    assert [layer.weight.shape for layer in imitation.layers] == [(5, 16), (16, 3)]
    assert [layer.bias.shape for layer in imitation.layers] == [(16,), (3,)]
    assert all(isinstance(layer, Layer) for layer in imitation.layers)
    assert all(array.dtype == np.float32 for layer in imitation.layers for array in layer)


def test_a_linear_softmax_recovers_a_linear_softmax():
    x = contexts(2000)[:, 2:]
    labels = softmax(x @ np.array([[2.0, -1, 0], [0, 1, -2], [1, 1, -3]]), axis=1)
    imitation = imitate(x, labels, Student(hidden=()), Key(0))
    assert len(imitation.layers) == 1
    assert imitation.kl < 1e-3


def test_one_key_gives_equal_bits_and_another_key_does_not(known):
    x, labels, imitation = known
    again = imitate(x, labels, SMALL, Key(0))
    assert same(again.layers, imitation.layers)
    np.testing.assert_array_equal(again.held_out, imitation.held_out)
    assert (again.steps, again.kl) == (imitation.steps, imitation.kl)
    other = imitate(x, labels, SMALL, Key(1))
    assert not same(other.layers, imitation.layers)
    assert set(other.held_out) != set(imitation.held_out)


# ---- warm starts


def test_a_warm_start_gets_as_close_in_fewer_steps(known):
    x, _, imitation = known
    later = teacher(x, drift=0.05)
    cold = imitate(x, later, SMALL, Key(1))
    warm = imitate(x, later, SMALL, Key(1), start=imitation.layers)
    assert (cold.warm, warm.warm) == (False, True)
    assert warm.steps <= 0.4 * SMALL.steps < cold.steps
    assert warm.kl < 1.5 * cold.kl < divergence(imitation.layers, x, later).mean() / 2


@pytest.mark.parametrize(("seed", "drift"), [(0, 0.8), (1, 0.0)])
def test_a_teacher_that_has_changed_its_mind_is_imitated_as_closely_as_from_a_fresh_start(known, seed, drift):
    x, _, imitation = known
    changed = teacher(x, seed=seed, drift=drift)
    cold = imitate(x, changed, SMALL, Key(1))
    warm = imitate(x, changed, SMALL, Key(1), start=imitation.layers)
    assert warm.warm
    assert warm.steps > 0.4 * SMALL.steps
    assert warm.kl < 1.2 * cold.kl


def test_a_start_that_does_worse_than_the_mean_label_keeps_only_its_hidden_layers(known):
    x, labels, imitation = known
    opposite = labels[:, [1, 2, 0]]
    # Steps that only do harm leave what they began with.
    wild = imitate(x, opposite, msgspec.structs.replace(SMALL, learning_rate=30.0), Key(0), start=imitation.layers)
    rows = wild.held_out
    mean = np.delete(opposite, rows, axis=0).mean(axis=0)
    of_the_mean = rel_entr(opposite[rows], mean).sum(axis=1).mean()
    assert of_the_mean < divergence(imitation.layers, x[rows], opposite[rows]).mean()
    assert wild.kl == pytest.approx(of_the_mean, abs=2e-6)
    np.testing.assert_allclose(wild.layers[0].weight, imitation.layers[0].weight, rtol=1e-5)
    assert not wild.layers[1].weight.any()


@pytest.mark.parametrize("drift", [0.0, 0.2])
def test_a_warm_start_is_never_left_for_worse(known, drift):
    x, _, imitation = known
    wild = msgspec.structs.replace(SMALL, learning_rate=30.0)
    again = imitate(x, teacher(x, drift=drift), wild, Key(0), start=imitation.layers)
    assert again.warm
    for layer, before in zip(again.layers, imitation.layers, strict=True):
        np.testing.assert_allclose(layer.weight, before.weight, rtol=1e-5)
        np.testing.assert_allclose(layer.bias, before.bias, rtol=1e-5, atol=1e-4)


def test_a_start_of_another_shape_or_against_the_students_will_is_a_fresh_start(known):
    x, labels, imitation = known
    foreign = [Layer(np.zeros((5, 4), np.float32), np.zeros(4, np.float32)), imitation.layers[-1]]
    assert same(imitate(x, labels, SMALL, Key(0), start=foreign), imitation)
    unwilling = msgspec.structs.replace(BRIEF_PAPER, hidden=SMALL.hidden, warm=None)
    assert not imitate(x, labels, unwilling, Key(0), start=imitation.layers).warm


# ---- what is compiled, what is seen, when to stop


def test_batches_of_one_power_of_two_share_one_program_cold_or_warm():
    sizes = [530, 700, 1024]
    before = compilations()
    start = None
    for size in sizes:
        start = imitate(contexts(size, size), teacher(contexts(size, size)), BRIEF, Key(size), start).layers
    assert compilations() == before + 1
    imitate(contexts(1025), teacher(contexts(1025)), BRIEF, Key(0))
    assert compilations() == before + 2


def test_held_out_rows_never_reach_the_layers():
    x, labels = contexts(600), teacher(contexts(600))
    imitation = imitate(x, labels, BRIEF_PAPER, Key(0))
    spoilt_x, spoilt_labels = x.copy(), labels.copy()
    spoilt_x[imitation.held_out] = 1
    spoilt_labels[imitation.held_out] = np.eye(3)[0]
    spoilt = imitate(spoilt_x, spoilt_labels, BRIEF_PAPER, Key(0))
    assert same(spoilt.layers, imitation.layers)
    assert spoilt.kl != imitation.kl
    trained_on = np.setdiff1d(np.arange(600), imitation.held_out)
    spoilt_labels[trained_on[:50]] = np.eye(3)[0]
    assert not same(imitate(spoilt_x, spoilt_labels, BRIEF_PAPER, Key(0)).layers, imitation.layers)


def test_labels_without_a_pattern_stop_training_early_and_leave_the_best_student():
    rng = np.random.default_rng(0)
    x, labels = contexts(1000), np.eye(3)[rng.integers(3, size=1000)]
    imitation = imitate(x, labels, SMALL, Key(0))
    assert imitation.steps < SMALL.steps
    mean = np.delete(labels, imitation.held_out, axis=0).mean(axis=0)
    assert imitation.kl <= rel_entr(labels[imitation.held_out], mean).sum(axis=1).mean() + 1e-6


def test_the_papers_recipe_goes_on_to_the_end():
    x, labels = contexts(600), np.eye(3)[np.arange(600) % 3]
    assert imitate(x, labels, BRIEF_PAPER, Key(0)).steps == 100


def test_a_recipe_that_diverges_says_so():
    hopeless = msgspec.structs.replace(BRIEF_PAPER, learning_rate=1e38)
    with pytest.raises(FloatingPointError, match="learning_rate below 1e\\+38"):
        imitate(contexts(600), teacher(contexts(600)), hopeless, Key(0))


# ---- edges


def test_without_features_every_context_gets_the_mean_label():
    labels = np.eye(2)[np.array([0, 0, 0, 1] * 200)]
    imitation = imitate(np.zeros((800, 0)), labels, BRIEF, Key(0))
    p = softmax(outputs(imitation.layers, "tanh", np.zeros((1, 0), np.float32)))
    np.testing.assert_allclose(p, [[0.75, 0.25]], atol=0.02)


@pytest.mark.parametrize("n", [1, 19])
def test_few_contexts_are_all_trained_on_and_all_reported_on(n):
    x, labels = contexts(n), teacher(contexts(n))
    imitation = imitate(x, labels, SMALL, Key(0))
    assert sorted(imitation.held_out) == list(range(n))
    assert imitation.kl < 0.01


@pytest.mark.parametrize("actions", [2, 200])
def test_any_number_of_actions(actions):
    x = contexts(3000)
    labels = teacher(x, actions=actions)
    imitation = imitate(x, labels, SMALL, Key(0))
    assert imitation.kl < 0.1 * rel_entr(labels, labels.mean(axis=0)).sum(axis=1).mean()


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_certain_labels(activation):
    x = contexts(3000)
    labels = np.eye(3)[teacher(x).argmax(axis=1)]
    imitation = imitate(x, labels, msgspec.structs.replace(SMALL, activation=activation), Key(0))
    assert imitation.kl < 0.1
    assert all(np.isfinite(array).all() for layer in imitation.layers for array in layer)
    rows = imitation.held_out
    assert imitation.kl == pytest.approx(
        divergence(imitation.layers, x[rows], labels[rows], activation).mean(), abs=1e-5
    )


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda x, p: (x[:5], p), r"contexts must be \[N, d\] and labels \[N, K\].*got \[5, 5\] and \[30, 3\]"),
        (lambda x, p: (x[0], p), r"got \[5\] and \[30, 3\]"),
        (lambda x, p: (x[:0], p[:0]), r"got \[0, 5\] and \[0, 3\]"),
        (
            lambda x, p: (put(x, 7, np.nan), p),
            r"contexts\[7\] must be finite: encode them with the problem; got \[.*nan",
        ),
        (lambda x, p: (put(x, 3, np.inf), p), r"contexts\[3\] must be finite"),
        (lambda x, p: (x, put(p, 4, np.nan)), r"labels\[4\] must be probabilities"),
        (
            lambda x, p: (x, put(p, 29, -0.1)),
            r"labels\[29\] must be probabilities, none missing or below 0; got \[.*-0.1",
        ),
        (lambda x, p: (x, put(p, 11, np.inf)), r"labels\[11\] must sum to 1"),
        (lambda x, p: (x, 2 * p), r"labels\[0\] must sum to 1: divide each row by its sum; got"),
    ],
)
def test_what_cannot_be_imitated_is_refused_by_row(spoil, message):
    x = contexts(30)
    with pytest.raises(ValueError, match=message):
        imitate(*spoil(x, teacher(x)), SMALL, Key(0))


def put(values, row, value):
    values = values.copy()
    values[row, 1] = value
    return values


# ---- the student's configuration


def test_the_learning_rate_falls_to_zero_in_a_straight_line():
    student = Student(learning_rate=0.04, steps=200)
    np.testing.assert_allclose(
        learning_rate(student, np.array([0, 50, 150, 199]), student.steps), [0.04, 0.03, 0.01, 0.0002]
    )


def test_the_papers_recipe():
    paper = Student.paper()
    assert (paper.hidden, paper.activation) == ((100, 100), "tanh")
    assert (paper.optimiser, paper.steps, paper.batch, paper.patience) == ("rmsprop", 2000, 512, None)
    # All 2,000 steps from the policy before, on inputs in [0, 1] and from layers that know nothing of the labels.
    assert (paper.warm, paper.rescale, paper.first, paper.contexts) == (0.0, False, "random", 0)
    rates = learning_rate(paper, np.array([0, 99, 100, 199, 200, 1999]), paper.steps)
    np.testing.assert_allclose(rates, 0.001 / np.array([1, 1, 1.05, 1.05, 1.1, 1.95]))


def test_the_papers_student_goes_on_from_the_policy_before(known):
    """From a policy that is close it ends closer than from a fresh start, and all steps are taken."""
    x, labels, imitation = known
    student = msgspec.structs.replace(BRIEF_PAPER, hidden=SMALL.hidden)
    warm = imitate(x, labels, student, Key(0), start=imitation.layers)
    fresh = imitate(x, labels, msgspec.structs.replace(student, warm=None), Key(0), start=imitation.layers)
    assert (warm.warm, warm.steps, fresh.warm, fresh.steps) == (True, 100, False, 100)
    assert warm.kl < fresh.kl / 10


def test_a_random_last_layer_stays_even_if_it_is_far_from_the_labels(known):
    """The last layer of a far start is replaced by the mean label only where the student starts from that."""
    x, labels, imitation = known
    far = [*imitation.layers[:-1], Layer(-imitation.layers[-1].weight, imitation.layers[-1].bias)]
    still_there = msgspec.structs.replace(SMALL, steps=1, first="random", learning_rate=1e-9, average=0.0)
    replaced = msgspec.structs.replace(still_there, first="mean")
    kept, gone = (imitate(x, labels, student, Key(0), start=far) for student in (still_there, replaced))
    np.testing.assert_allclose(kept.layers[-1].weight, far[-1].weight, atol=1e-6)
    np.testing.assert_allclose(gone.layers[-1].weight, 0, atol=1e-6)


def test_options_that_came_later_are_left_out_of_lineages_at_their_defaults():
    assert set(Student().config()) == set(msgspec.to_builtins(Student())) - {
        "rescale",
        "first",
        "distance",
        "synthetic",
        "masked",
    }
    paper = msgspec.to_builtins(Student.paper())
    assert Student.paper().config() == {
        name: paper[name] for name in paper if name not in {"distance", "synthetic", "masked"}
    }
    assert msgspec.convert(Student(rescale=False).config(), Student) == Student(rescale=False)


@pytest.mark.parametrize("student", [Student(), Student.paper(), Student(hidden=(), warm=None), Student(hidden=[7])])
def test_a_student_survives_json_and_can_be_a_key(student):
    again = msgspec.json.decode(msgspec.json.encode(student), type=Student)
    assert again == student
    assert hash(again) == hash(student)


@pytest.mark.parametrize(
    ("field", "value", "way_out"),
    [
        ("hidden", (100, 0), r"or \(\) for a linear softmax, got \(100, 0\)"),
        ("hidden", 100, r"such as \(100, 100\)"),
        ("activation", "gelu", "one of 'tanh', 'relu', got 'gelu'"),
        ("optimiser", "sgd", "one of 'muon', 'adam', 'rmsprop'"),
        ("learning_rate", 0.0, "a number above 0, such as 0.04"),
        ("learning_rate", float("nan"), "got nan"),
        ("decay", "cosine", "one of 'linear', 'inverse-time'"),
        ("batch", 0, "such as 512"),
        ("steps", 10.5, "a whole number above 0"),
        ("average", 1.0, "from 0 to below 1"),
        ("patience", 0, "or None not to stop early"),
        ("warm", -0.1, "or None for a fresh start"),
        ("held_out", 0, "above 0 and below 1"),
        ("contexts", -1, "a whole number such as 4096"),
    ],
)
def test_a_student_that_makes_no_sense_is_refused(field, value, way_out):
    with pytest.raises(ValueError, match=f"Student: {field} must be .*{way_out}"):
        Student(**{field: value})
