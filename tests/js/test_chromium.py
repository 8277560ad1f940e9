"""The JavaScript runtime in a real browser: headless Chromium runs the vectors and posts what it found."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from js.vectors import CASES, POLICIES

TIMEOUT = 90  # seconds; it takes two or three on an idle machine
QUIET = [
    "--headless",
    "--no-sandbox",  # in a container there is no user to give up
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
]


class Pages(SimpleHTTPRequestHandler):
    """Serves js/ at /js/ and vectors at /vectors/, and takes one report."""

    # The registry of file types differs between machines; browsers refuse a module of another type.
    extensions_map = {".js": "text/javascript", ".html": "text/html", "": "application/octet-stream"}  # noqa: RUF012

    def __init__(self, *args: Any, roots: dict[str, Path], reports: queue.Queue[dict[str, Any]]) -> None:
        self.roots, self.reports = roots, reports
        super().__init__(*args)

    def translate_path(self, path: str) -> str:
        _, root, *parts = path.split("?")[0].split("/")
        folder = self.roots.get(root)
        inside = folder and all(part not in ("", "..") for part in parts)
        return str(folder.joinpath(*parts)) if inside else ""

    def do_POST(self) -> None:
        self.reports.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(roots: dict[str, Path], reports: queue.Queue[dict[str, Any]]) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Pages, roots=roots, reports=reports)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def browsing(chromium: str, profile: Path, log: Path, url: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [chromium, *QUIET, f"--user-data-dir={profile}", url]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()


@pytest.fixture
def report_on(program, js, tmp_path):
    """Runs a directory of vectors in Chromium, and gives its report."""

    def run(directory: Path) -> dict[str, Any]:
        reports: queue.Queue[dict[str, Any]] = queue.Queue()
        log = tmp_path / "chromium.log"
        roots = {"js": js, "vectors": directory}
        with serving(roots, reports) as base:
            page = f"{base}/js/testing/page.html"
            with browsing(program("chromium"), tmp_path / "profile", log, page):
                try:
                    return reports.get(timeout=TIMEOUT)
                except queue.Empty:
                    pytest.fail(f"no report from Chromium in {TIMEOUT} s; it said:\n{log.read_text(errors='replace')}")

    return run


def test_vectors(report_on, vectors):
    report = report_on(vectors)
    assert report["failures"] == []
    assert "Chrome/" in report["browser"]
    assert report["cases"] == POLICIES * CASES
    assert report["invalid"] > 200
    assert report["refused"] > 10
    print(f"chromium: {report}")


def test_conformance(report_on, js):
    directory = js.parent / "conformance/vectors"
    if not directory.exists():
        pytest.skip("conformance/vectors/ is not there")
    report = report_on(directory)
    assert report["failures"] == []
    assert report["cases"] > 0


def test_a_page_that_fails_says_so(report_on, tmp_path):
    """Without vectors the page reports an error rather than nothing."""
    empty = tmp_path / "empty"
    empty.mkdir()
    assert report_on(empty)["failures"]
