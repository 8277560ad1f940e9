"""The edge client in a real browser: IndexedDB, reloads, a network that is cut and comes back."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from examples import random_layers
from fake_service import LOST_REPLY, FakeService, running
from js.test_chromium import Pages, browsing

import potstill as ps

TIMEOUT = 90  # seconds; an order takes milliseconds on an idle machine
CONTEXT = {"bandwidth_kbps": 900, "connection": "4g", "hd_screen": True}


class Orders(Pages):
    """Serves the page, and hands it one order after the other."""

    def __init__(self, *args: Any, orders: queue.Queue[dict[str, Any]], **kept: Any) -> None:
        self.orders = orders
        super().__init__(*args, **kept)

    def do_GET(self) -> None:  # noqa: N802 - the name that http.server asks for
        if self.path == "/order":
            self._hand_over()
        else:
            super().do_GET()

    def _hand_over(self) -> None:
        body = json.dumps(self.orders.get()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    daemon_threads = True  # one of them waits for an order that never comes


class Page:
    """A page in Chromium: ``page("decide", ids=[…])`` gives what came of it."""

    def __init__(self, chromium: str, folder: Path) -> None:
        self.orders: queue.Queue[dict[str, Any]] = queue.Queue()
        self.reports: queue.Queue[dict[str, Any]] = queue.Queue()
        self.origin = ""
        self._chromium, self._profile, self._log = chromium, folder / "profile", folder / "chromium.log"
        self._browser = ExitStack()

    def open(self) -> None:
        """Start the browser, with what it kept from before."""
        url = f"{self.origin}/js/testing/edge.html"
        self._process = self._browser.enter_context(browsing(self._chromium, self._profile, self._log, url))

    def kill(self) -> None:
        """End the browser as a crash would; the page that asks for orders then is another one."""
        self._process.kill()
        self._process.wait()
        self.orders.put({"do": "nothing"})  # for the request that the page had left open

    def close(self) -> None:
        self._browser.close()

    def __call__(self, deed: str, *, fails: str | None = None, **order: Any) -> Any:
        self.orders.put({"do": deed, **order})
        if deed == "reload":
            return None
        try:
            report = self.reports.get(timeout=TIMEOUT)
        except queue.Empty:
            pytest.fail(f"no report on {deed} in {TIMEOUT} s; Chromium said:\n{self._log.read_text(errors='replace')}")
        assert ("error" in report) == (fails is not None), report
        assert fails is None or fails in report["error"], report
        return report.get("value")


@pytest.fixture
def page(program: Callable[[str], str], js: Path, tmp_path: Path) -> Iterator[Page]:
    page = Page(program("chromium"), tmp_path)
    handler = partial(Orders, roots={"js": js}, reports=page.reports, orders=page.orders)
    with Server(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page.origin = f"http://127.0.0.1:{server.server_port}"
        page.open()
        try:
            yield page
        finally:
            page.close()
            server.shutdown()


@pytest.fixture
def policy(problem: ps.Problem) -> ps.Policy:
    return ps.Policy.build(problem, random_layers(problem), version=3)


@pytest.fixture
def service(policy: ps.Policy) -> Iterator[FakeService]:
    with running(policy) as service:
        yield service


def names(first: int, last: int) -> list[str]:
    return [f"upload-{i}" for i in range(first, last)]


def test_a_network_that_is_cut_and_comes_back(page, service, policy, problem):
    """Everything is there once, and just as it was decided; the policy is kept, and refreshed."""
    assert page("open", url=service.url) == 3
    made = page("decide", ids=names(0, 10))
    assert page("sync")["decisions"] == 10

    service.stop()
    made += page("decide", ids=names(10, 40))
    page("reward", ids=names(5, 30))
    page("sync", fails="Unreachable")
    page("reload")
    assert page("open", url=service.url) == 3  # from IndexedDB: there is no network
    assert page("counts") == {"queued": 55, "refused": 0}
    made += page("decide", ids=names(40, 50))
    page("reload")
    assert page("open", url=service.url) == 3
    assert page("decide", ids=names(12, 13)) == made[12:13]

    service.serve(ps.Policy.build(problem, random_layers(problem, seed=4), version=4))
    service.start()
    service.faults = [LOST_REPLY]
    done = page("sync")
    assert done == {"decisions": 40, "rewards": 25, "refused": 0, "policy": 4, "policyError": None}
    assert page("counts") == {"queued": 0, "refused": 0}

    assert set(service.observations) == set(names(0, 50))
    assert set(service.rewards) == {(name, "clicked") for name in names(5, 30)}
    for decision in made:
        first, *others = service.observations[decision["id"]]
        assert all(other == first for other in others)
        assert {name: first[name] for name in decision} == decision
        assert first["context"] == CONTEXT
        expected = policy.decide(CONTEXT, id=decision["id"])
        assert decision["action"] == expected.action
        assert decision["propensity"] == pytest.approx(expected.propensity, abs=1e-6)
    page("reload")
    service.stop()
    assert page("open", url=service.url) == 4
    page("close")


def test_a_browser_that_is_killed(page, service):
    """What `decide` resolved for is there when the browser comes back, with no network at all."""
    page("open", url=service.url)
    service.stop()
    page("decide", ids=names(0, 30))
    page.kill()
    page.open()
    assert page("open", url=service.url) == 3
    assert page("counts") == {"queued": 30, "refused": 0}
    service.start()
    page("sync")
    assert set(service.observations) == set(names(0, 30))


def test_the_background_finds_the_network_again(page, service):
    page("open", url=service.url, retries=0)
    service.stop()
    page("decide", ids=names(0, 5))
    page("start", every=20)
    assert page("counts")["queued"] == 5
    service.start()
    while page("counts")["queued"]:
        pass
    assert {len(told) for told in service.observations.values()} == {1}
    assert set(service.observations) == set(names(0, 5))
    page("close")


def test_bad_rows_and_limits(page, service):
    page("open", url=service.url, maxRows=6)
    page("decide", ids=names(0, 6))
    page("decide", ids=names(6, 7), fails="QueueFull")
    service.bad_ids = {"upload-2"}
    assert page("sync")["refused"] == 1
    [aside] = page("refused")
    assert (aside["kind"], aside["id"]) == ("decision", "upload-2")
    assert page("requeue") == {"queued": 1, "refused": 0}
    assert page("sync")["refused"] == 1
    assert page("discard") == {"queued": 0, "refused": 0}
    page("open", url=service.url.replace("/v1/", "/other/v1/"), fails="NoPolicy")


def test_the_real_service_takes_what_a_page_sends(page, tmp_path):
    """Over its own CORS, with its own checks, into its own tables."""
    pytest.importorskip("starlette", reason="needs the service")
    pytest.importorskip("polars", reason="needs the lake")
    import service_examples

    from potstill.events.lake import Flusher
    from potstill.events.wal import Spool
    from potstill.workspace import Workspace, template

    workspace = Workspace.create(tmp_path / "video", template.PROBLEM.encode(), template.CONFIG.encode())
    with service_examples.running(workspace.url, cors=[page.origin]) as address:
        assert page("open", url=f"{address}/v1/{workspace.problem.name}") == 0
        made = page("decide", ids=names(0, 20))
        page("reward", ids=names(0, 20))
        done = {"decisions": 20, "rewards": 20, "refused": 0, "policy": 0, "policyError": None}
        assert page("sync") == done
        assert page("sync") == done | {"decisions": 0, "rewards": 0}
        page("close")
    Flusher(Spool(workspace.spool), workspace.lake).flush()
    kept = workspace.lake.scan("decisions").collect().sort("time")
    assert {row["id"]: row["propensity"] for row in kept.iter_rows(named=True)} == {
        decision["id"]: decision["propensity"] for decision in made
    }
    assert len(kept) == len(workspace.lake.scan("rewards").collect()) == 20


@pytest.mark.parametrize(("survives", "durability"), [("power", "strict"), ("process", "relaxed")])
def test_a_decision_is_there_when_its_transaction_has_completed(page, service, survives, durability):
    page("open", url=service.url, survives=survives)
    assert page("watched", ids=names(0, 5)) == {"open": [0] * 5, "durability": [durability]}
    assert page("counts")["queued"] == 5
    # Printed, not asserted: clocks of busy machines prove nothing.
    print(f"chromium, survives={survives}, µs: {page('measure', count=200)}")
    assert page("counts")["queued"] == 405
