"""The rules of the join over plain lists, one row at a time: slow, and meant to be obviously right."""

import math
from dataclasses import dataclass, field
from typing import Any

SECOND = 1_000_000
MINUTE = 60 * SECOND
DAY = 86_400 * SECOND


@dataclass(frozen=True)
class D:
    """A decision; `fits` says whether the problem can learn from it."""

    id: str
    time: int
    action: str = "l"
    propensity: float = 0.5
    policy: int = 1
    x: float = 0.5
    fits: bool = True
    eligible: tuple[str, ...] | None = None
    unit: str | None = None
    arm: str | None = None
    mode: str | None = None

    @property
    def said(self) -> tuple[Any, ...]:
        return (self.policy, self.action, self.propensity)

    @property
    def source(self) -> str:
        return self.mode or "log"


@dataclass(frozen=True)
class R:
    """A reward."""

    id: str
    time: int
    reward: float = 1.0
    key: str | None = None
    metrics: tuple[tuple[str, float], ...] = ()

    @property
    def place(self) -> tuple[Any, ...]:
        """By which of several rewards that are one it is known which counts: without metrics last."""
        return (self.time, self.reward, not self.metrics, self.metrics)


@dataclass
class World:
    """What has arrived, in order, and what was observed of it by cuts."""

    window: int
    settle: int
    default: float
    aggregate: str
    low: float = -math.inf
    high: float = math.inf
    decisions: list[D] = field(default_factory=list)
    rewards: list[R] = field(default_factory=list)
    observed: list[dict[str, Any]] = field(default_factory=list)
    exact: bool = True  # whether it is known which rows arrived since the last cut
    cut: int = 0
    until: int = -(2**60)
    decisions_before: int = 0
    rewards_before: int = 0

    def join(self, now: int) -> dict[str, Any]:
        """One cut at a time; gives the counts."""
        until = now - (self.window + self.settle) * SECOND
        known = self.decisions_before if self.exact else 0
        pending = sum(
            d.time > max(until, self.until) or (until < self.until and self.exact and i >= known)
            for i, d in enumerate(self.decisions)
        )
        taken = self._taken_up(self.decisions, known, until)
        if not taken or until < self.until:
            return {"cut": None, "pending": pending}
        counts = dict.fromkeys(("duplicates", "conflicting", "ambiguous", "unfit"), 0)
        counts |= dict.fromkeys(("rewarded", "defaulted", "matched"), 0)
        counts |= dict.fromkeys(("reward_duplicates", "reward_conflicting", "late", "too_late", "orphans"), 0)
        self._strays(until, taken, counts)
        new = [self._observe(d, counts) for d in self._first_ones(taken, until, counts)]
        kept = [row for row in new if self.low <= row["reward"] <= self.high]
        counts["unfit"] += len(new) - len(kept)
        counts["rewarded"] = sum(row["rewarded"] for row in kept)
        counts["defaulted"] = len(kept) - counts["rewarded"]
        self.cut += 1
        self.observed += sorted(({**row, "cut": self.cut} for row in kept), key=lambda row: (row["time"], row["id"]))
        self.until, self.decisions_before, self.rewards_before = until, len(self.decisions), len(self.rewards)
        return {"cut": self.cut, "pending": pending, "decisions": len(kept), **counts}

    def _taken_up(self, rows: list[Any], before: int, until: int) -> list[Any]:
        """Rows up to `until` but the first `before` that an earlier cut took up."""
        earlier = {i for i, row in enumerate(rows) if i < before and row.time <= self.until}
        return [row for i, row in enumerate(rows) if row.time <= until and i not in earlier]

    def _first_ones(self, taken: list[D], until: int, counts: dict[str, int]) -> list[D]:
        """Of each id the decision that counts, unless its rows state several."""
        counts["unfit"] += sum(not d.fits for d in taken)
        new: dict[str, list[D]] = {}
        for d in sorted((d for d in taken if d.fits), key=_place):
            before = [o for o in self.observed if o["id"] == d.id and _near(o["time"], d.time)]
            if not before:
                new.setdefault(d.id, []).append(d)
            elif self.exact:
                self._count_again(d, min(before, key=lambda o: o["time"])["said"], counts)
        firsts = []
        for first, *others in new.values():
            for d in others:
                self._count_again(d, first.said, counts)
            same = [d for d in self.decisions if d.id == first.id and d.fits and self._is_around(d, until)]
            around = [d for d in same if abs(d.time - first.time) <= 10 * MINUTE]
            rows = [first, *others, *around]
            if any(d.said != first.said and not _replaced(d, rows) for d in rows):
                counts["ambiguous"] += 1
            else:
                firsts.append(first)
        return firsts

    def _is_around(self, d: D, until: int) -> bool:
        """Whether a decision is shortly after this cut, or shortly before the end of the last one."""
        return until < d.time <= until + 10 * MINUTE or self.until - 10 * MINUTE < d.time <= self.until

    def _count_again(self, d: D, said: tuple[Any, ...], counts: dict[str, int]) -> None:
        counts["duplicates" if d.said == said else "conflicting"] += 1

    def _observe(self, d: D, counts: dict[str, int]) -> dict[str, Any]:
        inside = [r for r in self.rewards if r.id == d.id and -MINUTE <= r.time - d.time <= self.window * SECOND]
        kept: dict[Any, R] = {}
        for r in sorted(inside, key=lambda r: r.place):
            same = kept.setdefault(("key", r.key) if r.key is not None else (r.time, r.reward), r)
            if same is not r:
                counts["reward_duplicates" if same.reward == r.reward else "reward_conflicting"] += 1
        counts["matched"] += len(kept)
        values = [value for _, value in sorted((r.time, r.reward) for r in kept.values())]
        return {
            "id": d.id,
            "time": d.time,
            "said": d.said,
            "x": d.x,
            "reward": self._total(values) if values else self.default,
            "rewarded": bool(values),
            "metrics": self._metrics(list(kept.values())),
            "of": (d.eligible, d.unit, d.arm),
            "source": d.source,
        }

    def _metrics(self, rewards: list[R]) -> dict[str, float] | None:
        totals = {}
        for name in sorted({name for r in rewards for name, _ in r.metrics}):
            timed = sorted((r.time, value) for r in rewards for other, value in r.metrics if other == name)
            totals[name] = self._total([value for _, value in timed])
        return totals or None

    def _total(self, values: list[float]) -> float:
        match self.aggregate:
            case "first":
                return values[0]
            case "last":
                return values[-1]
            case "max":
                return max(values)
            case "sum":
                return math.fsum(values)
            case _:
                return math.fsum(values) / len(values)

    def _strays(self, until: int, taken: list[D], counts: dict[str, int]) -> None:
        window = self.window * SECOND
        known = self.rewards_before if self.exact else len(self.rewards)
        for r in self._taken_up(self.rewards, known, until):
            mine = [d.time for d in taken if d.id == r.id]
            if mine:
                delay = r.time - min(mine)
                counts["late"] += delay > window
                counts["orphans"] += delay < -MINUTE
                continue
            others = [o["time"] for o in self.observed if o["id"] == r.id]
            others += [d.time for d in self.decisions if d.id == r.id and until < d.time]
            delays = [r.time - t for t in others if -MINUTE <= r.time - t <= window + DAY]
            counts["orphans"] += not delays
            counts["late"] += bool(delays) and max(delays) > window
        for r in self.rewards[known:]:
            delays = [r.time - o["time"] for o in self.observed if o["id"] == r.id]
            counts["too_late"] += any(-MINUTE <= delay <= window for delay in delays)


def _place(d: D) -> tuple[Any, ...]:
    """By which of several decisions of one id it is known which counts; what is missing comes first."""
    rest = (d.eligible, d.unit, d.arm)
    return (d.time, *d.said, *((value is not None, value or ()) for value in rest), d.source, d.x)


def _replaced(d: D, rows: list[D]) -> bool:
    """Whether a fallback was answered in place of a decision."""
    return any(other.mode == "fallback" and other.time == d.time - 1 for other in rows)


def _near(one: int, other: int) -> bool:
    return abs(one // DAY - other // DAY) <= 1
