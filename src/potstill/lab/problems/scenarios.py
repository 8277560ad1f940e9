"""Scenarios: problems with their number of decisions, batch size and measure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from potstill.errors import LabError
from potstill.keys import Key
from potstill.lab.problems.decision_log import DecisionLog
from potstill.lab.problems.environment import Environment, Simulation, World
from potstill.lab.problems.numbers import Bidding, Pricing, TableDose
from potstill.lab.problems.prior import GaussianProcessPrior, LinearPrior
from potstill.lab.problems.replay import Progress, Replay, parts_of, rows_for, upload_log
from potstill.lab.problems.reward_file import read_rewards
from potstill.lab.problems.table import ClassificationProblem, DoseProblem
from potstill.lab.problems.video import VideoUpload
from potstill.lab.problems.wheel import Wheel
from potstill.problem import Problem

#: Trials of this many decisions or more update every 1,000 decisions, as in the paper; shorter ones every 100.
MANY = 10_000
#: Endings of files with tables.
TABLES = (".csv", ".parquet")

Kind = TypeVar("Kind", ClassificationProblem, DoseProblem, TableDose)


class OwnTable(msgspec.Struct, frozen=True, kw_only=True):
    """What to decide in a table: a class (`label`), an amount among levels (`target`), any amount (`dose`), or what a
    log of decisions did (`action`), to replay it.

    Attributes:
        label: Column of the class to predict.
        target: Column of the amount to choose from levels.
        dose: Column of the amount to choose as a number.
        levels: Number of evenly spaced amounts to choose from.
        without: Columns to leave out of the context.
        rewards: File of rewards by class and action, for a label.
        action: Column of the logged action.
        reward: Column of the logged reward.
        propensity: Column of the probability of the logged action; None for uniformly random decisions.
    """

    label: str | None = None
    target: str | None = None
    dose: str | None = None
    levels: int = 20
    without: tuple[str, ...] = ()
    rewards: str | None = None
    action: str | None = None
    reward: str | None = None
    propensity: str | None = None

    @property
    def options(self) -> tuple[str, ...]:
        """The table's options on the command line."""
        name, value = next(iter(self.stated.items()), ("target", ""))
        what, levels = (f"--{name}", value), ("--levels", str(self.levels)) if name == "target" else ()
        more = {"rewards": self.rewards, "reward": self.reward, "propensity": self.propensity}
        further = (word for name, value in more.items() if value is not None for word in (f"--{name}", value))
        return (*what, *levels, *further, *(word for name in self.without for word in ("--without", name)))

    @property
    def stated(self) -> dict[str, str]:
        """Columns that were named, by option."""
        named = {"label": self.label, "target": self.target, "dose": self.dose, "action": self.action}
        return {name: value for name, value in named.items() if value is not None}


def find_scenario(name: str, own: OwnTable, decisions: int | None = None) -> Scenario:
    """The scenario with a name, or of a file with a table."""
    path = Path(name)
    if not is_known(name) and (path.suffix.lower() in TABLES or "/" in name or path.exists()):
        return own_scenario(path, own, decisions)
    return scenario(name)


def refuse_unused(own: OwnTable, found: Sequence[Scenario]) -> None:
    """Reject options for tables if no problem is a table."""
    if own != OwnTable() and not any(one.options for one in found):
        names = ", ".join(one.name for one in found)
        raise LabError(
            "--label, --target, --dose, --levels, --without, --rewards, --action, --reward and --propensity are for a "
            f"table of your own, not for {names}"
        )


def usual_batch(decisions: int) -> int:
    """Decisions between updates in a trial of a user's own table."""
    return 1_000 if decisions >= MANY else 100


def own_scenario(path: Path, own: OwnTable, decisions: int | None = None) -> Scenario:
    """The scenario of a table: every row once in random order, or drawn with replacement for more decisions.

    Args:
        path: Path of a CSV file with a header row, or of a Parquet file.
        own: What to decide in the table.
        decisions: Number of decisions in a trial; one per row by default.
    """
    if not own.stated:
        raise LabError(
            f"{path}: say what to decide: --label COLUMN for a class, --target COLUMN for a level of an amount, "
            "--dose COLUMN for the amount as a number, or --action COLUMN --reward COLUMN for a log of decisions"
        )
    if len(own.stated) > 1:
        stated = " and ".join(f"--{name} {value}" for name, value in own.stated.items())
        raise LabError(f"{path}: {stated} exclude each other; give one")
    if own.rewards is not None and own.label is None:
        raise LabError(f"{path}: --rewards {own.rewards} is for a class; name its column with --label")
    if own.action is not None or own.reward is not None or own.propensity is not None:
        return _log_scenario(path, own, decisions)
    rows = table(path, own, resample=False).rows
    count = decisions or rows
    return Scenario(
        name=path.name,
        title=path.name,
        decisions=count,
        batch=usual_batch(count),
        environment=partial(table, path, own, resample=count > rows),
        options=own.options,
    )


def _log_scenario(path: Path, own: OwnTable, decisions: int | None) -> Scenario:
    """The replay of a log: as many decisions as its rows can give, unless stated."""
    if own.action is None or own.reward is None:
        missing = "--action" if own.action is None else "--reward"
        raise LabError(f"{path}: a log of decisions needs --action COLUMN and --reward COLUMN; {missing} is missing")
    log = decision_log(path, own)
    count = decisions or log.most_decisions
    return Scenario(
        name=path.name,
        title=path.name,
        decisions=count,
        batch=usual_batch(count),
        environment=partial(decision_log, path, own),
        log_rows=log.rows,
        options=own.options,
    ).with_decisions(count)


@cache
def decision_log(path: Path, own: OwnTable) -> DecisionLog:
    """A log of decisions, read once in each process."""
    check_table_file(path)
    assert own.action is not None
    assert own.reward is not None
    try:
        return DecisionLog.from_file(
            path,
            action=own.action,
            reward=own.reward,
            propensity=own.propensity,
            without=own.without,
            name=_named_by_content(path),
        )
    except ValueError as error:
        raise LabError(str(error).replace("with features=[...]", "with --without COLUMN")) from error


def _named_by_content(path: Path) -> str:
    """Part of the problem's hash, which tells results of changed files apart."""
    return f"{path.stem}-{sha256(path.read_bytes()).hexdigest()[:12]}"


@cache
def table(path: Path, own: OwnTable, *, resample: bool) -> ClassificationProblem | DoseProblem | TableDose:
    """The environment of a table, read once in each process."""
    check_table_file(path)
    options: dict[str, Any] = {"name": _named_by_content(path), "without": own.without, "resample": resample}
    try:
        if own.label is not None:
            return _read(ClassificationProblem, path)(path, label=own.label, **_with_rewards(options, own.rewards))
        if own.dose is not None:
            return _read(TableDose, path)(path, dose=own.dose, **options)
        return _read(DoseProblem, path)(path, target=own.target, levels=own.levels, **options)
    except ValueError as error:
        raise LabError(str(error).replace("with features=[...]", "with --without COLUMN")) from error


def _with_rewards(options: dict[str, Any], file: str | None) -> dict[str, Any]:
    """Options of a table with the rewards of a file, which are not part of a problem's hash by themselves."""
    if file is None:
        return options
    path = Path(file)
    check_table_file(path)
    name = f"{options['name']}-{sha256(path.read_bytes()).hexdigest()[:12]}"
    return {**options, "name": name, "rewards": read_rewards(path)}


def check_table_file(path: Path) -> None:
    """Refuse a path that is not that of a table."""
    if not path.is_file():
        raise LabError(f"{path}: {'that is a folder, not a table' if path.is_dir() else 'there is no such file'}")
    if (ending := path.suffix.lower()) not in TABLES:
        raise LabError(f"{path}: a table is a file that ends in {' or '.join(TABLES)}, not in {ending!r}")


def _read(kind: type[Kind], path: Path) -> Callable[..., Kind]:
    return kind.from_csv if path.suffix.lower() == ".csv" else kind.from_parquet


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One problem of the evaluation. Data is read on first use, and raises MissingData.

    Attributes:
        name: Name in commands and files.
        title: Title in tables and figures.
        decisions: Number of decisions in a trial.
        batch: Decisions between updates.
        environment: Makes the simulated problem; a function that can be pickled, for other processes.
        log_rows: Number of rows of the log to replay, as in the paper; None to simulate.
        options: Further command-line options, for a user's own table.
    """

    name: str
    title: str
    decisions: int
    batch: int
    environment: Callable[[], Any]
    log_rows: int | None = None
    options: tuple[str, ...] = ()

    @property
    def measure(self) -> Literal["regret", "reward"]:
        """The reported measure: reward for a log, which does not hold the rewards of other actions, else regret."""
        return "regret" if self.log_rows is None else "reward"

    @property
    def sizes(self) -> list[int]:
        """Number of decisions in each batch; the last takes the remainder."""
        whole, rest = divmod(self.decisions, self.batch)
        return [self.batch] * whole + [rest] * (rest > 0)

    @property
    def problem(self) -> Problem:
        """The problem."""
        problem: Problem = self.environment().problem
        return problem

    def world(self, seed: int) -> World:
        """Requests of a trial; equal seeds give equal requests and reward noise."""
        environment, key = self.environment(), Key(seed).child("world")
        if isinstance(environment, (LinearPrior, GaussianProcessPrior)):
            environment = environment.drawn(key)
        if isinstance(environment, DecisionLog):
            return Replay(environment.problem, environment.parts(key))
        if self.log_rows is None:
            return Simulation(environment, self.decisions, key)
        return Replay(environment.problem, parts_of(upload_log(environment, self.log_rows), environment.problem, key))

    def prepare(self, progress: Progress | None = None) -> None:
        """Read or write the data of trials before the first one: errors appear early, and a log is written once.

        Args:
            progress: Called with the rows written and the total.
        """
        environment = self.environment()
        if self.log_rows is not None and not isinstance(environment, DecisionLog):
            upload_log(environment, self.log_rows, progress)
        self.world(seed=0)

    def with_decisions(self, n: int) -> Scenario:
        """The scenario with another number of decisions."""
        if n < 1:
            raise LabError(f"{self.name}: decisions must be 1 or more, got {n}")
        environment = self.environment() if self.log_rows is not None else None
        if isinstance(environment, DecisionLog):
            environment.check_decisions(n, self.name)
        elif self.log_rows is not None and (rows := rows_for(self.problem, n)) > self.log_rows:
            raise LabError(
                f"{self.name}: {n:,} decisions take about {rows:,} logged rows, but the log has {self.log_rows:,};"
                f" ask for fewer, or for the problem video-{-(-rows // 1_000_000)}m"
            )
        return msgspec.structs.replace(self, decisions=n)

    def with_batch(self, n: int) -> Scenario:
        """The scenario with another number of decisions between updates."""
        if n < 1:
            raise LabError(f"{self.name}: batch must be 1 or more, got {n}")
        return msgspec.structs.replace(self, batch=n)


def _mushroom() -> Environment:
    from potstill.lab.problems.mushroom import mushroom

    return mushroom()


def _warfarin(levels: int, resample: bool) -> Environment:
    from potstill.lab.problems.warfarin import warfarin

    return warfarin(levels, resample)


def _warfarin_numbers() -> TableDose:
    from potstill.lab.problems.warfarin import warfarin_numbers

    return warfarin_numbers()


def _dosing(levels: int, *, resample: bool) -> Scenario:
    return Scenario(
        name=f"warfarin-{levels}" + "-resampled" * resample,
        title=f"Warfarin, {levels} doses" + ", resampled" * resample,
        decisions=50_000 if resample else 5_528,
        batch=100,
        environment=partial(_warfarin, levels, resample),
    )


def _wheel(delta: float, name: str) -> Scenario:
    return Scenario(
        name=name, title=f"Wheel, δ = {delta:g}", decisions=10_000, batch=1_000, environment=partial(Wheel, delta)
    )


def _video(millions: float, name: str) -> Scenario:
    return Scenario(
        name=name,
        title="Video upload, replayed",
        decisions=50_000,
        batch=1_000,
        environment=VideoUpload,
        log_rows=round(millions * 1e6),
    )


SCENARIOS: dict[str, Scenario] = {
    one.name: one
    for one in (
        _wheel(0.95, "wheel"),
        Scenario(name="mushroom", title="Mushroom", decisions=50_000, batch=1_000, environment=_mushroom),
        _dosing(20, resample=False),
        _dosing(50, resample=False),
        _dosing(20, resample=True),
        _dosing(50, resample=True),
        # A trial uses about 350,000 rows; the paper's log has 8 million.
        _video(2, "video"),
    )
}

#: Problems whose action is a number; `all` means the paper's problems, and `numbers` these.
NUMBERS: dict[str, Scenario] = {
    one.name: one
    for one in (
        Scenario(
            name="warfarin-dose", title="Warfarin, any dose", decisions=5_528, batch=100, environment=_warfarin_numbers
        ),
        Scenario(name="pricing", title="Pricing", decisions=5_000, batch=250, environment=Pricing),
        Scenario(name="bidding", title="Bidding", decisions=5_000, batch=250, environment=Bidding),
    )
}


#: Problems whose reward function is drawn from a teacher's prior in each trial; not among `all`.
FROM_PRIORS: dict[str, Scenario] = {
    one.name: one
    for one in (
        Scenario(
            name="linear-prior", title="Drawn from a linear prior", decisions=1_000, batch=100, environment=LinearPrior
        ),
        Scenario(
            name="gp-prior",
            title="Drawn from a Gaussian process",
            decisions=500,
            batch=50,
            environment=GaussianProcessPrior,
        ),
    )
}


def is_known(name: str) -> bool:
    """Whether a scenario has that name."""
    try:
        scenario(name)
    except ValueError:
        return False
    return True


def scenario(name: str) -> Scenario:
    """A scenario by name; ``wheel-0.5`` is the wheel with another delta, ``video-8m`` a log of 8 million rows."""
    if name in (named := SCENARIOS | NUMBERS | FROM_PRIORS):
        return named[name]
    if match := re.fullmatch(r"wheel-(0(\.\d+)?)", name):
        return _wheel(float(match[1]), name)
    if match := re.fullmatch(r"video-([1-9]\d*)m", name):
        return _video(int(match[1]), name)
    raise LabError(
        f"unknown problem {name!r}; the problems are {', '.join(SCENARIOS | NUMBERS)};"
        " also wheel-0.5, for any delta from 0 to below 1, video-8m, for a log of 8 million rows, and"
        f" {' and '.join(FROM_PRIORS)}, drawn from a teacher's prior in each trial"
    )
