"""The pages of the service with many decisions in the lake: first paint, all that is shown, and processor time.

    python benchmarks/pages.py                     # 10 million decisions, a quarter of an hour and 6 GB; needs chromium
    python benchmarks/pages.py --decisions 0.2     # 200,000
    python benchmarks/pages.py --keep /data/pages  # keep the workspace, or use the one that is there

Decisions of 38 features over the last five days, and rewards for 60 % of them, are in the lake, joined, with summaries
and reports as an update leaves them. Each page is opened in Chromium with nothing cached, as often as `--times` says.
Paint is the browser's own first contentful paint, counted from the navigation on; ready is when everything is there,
also what a page asks for afterwards. Medians and the slowest. CPU is processor time per reading of a page that is
already open, as it is read again every few seconds: of the processes that decide, and of the query process of low
priority. Another load on the machine hardly distorts it.
"""

import argparse
import http.client
import os
import shutil
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
from join import COMMIT, PROBLEM, SETTLE, WINDOW, decisions, rewards
from scale import _family, _processor_seconds

import potstill as ps
from potstill.events import now
from potstill.events.join import add_join, join
from potstill.pipeline.record import write_reports
from potstill.policy import Layer, Policy
from potstill.summaries.build import refresh_summaries
from potstill.workspace import Workspace

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from browser import Page, browser
from dashboard_pages import visit
from service_process import PATIENCE, Running, serving

SECOND = 1_000_000
HOUR = 3600 * SECOND
DAYS, UNITS = 5, 100_000
#: The bound of first paint, in milliseconds.
BOUND = 300
#: Readings of each page whose processor time is measured.
READINGS = 50
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decisions", type=float, default=10, help="millions of decisions")
    parser.add_argument("--times", type=int, default=7, help="how often each page is opened")
    parser.add_argument("--keep", type=Path, help="folder of the workspace; made if it is not there, and kept")
    given = parser.parse_args()
    chromium = shutil.which("chromium") or sys.exit("chromium is not on the PATH; install it")
    with tempfile.TemporaryDirectory() as folder:
        place = given.keep or Path(folder) / "workspace"
        if not (place / "problem.toml").exists():
            fill(place, round(given.decisions * 1e6))
        measure(place, Path(folder), chromium, given.times)


def fill(place: Path, count: int) -> None:
    """A workspace whose lake has decisions, rewards and observations."""
    place.mkdir(parents=True, exist_ok=True)
    PROBLEM.save(place / "problem.toml")
    workspace, began = Workspace(place), time.process_time()
    policy, rng, end = workspace.start(), np.random.default_rng(0), now() - 2 * HOUR
    span = (end - DAYS * 24 * HOUR, end)
    step = (span[1] - span[0]) * min(COMMIT, count) // count
    for first in range(0, count, COMMIT):
        begin = span[0] + step * (first // COMMIT)
        size = min(COMMIT, count - first)
        rows = drawn(policy, decisions(first, size, (begin, begin + step), rng), rng)
        workspace.lake.append("decisions", rows, writer="benchmark", number=first + 1)
        workspace.lake.append("rewards", rewards(rows, rng), writer="benchmark", number=first + 1)
    joined = join(
        workspace.lake, workspace.cuts, PROBLEM, aggregate="last", settle=SETTLE, now=end + (WINDOW + SETTLE) * SECOND
    )
    add_join(workspace.lake, workspace.cuts, joined)
    refresh_summaries(workspace, now())
    lacking = write_reports(workspace, policy, now())
    assert not lacking, lacking
    other(workspace)
    print(f"{count:,} decisions, filled in {time.process_time() - began:.0f} s of processor time", flush=True)


def drawn(policy: Policy, rows: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    """The decisions as the policy, which is uniform, takes them: an audit finds nothing wrong with them."""
    actions = np.array(PROBLEM.actions.names)
    draws = np.asarray(policy.uniforms(rows["id"].to_list())).reshape(len(rows))
    return rows.with_columns(
        action=pl.Series(actions[np.minimum((draws * len(actions)).astype(int), len(actions) - 1)]),
        propensity=pl.lit(float(np.float32(1 / len(actions)))),
        policy=pl.lit(policy.version, pl.Int64),
        unit=pl.Series(np.char.add("user-", rng.integers(UNITS, size=len(rows)).astype(str))),
    )


def other(workspace: Workspace) -> None:
    """A second version, of random weights, which serves."""
    rng, head = np.random.default_rng(1), workspace.registry.head()
    assert head is not None
    sizes = (PROBLEM.width, 100, 100, len(PROBLEM.actions))
    layers = [
        Layer(rng.normal(0, a**-0.5, (a, b)).astype(np.float32), np.zeros(b, np.float32)) for a, b in pairwise(sizes)
    ]
    policy = ps.Policy.build(PROBLEM, layers, version=workspace.registry.next_version())
    workspace.registry.publish(policy, teacher=None, report=b"{}", expected=head.number)


def measure(place: Path, folder: Path, chromium: str, times: int) -> None:
    """Open each page, and print a line for it."""
    workspace = Workspace(place)
    last = workspace.lake.scan("decisions").select("id", "unit", "time").top_k(1, by="time").collect().row(0)
    views = (
        "overview", "overview?hours=0", "apprentice", "versions", "versions?first=0&second=1", "evaluate", "experiment",
        "features", "try", "decisions", f"decisions?id={last[0]}", f"decisions?unit={last[1]}", "health",
    )  # fmt: skip
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'page':<28}{'paint ms':>10}{'worst':>8}{'ready ms':>10}{'worst':>8}{'CPU ms':>8}{'queries':>9}")
    slowest = 0.0
    with serving(folder / "out", place) as running, browser(chromium, folder / "profile") as page:
        page.call("Network.setCacheDisabled", cacheDisabled=True)
        for view in views:
            runs = [opened(page, running.port, view) for _ in range(times + 1)]
            paints, readies = zip(*runs[1:], strict=True)
            service, queries = read(running, view)
            slowest = max(slowest, statistics.median(paints))
            name = view if len(view) < 27 else view.split("=")[0] + "=…"
            print(
                f"{name:<28}{statistics.median(paints):>10.0f}{max(paints):>8.0f}{statistics.median(readies):>10.0f}"
                f"{max(readies):>8.0f}{1e3 * service:>8.1f}{1e3 * queries:>9.1f}",
                flush=True,
            )
    print(f"slowest median of first paints: {slowest:.0f} ms, of {BOUND} ms that are allowed")


def opened(page: Page, port: int, view: str) -> tuple[float, float]:
    """First paint and readiness of a page, in milliseconds."""
    visit(page, f"http://127.0.0.1:{port}", f"/p/{PROBLEM.name}/{view}")
    ready = float(page.run("performance.now()"))
    return float(page.until(PAINT)), ready


def read(running: Running, view: str) -> tuple[float, float]:
    """Processor time per reading in seconds: of the service, and of its query process."""
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=PATIENCE)
    before = cpu(running.process.pid)
    for _ in range(READINGS):
        connection.request("GET", f"/p/{PROBLEM.name}/{view}", headers={"HX-Request": "true"})
        reply = connection.getresponse()
        text = reply.read()
        assert reply.status == 200, text
    connection.close()
    service, queries = (after - then for after, then in zip(cpu(running.process.pid), before, strict=True))
    return service / READINGS, queries / READINGS


def cpu(pid: int) -> tuple[float, float]:
    """Processor time so far in seconds: of a service, and of the query processes among its children."""
    found = {True: 0.0, False: 0.0}
    for one in _family(pid):
        try:
            command = Path(f"/proc/{one}/cmdline").read_bytes()
        except OSError:
            continue
        found[b"pipeline.queries" in command] += _processor_seconds(one)
    return found[False], found[True]


if __name__ == "__main__":
    main()
