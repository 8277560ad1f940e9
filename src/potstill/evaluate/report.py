"""An evaluation as an HTML page: verdict, charts, tables, and how to read them."""

from __future__ import annotations

from collections.abc import Sequence

from potstill.evaluate import charts, text
from potstill.evaluate.diagnostics import Diagnostics
from potstill.evaluate.evaluation import Evaluation, SegmentEvaluation, TargetEvaluation
from potstill.evaluate.weights import WeightHistogram
from potstill.pages import Chart, Page, Section, Table

_GRADES = {"good": "trust it", "caution": "caution", "no": "unreliable"}


def page(
    evaluation: Evaluation,
    *,
    span: tuple[int, int] | None = None,
    notes: Sequence[str] = (),
    weights: WeightHistogram | None = None,
) -> Page:
    """The HTML page of an evaluation.

    Args:
        evaluation: The evaluation.
        span: Times of the first and last row of the log; microseconds since 1970.
        notes: Caveats about the log.
        weights: Histogram of the target's importance weights.
    """
    sections = [_trust(evaluation), _estimates(evaluation), _weights(evaluation, weights)]
    sections += [_segments(evaluation, feature, number) for number, feature in enumerate(evaluation.segments, 1)]
    sections += [_stretches(evaluation), _how_to_read(evaluation, notes)]
    against = f" against {evaluation.against.name}" if evaluation.against else ""
    when = f", {text.spanned(span)}" if span else ""
    return Page(
        f"{evaluation.target.name}{against}",
        f"Off-policy evaluation on {evaluation.rows:,} logged decisions of {evaluation.problem}{when}. "
        f"{text.verdict(evaluation)}",
        _headlines(evaluation),
        [section for section in sections if section],
        name=f"Potstill evaluation: {evaluation.target.name}{against}",
    )


def _headlines(evaluation: Evaluation) -> list[tuple[str, str]]:
    figures, headline = text.Figures(evaluation), evaluation.headline
    lines = [(figures.number(evaluation.estimate.value), _headline_text(evaluation, evaluation.target))]
    if evaluation.against is not None:
        lines.append(
            (
                figures.number(evaluation.against.estimates[headline].value),
                _headline_text(evaluation, evaluation.against),
            )
        )
    if evaluation.difference is not None:
        difference = evaluation.difference[headline]
        said = f"the difference; {text.percent(evaluation.level)} interval {figures.interval(difference, signed=True)}."
        lines.append((figures.change(difference.value), said))
    return [*lines, (_GRADES[text.doubt(evaluation)[1].grade], text.reason(evaluation))]


def _headline_text(evaluation: Evaluation, side: TargetEvaluation) -> str:
    if side.name == "logged":
        return "per decision is what was earned, by the actions that were taken."
    figures = text.Figures(evaluation)
    interval = figures.interval(side.estimates[evaluation.headline])
    return f"per decision for {side.name}; {text.percent(evaluation.level)} interval {interval}."


def _trust(evaluation: Evaluation) -> Section:
    sides = [evaluation.target, *([evaluation.against] if evaluation.against else [])]
    shown = [side for side in sides if side.name != "logged"]
    columns = [_LABELS, *(_diagnosed(side.diagnostics) for side in shown)]
    table = Table(["", *(side.name for side in shown)], list(zip(*columns, strict=True)))
    return Section("Can it be trusted?", f"{text.trusted(evaluation)}\n\n{_DIAGNOSTICS}", tables=[table])


_LABELS = (
    "logged decisions",
    "effective sample size",
    "of the logged decisions",
    "effective events",
    "largest weight",
    "weight in the largest 1 %",
    "never logged",
    "mean weight",
)
_DIAGNOSTICS = (
    "A row's weight is the policy's probability of the logged action over the probability with which it was taken, or "
    "the same with densities if the action is a number. "
    "The effective sample size is how many decisions of the policy's own would say as much; effective events are those "
    "of them with a reward other than the usual one, such as that of no click. “Never logged” is the "
    "share of the policy's choices about which the log holds nothing at all. The mean weight must be about 1 less that "
    "share: if it is not, the logged probabilities are wrong."
)


def _diagnosed(found: Diagnostics) -> list[str]:
    return [
        f"{found.rows:,}",
        f"{found.effective:,.0f}",
        f"{found.effective_share:.1%}",
        text.NOTHING if found.usual is None else f"{found.events:,.0f}",
        f"{found.largest:,.3g}",
        f"{found.top_share:.1%}",
        f"{found.unsupported:.1%}",
        f"{found.mean_weight:.3f} ± {2 * found.mean_weight_error:.3f}",
    ]


def _estimates(evaluation: Evaluation) -> Section:
    figures: dict[str, Chart] = {"estimates": charts.estimates(evaluation)}
    if evaluation.difference:
        figures["differences"] = charts.differences(evaluation)
    caption = (
        f"{evaluation.headline} is the headline estimator. If the unbiased ones (ips, snips, dr) agree within their "
        "bars, that is a good sign; if dm is far from dr, the reward model is poor, and dr does not depend on it. "
        f"{text.bars(evaluation)} Left, the dashed line is what was earned."
    )
    notes = (f"{note}." for note in (*text.footnotes(evaluation), *text.smoothing(evaluation)))
    return Section("What each estimator says", "\n\n".join([caption, *notes]), figures, [_estimate_table(evaluation)])


def _estimate_table(evaluation: Evaluation) -> Table:
    figures, against = text.Figures(evaluation), evaluation.against
    header = ["estimator", evaluation.target.name, "interval"]
    header += [against.name, "interval", "difference", "interval"] if against else []
    rows = []
    for name, estimate in evaluation.target.estimates.items():
        cells = [text.starred(estimate), figures.number(estimate.value), figures.interval(estimate)]
        if against and evaluation.difference:
            other, difference = against.estimates[name], evaluation.difference[name]
            cells += [figures.number(other.value), figures.interval(other)]
            cells += [figures.change(difference.value), figures.interval(difference, signed=True)]
        rows.append(cells)
    return Table(header, rows)


def _weights(evaluation: Evaluation, weights: WeightHistogram | None) -> Section | None:
    if weights is None or not weights.bins:
        return None
    why = f"{evaluation.target.name} never takes their action"
    if evaluation.target.bandwidth is not None:
        why = f"their number is farther from that of {evaluation.target.name} than the bandwidth"
    zero = f" {weights.zero:.0%} of the rows have weight 0: {why}."
    return Section(
        "Weights",
        "Distribution of rows, and of the total weight, over importance weights of "
        f"{evaluation.target.name}. If a few rows far to the right carry much of the weight, they decide the "
        f"estimate.{zero if weights.zero > 0.0005 else ''}",
        {"weights": charts.weights(weights.bins)},
    )


def _segments(evaluation: Evaluation, feature: str, number: int) -> Section:
    found = evaluation.segments[feature]
    figures: dict[str, Chart] = {f"segments-{number}": charts.segments(evaluation, found)}
    if evaluation.against:
        figures[f"segment-differences-{number}"] = charts.segment_differences(evaluation, found)
    caption = (
        f"By {evaluation.headline}. Segments have fewer rows, so their intervals are wider. Of many segments, some "
        "will seem to differ by chance alone."
    )
    return Section(f"By {feature}", caption, figures, [_segment_table(evaluation, feature, found)])


def _stretches(evaluation: Evaluation) -> Section | None:
    found = evaluation.stretches
    if not found:
        return None
    caption = f"By {evaluation.headline}, with {text.percent(evaluation.level)} intervals. Grey is what was earned."
    table = _segment_table(evaluation, "from", found)
    return Section("Over time", caption, {"over-time": charts.over_time(evaluation)}, [table])


def _segment_table(evaluation: Evaluation, first: str, found: Sequence[SegmentEvaluation]) -> Table:
    figures = text.Figures(evaluation)
    header = [first, "decisions", evaluation.target.name, "interval"]
    header += [evaluation.against.name, "difference", "interval"] if evaluation.against else []
    rows = []
    for one in found:
        cells = [one.name, f"{one.rows:,}", figures.number(one.target.value), figures.interval(one.target)]
        if one.against and one.difference:
            cells += [figures.number(one.against.value), figures.change(one.difference.value)]
            cells += [figures.interval(one.difference, signed=True)]
        rows.append([*cells, text.doubtful(one) or "good"])
    return Table([*header, "trust"], rows)


def _how_to_read(evaluation: Evaluation, notes: Sequence[str]) -> Section:
    rows = [[name, _about(name, one.note)] for name, one in evaluation.target.estimates.items()]
    caption = "\n\n".join([_HOW_TO_READ, *(f"{note}." for note in notes)])
    return Section("How to read this", caption, tables=[Table(["estimator", "what it is"], rows)])


def _about(estimator: str, note: str) -> str:
    return "; here, ".join(part for part in (text.ESTIMATORS.get(estimator, ""), note) if part)


_HOW_TO_READ = (
    "The new policy was not deployed. Each logged decision is weighted: rows whose action the new policy takes more "
    "often than the logging policy count more, others less. The weights are exact because the log has the probability "
    "or density of each action. The answer is what would have happened on these very decisions; it cannot include how "
    "users would react to weeks of another policy. An experiment (docs/experiments.md) can."
)
