"""A table of somebody's own as a scenario, beside those of the paper."""

from __future__ import annotations

from functools import cache, partial
from hashlib import sha256
from pathlib import Path

from potstill.lab.scenarios import Scenario
from potstill.lab.tables import ClassificationProblem, DoseProblem

#: From so many decisions on, an update every 1,000 as in the paper; below, every 100.
MANY = 10_000


def own_scenario(
    path: Path, *, label: str | None, target: str | None, levels: int, decisions: int | None = None
) -> Scenario:
    """The scenario of a CSV file; every row once in random order, unless more decisions are asked for.

    Args:
        path: of a CSV file with a header row.
        label: column of the class to name; or
        target: column of the amount to hit, in so many
        levels: evenly spaced ones.
        decisions: in a trial; one per row if left out.
    """
    if (label is None) == (target is None):
        raise ValueError(f"{path}: say what to decide: --label COLUMN for a class, or --target COLUMN for a dose")
    rows = table(path, label, target, levels, resample=False).rows
    count = decisions or rows
    return Scenario(
        name=path.stem,
        title=path.stem,
        decisions=count,
        batch=1_000 if count >= MANY else 100,
        environment=partial(table, path, label, target, levels, resample=count > rows),
    )


@cache
def table(
    path: Path, label: str | None, target: str | None, levels: int, *, resample: bool
) -> ClassificationProblem | DoseProblem:
    """The environment of a CSV file, read once in each process."""
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file")
    # Part of the problem's hash, so that results of another content under the same name are told apart.
    name = f"{path.stem}-{sha256(path.read_bytes()).hexdigest()[:12]}"
    if label is not None:
        return ClassificationProblem.from_csv(path, label=label, name=name, resample=resample)
    return DoseProblem.from_csv(path, target=target, levels=levels, name=name, resample=resample)
