"""Everything that a report says, for machines."""

from __future__ import annotations

from pathlib import Path

import msgspec

from potstill._version import __version__
from potstill.lab.measure.measurements import Measurements
from potstill.lab.report import origin
from potstill.lab.report.imitation import Imitated, imitation
from potstill.lab.report.paper import deviations
from potstill.lab.report.rows import Compared, Final, Timed, comparisons, finals, latencies
from potstill.lab.report.runs import Runs
from potstill.lab.runs.comparison import expected_by_chance
from potstill.lab.runs.provenance import commit


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """All that the report says, for machines.

    Attributes:
        library: Potstill's version.
        commit: that the report was made from; None outside a checkout.
        commits: that ran the trials, each with how many.
        commands: that make such results.
        trials: finished ones that were read.
        deviations: from the paper, if its problems were run.
        notes: remarks that were handed over.
        finals: where every algorithm ended.
        comparisons: distilled policies against their Thompson sampling.
        outside_by_chance: how many of these would be outside two standard errors if nothing differed.
        imitation: error, price and cost of the distilled policies.
        latency: beside the paper's.
        measurements: of this machine, raw; None if none were asked for.
    """

    library: str
    commit: str | None
    commits: dict[str, int]
    commands: list[str]
    trials: int
    deviations: list[str]
    notes: str
    finals: list[Final]
    comparisons: list[Compared]
    outside_by_chance: float
    imitation: list[Imitated]
    latency: list[Timed]
    measurements: Measurements | None


def summary(runs: Runs, folder: Path, measured: Measurements | None, notes: str, commands: list[str]) -> Summary:
    """Everything that is said of some runs."""
    compared = comparisons(runs)
    return Summary(
        library=__version__,
        commit=commit(),
        commits=origin.commits(runs, folder),
        commands=[*origin.commands(runs, folder), *commands],
        trials=sum(len(run.trials) for run in runs.runs),
        deviations=deviations(runs.problems),
        notes=notes,
        finals=finals(runs),
        comparisons=compared,
        outside_by_chance=expected_by_chance([row.comparison for row in compared]),
        imitation=imitation(runs),
        latency=latencies(measured.latency) if measured else [],
        measurements=measured,
    )
