"""The page of the API in a real browser: an open and a closed problem of one service, and a field for a token."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import worlds
from browser import Page, browser
from service_process import serving

from potstill.service.tokens import TokenFile

OPEN = worlds.PROBLEM.replace(b"video-upload", b"open-one")
CLOSED = worlds.PROBLEM.replace(b"video-upload", b"closed-one")


def titles(page: Page) -> list[str]:
    page.until("document.querySelector('h2') !== null")
    return list(page.run("[...document.querySelectorAll('h2')].map((title) => title.textContent)"))


def give(page: Page, token: str) -> None:
    """Type a token, and wait until the page has loaded with it."""
    page.run("document.querySelector('main').replaceChildren()")
    page.run(
        f"document.querySelector('#access input').value = {token!r};"
        "document.querySelector('#access form').requestSubmit();"
    )
    page.until("document.querySelector('main').children.length > 0")


def send(page: Page, problem: str) -> str:
    """Press the button Send of a problem's first endpoint, which decides; returns the line above the answer."""
    page.run(
        f"window.place = [...document.querySelectorAll('article')].find((one) =>"
        f" one.querySelector('code').textContent === '/v1/{problem}/decide');"
        "[...place.querySelectorAll('button')].find((one) => one.textContent === 'Send').click()"
    )
    answer = "[...place.querySelectorAll('h4')].map((one) => one.textContent).find((text) => text.endsWith(' ms'))"
    return str(page.until(answer))


def test_one_open_and_one_closed_problem(program: Callable[[str], str], tmp_path: Path) -> None:
    chromium = program("chromium")
    opened = worlds.made(str(tmp_path / "open"), problem=OPEN)
    closed = worlds.made(str(tmp_path / "closed"), problem=CLOSED)
    token = TokenFile(closed.storage).create("web", ["read", "decide"])
    blind = TokenFile(closed.storage).create("blind", ["decide"])
    with (
        serving(tmp_path / "out", opened.url, closed.url) as service,
        browser(chromium, tmp_path / "profile") as page,
    ):
        page.open(f"http://127.0.0.1:{service.port}/docs")
        assert titles(page) == ["open-one", "service"]
        assert "Some problems need a token" in page.run("document.querySelector('#access').textContent")
        assert page.run("document.body.innerText.includes('needs the scope')") is False
        assert send(page, "open-one").startswith("200")

        give(page, blind)
        assert titles(page) == ["open-one", "service"]
        assert "lacks the scope read" in page.run("document.querySelector('#access .bad').textContent")

        give(page, token)
        assert titles(page) == ["open-one", "closed-one", "service"]
        assert send(page, "open-one").startswith("200")
        assert send(page, "closed-one").startswith("200")
        assert page.run("place.textContent.includes('$POTSTILL_TOKEN')") is True  # in the line for curl
        assert token not in page.run("document.body.innerHTML")

        page.run("[...document.querySelectorAll('#access button')].find((one) => one.type === 'button').click()")
        page.until("document.querySelectorAll('h2').length === 2")
        assert page.complaints == []


def test_a_closed_service_asks_for_a_token(program: Callable[[str], str], tmp_path: Path) -> None:
    chromium = program("chromium")
    closed = worlds.made(str(tmp_path / "closed"), problem=CLOSED)
    token = TokenFile(closed.storage).create("web", ["read"])
    with serving(tmp_path / "out", closed.url) as service, browser(chromium, tmp_path / "profile") as page:
        page.open(f"http://127.0.0.1:{service.port}/docs")
        assert titles(page) == ["A token is needed to read this"]
        give(page, "pst_wrong")
        assert titles(page) == ["A token is needed to read this"]
        assert "unknown or revoked" in page.run("document.querySelector('#access .bad').textContent")
        give(page, token)
        assert titles(page) == ["closed-one", "service"]
        page.open(f"http://127.0.0.1:{service.port}/docs", width=390)
        page.until("document.querySelector('#access input') !== null")
        give(page, token)
        assert page.run("document.documentElement.scrollWidth <= document.documentElement.clientWidth") is True
