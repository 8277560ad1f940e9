"""Finished trials on disk: one file each, so that a run can be stopped and resumed at any time.

OUT/<problem>/<preset>/<algorithm>/0007.json            results: equal seeds give equal bytes
OUT/<problem>/<preset>/<algorithm>/0007.seconds.json    timings, which differ between runs, and the commit
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from potstill.errors import LabError
from potstill.files import SHARED, write_atomically
from potstill.lab.runs.trial import Turn


class Trial(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One finished trial; lists have one entry per batch.

    Attributes:
        problem: Name of the scenario.
        preset: Preset of hyperparameters, ``paper`` or ``potstill``; ``peers`` for other libraries.
        algorithm: Name of the algorithm.
        trial: Number, from 0; trials with the same number get the same requests and reward noise.
        seed: Seed of all randomness.
        decisions: Number of decisions in each batch.
        reward: Total reward of each batch.
        regret: Total regret of each batch; None where expected rewards are unknown.
        kl: Held-out KL divergence of the policy distilled after each batch but the last; None without distillation.
        price: Upper bound on the reward per decision that this divergence can cost (the paper's bound); None without a
            declared range of rewards.
        cost: Reward per decision that imitation gives up by the teacher's mean rewards, for the same policies.
        w1: Held-out Wasserstein distance of the same policies, in units of the action; None without distances.
    """

    problem: str
    preset: str
    algorithm: str
    trial: int
    seed: int
    decisions: list[int]
    reward: list[float]
    regret: list[float] | None = None
    kl: list[float] | None = None
    price: list[float] | None = None
    cost: list[float] | None = None
    w1: list[float] | None = None

    def __post_init__(self) -> None:
        for name in ("reward", "regret"):
            if (values := getattr(self, name)) is not None and len(values) != len(self.decisions):
                raise LabError(f"{len(self.decisions)} batches of decisions, and {len(values)} of {name}")


class Seconds(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Seconds of a trial: in total, and of each stage of each update (``learn``, ``label``, ``imitate``).

    Holds the commit that ran the trial, if it was run from a checkout. It is not among the results, because other
    commits may give equal trials.
    """

    total: float
    stages: dict[str, list[float]]
    commit: str | None = None


def summarised(turns: Sequence[Turn], **identity: str | int) -> Trial:
    """Build a trial from its batches."""
    learned = [turn.learned for turn in turns[:-1]]
    regret = [turn.regret for turn in turns if turn.regret is not None]
    kl = [update.kl for update in learned if update.kl is not None]
    price = [update.price for update in learned if update.price is not None]
    cost = [update.cost for update in learned if update.cost is not None]
    w1 = [update.w1 for update in learned if update.w1 is not None]
    return msgspec.convert(
        {
            **identity,
            "decisions": [turn.decisions for turn in turns],
            "reward": [turn.reward for turn in turns],
            "regret": regret or None,
            "kl": kl or None,
            "price": price or None,
            "cost": cost or None,
            "w1": w1 or None,
        },
        Trial,
    )


def path_of(out: Path, problem: str, preset: str, algorithm: str, trial: int) -> Path:
    """Path of a trial."""
    return out / problem / preset / algorithm / f"{trial:04d}.json"


def save(out: Path, trial: Trial, seconds: Seconds) -> None:
    """Save a finished trial atomically; it is finished once its file exists."""
    path = path_of(out, trial.problem, trial.preset, trial.algorithm, trial.trial)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path.with_suffix(".seconds.json"), msgspec.json.encode(seconds), SHARED)
    write_atomically(path, msgspec.json.encode(trial), SHARED)


def load(out: Path) -> Iterator[Trial]:
    """All finished trials under a folder, in the order of their paths."""
    yield from map(_read, _paths(out))


def archive(out: Path) -> bytes:
    """All finished trials of a folder with timings and settings as a .tar.xz; equal files give equal bytes.

    Unpacked, it is a folder of the same name, to report on or to resume.
    """
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as tar:
        for path in sorted([*out.glob("settings.json"), *out.glob("*/*/*/[0-9]*.json")]):
            content = path.read_bytes()
            entry = tarfile.TarInfo((Path(out.resolve().name) / path.relative_to(out)).as_posix())
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def _paths(out: Path) -> list[Path]:
    return [path for path in sorted(out.glob("*/*/*/[0-9]*.json")) if not path.name.endswith(".seconds.json")]


def _read(path: Path) -> Trial:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Trial)
    except msgspec.DecodeError as error:
        raise LabError(
            f"{path} is not a finished trial: {error}; delete it, and the next run repeats the trial"
        ) from None


def seconds_of(out: Path, trial: Trial) -> Seconds | None:
    """Seconds of a trial, if known."""
    return seconds_at(path_of(out, trial.problem, trial.preset, trial.algorithm, trial.trial))


def seconds_at(trial: Path) -> Seconds | None:
    """Seconds of the trial with a path, if known."""
    path = trial.with_suffix(".seconds.json")
    return msgspec.json.decode(path.read_bytes(), type=Seconds) if path.exists() else None
