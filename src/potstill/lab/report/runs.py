"""Finished trials of a folder, grouped into runs of one algorithm on one problem."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from potstill.errors import LabError
from potstill.lab.problems import NUMBERS, SCENARIOS, Float64, is_known, scenario
from potstill.lab.runs import ALGORITHMS, Comparison, Estimate, Measure, Trial, results

PEERS = "peers"
_PRESETS = ["paper", "paper-fresh", "potstill", PEERS]


_PROBLEMS = ("mushroom", "wheel", "video", "warfarin-20")
_LATENCY_MS = {
    "uniform": (0.040, 0.039, 0.040, 0.040),
    "neural-greedy": (0.242, 0.228, 0.231, 0.232),
    "linear-ts": (0.715, 1.142, 1.575, 3.963),
    "neural-linear-ts": (0.826, 1.492, 1.931, 4.814),
    "bootstrap-nn-ts": (0.235, 0.235, 0.236, 0.226),
    "linear-ts-il": (0.184, 0.178, 0.169, 0.175),
    "neural-linear-ts-il": (0.186, 0.179, 0.169, 0.175),
    "bootstrap-nn-ts-il": (0.190, 0.178, 0.175, 0.179),
}
#: Milliseconds per decision, by (problem, algorithm).
LATENCY_MS = {
    (problem, algorithm): ms
    for algorithm, row in _LATENCY_MS.items()
    for problem, ms in zip(_PROBLEMS, row, strict=True)
}
#: Deviations from the paper by problem, shown with every result on its problems.
_DEVIATIONS = (
    (
        "warfarin",
        "Warfarin: all 5,528 patients of the public IWPC file with a numeric dose, instead of the paper's 4,788; the "
        "paper does not state its selection rule. The 17 context columns are this project's choice.",
    ),
    (
        "video",
        "Video: the paper's log is not public. Its place is taken by a simulated upload service with 38 columns and 7 "
        "actions, logged under a uniform policy. Absolute rewards cannot be compared with the paper's.",
    ),
    (
        "",
        "Linear-TS and NeuralLinear-TS draw each action's reward from its exact Student-t distribution instead of "
        "sampling parameters. Their labels are exact probabilities instead of shares of 2,048 samples. The "
        "distribution is the same, without Monte Carlo noise.",
    ),
)


class Run:
    """All trials of one algorithm under one preset on one problem.

    Args:
        trials: One or more trials, with equal batches.
    """

    def __init__(self, trials: Sequence[Trial]) -> None:
        self.trials = sorted(trials, key=lambda trial: trial.trial)
        first = self.trials[0]
        self.problem, self.preset, self.algorithm = first.problem, first.preset, first.algorithm
        self.measure: Measure = _measure(self.trials)

    @property
    def title(self) -> str:
        """Title of the algorithm."""
        return ALGORITHMS[self.algorithm].title if self.algorithm in ALGORITHMS else self.algorithm

    @property
    def imitates(self) -> str | None:
        """Name of the algorithm that this policy was distilled from."""
        return self.algorithm.removesuffix("-il") if self.algorithm.endswith("-il") else None

    @property
    def trial_keys(self) -> list[tuple[int, int]]:
        """Number and seed of each trial; runs that agree in both had the same requests and reward noise."""
        return [(trial.trial, trial.seed) for trial in self.trials]

    @cached_property
    def decisions(self) -> Float64:
        """Decisions taken by the end of each batch, float64[T]."""
        return np.cumsum(self.trials[0].decisions, dtype=np.float64)

    @cached_property
    def curves(self) -> Float64:
        """Regret so far, or mean reward so far, at the end of each batch, float64[trials, T]."""
        if self.measure == "regret":
            return np.cumsum([trial.regret or [] for trial in self.trials], axis=1, dtype=np.float64)
        return np.cumsum([trial.reward for trial in self.trials], axis=1, dtype=np.float64) / self.decisions

    @property
    def final(self) -> Float64:
        """Final values of the curves, float64[trials]."""
        return self.curves[:, -1]

    @property
    def estimate(self) -> Estimate:
        """Mean of the final values."""
        return Estimate.of(self.final)

    def better(self, other: Run) -> bool:
        """Whether its mean is better than another's."""
        return (self.estimate.mean < other.estimate.mean) == (self.measure == "regret")

    def against(self, other: Run) -> Comparison | None:
        """Comparison on the trials that both have; None if there are none."""
        both = sorted(set(self.trial_keys) & set(other.trial_keys))
        if not both or self.measure != other.measure:
            return None
        name = "IL" if self.imitates == other.algorithm else self.title
        return Comparison.of(self._ends(both), other._ends(both), self.measure, name)

    def _ends(self, trial_keys: Sequence[tuple[int, int]]) -> Float64:
        return self.final[[self.trial_keys.index(one) for one in trial_keys]]


class Runs:
    """All runs of a folder, in display order."""

    def __init__(self, trials: Iterable[Trial]) -> None:
        grouped: dict[tuple[str, str, str], list[Trial]] = {}
        for trial in trials:
            grouped.setdefault((trial.problem, trial.preset, trial.algorithm), []).append(trial)
        _refuse_mixed(grouped)
        self.runs = [Run(grouped[identity]) for identity in sorted(grouped, key=_rank)]

    @classmethod
    def read(cls, folder: Path) -> Runs:
        """Runs of a folder written by `potstill lab run`."""
        if not folder.is_dir():
            raise LabError(f"there is no folder {folder}; run trials first, with potstill lab run --out {folder}")
        runs = cls(results.load(folder))
        if not runs.runs:
            raise LabError(
                f"{folder} holds no finished trials (PROBLEM/PRESET/ALGORITHM/0000.json); "
                f"run some first, with potstill lab run --out {folder}"
            )
        return runs

    @property
    def problems(self) -> list[str]:
        """Names of the problems, in order."""
        return list(dict.fromkeys(run.problem for run in self.runs))

    def of(self, problem: str, preset: str | None = None) -> list[Run]:
        """The runs on a problem."""
        return [run for run in self.runs if run.problem == problem and preset in (None, run.preset)]

    def presets(self, problem: str) -> list[str]:
        """The presets that a problem was run under."""
        return list(dict.fromkeys(run.preset for run in self.of(problem)))

    def best_peer(self, problem: str) -> Run | None:
        """The best of the other libraries on a problem."""
        best: Run | None = None
        for run in self.of(problem, PEERS):
            best = run if best is None or run.better(best) else best
        return best

    def pairs(self) -> list[tuple[Run, Run]]:
        """Every distilled policy with its Thompson sampling, where both were run."""
        known = {(run.problem, run.preset, run.algorithm): run for run in self.runs}
        found = [(run, known.get((run.problem, run.preset, run.imitates or ""))) for run in self.runs]
        return [(run, taught_by) for run, taught_by in found if taught_by is not None]


def problem_title(name: str) -> str:
    """Title of a problem."""
    return scenario(name).title if is_known(name) else name


def _measure(trials: Sequence[Trial]) -> Measure:
    """Regret if expected rewards are known, else mean reward: a log does not hold the rewards of other actions."""
    return "reward" if any(trial.regret is None for trial in trials) else "regret"


def _rank(identity: tuple[str, str, str]) -> tuple[object, ...]:
    """Problems, presets and algorithms in the order of their lists, then others by name."""
    lists = (list(SCENARIOS | NUMBERS), _PRESETS, list(ALGORITHMS))
    known = ((names.index(name) if name in names else len(names)) for name, names in zip(identity, lists, strict=True))
    places = tuple(known)
    return (places[0], identity[0], *places[1:], *identity[1:])


def _refuse_mixed(grouped: dict[tuple[str, str, str], list[Trial]]) -> None:
    """Reject trials of different lengths: their curves and totals cannot be compared."""
    lengths: dict[str, Trial] = {}
    for trial in (trial for trials in grouped.values() for trial in trials):
        first = lengths.setdefault(trial.problem, trial)
        if trial.decisions != first.decisions:
            raise LabError(
                f"{trial.problem}: trial {trial.trial} of {trial.preset}/{trial.algorithm} has {_length(trial)}, but "
                f"trial {first.trial} of {first.preset}/{first.algorithm} has {_length(first)}; keep runs of different "
                "lengths in different folders"
            )


def _length(trial: Trial) -> str:
    return f"{sum(trial.decisions):,} decisions in {len(trial.decisions)} batches"


def deviations(problems: Sequence[str]) -> list[str]:
    """Deviations from the paper on the problems that are in it."""
    known = [name for name in problems if is_known(name)]
    return [said for of, said in _DEVIATIONS if any(name.startswith(of) for name in known)]
