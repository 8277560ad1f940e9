"""What clients were told, and whether the lake and the registry agree with it in the end.

Rewards of a decision are powers of four and are summed, so that an observation tells how often each was counted.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import msgspec
import polars as pl
from simulation.scheduler import SECOND, Scheduler

from potstill.client.sansio import Request
from potstill.events.join.cuts import complete_cuts
from potstill.workspace import Workspace

WINDOW, SETTLE, DEFAULT = 100, 20, -0.5
#: A reward may be timestamped this long before its decision.
EARLY = 60 * SECOND
BASE = 4
#: Seconds by which clocks and calls may be off where the true time is the judge.
MARGIN = 10


@dataclass
class SentReward:
    """A reward of a decision, or several equal ones without a key.

    Attributes:
        copies: Number of rewards; more than one only without keys.
        acknowledged: Whether the client was told that it is logged.
        logged: When a log first acknowledged it, by its clock; None if none has.
        sent: True time at which it came.
        logged_truly: True time at which a log first acknowledged it.
    """

    copies: int
    sent: int
    acknowledged: bool = False
    logged: int | None = None
    logged_truly: int | None = None


@dataclass
class SentDecision:
    """A decision that a client asked for.

    Attributes:
        answers: What it was told: action, propensity and policy version, each once.
        rewards: Its rewards by place: the reward at place k is ``BASE ** k``.
        answered: True time of the first answer.
    """

    answers: list[tuple[str, float, int]] = field(default_factory=list)
    rewards: dict[int, SentReward] = field(default_factory=dict)
    answered: int | None = None


class Oracle:
    """Collects what happens, and checks the outcome.

    Args:
        scheduler: Tells the true time.
        strict: Whether rewards that came in the window by the true time must count, whatever clocks say.
    """

    def __init__(self, scheduler: Scheduler, *, strict: bool) -> None:
        self._scheduler, self._strict = scheduler, strict
        self.decisions: dict[str, SentDecision] = defaultdict(SentDecision)
        self.versions: dict[int, set[str]] = defaultdict(set)

    def answered(self, name: str, action: str, propensity: float, policy: int) -> None:
        """A client was told a decision."""
        answer, sent = (action, propensity, policy), self.decisions[name]
        if answer not in sent.answers:
            sent.answers.append(answer)
        sent.answered = sent.answered or self._scheduler.now

    def reward(self, name: str, copies: int = 1) -> int:
        """A new reward of a decision; returns its place."""
        rewards = self.decisions[name].rewards
        place = len(rewards)
        rewards[place] = SentReward(copies, self._scheduler.now)
        return place

    def logged(self, request: Request, clock: int) -> None:
        """A worker answers that it has logged a request."""
        if request.path == "reward" and request.body is not None:
            for reward in msgspec.json.decode(request.body)["rewards"]:
                sent = self.decisions[reward["id"]].rewards[place_of(reward["reward"])]
                sent.logged = clock if sent.logged is None else min(sent.logged, clock)
                sent.logged_truly = sent.logged_truly or self._scheduler.now

    def stored(self, address: str, data: bytes) -> None:
        """A file was written to the store."""
        if "/registry/entries/" in address:
            entry = msgspec.json.decode(data)["entry"]
            if entry["event"] == "published":
                self.versions[entry["version"]].add(entry["files"]["policy"]["sha256"])

    def violations(self, workspace: Workspace) -> list[str]:
        """What contradicts the invariant; empty if nothing does."""
        lake = workspace.lake
        observed = _by_id(lake.scan("observations").collect())
        decided = _by_id(lake.scan("decisions").collect())
        rewarded = _by_id(lake.scan("rewards").collect())
        cuts = {cut.number for cut in complete_cuts(lake, workspace.cuts)}
        found = [
            fault
            for name in sorted({*self.decisions, *observed})
            for fault in self._decision(name, observed[name], decided[name], rewarded[name], cuts)
        ]
        return found + self._published(workspace, cuts)

    def _decision(
        self, name: str, observed: list[Any], decided: list[Any], rewarded: list[Any], cuts: set[int]
    ) -> list[str]:
        if name not in self.decisions:
            return [f"{name}: observed, and never submitted"]
        sent = self.decisions[name]
        if len(observed) > 1:
            return [f"{name}: observed {len(observed)} times"]
        if not observed:
            if not sent.answers or self._left_out(sent, decided):
                return []
            where = "in the table of decisions" if decided else "in no table"
            return [f"{name}: acknowledged and not observed; it is {where}"]
        (row,) = observed
        found = [] if row["cut"] in cuts else [f"{name}: cut {row['cut']} is not complete"]
        answer = (row["action"], row["propensity"], row["policy"])
        if sent.answers and answer not in sent.answers:
            found.append(f"{name}: observed as {answer}, acknowledged as {sent.answers}")
        if len(sent.answers) > 1:
            found.append(f"{name}: observed, and acknowledged as both {sent.answers}")
        return found + self._rewards(name, sent, row, rewarded)

    def _left_out(self, sent: SentDecision, decided: list[Any]) -> bool:
        """Whether nobody can know which of several decisions of one id was answered."""
        stated = {(row["action"], row["propensity"], row["policy"]) for row in decided}
        return len(stated) > 1 or len(set(sent.answers)) > 1

    def _rewards(self, name: str, sent: SentDecision, row: Any, rewarded: list[Any]) -> list[str]:
        decided, found = _micros(row["time"]), []
        times = {place_of(reward["reward"]): _micros(reward["time"]) for reward in rewarded}
        counts = _digits(row["reward"]) if row["rewarded"] else {}
        for place in sorted({*sent.rewards, *counts}):
            reward, count = sent.rewards.get(place), counts.get(place, 0)
            if reward is None:
                found.append(f"{name}: reward {place} was never submitted")
                continue
            time = times.get(place)
            if time is None:
                if reward.acknowledged:
                    found.append(f"{name}: reward {place} was acknowledged and is in no table")
                continue
            within = -EARLY <= time - decided <= WINDOW * SECOND
            in_time = reward.logged is not None and reward.logged < decided + (WINDOW + SETTLE) * SECOND
            timely = (within and in_time) or (self._strict and _surely_timely(sent, reward))
            least = reward.copies if timely and reward.acknowledged else 0
            most = reward.copies if within or self._strict else 0
            if not least <= count <= most:
                found.append(
                    f"{name}: reward {place} counted {count} times, not {least} to {most}; decided at {decided}, "
                    f"rewarded {(time - decided) / SECOND:.3f} s later, logged at {reward.logged}, cut {row['cut']}"
                )
        return found

    def _published(self, workspace: Workspace, cuts: set[int]) -> list[str]:
        found = [
            f"version {version} was given out {len(policies)} times"
            for version, policies in sorted(self.versions.items())
            if len(policies) > 1
        ]
        for version in workspace.registry.versions(after=0):
            report = msgspec.json.decode(workspace.registry.report(version.version))
            if "cut" not in report:
                continue
            if report["cut"] not in cuts:
                found.append(f"version {version.version} was learnt from cut {report['cut']}, which is not complete")
            elif report["learnt"] != learnt(workspace, report["cut"]):
                found.append(f"version {version.version} was learnt from other observations than those of its cuts")
        return found


def _surely_timely(sent: SentDecision, reward: SentReward) -> bool:
    """Whether a reward came in time by the true time, by a margin for skewed clocks and slow calls."""
    if sent.answered is None or reward.logged_truly is None:
        return False
    latest = sent.answered + (WINDOW + SETTLE - MARGIN) * SECOND
    return reward.sent - sent.answered < (WINDOW - MARGIN) * SECOND and reward.logged_truly < latest


def learnt(workspace: Workspace, cut: int) -> str:
    """Hash of all observations up to a cut."""
    rows = workspace.lake.scan("observations").filter(pl.col("cut") <= cut)
    frame = rows.select("id", "time", "action", "propensity", "policy", "reward", "cut").collect().sort("id", "cut")
    return hashlib.sha256(frame.write_csv().encode()).hexdigest()


def value_of(place: int) -> float:
    """The reward at a place."""
    return float(BASE**place)


def place_of(reward: float) -> int:
    """The place of a reward."""
    return (int(reward).bit_length() - 1) // 2


def _digits(total: float) -> dict[int, int]:
    """How often each reward is in a sum."""
    rest, place, counts = int(total), 0, {}
    while rest:
        rest, digit = divmod(rest, BASE)
        if digit:
            counts[place] = digit
        place += 1
    return counts


def _by_id(frame: pl.DataFrame) -> dict[str, list[Any]]:
    rows: dict[str, list[Any]] = defaultdict(list)
    for row in frame.iter_rows(named=True):
        rows[row["id"]].append(row)
    return rows


def _micros(moment: Any) -> int:
    return round(moment.timestamp() * 1_000_000)
