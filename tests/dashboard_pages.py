"""Pages of the service in a browser: open a view, give a token, press a button, and what must hold of each."""

from __future__ import annotations

from pathlib import Path

from browser import Page

READY = "document.documentElement?.dataset.ready !== undefined && document.querySelector('main h1') !== null"
AXE = Path(__file__).parent / "vendor" / "axe.min.js"


def visit(page: Page, base: str, path: str, width: int = 1280, scheme: str = "light", height: int = 900) -> None:
    """Open a page, and wait until all of it is there."""
    page.open("about:blank")
    page.open(base + path, width, height, scheme)
    page.until(READY)


def give(page: Page, token: str) -> None:
    """Type a token into the form, and wait for what it shows."""
    page.run("delete document.documentElement.dataset.ready")
    page.run(
        f"document.querySelector('#token').value = {token!r};document.querySelector('#token-form').requestSubmit();"
    )
    page.until(READY)


def press(page: Page, label: str, reason: str, by: str = "") -> None:
    """Press a button that changes something, confirm with a reason, and wait until it is done."""
    page.run("document.getElementById('said').textContent = ''")
    page.run(f"[...document.querySelectorAll('main button')].find((one) => one.textContent === {label!r}).click()")
    page.until("document.querySelector('dialog[open]') !== null")
    page.run(
        f"document.getElementById('reason').value = {reason!r}; document.getElementById('by').value = {by!r};"
        "document.getElementById('ask-form').requestSubmit();"
    )
    page.until("document.getElementById('said').textContent || document.getElementById('ask-error').textContent")


def text(page: Page) -> str:
    """What a reader sees of a view."""
    return str(page.run("document.querySelector('main').innerText"))


def is_narrow(page: Page) -> bool:
    """Whether nothing reaches beyond the side of the page."""
    return bool(page.run("document.documentElement.scrollWidth <= document.documentElement.clientWidth"))


def faults(page: Page) -> list[str]:
    """Serious accessibility faults, by axe."""
    page.run(AXE.read_text(encoding="utf-8"))
    found = page.run(
        "axe.run(document, {resultTypes: ['violations']}).then((found) => found.violations"
        ".filter((one) => ['serious', 'critical'].includes(one.impact))"
        ".map((one) => `${one.id}: ${one.nodes.map((node) => node.html).join(' ')}`))"
    )
    return list(found)


def outside(page: Page, base: str) -> list[str]:
    """Requests that went elsewhere than to the service."""
    return [url for url in page.requests if not url.startswith((base + "/", "data:", "about:", "blob:"))]
