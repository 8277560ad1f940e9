"""Provenance of results: commit and settings."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

import potstill
from potstill._version import __version__
from potstill.errors import PotstillError
from potstill.files import SHARED, write_atomically
from potstill.lab.problems import Scenario
from potstill.lab.runs.algorithms import Algorithm


@cache
def commit() -> str | None:
    """Commit of the running checkout, marked if it has changes; None outside of a checkout."""
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


class OtherSettings(PotstillError, ValueError):
    """The folder holds results of different settings."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that results depend on.

    Attributes:
        library: Potstill's version.
        seed: Seed of the run.
        problems: Hash, decisions and batch of each problem, and the options of a user's own table.
        algorithms: Hyperparameters of each ``preset/algorithm``.
    """

    library: str
    seed: int
    problems: dict[str, dict[str, Any]]
    algorithms: dict[str, dict[str, Any]]

    @classmethod
    def of(
        cls, seed: int, scenarios: Iterable[Scenario], pairs: Mapping[str, Sequence[tuple[str, Algorithm]]]
    ) -> Settings:
        """The settings of a run of (preset, algorithm) pairs on each problem."""
        return cls(
            library=__version__,
            seed=seed,
            problems={s.name: _described(s) for s in scenarios},
            algorithms={
                f"{preset}/{algorithm.name}": algorithm.settings(preset)
                for on_one in pairs.values()
                for preset, algorithm in on_one
            },
        )

    def recorded(self, out: Path) -> None:
        """Save them in a folder with those of earlier runs; `OtherSettings` if they contradict each other."""
        path = out / "settings.json"
        now = _plain(self)
        if path.exists():
            before = _read(path)
            _refuse_difference(before, now, out, "")
            now = _merged(before, now)
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(path, msgspec.json.format(msgspec.json.encode(now, order="sorted"), indent=1) + b"\n", SHARED)


def _described(one: Scenario) -> dict[str, Any]:
    options = {"options": one.options} if one.options else {}
    return {"hash": one.problem.hash, "decisions": one.decisions, "batch": one.batch, **options}


def _plain(settings: Settings) -> dict[str, Any]:
    """The value after a JSON round trip: lists instead of tuples."""
    return msgspec.json.decode(msgspec.json.encode(settings), type=dict[str, Any])


def _read(path: Path) -> dict[str, Any]:
    try:
        return _plain(msgspec.json.decode(path.read_bytes(), type=Settings))
    except msgspec.DecodeError as error:
        raise OtherSettings(
            f"{path} is not a settings file of a run: {error}; choose another folder with --out"
        ) from None


def _refuse_difference(before: Any, now: Any, out: Path, where: str) -> None:
    if isinstance(before, dict) and isinstance(now, dict):
        for name in (name for name in now if name in before):
            _refuse_difference(before[name], now[name], out, f"{where}.{name}" if where else name)
        # A new or missing hyperparameter is a difference; a new or missing problem or algorithm is not.
        if where.count(".") < 1:
            return
        for name in sorted(before.keys() ^ now.keys()):
            _refuse(out, f"{where}.{name}", before.get(name), now.get(name))
    elif before != now:
        _refuse(out, where, before, now)


def _refuse(out: Path, where: str, before: Any, now: Any) -> None:
    raise OtherSettings(
        f"{out} holds results with {where} = {_shown(before)}, and this run has {_shown(now)}: "
        "choose another folder with --out, or delete that one"
    )


def _shown(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _merged(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    both = {name: {**before[name], **now[name]} for name in ("problems", "algorithms")}
    return {**now, **both}
