"""Mode apprentice: how close the policy is to the caller's own logic, and whether it is ready to go live."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import polars as pl

from potstill.evaluate import LakeLog, OffPolicyEstimate, evaluate
from potstill.pipeline.recent_rows import latest_rows
from potstill.policy import Policy
from potstill.problem import Problem
from potstill.spaces import FiniteSpace
from potstill.summaries import AgreementSegment, ApprenticeReport, Estimate, Sums, mean_of
from potstill.summaries.build import agrees, value_of
from potstill.tables import context_column
from potstill.workspace import Workspace

#: Decisions that are looked at, the latest.
ROWS = 1000
#: Decisions below which nothing is said.
FEWEST = 200
#: Share of your own reward that the policy should achieve, and of decisions in which it should agree.
ACHIEVED, AGREEMENT = 0.7, 0.6
#: Share of decisions that must state a propensity for off-policy evaluation.
STATED = 0.9
#: Parts of a number's range, and rows of the smallest segment.
PARTS, SEGMENT = 4, 20
_Z = 1.959963984540054


def read_apprentice(workspace: Workspace, now: int, policy: Policy | None = None) -> ApprenticeReport:
    """The report over the last joined decisions of mode apprentice.

    Args:
        workspace: The workspace.
        now: Microseconds since 1970, UTC.
        policy: Policy to evaluate off-policy where callers state their propensities; none if left out.
    """
    mine = (pl.col("source") == "apprentice", pl.col("would").is_not_null())
    frame = latest_rows(workspace.lake, "observations", ROWS, *mine)
    if not len(frame):
        return ApprenticeReport(made=now, words="No decision of mode apprentice is joined with its reward yet.")
    problem = workspace.problem
    rows = value_of(frame.lazy(), problem).with_columns(agrees=agrees(problem)).collect()
    agreed = rows.filter("agrees")
    report = ApprenticeReport(
        made=now,
        rows=len(rows),
        agreement=_share(len(agreed), len(rows)),
        expected=_expected(rows, problem),
        reward=mean_of(_sums(rows)),
        agreed_reward=mean_of(_sums(agreed)),
        achieved=_achieved(rows, agreed),
        stated=1 - rows["own_propensity"].null_count() / len(rows),
        segments=_segments(rows, problem),
    )
    return _judged(_evaluated(report, workspace, rows, policy))


def _expected(rows: pl.DataFrame, problem: Problem) -> float | None:
    """Mean propensity of the caller's actions under the policy."""
    found = rows["propensity"].mean() if isinstance(problem.actions, FiniteSpace) else None
    return float(found) if isinstance(found, float) else None


def _achieved(rows: pl.DataFrame, agreed: pl.DataFrame) -> float | None:
    """Share of the caller's reward that comes from decisions on which the policy agrees."""
    total, least = float(rows["value"].sum()), rows["value"].min()
    if not isinstance(least, float) or least < 0 or not total > 0:
        return None
    return float(agreed["value"].sum()) / total


def _sums(rows: pl.DataFrame) -> Sums:
    value = rows["value"].to_numpy()
    return Sums(len(value), float(value.sum()), float(np.square(value).sum()))


def _share(part: int, of: int) -> Estimate:
    """A share with Wilson's interval."""
    p, z = part / of, _Z**2 / of
    middle, half = (p + z / 2) / (1 + z), _Z * math.sqrt(p * (1 - p) / of + z / (4 * of)) / (1 + z)
    return Estimate(value=p, low=max(middle - half, 0.0), high=min(middle + half, 1.0), rows=of, effective=float(of))


def _segments(rows: pl.DataFrame, problem: Problem) -> list[AgreementSegment]:
    found: list[AgreementSegment] = []
    for feature in problem.context:
        if feature.holds == "numbers":
            continue
        column = rows[context_column(feature.name)]
        labels = _ranges(column) if feature.holds == "number" else column.cast(pl.String).fill_null("(missing)")
        named = rows.with_columns(segment=labels)
        if feature.holds == "number":
            named = named.sort(column.name)  # ranges in their order; categories by their size
        parts = [
            _segment(feature.name, str(name), part)
            for (name,), part in named.group_by("segment", maintain_order=True)
            if SEGMENT <= len(part) < len(rows)
        ]
        found += parts if feature.holds == "number" else sorted(parts, key=lambda one: (-one.rows, one.value))
    return found


def _segment(feature: str, value: str, part: pl.DataFrame) -> AgreementSegment:
    agreed = part.filter("agrees")
    return AgreementSegment(
        feature=feature,
        value=value,
        rows=len(part),
        agreement=len(agreed) / len(part),
        reward=float(part["value"].mean()),  # type: ignore[arg-type]
        agreed_reward=float(agreed["value"].mean()) if len(agreed) else None,  # type: ignore[arg-type]
    )


def _ranges(column: pl.Series) -> pl.Series:
    """Quarters of the values of a number, as labels."""
    values = column.cast(pl.Float64)
    known = values.drop_nulls()
    if not len(known):
        return pl.Series(["(missing)"] * len(values))
    edges = sorted({float(known.quantile(part / PARTS)) for part in range(1, PARTS)})  # type: ignore[arg-type]
    names = [
        *(f"{'up to' if at == 0 else f'{_number(edges[at - 1])} to'} {_number(edge)}" for at, edge in enumerate(edges)),
        f"above {_number(edges[-1])}",
    ]
    places = np.searchsorted(edges, values.fill_null(float("nan")).to_numpy(), side="left")
    missing = values.is_null().to_list()
    return pl.Series(
        ["(missing)" if gone else names[place] for place, gone in zip(places.tolist(), missing, strict=True)]
    )


def _number(value: float) -> str:
    """A number without an exponent where it is readable."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"


def _evaluated(
    report: ApprenticeReport, workspace: Workspace, rows: pl.DataFrame, policy: Policy | None
) -> ApprenticeReport:
    """The report with off-policy estimates, where callers state their propensities."""
    if policy is None or report.stated < STATED or len(rows) < FEWEST:
        return report
    times = rows["time"].dt.epoch("us")
    log = LakeLog(workspace, since=int(times[0]), until=int(times[-1]) + 1)
    if len(log) < FEWEST:
        return report
    found = evaluate(log, policy, "logged", estimators=("dr",))
    difference = found.difference
    if difference is None:
        return report
    return msgspec.structs.replace(
        report, policy=_estimate(found.estimate, len(log)), gain=_estimate(difference["dr"], len(log))
    )


def _estimate(found: OffPolicyEstimate, rows: int) -> Estimate:
    value, interval = found.value, found.intervals.get("likelihood")
    if value is None or interval is None or not (math.isfinite(interval.low) and math.isfinite(interval.high)):
        return Estimate(value=value, rows=rows)
    return Estimate(value=value, low=interval.low, high=interval.high, rows=rows, effective=float(rows))


def _judged(report: ApprenticeReport) -> ApprenticeReport:
    """The report with the answer to: is it ready to go live?"""
    if report.rows < FEWEST:
        return msgspec.structs.replace(
            report,
            ready="no data",
            words=f"Not enough to say: {report.rows:,} of at least {FEWEST:,} decisions with their rewards.",
            then="Keep mode apprentice until there are more.",
        )
    gain = report.gain
    if gain is not None and gain.low is not None and gain.high is not None:
        return _by_gain(report, gain.low, gain.high)
    return _by_agreement(report)


def _by_gain(report: ApprenticeReport, low: float, high: float) -> ApprenticeReport:
    if low > 0:
        return msgspec.structs.replace(
            report,
            ready="yes",
            words=f"Ready: by the propensities that you state, the policy earns {low:.3g} to {high:.3g} more per "
            "decision than your own choices.",
            then="Change the mode to online, or compare them in an experiment first.",
        )
    if high < 0:
        return msgspec.structs.replace(
            report,
            ready="no",
            words=f"Not ready: the policy would earn {-high:.3g} to {-low:.3g} less per decision than you do.",
            then="Let it learn from more decisions; the view Features shows what it goes by.",
        )
    return msgspec.structs.replace(
        report,
        ready="not yet",
        words="Too close to call: these decisions do not tell the policy from your own choices.",
        then="Wait for more decisions, or compare them in an experiment.",
    )


def _by_agreement(report: ApprenticeReport) -> ApprenticeReport:
    agreement = report.agreement.value or 0.0
    achieved = agreement if report.achieved is None else report.achieved
    if agreement >= AGREEMENT and achieved >= ACHIEVED:
        return msgspec.structs.replace(
            report,
            ready="yes",
            words=f"Ready: the policy agrees with {agreement:.0%} of your choices, and those earned {achieved:.0%} of "
            "your reward.",
            then="Change the mode to online, or compare both in an experiment first.",
        )
    return msgspec.structs.replace(
        report,
        ready="not yet",
        words=f"Not yet: the policy agrees with {agreement:.0%} of your choices, and those earned {achieved:.0%} of "
        f"your reward; {AGREEMENT:.0%} and {ACHIEVED:.0%} are usual before going live.",
        then="It may also be better where it disagrees. State the propensity of your own choices, or run an "
        "experiment, to find out.",
    )
