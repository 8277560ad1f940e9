"""Report on an experiment of a workspace, from its configuration and observations."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import polars as pl

from potstill.errors import InvalidOption, PotstillError
from potstill.events import microseconds
from potstill.experiments.analysis.effects import PLANNED
from potstill.experiments.analysis.metrics import Per
from potstill.experiments.analysis.read import DAY, PAST_DAYS, arms, experiments_in, first_decision, read_units
from potstill.experiments.analysis.report import About, Report, analyse
from potstill.experiments.analysis.units import REWARD, Units
from potstill.experiments.analysis.verdict import Verdict
from potstill.experiments.config import UNIT, ExperimentConfig, check_unit
from potstill.problem import Objective
from potstill.tables import context_column
from potstill.workspace import Workspace, experiment_status


class NoExperiment(PotstillError, ValueError):
    """There is no such experiment; the message lists those that exist."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a report.

    Attributes:
        share: Expected share of units in treatment. Default: the configured one.
        unit: Randomised unit: ``"unit"`` or a feature. Default: the configured one.
        metric, per: Main metric, and whether it is per decision or per unit.
        by: Context feature to break effects down by.
        level: Confidence level of each interval.
        planned: Number of units at which the anytime-valid intervals are narrowest.
        past_days: Days of pre-experiment data.
    """

    share: float | None = None
    unit: str | None = None
    metric: str = REWARD
    per: Per = "decision"
    by: str | None = None
    level: float = 0.95
    planned: int = PLANNED
    past_days: int = PAST_DAYS


def report_of(workspace: Workspace, name: str | None, options: Options, now: int) -> Report:
    """Report on an experiment of a workspace.

    Args:
        workspace: Workspace with the logged decisions.
        name: Name of the experiment. Default: the one in potstill.toml.
        options: Options of the report.
        now: Current time in microseconds since 1970.
    """
    _check_feature(workspace, options.by)
    config = workspace.config.experiment
    name = name or (config.name if config else None)
    if name is None or config is None or name != config.name:
        name, config = _logged_experiment(name, observations(workspace), config), None
    unit = randomised_unit(workspace, options.unit, config)
    share = options.share if options.share is not None else config.share if config else None
    start = microseconds(config.start) if config and config.start else None
    units = _units(workspace, name, unit, start, options)
    report = analyse(
        units,
        experiment=name,
        share=share,
        metric=options.metric if units.units else REWARD,
        per=options.per,
        by=options.by,
        level=options.level,
        planned=options.planned,
        expected=config.metrics if config and units.units else (),
    )
    about = About.of(config, units, unit=unit, workspace=workspace.url, made=now)
    if units.units:
        return msgspec.structs.replace(report, about=about)
    sentence = f"No verdict on {name} yet: {why_empty(workspace, name, config, now)}."
    return msgspec.structs.replace(report, about=about, verdict=Verdict(kind="unknown", sentence=sentence))


def observations(workspace: Workspace, unit: str = UNIT, since: int = 0) -> pl.LazyFrame:
    """A workspace's observations with the randomised unit, without files that end before `since`.

    Rewards are what is maximised: the objective, if the problem has one.
    """
    files = [file for file in workspace.lake.files("observations") if file.last >= since]
    rows = workspace.lake.read("observations", files)
    if workspace.problem.objective is not None:
        rows = rows.with_columns(reward=_objective(workspace.problem.objective))
    return rows if unit == UNIT else rows.with_columns(unit=pl.col(context_column(unit)).cast(pl.String))


def _objective(objective: Objective) -> pl.Expr:
    def values(columns: Sequence[pl.Series]) -> pl.Series:
        actions, outcomes = (column.to_numpy().astype(np.float64) for column in columns)
        return pl.Series(objective.values(actions, outcomes))

    return pl.map_batches(["action", "reward"], values, return_dtype=pl.Float64())


def _units(workspace: Workspace, name: str, unit: str, start: int | None, options: Options) -> Units:
    since = 0
    if start is not None:  # the first decision may precede the start; pre-experiment data then end earlier
        first = first_decision(observations(workspace), name)
        since = (start if first is None else min(start, first)) - options.past_days * DAY
    return read_units(
        observations(workspace, unit, since=since),
        name,
        start=start,
        past_days=options.past_days,
        daily=options.metric,
        by=context_column(options.by) if options.by else None,
    )


def randomised_unit(workspace: Workspace, stated: str | None, config: ExperimentConfig | None) -> str:
    """The randomised unit: the stated one, else the one configured for this experiment."""
    if stated is not None:
        check_unit(stated, workspace.problem, "--unit")
        return stated
    unit = config.unit if config else UNIT
    check_unit(unit, workspace.problem)
    return unit


def _check_feature(workspace: Workspace, by: str | None) -> None:
    features = [feature.name for feature in workspace.problem.context]
    if by is not None and by not in features:
        raise InvalidOption(f"--by {by}: there is no such feature; the features are {', '.join(features)}")


def _logged_experiment(name: str | None, rows: pl.LazyFrame, config: ExperimentConfig | None) -> str:
    """The name of an experiment that is in the log but not in the configuration; raises `NoExperiment` otherwise."""
    logged = experiments_in(rows)
    if name is not None and name in logged:
        return name
    others = f"the log has {', '.join(logged)}: name one with --name" if logged else "the log has none either"
    if name is None:
        raise NoExperiment(f"there is no [experiment] in potstill.toml, and {others}")
    present = f"potstill.toml has {config.name}" if config else "there is none in potstill.toml"
    raise NoExperiment(f"there is no experiment {name!r}: {present}, and {others}")


def why_empty(workspace: Workspace, name: str, config: ExperimentConfig | None, now: int) -> str:
    """Why the report is empty, most fixable cause first.

    Args:
        workspace: Workspace of the experiment.
        name: Name of the experiment.
        config: Its configuration; None if potstill.toml has none or another experiment.
        now: Current time in microseconds since 1970.
    """
    status = experiment_status(workspace, now) if config is not None else None
    if status is not None and status.state == "not started":
        return status.why
    logged = _logged_arms(workspace)
    waiting = sum(logged.get(arm, 0) for arm in arms(name))
    if waiting:
        return (
            f"{waiting:,} of its decisions are in the lake, and none is an observation yet; potstill update creates "
            f"observations when the reward window of {workspace.problem.reward.window} has closed"
        )
    others = sorted({arm.rpartition(":")[0] for arm in logged})
    beside = f". The lake has decisions of {', '.join(others)}: select one with --name" if others else ""
    if status is not None and status.state == "refused":
        return f"services refuse it: {status.why}{beside}"
    return (
        "the lake has no decisions of it; send requests with a unit, then run potstill events flush or potstill update"
        f"{beside}"
    )


def _logged_arms(workspace: Workspace) -> dict[str, int]:
    """Number of decisions of each arm in the lake, including those that are not observations yet."""
    decisions = workspace.lake.scan("decisions").filter(pl.col("arm").is_not_null())
    counted = decisions.group_by("arm").agg(pl.len()).collect(engine="streaming")
    return dict(counted.iter_rows())
