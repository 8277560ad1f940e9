"""Numbers that the paper gives in its text, to stand beside what is measured here.

Namkoong, Daulton, Bakshy: "Distilled Thompson Sampling: Practical and Efficient Thompson Sampling via Imitation
Learning", Table "Decision-making latency in milliseconds": mean over 100,000 calls on an Intel Xeon E5-2680 v4 in
32-bit floating point. Regret and reward are only in its figures, and are not read off them here.
"""

from __future__ import annotations

from collections.abc import Sequence

from potstill.lab.problems.scenarios import is_known

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

#: What is not as in the paper, to be said wherever results on its problems are shown: the problem, and what.
_DEVIATIONS = (
    (
        "warfarin",
        "Warfarin: all 5,528 patients of the public IWPC file with a numeric dose, instead of the paper's 4,788, whose "
        "rule of selection it does not give; the 17 columns of the context are this project's choice.",
    ),
    (
        "video",
        "Video: the paper's log is not public. A simulated upload service with 38 columns and 7 actions, logged under "
        "a uniform policy, takes its place; absolute rewards cannot be compared with the paper's.",
    ),
    (
        "",
        "Linear-TS and NeuralLinear-TS draw each action's reward from its exact Student-t distribution instead of "
        "through sampled parameters, and their labels are exact probabilities instead of shares of 2,048 samples: the "
        "same distribution, without Monte Carlo noise.",
    ),
)


def deviations(problems: Sequence[str]) -> list[str]:
    """What is not as in the paper, of those problems that are in it."""
    known = [name for name in problems if is_known(name)]
    return [said for of, said in _DEVIATIONS if any(name.startswith(of) for name in known)]
