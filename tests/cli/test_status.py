"""`potstill status` on a machine that serves: the online half and the lake, and nothing that learns."""

import json
import subprocess
import sys

import worlds

BLOCKED = """
import sys
sys.modules.update(dict.fromkeys(["jax", "jaxlib", "optax", "scipy"]))
from potstill.cli import main
sys.argv = ["potstill", "status", *sys.argv[1:]]
main()
"""


def status(*arguments):
    command = [sys.executable, "-c", BLOCKED, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_status_of_a_workspace_needs_nothing_that_learns(tmp_path):
    workspace = worlds.made(str(tmp_path / "video"))
    worlds.log(workspace, workspace.start(), 20)
    shown = json.loads(status(tmp_path / "video", "--json"))
    assert (shown["serving"], shown["published"], shown["log"]["segments"]) == (0, True, 1)
    assert shown["next"]["due"] is False
    printed = status(tmp_path / "video")
    assert "serving    version 0, since" in printed
    assert "1 segment, " in printed


def test_the_status_of_an_installation_names_what_is_missing():
    assert "not installed: pip install 'potstill[learn]'" in status()
