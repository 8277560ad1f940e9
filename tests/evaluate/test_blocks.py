"""Passes over a log: rows are checked and numbered, blocks have one size, logged actions are recorded."""

import numpy as np
import pytest
from evaluate_examples import CONTEXTS, TINY, CutLog, rich_log

import potstill as ps
from potstill.errors import InvalidLog
from potstill.evaluate.blocks import LogWithSupport, numbered, rows_per_block
from potstill.evaluate.evaluation import evaluate
from potstill.evaluate.log import ArrayLog, Block


def log(actions):
    """Rows that differ in their actions only."""
    rows = len(actions)
    return ArrayLog(
        TINY,
        contexts=CONTEXTS[[0] * rows],
        actions=np.array(actions, int),
        rewards=[0] * rows,
        propensities=[0.5] * rows,
    )


class BadLog:
    """A log whose second block is wrong in its third row."""

    problem = TINY

    def blocks(self):
        for propensity in (0.5, 0.0):
            p = np.full(10, 0.5)
            p[2] = propensity
            yield Block(np.zeros((10, 1), np.float32), np.zeros(10, np.int32), np.zeros(10), p)


def test_rows_are_counted_over_the_whole_log():
    with pytest.raises(InvalidLog, match=r"row 12: propensity must be .*, got 0"):
        list(numbered(BadLog()))


def test_an_empty_log_is_refused():
    with pytest.raises(InvalidLog, match="'tiny' is empty"):
        list(numbered(log([])))


def test_a_log_of_another_problem_is_refused():
    cut = CutLog(rich_log(), [])
    cut.problem = TINY
    with pytest.raises(InvalidLog, match="another problem"):
        list(numbered(cut))


def test_blocks_are_cut_evenly_and_keep_every_column(monkeypatch):
    monkeypatch.setattr("potstill.evaluate.blocks.BLOCK", 64)
    whole = rich_log(300)
    (rows,) = whole.blocks()
    cut = list(numbered(CutLog(whole, [0, 1, 1, 130, 131, 290])))
    assert [first for first, _ in cut] == [0, 64, 128, 192, 256]
    assert [len(block) for _, block in cut] == [64, 64, 64, 64, 44]
    for name in ("contexts", "actions", "rewards", "propensities", "eligible", "times"):
        np.testing.assert_array_equal(np.concatenate([getattr(b, name) for _, b in cut]), getattr(rows, name))
    for name in ("speed", "device"):
        np.testing.assert_array_equal(np.concatenate([b.groups[name] for _, b in cut]), rows.groups[name])


def test_blocks_that_allow_all_actions_go_with_others():
    whole = rich_log(10)
    (rows,) = whole.blocks()

    class Mixed:
        problem = whole.problem

        def blocks(self):
            yield rows[:5]
            yield Block(
                rows.contexts[5:],
                rows.actions[5:],
                rows.rewards[5:],
                rows.propensities[5:],
                None,
                rows.times[5:],
                rows[5:].groups,
            )

    ((_, joined),) = numbered(Mixed())
    np.testing.assert_array_equal(joined.eligible[:5], rows.eligible[:5])
    assert joined.eligible[5:].all()


def test_blocks_with_times_do_not_go_with_blocks_without():
    whole = rich_log(10)
    (rows,) = whole.blocks()

    class Mixed:
        problem = whole.problem

        def blocks(self):
            yield rows[:5]
            yield Block(rows.contexts[5:], rows.actions[5:], rows.rewards[5:], rows.propensities[5:])

    with pytest.raises(InvalidLog, match="must all have times"):
        list(numbered(Mixed()))


def test_wide_problems_have_smaller_blocks():
    wide = ps.Problem(
        name="wide",
        context=[ps.Boolean("x")],
        actions=ps.Discrete([str(i) for i in range(1000)]),
    )
    assert rows_per_block(TINY) == 65_536
    assert rows_per_block(wide) == 2**23 // 1000


class CountedLog(CutLog):
    """A log that counts how often it is read."""

    reads = 0

    def blocks(self):
        self.reads += 1
        yield from super().blocks()


def test_a_log_with_support_knows_its_actions_once_it_was_read():
    counted = CountedLog(log([0, 2, 0, 2]), [1])
    supported = LogWithSupport(counted)
    assert supported.support().logged.tolist() == [True, False, True]
    assert counted.reads == 1
    list(numbered(supported))
    assert supported.support().logged.tolist() == [True, False, True]
    assert counted.reads == 2


@pytest.mark.parametrize("model", [None, lambda contexts: np.zeros((len(contexts), 3))])
def test_an_evaluation_reads_the_log_twice(model):
    counted = CountedLog(log([0, 0, 1]), [1])
    evaluate(counted, "a", model=model)
    assert counted.reads == 2
