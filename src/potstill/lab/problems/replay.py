"""Replay: an algorithm is evaluated on a log of uniformly random decisions (Li, Chu, Langford, Wang 2011).

A logged row counts only if the algorithm picks the logged action; then the logged reward is what it would have earned.
Every row matches with the same probability, 1/K, independent of the algorithm, so the rows that count are distributed
as they would be online. The others are discarded.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path

import msgspec
import numpy as np
import polars as pl

from potstill.errors import LabError, PotstillError
from potstill.files import SHARED, write_atomically
from potstill.keys import Key
from potstill.lab.problems import data
from potstill.lab.problems.environment import Batch, Choose, Environment
from potstill.problem import Observations, Problem
from potstill.spaces import Actions, FiniteSpace, finite, lake_columns
from potstill.tables import checked_contexts

#: Rows per file: a few megabytes, held in memory at a time.
CHUNK = 100_000
#: Called with the rows written and the total.
Progress = Callable[[int, int], None]


class _Manifest(msgspec.Struct, frozen=True, kw_only=True):
    simulator: str  # its fingerprint
    rows: int
    seed: int
    chunk: int


def write_log(
    folder: Path,
    environment: Environment,
    rows: int,
    seed: int = 0,
    chunk: int = CHUNK,
    progress: Progress | None = None,
) -> None:
    """Log uniformly random decisions, a file at a time. An interrupted call can be resumed.

    Args:
        folder: Folder of the log.
        environment: Environment whose contexts are logged; their columns must be the problem's features.
        rows: Total number of rows.
        seed: Seed of contexts, actions and reward noise.
        chunk: Number of rows in a file.
        progress: Called after each file.
    """
    if rows < 1 or chunk < 1:
        raise LabError(f"a log needs 1 or more rows and chunk, got rows={rows} and chunk={chunk}")
    _claim(folder, _Manifest(simulator=fingerprint(environment), rows=rows, seed=seed, chunk=chunk))
    for number, start in enumerate(range(0, rows, chunk)):
        path = folder / f"part-{number:05d}.parquet"
        size = min(chunk, rows - start)
        if not path.exists():
            write_atomically(path, _parquet(logged(environment, size, Key(seed).child("log", number))), SHARED)
        if progress:
            progress(start + size, rows)


def logged(environment: Environment, n: int, key: Key) -> pl.DataFrame:
    """N uniformly random decisions. Numeric features are float32, as policies see them."""
    rng, names = key.generator(), _actions(environment.problem).labels
    contexts = environment.contexts(n, rng)
    actions = rng.integers(len(names), size=n)
    table = pl.DataFrame({name: _small(column) for name, column in contexts.items()})
    return table.with_columns(
        action=pl.Series(actions.astype(np.uint32)).replace_strict(
            range(len(names)), names, return_dtype=pl.Enum(names)
        ),
        reward=environment.rewards(contexts, actions, rng),
        propensity=pl.lit(1 / len(names), pl.Float32),
    )


def upload_log(environment: Environment, rows: int, progress: Progress | None = None) -> Path:
    """Folder of a log in the cache, written or completed now if necessary."""
    name = f"{environment.problem.name}-{rows}-{fingerprint(environment)[:8]}"
    write_log(data.cache() / name, environment, rows, progress=progress)
    return data.cache() / name


def fingerprint(environment: Environment) -> str:
    """Digest of a few logged rows, to detect logs of a changed simulator."""
    sample = logged(environment, 200, Key(0).child("fingerprint"))
    return hashlib.sha256(sample.write_csv().encode()).hexdigest()


def _claim(folder: Path, described: _Manifest) -> None:
    """Write the manifest of a log, or check the existing one."""
    path = folder / "log.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, msgspec.json.encode(described), SHARED)
    elif (found := msgspec.json.decode(path.read_bytes(), type=_Manifest)) != described:
        raise LabError(f"{folder} holds another log, {found}, not {described}; use another folder, or delete it")


def _small(column: np.ndarray[tuple[int], np.dtype[np.generic]]) -> pl.Series:
    """A smaller column: float32 for numbers, categories for strings."""
    series = pl.Series(column)
    if series.dtype == pl.Float64:
        return series.cast(pl.Float32)
    return series.cast(pl.Categorical) if series.dtype == pl.String else series


def _parquet(table: pl.DataFrame) -> bytes:
    file = io.BytesIO()
    table.write_parquet(file, compression="zstd", compression_level=1)
    return file.getvalue()


class LogExhausted(PotstillError, ValueError):
    """A log has too few rows for a trial."""


class Replay:
    """A world of logged rows, each used once, in order.

    Args:
        problem: The problem.
        parts: The log, in parts of any size; one is in memory at a time.
    """

    def __init__(self, problem: Problem, parts: Iterable[Observations]) -> None:
        self.problem = problem
        self._parts = iter(parts)
        self._rows = Observations.none(problem)  # read and not used yet
        self._met = self._counted = 0

    def batch(self, size: int, choose: Choose) -> Batch:
        """Use rows until `size` of them count.

        `choose` gets blocks of `size` rows, because algorithms compile for a shape. Rows after the last one that counts
        go to the next batch and are decided again by the updated algorithm, so that block boundaries do not matter.
        """
        kept: list[Observations] = []
        wanted = size
        while wanted:
            block = self._block(size, wanted)
            actions, propensities = choose(block.contexts)
            matches = np.flatnonzero(actions == block.actions)[:wanted]
            wanted -= len(matches)
            self._spend(len(block) if wanted else int(matches[-1]) + 1, len(matches))
            kept.append(replace(block[matches], propensities=propensities[matches]))
        return Batch(reduce(add, kept, Observations.none(self.problem)), None)

    def _block(self, size: int, wanted: int) -> Observations:
        """The next `size` rows, or the rest of the log."""
        while len(self._rows) < size and (part := next(self._parts, None)) is not None:
            self._rows = self._rows + part
        if not len(self._rows):
            raise self._exhausted(wanted)
        return self._rows[:size]

    def _spend(self, rows: int, counted: int) -> None:
        self._rows = self._rows[rows:]
        self._met += rows
        self._counted += counted

    def _exhausted(self, wanted: int) -> LogExhausted:
        more = rows_for(self.problem, wanted)
        return LogExhausted(
            f"the log has run out: {self._counted:,} of its {self._met:,} rows counted, and {wanted:,} more were wanted"
            f" for this batch, which takes about {more:,} more rows; log more, or ask for fewer decisions"
        )


def parts_of(folder: Path, problem: Problem, key: Key) -> Iterator[Observations]:
    """Encoded files of a log on disk, in an order given by the key, with the rows of each file shuffled.

    Args:
        folder: Folder of Parquet files with the problem's features, `action`, `reward` and `propensity` as columns.
        problem: The problem.
        key: Key of the order.
    """
    paths = sorted(folder.glob("part-*.parquet"))
    if not paths:
        raise LabError(f"{folder} has no part-*.parquet, so it is not a log; write one with write_log")
    for number in key.child("parts").generator().permutation(len(paths)):
        part = read_part(paths[number], problem)
        yield part[key.child("rows", int(number)).generator().permutation(len(part))]


def read_part(path: Path, problem: Problem) -> Observations:
    """One file of a log, all of whose decisions must have been uniformly random."""
    table = pl.read_parquet(path)
    wanted = [*(feature.name for feature in problem.context), "action", "reward", "propensity"]
    if absent := [name for name in wanted if name not in table.columns]:
        raise LabError(f"{path}: the log has no column {absent[0]!r}; its columns are {', '.join(table.columns)}")
    propensity = table["propensity"].to_numpy()
    if not np.allclose(propensity, 1 / len(_actions(problem)), rtol=1e-4):
        raise LabError(f"{path}: replay needs a log of uniformly random decisions; propensities are not all 1/K")
    return Observations.from_columns(
        problem,
        contexts=checked_contexts(table.lazy(), problem, str(path)),
        actions=_encode_actions(table["action"].cast(pl.String), problem, path),
        rewards=table["reward"].to_numpy(),
        propensities=propensity,
    )


def rows_for(problem: Problem, decisions: int) -> int:
    """Expected number of logged rows needed for `decisions`: each counts with probability 1/K."""
    return decisions * len(_actions(problem))


def _actions(problem: Problem) -> FiniteSpace:
    return finite(problem.actions, "replay of uniformly random decisions")


def _encode_actions(names: pl.Series, problem: Problem, path: Path) -> Actions:
    columns = lake_columns(problem.actions)
    known = names.to_frame().select(columns.fits(pl.col(names.name)).fill_null(value=False)).to_series()
    if not known.all():
        labels = ", ".join(_actions(problem).labels)
        raise LabError(f"{path}: unknown action {names.filter(~known)[0]!r}; the actions are {labels}")
    return columns.actions(names)
