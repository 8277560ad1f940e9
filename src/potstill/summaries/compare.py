"""What serves, compared with what else could be done: control, a fixed action, uniformly random actions."""

from __future__ import annotations

from typing import Literal

import msgspec

from potstill.summaries.cells import ObservationCell
from potstill.summaries.sums import Estimate, Sums, against, difference, mean_of, off_policy

#: How a comparison is known: by a randomised experiment, by off-policy evaluation, or by decisions of other times.
Basis = Literal["experiment", "off-policy", "other decisions"]
#: Effective rows below which an off-policy estimate says little.
ENOUGH = 100


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison. Estimates are per decision, of what is maximised, with 95% intervals.

    Attributes:
        name: What it is compared with.
        basis: How that is known.
        served: What served.
        other: What it is compared with.
        difference: Served minus the other.
        words: The result in words.
    """

    name: str
    basis: Basis
    served: Estimate
    other: Estimate
    difference: Estimate
    words: str


def compare(cell: ObservationCell, fallback: str | None) -> list[Line]:
    """All comparisons that the rows of a cell allow, the most reliable first.

    Args:
        cell: The rows.
        fallback: The configured fallback action: what is done without a policy.
    """
    lines = [*_experiments(cell), *_apprentice(cell)]
    if cell.exact.n:
        if fallback in cell.always:
            weights = cell.always[fallback]
            lines.append(
                _off_policy(f"always {fallback}", off_policy(weights, cell.exact), against(weights, cell.exact), cell)
            )
        lines.append(
            _off_policy(
                "uniformly random actions",
                off_policy(cell.uniform, cell.exact),
                against(cell.uniform, cell.exact),
                cell,
            )
        )
    return lines


def _off_policy(name: str, other: Estimate, found: Estimate, cell: ObservationCell) -> Line:
    words = verdict(found)
    if other.effective < ENOUGH:
        words = f"{words}; the log says as much about this as {other.effective:.0f} rows of its own would"
    return Line(name=name, basis="off-policy", served=mean_of(cell.exact), other=other, difference=found, words=words)


def _experiments(cell: ObservationCell) -> list[Line]:
    names = sorted({arm.rpartition(":")[0] for arm in cell.arms})
    found = []
    for name in names:
        treatment, control = (cell.arms.get(f"{name}:{arm}", Sums()) for arm in ("treatment", "control"))
        if treatment.n and control.n:
            delta = difference(treatment, control)
            found.append(
                Line(
                    name=f"control of {name}",
                    basis="experiment",
                    served=mean_of(treatment),
                    other=mean_of(control),
                    difference=delta,
                    words=verdict(delta),
                )
            )
    return found


def _apprentice(cell: ObservationCell) -> list[Line]:
    own, policy = cell.sources.get("apprentice", Sums()), cell.sources.get("log", Sums())
    if not own.n or not policy.n:
        return []
    delta = difference(policy, own)
    words = f"{verdict(delta)}; these are decisions of other times, so that other things may differ too"
    return [
        Line(
            name="your own choices in mode apprentice",
            basis="other decisions",
            served=mean_of(policy),
            other=mean_of(own),
            difference=delta,
            words=words,
        )
    ]


def verdict(found: Estimate) -> str:
    """A difference in words."""
    if found.value is None or found.low is None or found.high is None:
        return "not known yet"
    if found.low > 0:
        return "better"
    return "worse" if found.high < 0 else "no difference that this many decisions could show"
