"""The page around a view: head, navigation, a form for a token, and a dialog that asks for a reason."""

from __future__ import annotations

from collections.abc import Sequence

from potstill._version import __version__
from potstill.service.dashboard.assets import address
from potstill.service.dashboard.html import Child, Html, join, tag
from potstill.service.dashboard.parts import link, url
from potstill.service.dashboard.view import View
from potstill.service.http import Headers

#: Only this service's own files, nothing inline and nothing evaluated.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS: Headers = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"vary", b"Authorization, HX-Request"),
)
#: htmx evaluates nothing and adds no styles; every reply is shown, a refusal too.
_HTMX = (
    '{"allowEval":false,"includeIndicatorStyles":false,"selfRequestsOnly":true,"allowScriptTags":false,'
    '"historyCacheSize":0,"responseHandling":[{"code":"204","swap":false},{"code":"...","swap":true}]}'
)


def whole(
    title: str,
    inside: Html,
    *,
    problem: str | None = None,
    views: Sequence[View] = (),
    current: View | None = None,
    locked: bool = False,
) -> Html:
    """A whole page.

    Args:
        title: Title of the browser's tab.
        inside: The view.
        problem: Name of the problem; None for the list of problems.
        views: Views in the navigation.
        current: The view that is shown.
        locked: Whether the view waits for a token.
    """
    attributes: dict[str, str | int | bool | None] = {
        "data_problem": problem,
        "data_locked": locked,
        "data_refresh": current.refresh if current is not None and current.refresh else None,
    }
    body = tag(
        "body",
        tag("a", "Skip to the content", href="#view", class_="skip"),
        _header(problem, views, current),
        tag("main", inside, id="view", tabindex="-1", **attributes),
        tag("p", id="said", class_="hidden", role="status", aria_live="polite"),
        _dialog(),
        tag("footer", f"Potstill {__version__}. ", link("API", "/docs")),
    )
    return join(Html("<!doctype html>\n"), tag("html", _head(title, current), body, lang="en"))


def locked(reason: str) -> Html:
    """In place of a view: a form for a token."""
    field = tag(
        "input", type="password", id="token", name="token", autocomplete="off", placeholder="pst_…", required=True
    )
    row = tag("div", field, tag("button", "Use this token"), class_="row")
    about = tag(
        "p", "It needs the scope read, and admin for changes. It stays in this tab, and goes to this service only. ",
        tag("code", "potstill token create"), " makes one.", class_="soft",
    )  # fmt: skip
    form = tag(
        "form", tag("label", "Token", for_="token"), row, tag("p", reason, class_="reason"), about, id="token-form"
    )
    return tag("section", tag("h1", "A token is needed to see this"), form, class_="locked")


def _head(title: str, current: View | None) -> Html:
    module = None if current is None or current.module is None else address(current.module)
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="htmx-config", content=_HTMX),
        tag("title", title),
        tag("link", rel="icon", href="data:,"),
        [tag("link", rel="stylesheet", href=address(name)) for name in ("uplot.min.css", "dashboard.css")],
        [tag("script", src=address(name), defer=True) for name in ("htmx.min.js", "uplot.min.js", "dashboard.js")],
        None if module is None else tag("script", src=module, type="module"),
    )


def _header(problem: str | None, views: Sequence[View], current: View | None) -> Html:
    brand = tag("a", "Potstill", href="/", class_="brand")
    if problem is None:
        return tag("header", tag("div", brand, class_="top"))
    name = tag("bdi", problem, class_="problem")
    items: list[Child] = [
        tag("li", link(view.title, url(problem, view.name), current=view is current)) for view in views
    ]
    forget = tag("button", "Forget the token", type="button", id="forget", class_="quiet", hidden=True)
    return tag(
        "header",
        tag("div", brand, tag("span", "/", class_="soft", aria_hidden="true"), name, forget, class_="top"),
        tag("nav", tag("ul", items), aria_label="Views"),
    )


def _dialog() -> Html:
    reason = tag("textarea", id="reason", name="reason", rows=2, maxlength=1000, required=True)
    by = tag("input", id="by", name="by", maxlength=200, autocomplete="name")
    buttons = tag(
        "div", tag("button", "Cancel", type="button", id="cancel"),
        tag("button", "Confirm", id="confirm", class_="primary"), class_="row end",
    )  # fmt: skip
    form = tag(
        "form", tag("h2", "", id="ask-title"), tag("p", "", id="ask"),
        tag("label", "Reason, kept in the journal", for_="reason"), reason,
        tag("label", "Your name, kept with it", for_="by"), by,
        tag("p", "", id="ask-error", class_="bad", role="alert"), buttons, id="ask-form",
    )  # fmt: skip
    return tag("dialog", form, id="ask-dialog", aria_labelledby="ask-title", aria_describedby="ask")
