"""The pages of the service in a browser: tokens, changes, hostile values, accessibility, and no outside request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import quote

import experiment_examples
import numpy as np
import pytest
import worlds
from browser import Page, browser
from dashboard_pages import faults, give, is_narrow, outside, press, text, visit
from scipy.special import stdtrit
from service_examples import publish
from service_process import Running, serving

from potstill.events import LoggedDecision, LoggedReward
from potstill.pipeline.resume import start
from potstill.pipeline.update import run_update
from potstill.policy import Policy
from potstill.service.dashboard.parts import interval
from potstill.service.dashboard.views import VIEWS
from potstill.service.tokens import TokenFile
from potstill.workspace import Workspace, add_action, retire_action

#: Every chart is as wide as its place.
DRAWN = (
    "[...document.querySelectorAll('.chart')]"
    ".every((one) => one.clientWidth === one.querySelector('.u-wrap').clientWidth)"
)
HOSTILE = "<script>document.title = 'owned'</script>"
OPEN = worlds.PROBLEM.replace(b"video-upload", b"open-one")
OTHER = worlds.PROBLEM.replace(b"video-upload", b"other-one")
CLOSED = worlds.PROBLEM.replace(b"video-upload", b"closed-one")


NUMBER = worlds.PROBLEM.replace(b"video-upload", b"number-one").replace(
    b'type = "discrete"\nnames = ["360p", "720p", "1080p"]',
    b'type = "continuous"\nname = "price"\nlow = 0.5\nhigh = 20\nscale = "log"\nbins = 48',
)
NUMBER_CONFIG = worlds.CONFIG.replace(b"linear-ts", b"continuous-linear-ts")
MASKED = worlds.PROBLEM.replace(b"video-upload", b"masked-one")
RIGHT_TO_LEFT = "\u202e\u0645\u0631\u062d\u0628\u0627"
LONG = "<b>" + "long " * 180


def log_hostile(workspace: Workspace) -> None:
    """Decisions whose ids, units and categories are markup, long, and from right to left."""
    policy = workspace.registry.policy()
    with workspace.event_log() as log:
        for name in (HOSTILE, RIGHT_TO_LEFT, LONG):
            context = {"bandwidth_kbps": 900.0, "connection": HOSTILE if name == HOSTILE else "x" * 10_000}
            log.append(LoggedDecision.of(policy.decide(context, id=name), context, unit=name))
            log.append(LoggedReward(id=name, reward=0.5, key=name))


def with_masks(place: str) -> Workspace:
    """A workspace whose student was trained on masks, with an action that was retired since and one that was added."""
    config = worlds.CONFIG.replace(b"steps = 200", b"steps = 200\nmasked = true")
    workspace = worlds.made(place, config, MASKED)
    worlds.log(workspace, workspace.start(), 100)
    assert run_update(workspace, now=worlds.LATER).outcome == "published"
    retire_action(place, "360p", reason="gone", by="ann")
    add_action(place, "4k", like="1080p", reason="new screens", by="ann")
    return Workspace(place)


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
        for name, problem in (("open-one", OPEN), ("empty-one", empty), ("closed-one", CLOSED), ("other-one", OTHER))
    }
    made["number-one"] = worlds.made(str(folder / "number-one"), NUMBER_CONFIG, NUMBER)
    worlds.log(made["number-one"], made["number-one"].start(), 60, rewarded=0.0)
    publish(made["number-one"], seed=1)
    made["masked-one"] = with_masks(str(folder / "masked-one"))
    frame = experiment_examples.log(experiment_examples.World(units=200, effect=0.2))
    made["video-upload"] = experiment_examples.workspace(str(folder / "experiment"), frame)
    made["video-upload"].start()
    worlds.log(made["open-one"], made["open-one"].start(), 600)
    run_update(made["open-one"], now=worlds.LATER)
    publish(made["open-one"], seed=2)
    log_hostile(made["open-one"])
    file = TokenFile(made["closed-one"].storage)
    tokens = {"read": file.create("reader", ["read"]), "admin": file.create("boss", ["read", "admin"])}
    tokens["other"] = TokenFile(made["other-one"].storage).create("other", ["read"])
    tokens["boss of other"] = TokenFile(made["other-one"].storage).create("boss of other", ["read", "admin"])
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


def test_each_problem_has_its_own_token(both: Both) -> None:
    both.page.run("sessionStorage.clear()")
    both.visit("/")
    for name, token in (("closed-one", both.tokens["read"]), ("other-one", both.tokens["other"])):
        both.page.run("document.querySelector('details.more').open = true")
        give(both.page, token)
        both.page.until(f"document.querySelector('main').innerText.includes({name!r})")
    both.page.until("document.querySelectorAll('[data-problem=closed-one], [data-problem=other-one]').length === 2")
    for name in ("closed-one", "other-one", "open-one"):
        both.visit(f"/p/{name}/versions")
        both.page.until("document.querySelector('main h1').textContent === 'Versions'")
    both.page.run("sessionStorage.clear()")


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


@pytest.mark.parametrize(
    "path",
    [
        "/",
        *(f"/p/{problem}/{view.name}" for problem in ("open-one", "empty-one", "number-one") for view in VIEWS),
        "/p/open-one/versions?version=1&first=1&second=2",
        "/p/open-one/decisions?id=upload-0-1",
        "/p/number-one/decisions?id=upload-0-1",
        *(
            f"/p/masked-one/{view}"
            for view in ("overview", "versions?version=3", "versions?version=1", "try", "health")
        ),
        "/p/video-upload/experiment?by=connection",
        "/p/closed-one/overview",
    ],
)
def test_every_view_is_narrow_accessible_and_alone(both: Both, path: str) -> None:
    """At 390 pixels in the dark, and then at 1,280 in the light; only when all of a view is there."""
    both.page.leave()  # what the view before has asked for must not arrive here
    both.visit(path, 390, "dark")
    assert is_narrow(both.page)
    assert faults(both.page) == []
    both.page.show(1280, 900, "light")
    both.page.until(DRAWN)
    assert is_narrow(both.page)
    assert faults(both.page) == []
    assert both.page.complaints == []
    assert both.page.requests
    assert outside(both.page, both.base) == []


def test_hostile_values_show_as_text(both: Both) -> None:
    both.page.complaints.clear()
    both.visit("/p/open-one/decisions")
    assert HOSTILE[:40] in text(both.page)
    assert RIGHT_TO_LEFT in text(both.page)
    for name in (HOSTILE, RIGHT_TO_LEFT, LONG.strip()):
        both.visit(f"/p/open-one/decisions?id={quote(name)}", 390)
        if name == HOSTILE:
            assert name in text(both.page)
        assert is_narrow(both.page)
    assert both.page.run("document.title").startswith("Decisions")
    assert both.page.run("document.querySelectorAll('main script, main b').length") == 0
    assert both.page.complaints == []


def test_the_page_decides_as_python_does(both: Both) -> None:
    policy = both.workspaces["open-one"].registry.policy()
    both.visit("/p/open-one/try")
    both.page.until("window.potstill.swept !== undefined")
    both.page.run(
        "document.querySelector('[data-feature=connection]').value = 'wifi';"
        "document.querySelector('[data-feature=connection]').dispatchEvent(new Event('input', {bubbles: true}))"
    )
    context = both.page.run("potstill.context()")
    assert context["connection"] == "wifi"
    for feature in ("bandwidth_kbps", "connection"):
        swept = both.page.run(f"potstill.swept(potstill.context(), {feature!r}, 9)")
        for value, p in swept:
            assert p == pytest.approx(policy.probabilities({**context, feature: value}).tolist(), abs=1e-6)
    assert both.page.run("document.getElementById('try-expected').textContent") == "Version 2 has learnt nothing yet."
    shown = both.page.run("[...document.querySelectorAll('#try-bars tbody tr')].map((row) => row.cells[2].textContent)")
    assert shown == [f"{100 * p:.1f} %" if p >= 0.0005 else "< 0.1 %" for p in policy.probabilities(context)]


def test_expected_rewards_are_those_of_the_teacher(both: Both) -> None:
    """The version was adapted to changed actions; its teacher is that of the version before."""
    workspace = both.workspaces["masked-one"]
    still = start(workspace, workspace.registry.policy()).still
    both.visit("/p/masked-one/try")
    note = both.page.run("document.getElementById('try-expected').textContent")
    assert note == "Expected rewards with 95 % intervals, by the teacher of version 3."
    encoded = workspace.problem.encode(both.page.run("potstill.context()"))[None]
    location, scale, dof = still.teacher.marginals(still.state, encoded)
    mean, half = np.asarray(location)[0], (np.asarray(scale) * stdtrit(dof, 0.975))[0]
    shown = both.page.run("[...document.querySelectorAll('#try-bars tbody tr')].map((row) => row.cells[4].textContent)")
    expected = [interval(m, m - h, m + h) for m, h in zip(mean, half, strict=True)]
    assert [one.replace("-", "−") for one in shown] == expected


def test_a_sweep_of_two_features_is_what_python_decides(both: Both) -> None:
    """Every cell names the most probable action and its probability."""
    policy = both.workspaces["open-one"].registry.policy()
    both.visit("/p/open-one/try")
    both.page.run(
        "(() => { const form = document.getElementById('try-sweep'); form.elements.x.value = 'bandwidth_kbps';"
        "form.elements.y.value = 'connection'; form.dispatchEvent(new Event('change', {bubbles: true})); })()"
    )
    shown = both.page.run(
        "[...document.querySelectorAll('table.grid tbody tr')].slice(0, -1)"
        ".map((row) => [row.cells[0].textContent, [...row.cells].slice(1).map((cell) => cell.textContent)])"
    )
    assert [name for name, _ in shown] == ["another value", "wifi", "4g", "2g"]
    for connection, cells in shown:
        rows = [{"bandwidth_kbps": speed, "connection": connection} for speed in np.linspace(0, 100_000, len(cells))]
        best = [(policy.problem.actions.names[p.argmax()], p.max()) for p in policy.probabilities_many(rows)]
        assert len(cells) == 15
        assert cells == [f"{action} {100 * p:.1f} %" for action, p in best]


def test_a_change_is_made_by_keyboard_alone(both: Both) -> None:
    page, registry = both.page, both.workspaces["other-one"].registry
    both.visit("/p/other-one/versions")
    give(page, both.tokens["boss of other"])
    both.visit("/p/other-one/versions")
    page.until("document.querySelector('main h1').textContent === 'Versions'")
    page.key("Tab")
    assert page.run("document.activeElement.className") == "skip"
    page.key("Enter")
    page.until("location.hash === '#view' && document.activeElement.id === 'view'")
    for _ in range(5):
        page.key("Tab")
        if page.run("document.activeElement.textContent") == "Pin":
            break
    page.key("Enter")
    page.until("document.querySelector('dialog[open]') !== null && document.activeElement.id === 'reason'")
    page.key("Escape")
    page.until("document.querySelector('dialog[open]') === null && document.activeElement.textContent === 'Pin'")
    page.key("Enter")
    page.until("document.activeElement.id === 'reason'")
    page.type("by hand")
    page.key("Tab")
    page.type("ann")
    page.key("Enter")
    page.until("document.getElementById('said').textContent === 'Pin: done'")
    head = registry.head()
    assert head is not None
    assert (head.event, head.note, head.by) == ("pinned", "by hand", "ann (token boss of other)")
    page.run("sessionStorage.clear()")


def test_the_page_decides_a_number_as_python_does(both: Both) -> None:
    policy = both.workspaces["number-one"].registry.policy()
    both.visit("/p/number-one/try")
    both.page.until("window.potstill.swept !== undefined")
    context = both.page.run("potstill.context()")
    for value, p in both.page.run("potstill.swept(potstill.context(), 'bandwidth_kbps', 5)"):
        encoded = both.workspaces["number-one"].problem.encode({**context, "bandwidth_kbps": value})[None]
        bins = policy.distribution(encoded).p  # type: ignore[attr-defined]
        assert p == pytest.approx(bins.reshape(16, 3).sum(axis=1).tolist(), abs=1e-6)


def stage(workspace: Workspace, layers: object) -> int:
    """Publish a version that does not serve."""
    version, head = workspace.registry.next_version(), workspace.registry.head()
    assert head is not None
    policy = Policy.build(workspace.problem, layers, version=version)  # type: ignore[arg-type]
    workspace.registry.publish(policy, teacher=None, report=b"{}", serve=False, expected=head.number)
    return version


def test_versions_are_compared_and_evaluated_and_the_winner_is_applied(both: Both) -> None:
    workspace = both.workspaces["open-one"]
    registry = workspace.registry
    registry.serve(1)
    both.visit("/p/open-one/versions?first=1&second=2")
    both.page.until("document.querySelector('main').innerText.includes('of decisions change')")
    same = stage(workspace, registry.policy(1).layers)
    *hidden, last = registry.policy(1).layers
    worse = stage(workspace, [*hidden, last._replace(weight=-last.weight, bias=-last.bias)])
    both.visit("/p/open-one/evaluate")
    press(both.page, "Evaluate now", "to see", "ann")
    both.page.until("document.querySelector('main').innerText.includes('always 720p')")
    row = "[...document.querySelectorAll('main tbody tr')].find((row) => row.innerText.startsWith('policy {}'))"
    for version, fault in ((worse, "by the last evaluation it earns"), (same, "")):
        both.page.run(f"{row.format(version)}.querySelector('button').id = 'mine'")
        both.page.run("document.querySelectorAll('main button:not(#mine)').forEach((one) => one.remove())")
        press(both.page, "Apply", "it is better", "ann")
        assert fault in both.page.run("document.getElementById('ask-error').textContent")
        both.page.run("document.querySelector('dialog').close()")
        both.visit("/p/open-one/evaluate")
    head = registry.head()
    assert head is not None
    assert (head.serving, head.by, head.note) == (same, "ann", "it is better")
