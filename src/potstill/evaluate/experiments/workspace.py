"""A workspace's experiment: what its configuration says about it, its observations, and why there may be none yet."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import polars as pl

from potstill.evaluate.experiments.analysis import Report, analyse
from potstill.evaluate.experiments.history import History, read_history
from potstill.evaluate.experiments.measured import PLANNED
from potstill.evaluate.experiments.metrics import Per
from potstill.evaluate.experiments.reader import DAY
from potstill.evaluate.experiments.reading import PAST_DAYS, arms, experiments_in, read_units
from potstill.evaluate.experiments.units import REWARD
from potstill.evaluate.experiments.verdict import Verdict
from potstill.events.records import microseconds
from potstill.events.schema import context_column
from potstill.experiment.config import UNIT, ExperimentConfig
from potstill.workspace import Workspace


class NoExperiment(ValueError):
    """There is no experiment to report on; the message says what there is instead."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to look at an experiment.

    Attributes:
        share: of units that should be in treatment; what the configuration says if left out.
        metric, per: the metric that decides, and whether it is per decision or per unit.
        by: a context feature to show effects by.
        level: the confidence of each interval.
        planned: units at which the intervals for those who look every day are narrowest.
        past_days: how far before the start to look for what units did before.
    """

    share: float | None = None
    metric: str = REWARD
    per: Per = "decision"
    by: str | None = None
    level: float = 0.95
    planned: int = PLANNED
    past_days: int = PAST_DAYS


def report_of(workspace: Workspace, name: str | None, options: Options, now: int) -> Report:
    """Report on an experiment of a workspace.

    Args:
        workspace: where its decisions were logged.
        name: of the experiment; the one in potstill.toml if left out.
        options: how to look at it.
        now: microseconds since 1970, to tell what has not started.
    """
    _check_feature(workspace, options.by)
    config = workspace.config.experiment
    name = name or (config.name if config else None)
    if name is None or config is None or name != config.name:
        name, config = _known(name, observations(workspace), config), None
    start = microseconds(config.start) if config and config.start else None
    units = read_units(
        observations(workspace, since=0 if start is None else start - options.past_days * DAY),
        name,
        start=start,
        past_days=options.past_days,
        daily=options.metric,
        by=context_column(options.by) if options.by else None,
    )
    report = analyse(
        units,
        experiment=name,
        share=options.share if options.share is not None else config.share if config else None,
        metric=options.metric if units.units else REWARD,
        per=options.per,
        by=options.by,
        level=options.level,
        planned=options.planned,
        expected=config.metrics if config and units.units else (),
    )
    if units.units:
        return report
    sentence = f"Nothing can be said about {name} yet: {_why_nothing(workspace, name, start, now)}."
    return msgspec.structs.replace(report, verdict=Verdict(kind="unknown", sentence=sentence))


def history_of(workspace: Workspace, metric: str, per: Per) -> History:
    """What a workspace's log says about an experiment that is to be planned."""
    return read_history(observations(workspace), metric=metric, per_decision=per == "decision")


def observations(workspace: Workspace, since: int = 0) -> pl.LazyFrame:
    """A workspace's observations, each with the unit that is randomised; without files that are all before `since`."""
    files = [file for file in workspace.lake.files("observations") if file.last >= since]
    rows, config = workspace.lake.read("observations", files), workspace.config.experiment
    if config is None or config.unit == UNIT:
        return rows
    return rows.with_columns(unit=pl.col(context_column(config.unit)).cast(pl.String))


def _check_feature(workspace: Workspace, by: str | None) -> None:
    features = [feature.name for feature in workspace.problem.context]
    if by is not None and by not in features:
        raise ValueError(f"--by {by}: there is no such feature; the features are {', '.join(features)}")


def _known(name: str | None, rows: pl.LazyFrame, config: ExperimentConfig | None) -> str:
    """The name of an experiment that the configuration does not have (any more), if the log has it."""
    logged = experiments_in(rows)
    if name is not None and name in logged:
        return name
    others = f"the log has {', '.join(logged)}: name one with --name" if logged else "the log has none either"
    if name is None:
        raise NoExperiment(f"there is no [experiment] in potstill.toml, and {others}")
    present = f"potstill.toml has {config.name}" if config else "there is none in potstill.toml"
    raise NoExperiment(f"there is no experiment {name!r}: {present}, and {others}")


def _why_nothing(workspace: Workspace, name: str, start: int | None, now: int) -> str:
    if start is not None and start > now:
        return f"it starts at {datetime.fromtimestamp(start / 1e6, UTC):%Y-%m-%d %H:%M %Z}"
    logged = workspace.lake.scan("decisions").filter(pl.col("arm").is_in(arms(name))).select(pl.len())
    waiting = int(logged.collect(engine="streaming").item())
    window = workspace.problem.reward.window
    if waiting:
        return (
            f"{waiting:,} of its decisions are in the lake, and none is an observation yet; potstill update makes "
            f"them, when the reward's window of {window} has closed"
        )
    return "no decision of it is in the lake; it needs requests that state a unit, and potstill events flush or update"
