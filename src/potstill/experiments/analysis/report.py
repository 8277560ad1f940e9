"""An experiment's report: all effects, checks and the verdict, from the totals of its units."""

from __future__ import annotations

import msgspec

from potstill.evaluate.intervals import check_level
from potstill.experiments.analysis.about import About
from potstill.experiments.analysis.arms import Arms
from potstill.experiments.analysis.breakdowns import Segments
from potstill.experiments.analysis.cautions import cautions
from potstill.experiments.analysis.days import Day
from potstill.experiments.analysis.measured import PLANNED
from potstill.experiments.analysis.metrics import Metric, Per, Table
from potstill.experiments.analysis.sample_ratio import Split, split
from potstill.experiments.analysis.units import REWARD, Units, called
from potstill.experiments.analysis.verdict import Verdict, verdict


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What an experiment has shown so far.

    Attributes:
        experiment: its name.
        level: of all intervals.
        planned: units at which the intervals for those who look every day are narrowest.
        verdict: on the first metric.
        warnings: what to know before believing it.
        split: of units.
        decisions: that the units of each arm have.
        metrics: the main one first.
        days: how the main metric stood at the end of each day.
        segments: effects on the main metric by segment, if asked for.
        about: what was compared with what, on whom, and when; None where only totals are known.
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
        units: totals of each unit.
        experiment: its name.
        share: of units that should be in treatment; the split is not checked if left out.
        metric: the outcome that decides.
        per: whether it is taken per decision (a ratio of sums) or per unit.
        by: what `units.segment` holds.
        level: the confidence of each interval.
        planned: units at which the intervals for those who look every day are narrowest; to be chosen beforehand.
        expected: names of metrics that should be there; only these are shown beside the reward. All if there are none.
    """
    check_level(level)
    if metric not in units.outcomes:
        raise ValueError(f"there is no metric {metric!r}; the outcomes are {', '.join(units.outcomes)}")
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
