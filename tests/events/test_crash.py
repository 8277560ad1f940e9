import json
import subprocess
import sys
from pathlib import Path

HARNESS = Path(__file__).parent / "crash.py"


def test_every_acknowledged_event_is_in_the_lake_once_whatever_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, str(HARNESS), "--rounds", "20", "--folder", str(tmp_path / "crash"), "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["lost"] == summary["doubled"] == []
    assert summary["rounds"] == 20
    assert summary["kills"].keys() == {"writer", "flusher", "compactor"}
    assert summary["torn"] > 0
    assert summary["in_lake"] >= summary["acknowledged"] > 1_000
