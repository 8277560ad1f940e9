"""The registry of teachers by name, one line each."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from potstill.decode import convert, unknown_name
from potstill.errors import InvalidOption, UnsupportedSpace, shown
from potstill.problem import Problem
from potstill.spaces import ActionSpace
from potstill.teachers.adaptive import AdaptiveTS
from potstill.teachers.auto import AutoTS
from potstill.teachers.catalog import CatalogLinearTS
from potstill.teachers.continuous import ContinuousGaussianProcessTS, ContinuousLinearTS, ContinuousNeuralLinearTS
from potstill.teachers.contract import AnyTeacher, reward_kinds
from potstill.teachers.explicit import Uniform
from potstill.teachers.forest import ForestTS
from potstill.teachers.glm import LogisticTS, PoissonTS
from potstill.teachers.gp import DeepKernelTS, GaussianProcessTS, GaussianProcessUCB
from potstill.teachers.linear import DiagonalLinearTS, EmpiricalLinearTS, LinearTS, LinUCB
from potstill.teachers.neural import (
    BootstrapTS,
    EpsilonGreedy,
    LowRankTS,
    NeuralGreedy,
    NeuralLinearTS,
    NeuralLogisticTS,
)
from potstill.teachers.plugins import own_options
from potstill.teachers.program import ModelFile, ProgramTS, program_config
from potstill.teachers.source import source_of_class

TEACHERS: dict[str, type[AnyTeacher]] = {
    "adaptive-ts": AdaptiveTS,
    "auto-ts": AutoTS,
    "bootstrap-ts": BootstrapTS,
    "catalog-linear-ts": CatalogLinearTS,
    "continuous-gp-ts": ContinuousGaussianProcessTS,
    "continuous-linear-ts": ContinuousLinearTS,
    "continuous-neural-linear-ts": ContinuousNeuralLinearTS,
    "deep-kernel-ts": DeepKernelTS,
    "diagonal-linear-ts": DiagonalLinearTS,
    "empirical-linear-ts": EmpiricalLinearTS,
    "epsilon-greedy": EpsilonGreedy,
    "forest-ts": ForestTS,
    "gaussian-process-ts": GaussianProcessTS,
    "gp-ucb": GaussianProcessUCB,
    "lin-ucb": LinUCB,
    "linear-ts": LinearTS,
    "logistic-ts": LogisticTS,
    "low-rank-ts": LowRankTS,
    "neural-greedy": NeuralGreedy,
    "neural-linear-ts": NeuralLinearTS,
    "neural-logistic-ts": NeuralLogisticTS,
    "poisson-ts": PoissonTS,
    "uniform": Uniform,
}


def available() -> list[str]:
    """Names of the registered teachers."""
    return sorted(TEACHERS)


def check_support(teacher: AnyTeacher, problem: Problem) -> None:
    """Refuse a teacher that cannot learn a problem; the message names those that can.

    Raises:
        UnsupportedSpace: It cannot learn on the action space.
        InvalidOption: It cannot learn from the kind of reward that the problem states.
    """
    _check_rewards(teacher, problem)
    space = problem.actions
    why = teacher.supports(space)
    if why is None:
        return
    others = [name for name in available() if TEACHERS[name]().supports(space) is None]
    instead = f"use {', '.join(others)}" if others else "write a teacher with sample_actions for this space"
    raise UnsupportedSpace(f"{type(teacher).__name__} does not support {shown(space)}: {why}; {instead}")


def _check_rewards(teacher: AnyTeacher, problem: Problem) -> None:
    kind, kinds = problem.reward.kind, reward_kinds(teacher)
    if kind is not None and kinds and kind not in kinds:
        raise InvalidOption(
            f"{type(teacher).__name__} learns from rewards of kind {' or '.join(kinds)}, and the problem states "
            f"{kind!r}; use auto-ts or empirical-linear-ts"
        )


def default_teacher(space: ActionSpace) -> AnyTeacher:
    """The teacher of a problem that states none: the first of the defaults that supports its action space."""
    defaults: list[AnyTeacher] = [CatalogLinearTS(), AutoTS(), ContinuousLinearTS()]
    return next((teacher for teacher in defaults if teacher.supports(space) is None), AutoTS())


def from_config(config: dict[str, Any]) -> AnyTeacher:
    """A teacher of Potstill from its configuration, such as ``{"type": "linear-ts", "discount": 0.99}``.

    It loads no code, so that the configuration may come from anywhere, such as a policy's lineage.
    """
    name = config.get("type")
    if name not in TEACHERS:
        raise InvalidOption(unknown_name("teacher", name, available()))
    try:
        return convert(config, TEACHERS[name])
    except msgspec.ValidationError as error:
        raise InvalidOption(f"teacher {name!r}: {error}") from error


def to_config(teacher: AnyTeacher) -> dict[str, Any]:
    """The configuration of a teacher. For a registered teacher, `from_config` inverts it.

    That of a model file or of another package's class names its code and the hash of its source.
    """
    if isinstance(teacher, ProgramTS) and isinstance(teacher.program, ModelFile):
        return program_config(teacher, teacher.program)
    if not _is_registered(teacher) and (own := _own_config(teacher)) is not None:
        return own
    if isinstance(teacher, msgspec.Struct):
        return _without_later(teacher)
    return {"type": type(teacher).__name__, "description": repr(teacher)}


def _without_later(teacher: msgspec.Struct) -> dict[str, Any]:
    """The configuration without later options at their defaults.

    Lineages and states of before such an option was added stay those of an equal teacher, to the byte.
    """
    config: dict[str, Any] = msgspec.to_builtins(teacher)
    later = getattr(type(teacher), "later_options", ())
    defaults = {field.name: field.default for field in msgspec.structs.fields(teacher)} if later else {}
    return {
        name: value for name, value in config.items() if name not in later or getattr(teacher, name) != defaults[name]
    }


def _is_registered(teacher: AnyTeacher) -> bool:
    return type(teacher).__module__.partition(".")[0] == "potstill"


def _own_config(teacher: AnyTeacher) -> dict[str, Any] | None:
    """The configuration of another package's teacher; None if its options or its source cannot be told."""
    kind = type(teacher)
    source = source_of_class(kind)
    if source is None or not (isinstance(teacher, msgspec.Struct) or dataclasses.is_dataclass(teacher)):
        return None
    try:
        options = own_options(teacher)
    except TypeError:  # a field that is no data, such as a function
        return None
    return {"type": f"{kind.__module__}:{kind.__qualname__}", **options, "source": msgspec.to_builtins(source)}
