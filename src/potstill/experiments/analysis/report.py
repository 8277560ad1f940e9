"""An experiment's report: all effects, checks and the verdict, from the totals of its units."""

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
from potstill.experiments.analysis.units import REWARD, Arms, Units, called
from potstill.experiments.analysis.verdict import Verdict, cautions, verdict
from potstill.experiments.config import ExperimentConfig

_DAY = 86_400_000_000


Cells = tuple[str, ...]
#: What treatment always is.
TREATMENT = "the policy that serves"
ADJUSTED = (
    "Where the past explains something, means and effects are adjusted by it (CUPED): they say what the arms would "
    "have had with the same past."
)
LEFT_OUT = "Effects are left out, since they cannot be trusted; --json has them."
#: The columns of effects that a narrow window has room for.
NARROW = (0, 3, 4, 5)


class About(msgspec.Struct, frozen=True, kw_only=True):
    """An experiment as it was set up.

    Attributes:
        control: What control does, in words; None if the configuration no longer says.
        start: Start as the configuration says; None if it does not.
        unit: Unit that was randomised: ``unit``, as requests state it, or a feature.
        first, last: when the first and the last decision that counts was taken; None without any.
        days: UTC days from the first to the last.
        workspace: Where it was logged.
        made: When the report was.
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
        """What is known; `made` in microseconds since 1970."""
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
        """Such as ``2026-11-16 to 2026-11-22 (7 days)``; empty without decisions."""
        if self.first is None or self.last is None:
            return ""
        days = "1 day" if self.days == 1 else f"{self.days:,} days"
        return f"{self.first:%Y-%m-%d} to {self.last:%Y-%m-%d} ({days})"


def moment(time: datetime) -> str:
    """A time as people read it."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _time(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else datetime.fromtimestamp(microseconds / 1e6, UTC)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What an experiment has shown so far.

    Attributes:
        experiment: Its name.
        level: Level of all intervals.
        planned: Units at which the intervals for those who look every day are narrowest.
        verdict: Verdict on the first metric.
        warnings: What to know before believing it.
        split: Split of units.
        decisions: Decisions that the units of each arm have.
        metrics: The main one first.
        days: How the main metric stood at the end of each day.
        segments: Effects on the main metric by segment, if asked for.
        about: What was compared with what, on whom, and when; None where only totals are known.
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
        """The metric that the verdict is about."""
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
        experiment: Its name.
        share: Share of units that should be in treatment; the split is not checked if left out.
        metric: The outcome that decides.
        per: Whether it is taken per decision (a ratio of sums) or per unit.
        by: What `units.segment` holds.
        level: The confidence of each interval.
        planned: Units at which the intervals for those who look every day are narrowest; to be chosen beforehand.
        expected: Names of metrics that should be there; only these are shown beside the reward. All if there are none.
    """
    check_level(level)
    if metric not in units.outcomes:
        raise InvalidOption(f"there is no metric {metric!r}; the outcomes are {', '.join(units.outcomes)}")
    table = Table(units, level, planned)
    shown = _shown(units, metric, expected)
    metrics = table.metrics(shown, per)
    counts = split(units.count(treated=False), units.count(treated=True), share)
    main = metrics[0]
    return Report(
        experiment=experiment,
        level=level,
        planned=planned,
        verdict=verdict(counts, main.name, main.outcome, main.measured, main.why_not, units.in_both),
        warnings=cautions(units, metrics[-1].measured, counts, shown, expected),
        split=counts,
        decisions=Arms(*(int(units.decisions[arm].sum()) for arm in (~units.treated, units.treated))),
        metrics=metrics,
        days=table.days(metric, per),
        segments=None if by is None else table.segments(by, metric, per),
    )


def _shown(units: Units, metric: str, expected: tuple[str, ...]) -> list[str]:
    """Outcomes in the order in which they are shown: the one that decides first."""
    wanted = {REWARD, *map(called, expected)} if expected else set(units.outcomes)
    return [metric, *(name for name in units.outcomes if name in wanted and name != metric)]


def effect_rows(report: Report) -> tuple[Cells, list[Cells]]:
    """All metrics, a row each."""
    header = ("metric", "control", "treatment", "effect", "looking once", "looking every day", "p", "past explains")
    return header, [_metric(one) for one in report.metrics]


def is_adjusted(report: Report) -> bool:
    """Whether any metric is adjusted by the past."""
    return any(one.adjusted for one in report.metrics)


def segment_rows(found: Segments) -> tuple[Cells, list[Cells]]:
    """All segments, a row each."""
    return (found.by, "units", "effect", "interval", "p, corrected"), [_segment(one) for one in found.segments]


def split_sentence(report: Report) -> str:
    """Whether units were split as they should have been."""
    counts = report.split
    if counts.share is None or counts.p is None:
        return "The split was not checked."
    chance = "not by chance" if counts.broken else "within chance"
    return (
        f"{text.percent(counts.observed)} of units are in treatment, and {text.percent(counts.share)} should be: "
        f"{chance} ({text.probability(counts.p)})."
    )


def set_up(report: Report) -> dict[str, str]:
    """What was compared with what, on whom, and when, by name; what is not known is left out."""
    about, share = report.about, report.split.share
    lines = {"share": "" if share is None else f"{text.percent(share)} of units in treatment"}
    lines |= {"level": f"{report.level:g}", "planned": text.counted(report.planned, "unit")}
    if about is None:
        return {name: line for name, line in lines.items() if line}
    known = {
        "control": about.control or "",
        "treatment": TREATMENT,
        "unit": "as requests state it" if about.unit == "unit" else f"the feature {about.unit}",
        "start": moment(about.start) if about.start else "",
        "period": about.period,
        **lines,
        "workspace": about.workspace,
        "made": moment(about.made),
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
