"""An experiment's report: effects, checks and the verdict, from the totals of its units."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from potstill.errors import InvalidOption
from potstill.evaluate import check_level
from potstill.experiments.analysis import text
from potstill.experiments.analysis.breakdowns import Day, Segment, Segments
from potstill.experiments.analysis.effects import PLANNED
from potstill.experiments.analysis.metrics import Metric, Per, Table
from potstill.experiments.analysis.sample_ratio import Split, split
from potstill.experiments.analysis.units import REWARD, Arms, Units, outcome_name
from potstill.experiments.analysis.verdict import Verdict, cautions, verdict
from potstill.experiments.config import ExperimentConfig

_DAY = 86_400_000_000


Cells = tuple[str, ...]
#: Description of treatment, which is always the active policy.
TREATMENT = "the policy that serves"
ADJUSTED = (
    "Means and effects are adjusted by pre-experiment data where it explains variance (CUPED): they estimate what the "
    "arms would have had with the same past."
)
LEFT_OUT = "Effects are omitted because they cannot be trusted; --json has them."
#: Columns of effects that fit a narrow window.
NARROW = (0, 3, 4, 5)


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The set-up of an experiment.

    Attributes:
        control: Description of control; None if the experiment is no longer configured.
        start: Configured start; None without one.
        unit: Randomised unit: ``unit`` of requests, or a feature.
        first, last: Times of the first and last decision that counts; None without decisions.
        days: UTC days from the first to the last.
        workspace: URL of the workspace.
        made: Time of the report.
    """

    control: str | None
    start: datetime | None
    unit: str
    first: datetime | None
    last: datetime | None
    days: int
    workspace: str
    made: datetime

    @classmethod
    def of(cls, config: ExperimentConfig | None, units: Units, *, unit: str, workspace: str, made: int) -> About:
        """The set-up from a configuration and the units; `made` is in microseconds since 1970."""
        first, last = units.period or (None, None)
        return cls(
            control=config.control.in_words if config else None,
            start=config.start if config else None,
            unit=unit,
            first=_time(first),
            last=_time(last),
            days=0 if first is None or last is None else last // _DAY - first // _DAY + 1,
            workspace=workspace,
            made=datetime.fromtimestamp(made / 1e6, UTC),
        )

    @property
    def period(self) -> str:
        """The period, such as ``2026-11-16 to 2026-11-22 (7 days)``; empty without decisions."""
        if self.first is None or self.last is None:
            return ""
        days = "1 day" if self.days == 1 else f"{self.days:,} days"
        return f"{self.first:%Y-%m-%d} to {self.last:%Y-%m-%d} ({days})"


def format_time(time: datetime) -> str:
    """A time in UTC, to the minute."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _time(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else datetime.fromtimestamp(microseconds / 1e6, UTC)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The results of an experiment so far.

    Attributes:
        experiment: Name of the experiment.
        level: Confidence level of all intervals.
        planned: Number of units at which the anytime-valid intervals are narrowest.
        verdict: Verdict on the main metric.
        warnings: Caveats about the verdict.
        split: Numbers of units by arm, and the sample-ratio check.
        decisions: Number of decisions by arm.
        metrics: Effects on metrics, the main metric first.
        days: Cumulative effect on the main metric by day.
        segments: Effects on the main metric by segment, if requested.
        about: Set-up of the experiment; None if only totals are known.
    """

    experiment: str
    level: float
    planned: int
    verdict: Verdict
    warnings: list[str]
    split: Split
    decisions: Arms[int]
    metrics: list[Metric]
    days: list[Day]
    segments: Segments | None
    about: About | None = None

    @property
    def main(self) -> Metric:
        """The metric of the verdict."""
        return self.metrics[0]


def analyse(
    units: Units,
    *,
    experiment: str = "experiment",
    share: float | None = None,
    metric: str = REWARD,
    per: Per = "decision",
    by: str | None = None,
    level: float = 0.95,
    planned: int = PLANNED,
    expected: tuple[str, ...] = (),
) -> Report:
    """Analyse an experiment.

    Args:
        units: Totals of each unit.
        experiment: Name of the experiment.
        share: Expected share of units in treatment. None skips the sample-ratio check.
        metric: Outcome of the main metric.
        per: Whether the main metric is per decision (a ratio of sums) or per unit.
        by: Name of the feature in `units.segment`.
        level: Confidence level of each interval.
        planned: Number of units at which the anytime-valid intervals are narrowest; choose it before the start.
        expected: Names of metrics to report beside the reward, with a warning if missing. Default: all.
    """
    check_level(level)
    if metric not in units.outcomes:
        raise InvalidOption(f"there is no metric {metric!r}; the outcomes are {', '.join(units.outcomes)}")
    table = Table(units, level, planned)
    outcomes = _reported_outcomes(units, metric, expected)
    metrics = table.metrics(outcomes, per)
    counts = split(units.count(treated=False), units.count(treated=True), share)
    main = metrics[0]
    return Report(
        experiment=experiment,
        level=level,
        planned=planned,
        verdict=verdict(counts, main.name, main.outcome, main.measured, main.why_not, units.in_both),
        warnings=cautions(units, metrics[-1].measured, counts, outcomes, expected),
        split=counts,
        decisions=Arms(*(int(units.decisions[arm].sum()) for arm in (~units.treated, units.treated))),
        metrics=metrics,
        days=table.days(metric, per),
        segments=None if by is None else table.segments(by, metric, per),
    )


def _reported_outcomes(units: Units, metric: str, expected: tuple[str, ...]) -> list[str]:
    """Outcomes to report, the main one first."""
    wanted = {REWARD, *map(outcome_name, expected)} if expected else set(units.outcomes)
    return [metric, *(name for name in units.outcomes if name in wanted and name != metric)]


def effect_rows(report: Report) -> tuple[Cells, list[Cells]]:
    """Header and rows of the effects table, one row per metric."""
    header = ("metric", "control", "treatment", "effect", "looking once", "looking every day", "p", "past explains")
    return header, [_metric(one) for one in report.metrics]


def is_adjusted(report: Report) -> bool:
    """Whether any metric is adjusted by CUPED."""
    return any(one.adjusted for one in report.metrics)


def segment_rows(found: Segments) -> tuple[Cells, list[Cells]]:
    """Header and rows of the segments table, one row per segment."""
    return (found.by, "units", "effect", "interval", "p, corrected"), [_segment(one) for one in found.segments]


def split_sentence(report: Report) -> str:
    """The sample-ratio check in a sentence."""
    counts = report.split
    if counts.share is None or counts.p is None:
        return "The split was not checked."
    chance = "sample ratio mismatch" if counts.broken else "within chance"
    return (
        f"{text.percent(counts.observed)} of units are in treatment, expected {text.percent(counts.share)}: "
        f"{chance} ({text.probability(counts.p)})."
    )


def set_up(report: Report) -> dict[str, str]:
    """The set-up of the experiment by name of setting, without unknown values."""
    about, share = report.about, report.split.share
    lines = {"share": "" if share is None else f"{text.percent(share)} of units in treatment"}
    lines |= {"level": f"{report.level:g}", "planned": text.counted(report.planned, "unit")}
    if about is None:
        return {name: line for name, line in lines.items() if line}
    known = {
        "control": about.control or "",
        "treatment": TREATMENT,
        "unit": "as requests state it" if about.unit == "unit" else f"the feature {about.unit}",
        "start": format_time(about.start) if about.start else "",
        "period": about.period,
        **lines,
        "workspace": about.workspace,
        "made": format_time(about.made),
    }
    return {name: line for name, line in known.items() if line}


def _metric(one: Metric) -> Cells:
    measured, explained = one.measured, one.variance_reduction
    if measured is None:
        return (one.name, "–", "–", one.why_not, "–", "–", "–", "–")
    return (
        one.name,
        text.number(measured.control),
        text.number(measured.treatment),
        text.effect(measured),
        text.once(measured),
        text.anytime(measured),
        f"{measured.p:.2g}",
        text.percent(explained) if explained is not None and explained > 0 else "–",
    )


def _segment(one: Segment) -> Cells:
    if one.measured is None or one.p is None:
        return (one.name, f"{one.units:,}", "too few units", "–", "–")
    return (one.name, f"{one.units:,}", text.effect(one.measured), text.once(one.measured), f"{one.p:.2g}")
