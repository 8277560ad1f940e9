"""Samples of a running service: memory, descriptors and threads of each process, and files of its workspace."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

MB = 2**20


class Sample(NamedTuple):
    """One measurement: of a process (`kind` is its role) or of the files below a folder (`kind` is the folder).

    Attributes:
        seconds: When, since the start.
        kind: What was measured.
        values: The measurements by name; memory in MB.
    """

    seconds: float
    kind: str
    values: dict[str, float]


class Slope(NamedTuple):
    """Straight line through the samples of one measurement.

    Attributes:
        name: What was measured.
        first: The line's value at the first sample.
        last: The line's value at the last sample.
        per_hour: Its slope per hour.
        error: Standard error of the slope, from the samples' scatter.
    """

    name: str
    first: float
    last: float
    per_hour: float
    error: float


class Sampler:
    """Measures a service.

    Args:
        parent: Process id of `potstill serve`.
        workspace: Folder of the workspace.
    """

    def __init__(self, parent: int, workspace: Path) -> None:
        self.samples: list[Sample] = []
        self._parent, self._workspace, self._start = parent, workspace, time.monotonic()

    def sample(self) -> None:
        """Measure every process and folder once."""
        moment = time.monotonic() - self._start
        workers = 0
        for pid, role in sorted(processes(self._parent).items()):
            name = f"worker {(workers := workers + 1)}" if role == "worker" else role
            if (found := _process(pid)) is not None:
                self.samples.append(Sample(moment, name, found))
        self.samples += [Sample(moment, name, found) for name, found in _folders(self._workspace).items()]

    def table(self) -> str:
        """The last measurement of everything."""
        last = self.samples[-1].seconds
        lines = [f"{last / 60:5.1f} min  " + "  ".join(_shown(s) for s in self.samples if s.seconds == last)]
        return "\n".join(lines)

    def slopes(self, after: float) -> list[Slope]:
        """The slope of each measurement after some seconds; of fewer than three samples there is none."""
        later = sorted((s for s in self.samples if s.seconds >= after), key=lambda s: s.kind)
        found: list[Slope] = []
        for kind, group in groupby(later, key=lambda s: s.kind):
            samples = list(group)
            for name in samples[0].values if len(samples) > 2 else ():
                found.append(_slope(f"{kind}: {name}", [(s.seconds, s.values[name]) for s in samples]))
        return found


def processes(parent: int) -> dict[int, str]:
    """The processes of a service and their roles: parent, worker, flusher or updater."""
    found = {parent: "parent"}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state = re.search(r"^PPid:\s+(\d+)", (folder / "status").read_text(), re.M)
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if state and int(state[1]) == parent:
            roles = {b"process.worker": "worker", b"process.flusher": "flusher", b"--watch": "updater"}
            found[int(folder.name)] = next((role for mark, role in roles.items() if mark in command), "other")
    return found


def _process(pid: int) -> dict[str, float] | None:
    """Resident, proportional and private memory, open descriptors, threads; None if it has just ended."""
    folder = Path(f"/proc/{pid}")
    try:
        memory = dict(re.findall(r"^(\w+):\s+(\d+) kB", (folder / "smaps_rollup").read_text(), re.M))
        private = int(memory["Private_Clean"]) + int(memory["Private_Dirty"])
        return {
            "RSS": int(memory["Rss"]) / 1024,
            "PSS": int(memory["Pss"]) / 1024,
            "private": private / 1024,
            "descriptors": len(list((folder / "fd").iterdir())),
            "threads": len(list((folder / "task").iterdir())),
        }
    except (OSError, KeyError):
        return None


def _folders(workspace: Path) -> dict[str, dict[str, float]]:
    """Number and bytes of files: all of the workspace, and of its parts."""
    parts = {
        "log": "events/log",
        "watermarks": "events/watermarks",
        "cuts": "events/cuts",
        "registry": "registry",
        "delta logs": "events/*/_delta_log",
        "workspace": "",
    }
    found = {name: _files(list(workspace.glob(part)) if part else [workspace]) for name, part in parts.items()}
    tables = [workspace / "events" / name for name in ("decisions", "rewards", "observations")]
    data = _files(tables)
    found["tables"] = {name: data[name] - found["delta logs"][name] for name in data}
    return found


def _files(folders: Sequence[Path]) -> dict[str, float]:
    count, size = 0, 0
    for folder in folders:
        for path in folder.rglob("*"):
            try:
                stat = path.stat()
            except FileNotFoundError:
                continue
            if path.is_file():
                count, size = count + 1, size + stat.st_size
    return {"files": count, "MB": size / MB}


def _shown(sample: Sample) -> str:
    values = sample.values
    if "RSS" in values:
        memory = f"{values['RSS']:.0f}/{values['PSS']:.0f}/{values['private']:.0f} MB"
        return f"{sample.kind} {memory} {values['descriptors']:.0f} fd {values['threads']:.0f} th"
    return f"{sample.kind} {values['files']:.0f} files {values['MB']:.1f} MB"


def _slope(name: str, points: list[tuple[float, float]]) -> Slope:
    x, y = np.array(points).T
    x = x / 3600
    centred = x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    line = y.mean() + slope * centred
    error = float(np.sqrt(((y - line) ** 2).sum() / (len(x) - 2) / (centred @ centred)))
    return Slope(name, float(line[0]), float(line[-1]), slope, error)
