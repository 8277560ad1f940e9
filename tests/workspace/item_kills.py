"""Kills a change of the items at each of its file operations, and repeats it. Run as a script, since it forks.

Prints as JSON: the number of kills, after how many items.json was changed, and faults.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from action_kills import forked, kill_at
from catalog_examples import item

from potstill.workspace import Workspace, sync_items

WANTED = [item(number) for number in range(2, 25)]


def check(folder: Path, texts: set[bytes]) -> list[str]:
    """What is wrong after a kill and a repetition."""
    faults = []
    if (folder / "items.json").read_bytes() not in texts:
        faults.append("items.json is neither the old nor the new one")
    Workspace(folder).registry.entries()
    sync_items(str(folder), WANTED, by="ann", reason="killed")
    workspace = Workspace(folder)
    if workspace.registry.policy().problem.hash != workspace.problem.hash:
        faults.append("no version for the changed items serves")
    again = sync_items(str(folder), WANTED)
    if again.published or again.added or again.removed or workspace.registry.damage():
        faults.append(f"the change is not finished: {again}")
    entries = [entry for entry in workspace.registry.entries() if entry.note.endswith(": killed")]
    if len(entries) != 1 or entries[0].by != "ann":
        faults.append(f"it is {len(entries)} times in the journal")
    return faults


def main(base: Path, folder: Path) -> None:
    """Kill a sync of a workspace everywhere."""
    whole = folder / "whole"
    shutil.copytree(base, whole)
    sync_items(str(whole), WANTED)
    texts = {(base / "items.json").read_bytes(), (whole / "items.json").read_bytes()}
    kills, made, faults = 0, 0, []
    while True:
        place = folder / f"sync-{kills}"
        shutil.copytree(base, place)

        def change(place: Path = place, number: int = kills + 1) -> None:
            kill_at(place, number)
            sync_items(str(place), WANTED, by="ann", reason="killed")

        status = forked(change)
        if status == 0:
            break
        if not os.WIFSIGNALED(status):
            faults.append(f"kill {kills}: it failed")
        kills += 1
        made += (place / "items.json").read_bytes() != (base / "items.json").read_bytes()
        faults += [f"kill {kills}: {fault}" for fault in check(place, texts)]
        shutil.rmtree(place)
    print(json.dumps({"kills": kills, "made": made, "faults": faults}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
