"""Screenshots of the service's pages for the README and the docs: `make screenshots`.

A workspace with the example's simulated day learns once, and gets a second version that is staged. Chromium then shows
its pages; no network is needed. The pictures are in ``docs/pages/``.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs" / "pages"
sys.path.insert(0, str(ROOT / "tests"))

from browser import Page, browser  # noqa: E402
from dashboard_pages import press, visit  # noqa: E402
from service_process import Running, serving  # noqa: E402

PROBLEM = "video-upload"
#: Decisions of the example, and those that are made live; and seconds to wait for the latter.
LOGGED, LIVE, PATIENCE = 2000, 40, 120
COMMAND = [sys.executable, "-m", "potstill.cli"]


class Shot(NamedTuple):
    """One picture: its file, the address, and what to wait for."""

    name: str
    path: str
    ready: str = "true"
    width: int = 1200
    height: int = 900
    scheme: str = "light"


SHOTS = (
    Shot("overview", "overview?hours=24", "document.querySelector('.chart canvas') !== null", height=1150),
    Shot("features", "features", height=620),
    Shot("versions", "versions?version=1"),
    Shot("try", "try", "document.body.innerText.includes('by the teacher of version')", height=960),
    Shot("decision", "decisions?id=live-7"),
    Shot("evaluate", "evaluate", "document.body.innerText.includes('always 720p')", height=840),
)


def main() -> None:
    """Make all pictures."""
    chromium = shutil.which("chromium") or sys.exit("chromium is not on the PATH; install it")
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        place = str(Path(folder) / "video")
        subprocess.run([*COMMAND, "init", place, "--example"], check=True)
        subprocess.run([*COMMAND, "update", place], check=True)
        with serving(Path(folder) / "out", place) as running, browser(chromium, Path(folder) / "profile") as page:
            _traffic(running)
            subprocess.run([*COMMAND, "update", place, "--force", "--stage"], check=True)
            _flushed(running, LOGGED + LIVE)
            _shoot(page, f"http://127.0.0.1:{running.port}")


def _traffic(running: Running) -> None:
    """Decisions and rewards after the update, of 20 units; few, so that they do not dwarf the rates of the day."""
    rng = np.random.default_rng(0)
    for number in range(LIVE):
        context: dict[str, Any] = {
            "bandwidth_kbps": round(math.exp(rng.uniform(4, 11.5))),
            "connection": str(rng.choice(["2g", "3g", "4g", "wifi"])),
            "hd_screen": bool(rng.random() < 0.5),
        }
        asked = {"id": f"live-{number}", "unit": f"user-{rng.integers(20)}", "context": context}
        _post(running, "decide", asked)
        if rng.random() < 0.9:
            _post(running, "reward", {"id": asked["id"], "reward": round(rng.random(), 2)})


def _post(running: Running, path: str, value: object) -> None:
    address = f"http://127.0.0.1:{running.port}/v1/{PROBLEM}/{path}"
    request = urllib.request.Request(address, json.dumps(value).encode(), {"Content-Type": "application/json"})
    urllib.request.urlopen(request).close()


def _flushed(running: Running, decisions: int) -> None:
    """Wait until the overview has seen all decisions: the flusher adds them a few seconds later."""
    deadline = time.monotonic() + PATIENCE
    while running.ask("GET", f"/v1/{PROBLEM}/overview")[1]["decisions"] < decisions:
        assert time.monotonic() < deadline, f"the overview never had {decisions} decisions"
        time.sleep(0.5)


def _shoot(page: Page, base: str) -> None:
    visit(page, base, f"/p/{PROBLEM}/evaluate")
    press(page, "Evaluate now", "a first look", "ann")
    for shot in SHOTS:
        visit(page, base, f"/p/{PROBLEM}/{shot.path}", shot.width, shot.scheme, shot.height)
        page.until(shot.ready)
        time.sleep(0.5)  # charts are drawn in the next frame
        page.picture(OUT / f"{shot.name}.png")
        print(OUT / f"{shot.name}.png")


if __name__ == "__main__":
    main()
