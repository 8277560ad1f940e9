"""The join: each decision becomes one observation when its window has closed.

**Which decisions.** A cut joins the decisions whose window and settling time had passed when it was made (``time +
window + settle <= made``) and that no earlier cut joined, including decisions that arrive weeks late. Cuts never go
back in time: after the window was made longer, or a clock was set back, the join waits until it is past the last cut.
Decisions that do not fit the present problem (`potstill.tables.validate`), or whose reward does not, are counted as
unfit and left out for good. A decision is a duplicate if an earlier cut observed its id with a time at most one UTC day
away, or conflicting if its action, propensity or policy differs from that observation's. Of the other decisions of one
id in a cut the first by time counts (then the smallest policy, action, propensity), and the rest are duplicates or
conflicting. If they conflict, it is not known which was answered: the id is ambiguous, and none counts; decisions of
the same id within ten minutes of it are considered too, if they are shortly before or after the cut. A decision exactly
one microsecond after one of mode ``fallback`` does not make it ambiguous: the service logs a fallback in this way when
it answers it in place of that decision.

**Which rewards.** Rewards count from a minute before the decision, because clocks differ, to the end of its window,
both included. Rewards of one id with the same key are one reward; so are rewards without a key of the same time and
value. If their values differ, the first by time counts, then the smaller one. The configuration states how several
rewards are combined: the first or last by time (then by value), the largest, the mean, or the sum, correctly rounded
and therefore independent of the order. A decision without rewards gets the default reward. Metrics go with their
reward and are combined in the same way, name by name; among duplicates with different metrics the smallest count.

**Exactly once.** A cut is recorded in a file before it is made, with the versions of the tables that it reads. Its
observations are one commit with its number, unless another cut was completed in between. A process that finds a
recorded join without its commit completes it exactly as recorded, so that crashes and concurrent processes change
nothing. Recorded imports without a commit, and cuts that others have overtaken, are skipped.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from potstill.events.join.changes import readable
from potstill.events.join.cuts import (
    Aggregate,
    Cut,
    CutConflict,
    is_complete,
    last_cut,
    newest_cut,
    previous_cut,
    write_cut,
)
from potstill.events.join.execute import CutExecution, Progress
from potstill.events.join.report import JoinReport
from potstill.events.lake import Overtaken
from potstill.parallel import Map, in_turn
from potstill.problem import Problem
from potstill.storage import Storage
from potstill.tables import SECOND

if TYPE_CHECKING:
    from potstill.events.lake import Lake

__all__ = ["JoinReport", "Progress", "join", "preview"]


def join(
    lake: Lake,
    cuts: Storage,
    problem: Problem,
    *,
    aggregate: Aggregate,
    settle: int,
    now: int,
    on_progress: Progress | None = None,
    each: Map | None = None,
) -> JoinReport:
    """Turn final decisions into observations, or finish an interrupted cut.

    Args:
        lake: The tables of events.
        cuts: The folder of cuts.
        problem: States the window and the default reward, and what fits.
        aggregate: How several rewards of one decision are combined.
        settle: Seconds after a window's end in which rewards may still arrive.
        now: Microseconds since 1970, UTC.
        on_progress: Called after each slice of decisions.
        each: Maps functions over partitions of the ids and over slices of time; one after the other, if left out.
    """
    started = time.perf_counter()
    while True:
        making, recorded = _next(lake, cuts, problem, aggregate, settle, now)
        if not making.decisions and not recorded:
            break
        with suppress(CutConflict, Overtaken):  # another process was faster: help with its cut, or join the rest
            if not recorded:
                write_cut(cuts, making.cut)
            if making.make(each or in_turn, on_progress) or is_complete(lake, cuts, making.cut.number):
                break
    return making.report(time.perf_counter() - started)


def preview(lake: Lake, cuts: Storage, problem: Problem, *, aggregate: Aggregate, settle: int, now: int) -> JoinReport:
    """Report of what `join` would do now; writes nothing."""
    started = time.perf_counter()
    making, _ = _next(lake, cuts, problem, aggregate, settle, now)
    making.count(in_turn)
    return making.report(time.perf_counter() - started)


def _next(
    lake: Lake, cuts: Storage, problem: Problem, aggregate: Aggregate, settle: int, now: int
) -> tuple[CutExecution, bool]:
    """The next cut, and whether it is recorded: an interrupted one, else a new one."""
    last = last_cut(lake)
    newest = newest_cut(cuts, last)
    if newest is not None and newest.after == last and _can_be_finished(lake, newest, problem):
        return CutExecution(lake, newest, previous_cut(cuts, newest.after)), True
    previous = previous_cut(cuts, last)
    stated = problem.reward
    until = now - (stated.window_seconds + settle) * SECOND
    cut = Cut(
        number=max(last, newest.number if newest else 0) + 1,
        kind="join",
        made=now,
        after=last,
        until=until,
        decisions=lake.version("decisions"),
        rewards=lake.version("rewards"),
        problem=problem.hash,
        aggregate=aggregate,
        window=stated.window_seconds,
        settle=settle,
        default=stated.default,
    )
    return CutExecution(lake, cut, previous), False


def _can_be_finished(lake: Lake, cut: Cut, problem: Problem) -> bool:
    """Whether a recorded cut can still be completed: a join of this problem whose events are all readable."""
    return (
        cut.kind == "join"
        and cut.problem == problem.hash
        and readable(lake, "decisions", cut)
        and readable(lake, "rewards", cut)
    )
