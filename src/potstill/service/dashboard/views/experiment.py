"""The report of the running experiment, as `potstill experiment` makes it."""

from __future__ import annotations

from typing import Any

import msgspec

from potstill.service.dashboard.html import Html, join, tag
from potstill.service.dashboard.parts import code, empty, notice, options, pairs, search, section, table, value
from potstill.service.dashboard.view import Call, View
from potstill.service.http import Refusal
from potstill.service.reads import experiment as data

_TONES: dict[str, Any] = {"stop": "bad", "worse": "bad", "better": "good", "unknown": "warn"}


class _Query(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    by: str = ""


async def render(call: Call) -> Html:
    """The report, or how to start an experiment."""
    asked = call.asked(_Query)
    title = tag("h1", "Experiment")
    query = msgspec.convert({"by": asked.by or None}, data.ExperimentQuery)
    try:
        found = await data.read_experiment(call.service, query)
    except Refusal as refusal:
        if refusal.status != 404:
            raise
        return join(title, _none(refusal.message))
    state = call.service.experiments.state(call.service.snapshots.current.mode)
    about = [("state", value(state or "ended")), *((name, value(line)) for name, line in found.set_up.items())]
    return join(
        title,
        notice(found.sentence, _TONES.get(found.kind, "plain")),
        tag("p", found.often) if found.often else None,
        [notice(warning, "warn") for warning in found.warnings],
        _table("Effects", found.effects),
        section("By feature", _by(call, asked.by), _rows("By feature", found.segments)) if not found.broken else None,
        section("Set-up", pairs(about), tag("p", found.split, class_="note")),
    )


def _none(message: str) -> Html:
    about = "An experiment compares the policy with a control at random. Add "
    then = join(about, code("[experiment]"), " to potstill.toml: the service follows within seconds.")
    return empty(message[:1].upper() + message[1:] + ".", then)


def _by(call: Call, chosen: str) -> Html:
    names = [("", "no feature"), *((feature.name, feature.name) for feature in call.problem.context)]
    return search(("Show effects by", options("by", names, chosen)), label="Show")


def _table(title: str, found: data.TableReply) -> Html | None:
    shown = _rows(title, found)
    return None if shown is None else section(title, shown)


def _rows(title: str, found: data.TableReply) -> Html | None:
    if not found.rows:
        return None
    numeric = range(1, len(found.header))
    rows = [[tag("div", value(first), class_="name"), *map(value, others)] for first, *others in found.rows]
    return table(found.header, rows, caption=title, numeric=numeric)


VIEW = View("experiment", "Experiment", render, deferred=True)
