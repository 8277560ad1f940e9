"""A log of uniformly random decisions in a simulated problem, as Parquet files: what Replay is fed with.

FOLDER/log.json              what the log is
FOLDER/part-00000.parquet    a chunk of rows: the context's raw values, action, reward, propensity
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import polars as pl

from potstill.files import write_atomically
from potstill.keys import Key
from potstill.lab.problems import data
from potstill.lab.problems.environment import Environment

#: Rows in a file: a few megabytes, and what is held in memory at a time.
CHUNK = 100_000
#: Told of the rows that are there, and of all.
Progress = Callable[[int, int], None]


class _Described(msgspec.Struct, frozen=True, kw_only=True):
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
    """Log uniformly random decisions, a file at a time. What an interrupted call has written is not written again.

    Args:
        folder: of the log.
        environment: whose contexts are logged; their columns must be the problem's features.
        rows: in all.
        seed: of contexts, actions and luck.
        chunk: rows in a file.
        progress: called after each file.
    """
    if rows < 1 or chunk < 1:
        raise ValueError(f"a log needs 1 or more rows and chunk, got rows={rows} and chunk={chunk}")
    _claim(folder, _Described(simulator=fingerprint(environment), rows=rows, seed=seed, chunk=chunk))
    for number, start in enumerate(range(0, rows, chunk)):
        path = folder / f"part-{number:05d}.parquet"
        size = min(chunk, rows - start)
        if not path.exists():
            write_atomically(path, _parquet(logged(environment, size, Key(seed).child("log", number))))
        if progress:
            progress(start + size, rows)


def logged(environment: Environment, n: int, key: Key) -> pl.DataFrame:
    """N uniformly random decisions. Numbers of a context are float32, as policies see them."""
    rng, names = key.generator(), environment.problem.actions.names
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
    """The folder of a log in the cache, written now if it is not there, or not whole."""
    name = f"{environment.problem.name}-{rows}-{fingerprint(environment)[:8]}"
    write_log(data.cache() / name, environment, rows, progress=progress)
    return data.cache() / name


def fingerprint(environment: Environment) -> str:
    """A digest of a few logged rows: a log of a simulator that has since changed is not taken for one of today's."""
    sample = logged(environment, 200, Key(0).child("fingerprint"))
    return hashlib.sha256(sample.write_csv().encode()).hexdigest()


def _claim(folder: Path, described: _Described) -> None:
    """Say in a folder what its log is, or find that it says so already."""
    path = folder / "log.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, msgspec.json.encode(described))
    elif (found := msgspec.json.decode(path.read_bytes(), type=_Described)) != described:
        raise ValueError(f"{folder} holds another log, {found}, not {described}; name another folder, or delete it")


def _small(column: np.ndarray[tuple[int], np.dtype[np.generic]]) -> pl.Series:
    """Half the bytes for numbers; strings as a few kinds."""
    series = pl.Series(column)
    if series.dtype == pl.Float64:
        return series.cast(pl.Float32)
    return series.cast(pl.Categorical) if series.dtype == pl.String else series


def _parquet(table: pl.DataFrame) -> bytes:
    file = io.BytesIO()
    table.write_parquet(file, compression="zstd", compression_level=1)
    return file.getvalue()
