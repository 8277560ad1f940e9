"""Registry of action spaces by name, one line each. `register` adds your own."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from potstill.decode import convert, unknown_name
from potstill.errors import InvalidProblem
from potstill.spaces.catalog import Catalog
from potstill.spaces.continuous import Continuous
from potstill.spaces.contract import ActionSpace, LakeColumns, Learning, OffPolicy
from potstill.spaces.discrete import Discrete


class Registered(NamedTuple):
    """A space and its offline modules; each module has one function that takes the space.

    Attributes:
        space: Struct type of the space; its tag is the name.
        learn: Module with ``learning(space)``, which returns a `Learning`.
        ope: Module with ``off_policy(space)``, which returns an `OffPolicy`; None for the general one.
        lake: Module with ``lake_columns(space)``, which returns `LakeColumns`; None for the general ones.
    """

    space: type[Any]
    learn: str
    ope: str | None = None
    lake: str | None = None


_SPACES = "potstill.spaces"
_CONTINUOUS = f"{_SPACES}.continuous"
SPACES: dict[str, Registered] = {
    "catalog": Registered(Catalog, f"{_SPACES}.finite_learning", f"{_SPACES}.catalog.ope", f"{_SPACES}.named_lake"),
    "continuous": Registered(Continuous, f"{_CONTINUOUS}.learn", f"{_CONTINUOUS}.ope", f"{_CONTINUOUS}.lake"),
    "discrete": Registered(Discrete, f"{_SPACES}.finite_learning", f"{_SPACES}.finite_ope", f"{_SPACES}.named_lake"),
}


def register(space: type[Any], *, learn: str, ope: str | None = None, lake: str | None = None) -> None:
    """Register a space, so that problem files, policies and logs that use it can be read."""
    tag = space.__struct_config__.tag
    if not isinstance(tag, str) or space.__struct_config__.tag_field != "type":
        raise TypeError(f"{space.__name__} must be a msgspec Struct with tag_field='type' and a tag")
    if SPACES.get(tag, Registered(space, learn)).space is not space:
        raise ValueError(f"there is an action space {tag!r} already: {SPACES[tag].space.__name__}")
    SPACES[tag] = Registered(space, learn, ope, lake)


def from_config(config: object) -> Any:
    """A space from its configuration in a problem file: ``{"type": "discrete", "names": [...]}``."""
    if not isinstance(config, Mapping):
        return config
    kind = config.get("type")
    if kind not in SPACES:
        raise InvalidProblem(f"{unknown_name('type', kind, SPACES)} - at `$.actions.type`")
    try:
        return convert(config, SPACES[kind].space)
    except msgspec.ValidationError as error:
        raise InvalidProblem(str(error).replace("`$", "`$.actions")) from error


def is_space(value: object) -> bool:
    """Whether a value is a registered action space."""
    return isinstance(value, tuple(registered.space for registered in SPACES.values()))


def learning(space: ActionSpace) -> Learning:
    """Imitation on a space."""
    found: Learning = importlib.import_module(_registered(space).learn).learning(space)
    return found


def off_policy(space: ActionSpace) -> OffPolicy:
    """Off-policy evaluation on a space."""
    module = _registered(space).ope or "potstill.spaces.ope"
    found: OffPolicy = importlib.import_module(module).off_policy(space)
    return found


def lake_columns(space: ActionSpace) -> LakeColumns:
    """Conversion between the lake's columns and actions of a space."""
    module = _registered(space).lake or "potstill.spaces.lake"
    found: LakeColumns = importlib.import_module(module).lake_columns(space)
    return found


def _registered(space: ActionSpace) -> Registered:
    tag: Any = type(space).__struct_config__.tag  # type: ignore[attr-defined]
    return SPACES[tag]
