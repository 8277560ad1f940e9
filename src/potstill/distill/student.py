"""The student: which network imitates the teacher, and how it is trained. Configuration only; nothing learns here."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, get_args

import msgspec

from potstill.policy import Activation

Optimiser = Literal["muon", "adam", "rmsprop"]
Decay = Literal["linear", "inverse-time"]


class Student(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A softmax network and its training. The defaults are fast and accurate; `Student.paper` is the paper's recipe.

    Args:
        hidden: Units of each hidden layer; ``()`` is a linear softmax.
        activation: Activation of the hidden units.
        optimiser: Turns gradients into steps.
        learning_rate: Learning rate of the first step.
        decay: Decay of the learning rate, ``linear`` to zero after the last step or the paper's ``inverse-time``.
        batch: Contexts in a minibatch.
        steps: Minibatches, at most.
        average: Decay per step of the running mean of the parameters, which is what is judged and served; 0 is the
            parameters themselves.
        patience: Evaluations of the held-out contexts, one every 50 steps, without a lower divergence after which
            training stops and the best parameters are taken; None trains to the end and takes the last.
        warm: Share of the steps that a warm start skips while the earlier policy is close to its labels, so that it
            begins where the learning rate has already decayed; None always starts fresh.
        held_out: Share of the contexts that is never trained on.
        contexts: Least number of contexts to imitate on. Where fewer were observed, synthetic ones are composed from
            them and labelled too; 0 for none.
    """

    hidden: tuple[int, ...] = (100, 100)
    activation: Activation = "tanh"
    optimiser: Optimiser = "muon"
    learning_rate: float = 0.04
    decay: Decay = "linear"
    batch: int = 512
    steps: int = 1000
    average: float = 0.98
    patience: int | None = 4
    warm: float | None = 0.6
    held_out: float = 0.1
    contexts: int = 4096

    def __post_init__(self) -> None:
        for field, (fits, expected) in _RULES.items():
            value = getattr(self, field)
            if not fits(value):
                raise ValueError(f"Student: {field} must be {expected}, got {value!r}")
        # A list is as good, but only a tuple can be hashed, and a student is the key of its compiled program.
        msgspec.structs.force_setattr(self, "hidden", tuple(self.hidden))

    @classmethod
    def paper(cls) -> Student:
        """RMSProp on 2,000 minibatches of 512 observed contexts, from a fresh start."""
        return cls(
            optimiser="rmsprop",
            learning_rate=0.001,
            decay="inverse-time",
            steps=2000,
            average=0.0,
            patience=None,
            warm=None,
            contexts=0,
        )


def _count(value: object) -> bool:
    return type(value) is int and value >= 1


def _share(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value < 1  # type: ignore[operator]


def _one_of(choices: object) -> tuple[Callable[[Any], bool], str]:
    names = get_args(choices)
    return names.__contains__, "one of " + ", ".join(map(repr, names))


#: For each field, what fits it and how to say so.
_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "hidden": (
        lambda units: isinstance(units, (tuple, list)) and all(map(_count, units)),
        "whole numbers above 0, such as (100, 100), or () for a linear softmax",
    ),
    "activation": _one_of(Activation),
    "optimiser": _one_of(Optimiser),
    "learning_rate": (
        lambda rate: type(rate) in (int, float) and 0 < rate < math.inf,
        "a number above 0, such as 0.04",
    ),
    "decay": _one_of(Decay),
    "batch": (_count, "a whole number above 0, such as 512"),
    "steps": (_count, "a whole number above 0, such as 1000"),
    "average": (_share, "from 0 to below 1, such as 0.98, or 0 for none"),
    "patience": (lambda looks: looks is None or _count(looks), "a whole number above 0, or None not to stop early"),
    "warm": (lambda share: share is None or _share(share), "from 0 to below 1, or None for a fresh start"),
    "held_out": (lambda share: _share(share) and share > 0, "above 0 and below 1, such as 0.1"),
    "contexts": (lambda n: type(n) is int and n >= 0, "a whole number such as 4096, or 0 for none"),
}
