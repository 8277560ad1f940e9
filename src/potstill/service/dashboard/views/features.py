"""Features: which ones matter to the policy and to the reward, and which are likely broken."""

from __future__ import annotations

from potstill.service.dashboard.html import Child, Html, join, tag
from potstill.service.dashboard.parts import bar, empty, notice, number, percent, reward, section, table, value, when
from potstill.service.dashboard.view import Call, View
from potstill.service.dashboard.views.shown import estimate
from potstill.service.reads import insights
from potstill.service.status import in_thread
from potstill.summaries import FeatureReport, FeatureRow


async def render(call: Call) -> Html:
    """The report of the last update."""
    found = await in_thread(insights.features_of, call.service)
    title = tag("h1", "Features")
    if not found.features:
        why = f"{found.rows:,} observations are too few." if found.rows else "No update has made this report yet."
        return join(title, empty(why, "It is made by each update that joins decisions; potstill update DIR runs one."))
    return join(title, _verdict(found), _table(found))


def _verdict(found: FeatureReport) -> Html:
    suspicious = [row for row in found.features if row.warnings]
    if not suspicious:
        return notice("No feature is constant, nearly unique, mostly missing, drifting or unseen.", "good")
    listed = tag("ul", [tag("li", value(row.name), ": ", "; ".join(row.warnings)) for row in suspicious])
    count = len(suspicious)
    return tag("div", notice(f"{count} of {len(found.features)} features need a look.", "warn"), listed)


def _table(found: FeatureReport) -> Html:
    largest = max((row.policy or 0.0 for row in found.features), default=0.0) or 1.0
    most = max((row.reward or 0.0 for row in found.features), default=0.0)
    header = ("feature", "type", "to the policy", "", "to the reward", "", "worth", "missing", "distinct")
    rows = [_row(row, largest, max(most, 1e-9)) for row in found.features]
    explained = "" if found.explained is None else f" A linear model explains {percent(found.explained)} of the reward."
    note = join(
        "Shuffling a feature's values between rows shows what it matters. To the policy: how far the probabilities of "
        f"version {found.version} move, from 0 to 1. To the reward: how much of its variance a model no longer predicts"
        f" on held-out rows, of {found.rows:,} observations.{explained} Worth: reward per decision that the policy "
        "would lose if it did not know the feature, by doubly robust estimation with 95 % intervals. Made ",
        when(found.made),
        ".",
    )
    return section("What matters", table(header, rows, caption="Features", numeric=(3, 5, 6, 7, 8)), note=note)


def _row(row: FeatureRow, largest: float, most: float) -> tuple[Child, ...]:
    return (
        tag("div", value(row.name), class_="name"),
        row.kind,
        bar((row.policy or 0.0) / largest),
        reward(row.policy),
        bar(max(row.reward or 0.0, 0.0) / most),
        _reward(row),
        estimate(row.worth),
        percent(row.missing),
        f"{row.distinct:,}",
    )


def _reward(row: FeatureRow) -> Child:
    if row.reward is None:
        return number(None)
    chance = row.reward_error is not None and row.reward < 2 * row.reward_error
    return join(f"{max(row.reward, 0.0):.3f}", tag("span", " within chance", class_="soft") if chance else None)


VIEW = View("features", "Features", render)
