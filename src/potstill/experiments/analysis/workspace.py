"""A workspace's experiment: what its configuration says about it, and its observations."""

from __future__ import annotations

import msgspec
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
from potstill.tables import context_column
from potstill.workspace import Workspace, experiment_status


class NoExperiment(PotstillError, ValueError):
    """There is no experiment to report on; the message says what there is instead."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How to look at an experiment.

    Attributes:
        share: Share of units that should be in treatment; what the configuration says if left out.
        unit: Unit that was randomised: ``"unit"``, or a feature; what the configuration says if left out.
        metric, per: the metric that decides, and whether it is per decision or per unit.
        by: A context feature to show effects by.
        level: The confidence of each interval.
        planned: Units at which the intervals for those who look every day are narrowest.
        past_days: How far before the start to look for what units did before.
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
        workspace: Where its decisions were logged.
        name: Name of the experiment; the one in potstill.toml if left out.
        options: How to look at it.
        now: Microseconds since 1970, to tell what has not started.
    """
    _check_feature(workspace, options.by)
    config = workspace.config.experiment
    name = name or (config.name if config else None)
    if name is None or config is None or name != config.name:
        name, config = _known(name, observations(workspace), config), None
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
    sentence = f"Nothing can be said about {name} yet: {why_nothing(workspace, name, config, now)}."
    return msgspec.structs.replace(report, about=about, verdict=Verdict(kind="unknown", sentence=sentence))


def observations(workspace: Workspace, unit: str = UNIT, since: int = 0) -> pl.LazyFrame:
    """A workspace's observations, each with the unit that is randomised; without files that are all before `since`."""
    files = [file for file in workspace.lake.files("observations") if file.last >= since]
    rows = workspace.lake.read("observations", files)
    return rows if unit == UNIT else rows.with_columns(unit=pl.col(context_column(unit)).cast(pl.String))


def _units(workspace: Workspace, name: str, unit: str, start: int | None, options: Options) -> Units:
    since = 0
    if start is not None:  # its first decision may be earlier, and then so is the past
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
    """The unit that was randomised. What the configuration says counts for its own experiment, and for no other."""
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


def why_nothing(workspace: Workspace, name: str, config: ExperimentConfig | None, now: int) -> str:
    """The reason in words, from what is most likely to be mended on.

    Args:
        workspace: Where its decisions would be.
        name: Name of the experiment.
        config: What potstill.toml says of it; None if it is another one, or there is none.
        now: Microseconds since 1970.
    """
    stands = experiment_status(workspace, now) if config is not None else None
    if stands is not None and stands.state == "not started":
        return stands.why
    logged = _logged_arms(workspace)
    waiting = sum(logged.get(arm, 0) for arm in arms(name))
    if waiting:
        return (
            f"{waiting:,} of its decisions are in the lake, and none is an observation yet; potstill update makes "
            f"them, when the reward's window of {workspace.problem.reward.window} has closed"
        )
    others = sorted({arm.rpartition(":")[0] for arm in logged})
    beside = f". The lake has decisions of {', '.join(others)}: --name shows those" if others else ""
    if stands is not None and stands.state == "refused":
        return f"no service follows it, since {stands.why}{beside}"
    return (
        "no decision of it is in the lake; it needs requests that state a unit, and potstill events flush or update"
        f"{beside}"
    )


def _logged_arms(workspace: Workspace) -> dict[str, int]:
    """How many decisions each arm has in the lake, whether or not they are observations."""
    decisions = workspace.lake.scan("decisions").filter(pl.col("arm").is_not_null())
    counted = decisions.group_by("arm").agg(pl.len()).collect(engine="streaming")
    return dict(counted.iter_rows())
