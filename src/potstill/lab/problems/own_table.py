"""A table of somebody's own as a scenario, beside those of the paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from potstill.lab.problems.scenarios import Scenario, is_known, scenario
from potstill.lab.problems.table import ClassificationProblem, DoseProblem

#: From so many decisions on, an update every 1,000 as in the paper; below, every 100.
MANY = 10_000
_ENDINGS = (".csv", ".parquet")

Kind = TypeVar("Kind", ClassificationProblem, DoseProblem)


class OwnTable(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be decided in a table.

    Attributes:
        label: column of the class to name; or
        target: column of the amount to hit, in so many
        levels: evenly spaced ones.
        without: columns that are not to be seen.
    """

    label: str | None = None
    target: str | None = None
    levels: int = 20
    without: tuple[str, ...] = ()

    @property
    def options(self) -> tuple[str, ...]:
        """As the command line takes them."""
        what = ("--label", self.label) if self.label is not None else ("--target", self.target or "")
        levels = () if self.label is not None else ("--levels", str(self.levels))
        return (*what, *levels, *(word for name in self.without for word in ("--without", name)))


def named(name: str, own: OwnTable, decisions: int | None = None) -> Scenario:
    """The scenario of a problem's name, or of a file's with a table."""
    path = Path(name)
    if not is_known(name) and (path.suffix.lower() in _ENDINGS or "/" in name or path.exists()):
        return own_scenario(path, own, decisions)
    return scenario(name)


def refuse_unused(own: OwnTable, found: Sequence[Scenario]) -> None:
    """Refuse options of a table where no problem is one."""
    if own != OwnTable() and not any(one.options for one in found):
        names = ", ".join(one.name for one in found)
        raise ValueError(f"--label, --target, --levels and --without are for a table of your own, not for {names}")


def own_scenario(path: Path, own: OwnTable, decisions: int | None = None) -> Scenario:
    """The scenario of a table; every row once in random order, unless more decisions are asked for.

    Args:
        path: of a CSV file with a header row, or of a Parquet file.
        own: what to decide.
        decisions: in a trial; one per row if left out.
    """
    if own.label is None and own.target is None:
        raise ValueError(f"{path}: say what to decide: --label COLUMN for a class, or --target COLUMN for a dose")
    if own.label is not None and own.target is not None:
        raise ValueError(f"{path}: --label {own.label} and --target {own.target} are two things to decide; give one")
    rows = table(path, own, resample=False).rows
    count = decisions or rows
    return Scenario(
        name=path.name,
        title=path.name,
        decisions=count,
        batch=1_000 if count >= MANY else 100,
        environment=partial(table, path, own, resample=count > rows),
        options=own.options,
    )


@cache
def table(path: Path, own: OwnTable, *, resample: bool) -> ClassificationProblem | DoseProblem:
    """The environment of a table, read once in each process."""
    if not path.is_file():
        raise ValueError(f"{path}: {'that is a folder, not a table' if path.is_dir() else 'there is no such file'}")
    if (ending := path.suffix.lower()) not in _ENDINGS:
        raise ValueError(f"{path}: a table is a file that ends in {' or '.join(_ENDINGS)}, not in {ending!r}")
    # Part of the problem's hash, so that results of another content under the same name are told apart.
    name = f"{path.stem}-{sha256(path.read_bytes()).hexdigest()[:12]}"
    options: dict[str, Any] = {"name": name, "without": own.without, "resample": resample}
    try:
        if own.label is not None:
            return _read(ClassificationProblem, path)(path, label=own.label, **options)
        return _read(DoseProblem, path)(path, target=own.target, levels=own.levels, **options)
    except ValueError as error:
        raise ValueError(str(error).replace("with features=[...]", "with --without COLUMN")) from error


def _read(kind: type[Kind], path: Path) -> Callable[..., Kind]:
    return kind.from_csv if path.suffix.lower() == ".csv" else kind.from_parquet
