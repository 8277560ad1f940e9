"""The pages of the service in a browser: tokens, changes, hostile values, accessibility, and no outside request."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import worlds
from browser import Page, browser
from dashboard_pages import faults, give, is_narrow, outside, press, text, visit
from service_examples import publish
from service_process import Running, serving

from potstill.service.dashboard.views import VIEWS
from potstill.service.tokens import TokenFile
from potstill.workspace import Workspace

HOSTILE = "<script>document.title = 'owned'</script>"
OPEN = worlds.PROBLEM.replace(b"video-upload", b"open-one")
CLOSED = worlds.PROBLEM.replace(b"video-upload", b"closed-one")


class Both:
    """A service with an open problem that has a few versions, an empty one, and a closed one; and a browser."""

    def __init__(self, running: Running, page: Page, workspaces: dict[str, Workspace], tokens: dict[str, str]) -> None:
        self.base, self.page = f"http://127.0.0.1:{running.port}", page
        self.workspaces, self.tokens = workspaces, tokens

    def visit(self, path: str, width: int = 1280, scheme: str = "light") -> None:
        visit(self.page, self.base, path, width, scheme)


@pytest.fixture(scope="module")
def both(program: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    chromium, folder = program("chromium"), tmp_path_factory.mktemp("pages")
    empty = worlds.PROBLEM.replace(b"video-upload", b"empty-one")
    made = {
        name: worlds.made(str(folder / name), problem=problem)
        for name, problem in (("open-one", OPEN), ("empty-one", empty), ("closed-one", CLOSED))
    }
    policy = made["open-one"].start()
    worlds.log(made["open-one"], policy, 200)
    publish(made["open-one"], seed=1)
    publish(made["open-one"], seed=2)
    file = TokenFile(made["closed-one"].storage)
    tokens = {"read": file.create("reader", ["read"]), "admin": file.create("boss", ["read", "admin"])}
    with (
        serving(folder / "out", *(one.url for one in made.values())) as running,
        browser(chromium, folder / "profile") as page,
    ):
        yield Both(running, page, made, tokens)


def test_the_list_hides_what_needs_a_token_and_shows_it_with_one(both: Both) -> None:
    both.visit("/")
    assert "open-one" in text(both.page)
    assert "closed-one" not in text(both.page)
    both.page.run("document.querySelector('details.more').open = true")
    give(both.page, both.tokens["read"])
    both.page.until("document.querySelector('main').innerText.includes('closed-one')")
    assert "open-one" in text(both.page)
    assert both.tokens["read"] not in both.page.run("document.documentElement.outerHTML")
    assert both.page.run("document.cookie") == ""
    both.visit("/p/closed-one/versions")
    both.page.until("document.querySelector('main h1').textContent === 'Versions'")
    assert both.page.run("document.querySelectorAll('main button:not(:disabled)').length") == 0
    both.page.run("document.getElementById('forget').click()")
    both.page.until("document.querySelector('#token-form') !== null")


def test_a_wrong_token_is_said(both: Both) -> None:
    both.visit("/p/closed-one/versions")
    give(both.page, "pst_wrong")
    both.page.until("document.querySelector('.reason')?.textContent.includes('unknown or revoked')")
    both.page.run("sessionStorage.clear()")


def test_changes_are_confirmed_and_written_in_the_journal(both: Both) -> None:
    registry = both.workspaces["open-one"].registry
    both.visit("/p/open-one/versions")
    for label, event in (
        ("Pin", "pinned"),
        ("Release the pin", "unpinned"),
        ("Pause updates", "paused"),
        ("Resume updates", "resumed"),
        ("Mode apprentice", "mode"),
        ("Mode online", "mode"),
        ("Roll back", "served"),
    ):
        press(both.page, label, f"{label} because {HOSTILE}", "ann")
        assert both.page.run("document.getElementById('ask-error').textContent") == ""
        head = registry.head()
        assert head is not None
        assert (head.event, head.by) == (event, "ann")
        assert head.note.endswith(f"{label} because {HOSTILE}")
        assert HOSTILE in text(both.page)
    assert head.serving == 1
    assert head.pinned is not None
    assert both.page.run("document.title").startswith("Versions")
    press(both.page, "Return to it", "zero again")
    assert registry.head().serving in (0, 2)  # type: ignore[union-attr]


def test_a_change_without_the_scope_is_refused(both: Both) -> None:
    both.visit("/p/closed-one/versions")
    give(both.page, both.tokens["read"])
    both.page.until("document.querySelector('main h1').textContent === 'Versions'")
    before = both.workspaces["closed-one"].registry.head()
    both.page.run("document.querySelectorAll('main button').forEach((one) => { one.disabled = false; })")
    press(both.page, "Pin", "not allowed")
    assert "lacks the scope 'admin'" in both.page.run("document.getElementById('ask-error').textContent")
    assert both.workspaces["closed-one"].registry.head() == before
    both.page.run("sessionStorage.clear()")
    both.visit("/p/closed-one/versions")
    give(both.page, both.tokens["admin"])
    both.page.until("document.querySelector('main h1').textContent === 'Versions'")
    press(both.page, "Pin", "allowed", "ann")
    head = both.workspaces["closed-one"].registry.head()
    assert head is not None
    assert (head.event, head.by) == ("pinned", "ann (token boss)")
    both.page.run("sessionStorage.clear()")


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
@pytest.mark.parametrize("problem", ["open-one", "empty-one", "closed-one"])
def test_every_view_is_narrow_accessible_and_alone(both: Both, view: object, problem: str) -> None:
    both.page.complaints.clear()
    both.page.requests.clear()
    for width, scheme in ((1280, "light"), (390, "dark")):
        both.visit(f"/p/{problem}/{view.name}", width, scheme)  # type: ignore[attr-defined]
        assert is_narrow(both.page)
        assert faults(both.page) == []
    assert both.page.complaints == []
    assert both.page.requests
    assert outside(both.page, both.base) == []


def test_the_list_is_narrow_accessible_and_alone(both: Both) -> None:
    both.page.complaints.clear()
    for width, scheme in ((1280, "dark"), (390, "light")):
        both.visit("/", width, scheme)
        assert is_narrow(both.page)
        assert faults(both.page) == []
    assert both.page.complaints == []
