"""Pages that take a reader to a service that learns: their files, their commands in order, their promises."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from dsjson_examples import log, write

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r'^```(?:python title="(?P<file>[\w.]+)"|console)\n(?P<text>.*?)^```', re.M | re.S)
#: What a reader does once for the machine.
INSTALL = ("python3 -m venv", "pip install")


@pytest.fixture
def port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return str(sock.getsockname()[1])


def commands(block):
    """Commands after a prompt, with the lines that they continue on: after a backslash, or within quotes."""
    found = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append(line[2:])
        elif found and (found[-1].endswith("\\") or found[-1].count("'") % 2):
            found[-1] += f"\n{line}"
    return found


class Terminal:
    """Runs commands as a reader does; one that serves goes on in the background."""

    def __init__(self, folder, port):
        self.folder, self.port, self.service = folder, port, None
        self.environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "COLUMNS": "200",
        }

    def run(self, command):
        if command.startswith("potstill serve"):
            self.service = subprocess.Popen(shlex.split(command), cwd=self.folder, env=self.environment)
            return self.wait_until_ready()
        done = subprocess.run(
            ["bash", "-ec", command], cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def wait_until_ready(self):
        for _ in range(600):
            try:
                return urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ready", timeout=5).read().decode()
            except OSError:
                time.sleep(0.1)
        raise AssertionError("the service is not ready after a minute")

    def close(self):
        if self.service is not None:
            self.service.send_signal(signal.SIGTERM)
            assert self.service.wait(timeout=60) == 0


def follow(page, terminal):
    """Do what a page says; the output of each command that was run, in order."""
    text = (DOCS / page).read_text(encoding="utf-8").replace("127.0.0.1:8080", f"127.0.0.1:{terminal.port}")
    text = text.replace("potstill serve shop", f"potstill serve shop --port {terminal.port}")
    shown = []
    try:
        for block in BLOCK.finditer(text):
            if block["file"]:
                (terminal.folder / block["file"]).write_text(block["text"], encoding="utf-8")
                continue
            for command in commands(block["text"]):
                if not command.startswith(INSTALL):
                    shown.append((command, terminal.run(command)))
    finally:
        terminal.close()
    return lambda begin: [text for command, text in shown if command.startswith(begin)]


def test_a_reader_gets_from_a_table_to_a_service_that_learns(tmp_path, port):
    output = follow("tutorial.md", Terminal(tmp_path, port))
    (first,) = output("potstill init")
    assert "It would have been better" in first
    assert "version 1 serves" in first
    assert "published: version 2 now serves" in output("potstill update")[0]
    assert re.search(r"apprentice .*(ready|better|close to call)", output("potstill status")[0], re.I)
    assert "published: version 3 now serves" in output("potstill update")[1]
    assert "less than policy 3" in output("potstill evaluate")[0]
    assert "1,501" in output("potstill audit")[0] or "3,001" in output("potstill audit")[0]


def test_a_user_of_personalizer_gets_from_its_logs_to_a_service_that_learns(tmp_path, port):
    (tmp_path / "logs").mkdir()
    write(tmp_path / "logs" / "2021-02-04.json", log(2_400))
    output = follow("from-personalizer.md", Terminal(tmp_path, port))
    (first,) = output("potstill import dsjson")
    assert "It would have been better" in first
    assert "version 1 serves" in first
    ranked, rewarded = output("curl")
    assert re.search(r'"rewardActionId":"(Latte|Tea)"', ranked)
    assert rewarded == ""
    assert "published: version 2 now serves" in output("potstill update")[0]
    assert "less than policy 2" in output("potstill evaluate")[0]
    assert "1,001" in output("potstill audit")[0]
