"""The student: which network imitates the teacher, and how it is trained. Configuration only; nothing learns here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import msgspec

from potstill.decode import convert
from potstill.errors import InvalidOption, shown
from potstill.policy import Activation
from potstill.problem import seconds
from potstill.spaces import ActionSpace, Continuous
from potstill.teachers import AnyTeacher, has_sharp_labels

Optimiser = Literal["muon", "adam", "rmsprop"]
Decay = Literal["linear", "inverse-time"]
LastLayer = Literal["mean", "random"]
Distance = Literal["kl", "wasserstein"]
Synthetic = Literal["crossed", "near"]


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
            begins where the learning rate has already decayed; 0 takes all steps, None always starts fresh.
        rescale: Whether to train on inputs whose 5 % and 95 % quantiles are mapped onto [0, 1]. The policy takes
            contexts as they are in either case.
        first: Last layer of a fresh start. ``mean`` gives every context the mean label; it also replaces that of a
            warm start that is further from the labels. ``random`` is drawn like the other layers.
        held_out: Share of the contexts that is never trained on.
        contexts: Least number of contexts to imitate on. Where fewer were observed, synthetic ones are composed from
            them and labelled too; 0 for none.
        synthetic: Parents of a synthetic context: ``crossed`` are any two, for labels that are smooth in the context;
            ``near`` are neighbours, for labels with steps.
        distance: What training minimises. ``kl`` for every action space. ``wasserstein`` where actions have distances,
            `Continuous` or `Discrete` with positions or distances: an error then counts by how far it moves actions.
            It is minimised from the student of least KL on, in as many steps again: a softmax that gives no mass to
            the right place has no gradient towards it.
        masked: Whether the network also takes which actions are not eligible, and is trained on random masks: for
            requests with `eligible`; `Student.masks` has the steps for it. Otherwise probabilities are renormalised
            over the eligible actions, which is not Thompson sampling on them.
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
    rescale: bool = True
    first: LastLayer = "mean"
    distance: Distance = "kl"
    synthetic: Synthetic = "crossed"
    masked: bool = False

    def __post_init__(self) -> None:
        for field, (fits, expected) in _RULES.items():
            value = getattr(self, field)
            if not fits(value):
                raise ValueError(f"Student: {field} must be {expected}, got {value!r}")
        # A list is as good, but only a tuple can be hashed, and a student is the key of its compiled program.
        msgspec.structs.force_setattr(self, "hidden", tuple(self.hidden))

    @classmethod
    def paper(cls) -> Student:
        """The paper's recipe: RMSProp on 2,000 minibatches of 512 observed contexts.

        What the paper leaves open is chosen here. Training starts from the policy before, as is usual for a network
        that is trained again and again; ``msgspec.structs.replace(Student.paper(), warm=None)`` starts afresh.
        Weights are drawn with variance 1 / inputs, and gradients are not clipped.
        """
        return cls(
            optimiser="rmsprop",
            learning_rate=0.001,
            decay="inverse-time",
            steps=2000,
            average=0.0,
            patience=None,
            warm=0.0,
            contexts=0,
            rescale=False,
            first="random",
        )

    @classmethod
    def sharp(cls, **options: Any) -> Student:
        """A student for labels that have steps, as those of trees: more contexts, near the observed ones, and steps.

        Args:
            options: Options that differ.
        """
        return cls(**{**_SHARP, **options})

    @classmethod
    def masks(cls, teacher: AnyTeacher | None = None, **options: Any) -> Student:
        """A student of masks: it takes more steps, since there are many masks to learn.

        Args:
            teacher: Teacher whose default student's options the others are.
            options: Options that differ.
        """
        sharp = _SHARP if teacher is not None and has_sharp_labels(teacher) else {}
        return cls(**{**sharp, **_MASKED, **options})

    @classmethod
    def auto(cls, budget: str = "30s", **options: Any) -> AutoStudent:
        """A student that is chosen by its held-out divergence; see `AutoStudent`.

        Args:
            budget: Time to search in.
            options: Options of `AutoStudent`, such as `tolerance`; all others are those of the student.
        """
        own = {name: options.pop(name) for name in AutoStudent.__struct_fields__ if name in options}
        return AutoStudent(budget=budget, base=cls(**options), **own)

    def config(self) -> dict[str, Any]:
        """The options as plain values. Options that came later are left out at their defaults.

        So a version that was published without them is reproduced to the byte.
        """
        config: dict[str, Any] = msgspec.to_builtins(self)
        return {name: value for name, value in config.items() if value != _LATER.get(name, ...)}


class AutoStudent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A student whose layers and steps are chosen by held-out KL on an update's own labels.

    The base student is tried first, whatever the budget. Then networks are compared by successive halving: all take
    the fewest steps, the better half takes more, and so on. The smallest network that was tried is chosen whose
    divergence is within the tolerance of the best; of its step counts, the smallest that is.

    Args:
        budget: Time to search in, such as ``30s``; a student that is not finished by then is not considered. The
            training of the chosen student comes after it.
        tolerance: How much more divergence than the best a smaller student may have, as a share of it.
        negligible: Nats that are accepted beyond that; 0.001 moves at most 2.2 % of decisions, by Pinsker's
            inequality.
        again: An update keeps an earlier choice, unless its divergence then is above this many times that after the
            last search, and the negligible nats.
        networks: Units of the hidden layers of each network to try.
        step_counts: Numbers of steps to try, the fewest first.
        base: The student that is tried first, and whose other options all have.
    """

    budget: str = "30s"
    tolerance: float = 0.1
    negligible: float = 0.001
    again: float = 2.0
    networks: tuple[tuple[int, ...], ...] = ((), (16,), (32,), (100,), (32, 32), (100, 100), (200, 200))
    step_counts: tuple[int, ...] = (250, 500, 1000, 2000)
    base: Student = msgspec.field(default_factory=Student)

    def __post_init__(self) -> None:
        _ = self.budget_seconds
        for field, (fits, expected) in _AUTO_RULES.items():
            value = getattr(self, field)
            if not fits(value):
                raise ValueError(f"Student.auto: {field} must be {expected}, got {value!r}")
        msgspec.structs.force_setattr(self, "networks", tuple(map(tuple, self.networks)))
        msgspec.structs.force_setattr(self, "step_counts", tuple(self.step_counts))

    @property
    def budget_seconds(self) -> int:
        """The budget in seconds."""
        return seconds(self.budget, "Student.auto: budget")

    def student(self, hidden: tuple[int, ...], steps: int) -> Student:
        """The base student with other layers and steps."""
        return msgspec.structs.replace(self.base, hidden=hidden, steps=steps)

    def by_kl(self) -> AutoStudent:
        """The same search with students that are trained by KL, which is what they are compared by."""
        return msgspec.structs.replace(self, base=msgspec.structs.replace(self.base, distance="kl"))


def check_distance(student: Student, space: ActionSpace) -> None:
    """Reject a student that is trained by distances on a space that has none."""
    if student.distance == "kl" or isinstance(space, Continuous):
        return
    if not getattr(space, "positions", None) and not getattr(space, "distances", None):
        raise InvalidOption(
            f"Student(distance={student.distance!r}) needs distances between actions, which {shown(space)} has not; "
            "state them, such as Discrete([...], positions=[...]), or use distance='kl'"
        )


def default_student(teacher: AnyTeacher) -> Student:
    """The student of a teacher if none is stated: `Student.sharp` if its labels have steps, otherwise `Student`."""
    return Student.sharp() if has_sharp_labels(teacher) else Student()


def student_from_config(config: Mapping[str, Any], teacher: AnyTeacher | None = None) -> Student | AutoStudent:
    """A student from plain options; others are those of the teacher's default student.

    With ``masked`` they are those of `Student.masks`. ``auto`` is a budget, or a mapping of options of `AutoStudent`;
    None is none.
    """
    sharp = _SHARP if teacher is not None and has_sharp_labels(teacher) else {}
    options = {**sharp, **(_MASKED if config.get("masked") else {}), **config}
    auto = options.pop("auto", None)
    base = convert(options, Student)
    if auto is None:
        return base
    stated = convert({"budget": auto} if isinstance(auto, str) else auto, AutoStudent)
    if "base" in auto:
        raise ValueError("student.auto.base: state the options of the student beside auto, in [student]")
    return msgspec.structs.replace(stated, base=base)


#: Options that the first lineages lack, with their defaults.
_LATER = {"rescale": True, "first": "mean", "distance": "kl", "synthetic": "crossed", "masked": False}
#: What `Student.sharp` changes. Chosen on covtype and letter with a teacher of trees: half of the imitation cost of the
#: other defaults for twice their time. 65,536 contexts and 2,000 steps cost another 15 % less and twice the time again.
_SHARP: dict[str, Any] = {"contexts": 32_768, "synthetic": "near", "steps": 1_500, "patience": 8}

#: What `Student.masks` changes: with the steps of `Student`, total variation among a half of the actions was 1.2 to 1.5
#: times as large on posteriors of linear and neural-linear models (benchmarks/masked.py).
_MASKED: dict[str, Any] = {"masked": True, "steps": 4_000, "patience": 8}


def _count(value: object) -> bool:
    return type(value) is int and value >= 1


def _share(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value < 1  # type: ignore[operator]


def _not_negative(value: object) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf  # type: ignore[operator]


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
    "rescale": (lambda rescale: type(rescale) is bool, "True or False"),
    "masked": (lambda masked: type(masked) is bool, "True or False"),
    "first": _one_of(LastLayer),
    "distance": _one_of(Distance),
    "synthetic": _one_of(Synthetic),
    "contexts": (lambda n: type(n) is int and n >= 0, "a whole number such as 4096, or 0 for none"),
}

_AUTO_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "tolerance": (_not_negative, "0 or more, such as 0.1"),
    "negligible": (_not_negative, "0 or more, such as 0.001"),
    "again": (lambda factor: type(factor) in (int, float) and 1 <= factor < math.inf, "1 or more, such as 2.0"),
    "networks": (
        lambda some: isinstance(some, (tuple, list)) and all(map(_RULES["hidden"][0], some)),
        "lists of the units of hidden layers, such as ((), (32,), (100, 100))",
    ),
    "step_counts": (
        lambda some: isinstance(some, (tuple, list)) and all(map(_count, some)) and sorted(set(some)) == list(some),
        "whole numbers above 0, each larger than the one before, such as (250, 500, 1000)",
    ),
}
