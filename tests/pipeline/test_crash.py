"""An updater that is killed at any step leaves a workspace that the next one finishes, to the bit."""

import subprocess
import sys

import pytest
from worlds import LATER, log, made

from potstill.events.lake import count_observations
from potstill.pipeline.update import STEPS, run_update
from potstill.summaries import HealthReport, read_report, read_summary, read_updates
from potstill.workspace import Workspace

KILLED = """
import os, signal, sys
from potstill.pipeline.update import run_update
from potstill.workspace import Workspace

place, step, later = sys.argv[1:]
def die(at, done, of):
    if at == step:
        os.kill(os.getpid(), signal.SIGKILL)
run_update(Workspace(place), now=int(later), on_step=die)
"""


@pytest.mark.parametrize("step", STEPS)
def test_killed_at_a_step(tmp_path, step):
    whole, killed = (made(str(tmp_path / name)) for name in ("whole", "killed"))
    for workspace in (whole, killed):
        log(workspace, workspace.start(), 100)
    run_update(whole, now=LATER)
    ended = subprocess.run([sys.executable, "-c", KILLED, killed.url, step, str(LATER)], check=False)
    assert ended.returncode == -9
    after = Workspace(killed.url)
    published = after.serving().version
    assert published in (0, 1)
    report = run_update(after, now=LATER)
    assert report.outcome == ("waiting" if published else "published")
    assert after.serving().to_bytes() == whole.serving().to_bytes()
    assert count_observations(after.lake, 0, report.cut) == 100
    assert read_summary(after.storage, "observations").total.joined.n == 100
    assert read_report(after.storage, HealthReport).checked == 100
    assert [run.outcome for run in read_updates(after.storage).runs] == ["running", report.outcome]
