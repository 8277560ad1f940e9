"""Which commit of Potstill this is."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

import potstill


@cache
def commit() -> str | None:
    """The commit of the checkout that this runs from, marked if there are changes; None if it runs from elsewhere."""
    package = Path(potstill.__file__).resolve().parent
    top = _git(package, "rev-parse", "--show-toplevel")
    # An installed package may lie inside another project's checkout.
    if top is None or Path(top).resolve() / "src" / "potstill" != package:
        return None
    changed = _git(package, "status", "--porcelain", "--untracked-files=no")
    return f"{_git(package, 'rev-parse', 'HEAD')}{' with changes' if changed else ''}"


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        ran = subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return ran.stdout.strip()
