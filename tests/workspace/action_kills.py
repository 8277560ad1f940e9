"""Kills a change of the actions at each of its file operations, and repeats it. Run as a script, since it forks.

Prints as JSON, for each kind of change: the number of kills, after how many problem.toml was changed, and faults.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from potstill.workspace import Workspace, add_action, list_actions, remove_action, retire_action

CHANGES: dict[str, Callable[..., object]] = {"add": add_action, "retire": retire_action, "remove": remove_action}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
EVENTS = ("open", "os.rename", "os.link", "os.remove", "os.mkdir")


def kill_at(folder: Path, number: int) -> None:
    """Kill this process before its change of that number in a folder; between two changes nothing is different."""
    seen = 0

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        reads = event == "open" and not int(arguments[2]) & WRITES  # type: ignore[call-overload]
        if event in EVENTS and not reads and str(arguments[0]).startswith(str(folder)):
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def forked(work: Callable[[], object]) -> int:
    """Status of a fork of this process that does some work."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    try:
        work()
        os._exit(0)
    except BaseException as error:
        print(repr(error), file=sys.stderr)
        os._exit(1)


def check(folder: Path, texts: set[bytes], what: str, name: str) -> list[str]:
    """What is wrong after a kill and a repetition."""
    faults = []
    if (folder / "problem.toml").read_bytes() not in texts:
        faults.append("problem.toml is neither the old nor the new one")
    Workspace(folder).registry.entries()
    again = CHANGES[what](str(folder), name, by="ann", reason="killed")
    workspace = Workspace(folder)
    if workspace.registry.policy().problem.hash != workspace.problem.hash:
        faults.append("no version for the changed problem serves")
    if CHANGES[what](str(folder), name).changed or workspace.registry.damage():
        faults.append(f"the change is not finished: {again}")
    entries = [entry for entry in workspace.registry.entries() if entry.note.endswith(": killed")]
    if len(entries) != 1 or entries[0].by != "ann":
        faults.append(f"it is {len(entries)} times in the journal")
    if workspace.start().version != list_actions(workspace).serving:
        faults.append("a start publishes once more")
    return faults


def main(base: Path, folder: Path) -> None:
    """Kill each change of a workspace everywhere."""
    found = {}
    for what, name in (("add", "4k"), ("retire", "360p"), ("remove", "720p")):
        whole = folder / "whole"
        shutil.copytree(base, whole)
        CHANGES[what](str(whole), name)
        texts = {(base / "problem.toml").read_bytes(), (whole / "problem.toml").read_bytes()}
        shutil.rmtree(whole)
        kills, made, faults = 0, 0, []
        while True:
            place = folder / f"{what}-{kills}"
            shutil.copytree(base, place)

            def change(what: str = what, name: str = name, place: Path = place, number: int = kills + 1) -> None:
                kill_at(place, number)
                CHANGES[what](str(place), name, by="ann", reason="killed")

            status = forked(change)
            if status == 0:
                break
            if not os.WIFSIGNALED(status):
                faults.append(f"kill {kills}: it failed")
            kills += 1
            made += (place / "problem.toml").read_bytes() != (base / "problem.toml").read_bytes()
            faults += [f"kill {kills}: {fault}" for fault in check(place, texts, what, name)]
            shutil.rmtree(place)
        found[what] = {"kills": kills, "made": made, "faults": faults}
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
