"""A model of flushes, watermarks, cuts and the registry, small enough to search every order of their steps.

Two machines with a log each, one or two updaters, one decision and its rewards. Every step that is atomic in the code
is one step here; between any two steps another process may run, and each process may be killed. `check` visits all
reachable states and returns the shortest trace to one in which something acknowledged is not learnt.

Reductions that lose no order that matters: the decision is on machine 0, which is up from the beginning (machines are
alike); a flush of an empty log is one step (a later one publishes an older time).

Time is a small whole number. A reward is timely if it is acknowledged before the decision's time plus `WINDOW`, which
stands for window and settling time together.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

WINDOW = 2


class Log(NamedTuple):
    """A machine's log and its flusher.

    Attributes:
        alive: Whether a process can acknowledge events.
        pending: Acknowledged events that are not deleted from the spool: name and time.
        flushing: Events that the flusher has read; None if it is not running.
        moment: When it began.
        step: Number of tables that it has committed.
    """

    alive: bool = False
    pending: frozenset[tuple[str, int]] = frozenset()
    flushing: frozenset[tuple[str, int]] | None = None
    moment: int = 0
    step: int = 0


class Updater(NamedTuple):
    """An updater: what it has read so far.

    Attributes:
        step: 0 idle, 1 has the horizon, 2 has the tables' versions, 3 has recorded its cut, 4 has committed it.
        horizon: How far the watermarks let it cut.
        decided: Time of the decision in the version of the table that it reads; None if it is not there.
        rewards: Rewards in the version that it reads.
    """

    step: int = 0
    horizon: int = 0
    decided: int | None = None
    rewards: frozenset[str] = frozenset()


class State(NamedTuple):
    """Everything that processes share, and each process."""

    time: int = 0
    decided: int | None = None  # when the decision was acknowledged
    timely: frozenset[str] = frozenset()  # rewards acknowledged in time
    logs: tuple[Log, ...] = (Log(alive=True), Log())
    marks: tuple[tuple[bool, int], ...] = ((True, 0), (False, 0))  # published: open, and the time
    lake: frozenset[str] = frozenset()
    observed: frozenset[str] | None = None  # rewards of the decision's observation
    versions: tuple[bool, ...] = ()  # for each: whether it learnt from the observation
    updaters: tuple[Updater, ...] = (Updater(),)


class Rules(NamedTuple):
    """The protocol: as it is, or as it was before.

    Attributes:
        watermarks: Whether a cut reaches only as far as all open logs.
        rewards_first: Whether a flush commits rewards before decisions.
        register_first: Whether a log is registered before it acknowledges events.
        marks_first: Whether a cut reads watermarks before the versions of the tables.
        end: The last time.
        rewards: Number of rewards.
        updaters: Number of updaters.
    """

    watermarks: bool = True
    rewards_first: bool = True
    register_first: bool = True
    marks_first: bool = True
    end: int = 2
    rewards: int = 1
    updaters: int = 1


def check(rules: Rules) -> tuple[int, list[str] | None]:
    """Number of states visited, and the shortest trace to a violation; None if there is none."""
    first = State(updaters=(Updater(),) * rules.updaters)
    seen: dict[State, tuple[State, str] | None] = {first: None}
    queue = deque([first])
    while queue:
        state = queue.popleft()
        if not holds(state):
            return len(seen), _trace(seen, state)
        for name, following in steps(state, rules):
            if following not in seen:
                seen[following] = (state, name)
                queue.append(following)
    return len(seen), None


def holds(state: State) -> bool:
    """Whether the decision, if it is observed, has all rewards that were acknowledged in time."""
    complete = state.observed is None or (state.decided is not None and state.timely <= state.observed)
    return complete and (state.observed is not None or not any(state.versions))


def steps(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    """Every step that some process can make."""
    if state.time < rules.end:
        yield "time passes", state._replace(time=state.time + 1)
    for place, log in enumerate(state.logs):
        yield from _log_steps(state, rules, place, log)
        yield from _flush_steps(state, rules, place, log)
    for place, updater in enumerate(state.updaters):
        yield from _update_steps(state, rules, place, updater)


def _log_steps(state: State, rules: Rules, place: int, log: Log) -> Iterator[tuple[str, State]]:
    if not log.alive:
        opened = _with_log(state, place, log._replace(alive=True))
        if rules.register_first and not state.marks[place][0]:
            opened = _with_mark(opened, place, is_open=True, time=state.time)
        yield f"log {place} opens", opened
        return
    if place:
        yield f"log {place} stops", _with_log(state, place, log._replace(alive=False))
    if state.decided is None:
        if place:
            return
        taken = log._replace(pending=log.pending | {("d", state.time)})
        yield f"log {place} acknowledges the decision", _with_log(state, place, taken)._replace(decided=state.time)
        return
    known = {name for one in state.logs for name, _ in one.pending} | state.lake
    for number in range(rules.rewards):
        name = f"r{number}"
        if name not in known and state.time < state.decided + WINDOW:
            taken = log._replace(pending=log.pending | {(name, state.time)})
            timely = state.timely | {name}
            yield f"log {place} acknowledges {name}", _with_log(state, place, taken)._replace(timely=timely)


def _flush_steps(state: State, rules: Rules, place: int, log: Log) -> Iterator[tuple[str, State]]:
    if log.flushing is None and not log.pending:
        yield f"log {place} publishes", _with_mark(state, place, is_open=log.alive, time=state.time)
        return
    if log.flushing is None:
        begun = log._replace(flushing=log.pending, moment=state.time, step=0)
        yield f"log {place} begins to flush", _with_log(state, place, begun)
        return
    yield f"the flusher of log {place} dies", _with_log(state, place, log._replace(flushing=None, moment=0, step=0))
    if log.step < 2:
        table = ("r", "d")[log.step] if rules.rewards_first else ("d", "r")[log.step]
        rows = {name for name, _ in log.flushing if name[0] == table}
        done = _with_log(state, place, log._replace(step=log.step + 1))
        yield f"log {place} commits {table}", done._replace(lake=state.lake | rows)
        return
    left = log.pending - log.flushing
    after = _with_log(state, place, log._replace(pending=left, flushing=None, moment=0, step=0))
    time = min([log.moment, *(acknowledged for _, acknowledged in left)])
    yield f"log {place} publishes", _with_mark(after, place, is_open=log.alive or bool(left), time=time)


def _update_steps(state: State, rules: Rules, place: int, updater: Updater) -> Iterator[tuple[str, State]]:
    name = f"updater {place}"
    if updater.step:
        yield f"{name} dies", _with_updater(state, place, Updater())
    order = ("marks", "tables") if rules.marks_first else ("tables", "marks")
    if updater.step < 2:
        if order[updater.step] == "marks":
            live = [time for is_open, time in state.marks if is_open and rules.watermarks]
            read = updater._replace(horizon=min([state.time, *live]))
        else:
            rewards = frozenset(row for row in state.lake if row[0] == "r")
            read = updater._replace(decided=state.decided if "d" in state.lake else None, rewards=rewards)
        yield f"{name} reads {order[updater.step]}", _with_updater(state, place, read._replace(step=updater.step + 1))
    elif updater.step == 2:
        final = updater.decided is not None and updater.decided + WINDOW <= updater.horizon
        if final and state.observed is None:
            yield (
                f"{name} commits its cut",
                _with_updater(state, place, updater._replace(step=3))._replace(observed=updater.rewards),
            )
        else:
            yield f"{name} has nothing to join", _with_updater(state, place, updater._replace(step=3))
    else:
        learnt = _with_updater(state, place, Updater())
        if len(state.versions) < 2:  # of two that create the same number one succeeds
            yield f"{name} publishes", learnt._replace(versions=(*state.versions, state.observed is not None))
        yield f"{name} loses the race", learnt


def _with_log(state: State, place: int, log: Log) -> State:
    return state._replace(logs=tuple(log if i == place else one for i, one in enumerate(state.logs)))


def _with_mark(state: State, place: int, *, is_open: bool, time: int) -> State:
    return state._replace(marks=tuple((is_open, time) if i == place else one for i, one in enumerate(state.marks)))


def _with_updater(state: State, place: int, updater: Updater) -> State:
    return state._replace(updaters=tuple(updater if i == place else one for i, one in enumerate(state.updaters)))


def _trace(seen: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    names: list[str] = []
    while (before := seen[state]) is not None:
        state = before[0]
        names.append(before[1])
    return names[::-1]
