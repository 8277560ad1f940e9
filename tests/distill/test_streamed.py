"""Imitation of labels in shards: as close as in memory, every row seen, what is held out not, and repeatable."""

from itertools import pairwise

import numpy as np
import pytest
from finite_imitation import fidelity, imitate, imitate_averaged, imitate_streamed
from scipy.special import softmax

import potstill as ps
from potstill.distill import shard_order
from potstill.distill.shard_order import ShardOrder
from potstill.keys import Key
from potstill.policy.network import outputs
from potstill.spaces.finite_learning import FiniteLearning

STUDENT = ps.Student(hidden=(16,), steps=300, batch=128)
KEY = Key(4)


class InMemory:
    """Labels of a smooth teacher, in shards of the sizes given."""

    def __init__(self, rows, seed=0):
        rng = np.random.default_rng(seed)
        self.rows = rows
        self.contexts = rng.random((sum(rows), 3), dtype=np.float32)
        self.labels = softmax(4 * self.contexts @ rng.standard_normal((3, 4)), axis=1).astype(np.float32)
        self.mean = self.contexts.mean(axis=0)
        self.reads = []

    def read(self, shard):
        self.reads.append(shard)
        first = sum(self.rows[:shard])
        rows = slice(first, first + self.rows[shard])
        return self.contexts[rows], self.labels[rows]


def kl(layers, seed=9):
    fresh = InMemory([3000], seed=0)  # the same teacher ...
    rng = np.random.default_rng(seed)
    contexts = rng.random((3000, 3), dtype=np.float32)  # ... on other contexts
    weights = np.random.default_rng(0)
    weights.random((sum(fresh.rows), 3), dtype=np.float32)
    labels = softmax(4 * contexts @ weights.standard_normal((3, 4)), axis=1)
    return fidelity(labels, softmax(outputs(layers, "tanh", contexts).astype(float), axis=1), 1.0).kl_mean


def test_a_streamed_student_is_as_faithful_as_one_in_memory():
    """On contexts that neither has seen; both end well below 0.01 nats."""
    whole = InMemory([3000])
    in_memory = imitate(whole.contexts, whole.labels, STUDENT, KEY)
    shards = imitate_streamed(InMemory([700, 1100, 500, 400, 300]), STUDENT, KEY)
    assert kl(in_memory.layers) < 0.003
    assert kl(shards.layers) < max(2 * kl(in_memory.layers), 0.003)
    assert shards.kl == pytest.approx(kl(shards.layers), rel=0.5)


def test_equal_arguments_give_equal_bits_and_another_key_does_not():
    one, same, other = (imitate_streamed(InMemory([400, 300]), STUDENT, Key(k)) for k in (1, 1, 2))
    for a, b in zip(one.layers, same.layers, strict=True):
        np.testing.assert_array_equal(a.weight, b.weight)
    assert any((a.weight != b.weight).any() for a, b in zip(one.layers, other.layers, strict=True))


def blocks(labels, student, count):
    plan = ShardOrder.of(labels.rows, student, FiniteLearning(labels.labels.shape[1]), KEY)
    return plan, [block for _, block in zip(range(count), plan.blocks(labels), strict=False)]


def test_every_row_that_is_not_held_out_is_seen_once_in_a_pass():
    labels = InMemory([500, 20, 300, 180, 90, 10])
    plan, found = blocks(labels, ps.Student(batch=50, steps=1), 21)
    trained_on = 1100 - int(plan.spared.sum())
    assert plan.steps == -(-trained_on // 50)
    seen = np.concatenate([block.contexts for block in found])[:trained_on]
    _, held_out = plan.first_look(labels)
    everything = np.concatenate([seen, held_out.contexts])
    np.testing.assert_array_equal(np.unique(everything, axis=0), np.unique(labels.contexts, axis=0))
    assert len(everything) == 1100


def test_rows_keep_their_labels_and_blocks_their_shape(monkeypatch):
    monkeypatch.setattr(shard_order, "BLOCK_ROWS", 256)
    labels = InMemory([500, 300, 200])
    _, found = blocks(labels, ps.Student(batch=64, steps=100), 10)
    label_of = {row.tobytes(): label for row, label in zip(labels.contexts, labels.labels, strict=True)}
    for block in found:
        assert block.contexts.shape == (256, 3)
        for row, label in zip(block.contexts, block.labels, strict=True):
            np.testing.assert_array_equal(label_of[row.tobytes()], label)


def test_held_out_rows_come_from_all_over_and_are_never_trained_on(monkeypatch):
    monkeypatch.setattr(shard_order, "BLOCK_ROWS", 256)
    labels = InMemory([100] * 50)
    plan, found = blocks(labels, ps.Student(batch=64, steps=400), 60)
    _, held_out = plan.first_look(labels)
    assert np.count_nonzero(plan.spared) == shard_order.SPREAD
    trained_on = {row.tobytes() for block in found for row in block.contexts}
    assert not trained_on & {row.tobytes() for row in held_out.contexts}


def test_memory_is_a_few_shards():
    """However many shards there are: no more are read ahead than are mixed."""
    labels = InMemory([100] * 60)
    plan = ShardOrder.of(
        labels.rows, ps.Student(batch=50, steps=1), FiniteLearning(labels.labels.shape[1]), KEY
    )._replace(block_steps=2)
    generator = plan.blocks(labels)
    for taken in range(1, 30):
        next(generator)
        assert len(labels.reads) <= taken * plan.block_rows // 100 + 2 * shard_order.MIXED


def test_going_on_from_an_earlier_policy_takes_fewer_steps():
    labels = InMemory([700, 500])
    first = imitate_streamed(labels, STUDENT, KEY)
    again = imitate_streamed(labels, STUDENT, KEY.child(1), start=first.layers)
    assert (first.warm, again.warm) == (False, True)
    assert again.steps < first.steps
    assert again.kl < 2 * first.kl + 1e-4


@pytest.mark.parametrize("rows", [[1], [1, 1], [3, 2]])
def test_a_handful_of_rows_is_enough(rows):
    found = imitate_streamed(InMemory(rows), ps.Student(hidden=(), steps=20), KEY)
    assert np.isfinite(found.kl)
    assert found.contexts.shape == (sum(rows), 3)


def test_progress_ends_where_it_said():
    told = []
    imitate_streamed(InMemory([700, 300]), STUDENT, KEY, on_progress=lambda done, of: told.append((done, of)))
    assert told[-1][0] == told[-1][1]
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_labels_that_are_no_probabilities_are_refused():
    labels = InMemory([50, 50])
    labels.labels[70] = np.nan
    with pytest.raises(ValueError, match="labels"):
        imitate_streamed(labels, STUDENT, KEY)


def in_turn(function, items, *common):
    return (function(item, *common) for item in items)


def test_students_that_are_averaged_are_as_faithful_as_one():
    """Two students take half of the steps each; equal arguments give equal bits."""
    labels = InMemory([700, 1100, 500, 400, 300])
    student = ps.Student(hidden=(16,), steps=600, batch=128)
    alone = imitate_streamed(labels, student, KEY)
    together, again = (imitate_averaged(labels, student, KEY, 2, in_turn) for _ in range(2))
    assert together.steps <= alone.steps / 2 + 9
    assert kl(together.layers) < max(2 * kl(alone.layers), 0.003)
    for a, b in zip(together.layers, again.layers, strict=True):
        np.testing.assert_array_equal(a.weight, b.weight)


def test_going_on_together_takes_fewer_steps():
    labels = InMemory([700, 500])
    first = imitate_averaged(labels, STUDENT, KEY, 2, in_turn)
    again = imitate_averaged(labels, STUDENT, KEY.child(1), 2, in_turn, start=first.layers)
    assert (first.warm, again.warm) == (False, True)
    assert again.steps < first.steps
    assert again.kl < 2 * first.kl + 1e-4


def test_after_a_round_the_students_are_their_mean():
    rounds = []

    def recorded(function, items, *common):
        runs = list(in_turn(function, items, *common))
        rounds.append((common[-1].layers[0].weight, [run.layers[0].weight for run in runs]))
        return iter(runs)

    imitate_averaged(InMemory([300, 300, 300]), ps.Student(hidden=(4,), steps=24, batch=64), KEY, 2, recorded)
    assert len(rounds) > 1
    for (_, apart), (together, _) in pairwise(rounds):
        assert (apart[0] != apart[1]).any()
        np.testing.assert_allclose(together, np.mean(apart, axis=0), atol=1e-6)
