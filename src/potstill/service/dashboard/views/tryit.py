"""Try it: a form made from the problem, decided in the page as it is changed, by the JavaScript runtime."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from potstill.problem import Feature
from potstill.service.dashboard.html import Child, Html, join, tag
from potstill.service.dashboard.parts import empty, link, options, section, url, value
from potstill.service.dashboard.view import Call, View


async def render(call: Call) -> Html:
    """The form, and the places that the script fills."""
    title = tag("h1", "Try it")
    if call.service.snapshots.current.policy is None:
        then = join("See ", link("Versions", url(call.service.name, "versions")), " for why.")
        return join(title, empty("No usable policy is loaded.", then))
    lead = "The serving policy decides in this page, as you change the context. Nothing is logged."
    return join(
        title,
        tag("p", lead, class_="lead"),
        tag("p", "", id="try-error", class_="bad", role="alert"),
        tag("div", _form(call.problem.context), _result(), class_="try", id="try"),
        _sweep(call.problem.context),
    )


def _form(features: Sequence[Feature]) -> Html:
    fields = [
        tag("div", *_field(feature, f"field-{number}"), class_="field") for number, feature in enumerate(features)
    ]
    return tag("form", tag("h2", "Context"), fields, id="try-form", autocomplete="off")


def _field(feature: Feature, name: str) -> Iterator[Html]:
    """A label and what to enter a value with; `data-feature` is what the script reads it by."""
    known: dict[str, Any] = msgspec.to_builtins(feature)
    yield tag("label", value(feature.name), for_=name)
    about: dict[str, Any] = {"id": name, "data_feature": feature.name, "data_holds": feature.holds}
    example: Any = feature.example
    if feature.holds == "number":
        yield from _number(feature, known, name, about)
    elif feature.holds == "boolean":
        yield _select(["true", "false"], "true" if example else "false", feature, about)
    elif "values" in known:
        yield _select([*known["values"]], str(example), feature, about, other=True)
    else:
        shown = ", ".join(map(str, example)) if feature.holds == "numbers" else str(example)
        yield tag("input", type="text", value=shown, **about)
    if feature.optional and feature.holds in ("number", "numbers"):
        box = tag("input", type="checkbox", data_missing=name)
        yield tag("label", box, " missing", class_="missing")


def _number(feature: Feature, known: dict[str, Any], name: str, about: dict[str, Any]) -> Iterator[Html]:
    """A number, with a slider if it has ends; that of a moment has none."""
    if not _has_ends(feature):
        yield tag("input", type="number", step="any", value=f"{feature.example:.15g}", **about)
        return
    ends = {"data_low": known["low"], "data_high": known["high"], "data_log": known.get("scale") == "log"}
    yield tag("input", type="number", step="any", value=f"{feature.example:.6g}", **about, **ends)
    slider = {"min": 0, "max": 1000, "step": 1}
    yield tag("input", type="range", data_slides=name, aria_label=f"{feature.name}, as a slider", **slider)


def _has_ends(feature: Feature) -> bool:
    return feature.holds == "number" and feature.moment is None


def _select(
    values: Sequence[str], chosen: str, feature: Feature, about: dict[str, Any], *, other: bool = False
) -> Html:
    listed = [tag("option", one, value=one, selected=one == chosen) for one in values]
    if other:
        listed.append(tag("option", "another value", data_other=True, value="another value"))
    if feature.optional:
        listed.append(tag("option", "missing", data_none=True, value=""))
    return tag("select", listed, **about)


def _result() -> Html:
    # It waits until the script has the policy and the expected rewards.
    waits = tag("p", "Loading the policy…", class_="soft waiting", id="try-waits")
    head: list[Child] = [tag("h2", "What the policy does"), waits]
    return tag(
        "div", head, tag("div", "", id="try-bars", aria_live="off"), tag("p", "", id="try-expected", class_="note")
    )


def _sweep(features: Sequence[Feature]) -> Html:
    names = [feature.name for feature in features if feature.holds == "boolean" or _has_ends(feature)]
    names += [feature.name for feature in features if feature.holds == "string" and hasattr(feature, "values")]
    if not names:
        return join()
    first = [(name, name) for name in names]
    form = tag(
        "form",
        tag("label", "Over", options("x", first, names[0])),
        tag("label", "and", options("y", [("", "nothing else"), *first], "")),
        class_="search",
        id="try-sweep",
    )
    note = "The other features stay as they are above."
    return section("Sweep", form, tag("div", "", id="try-chart"), note=note)


VIEW = View("try", "Try it", render, module="tryit.js")
