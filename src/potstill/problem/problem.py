"""The decision problem: context features, actions and reward."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill import decode
from potstill.errors import InvalidProblem, check_distinct, check_name, shown
from potstill.features import Encoder, Feature
from potstill.lazy import tables_for
from potstill.problem.objective import Objective, parse
from potstill.problem.reward import Reward
from potstill.spaces import Continuous, from_config, is_space

if TYPE_CHECKING:
    from potstill.spaces import ActionSpace
else:
    ActionSpace = Any  # any registered space: which one a file has is known when it is read

Float32 = NDArray[np.float32]
#: One context: a mapping of feature names to values, or an already encoded float32[d].
Context = Mapping[str, object] | NDArray[np.float32]
#: Many contexts: rows, columns by name, or an already encoded float32[N, d].
Contexts = Sequence[Mapping[str, object]] | Mapping[str, Any] | NDArray[np.float32]


class Problem(msgspec.Struct, frozen=True, kw_only=True, dict=True, omit_defaults=True):
    """What is decided: the features of a context, the actions, and the reward.

    >>> problem = Problem(name="greeting", context=[Boolean("returning")], actions=Discrete(["hi", "welcome back"]))
    >>> problem.encode({"returning": True})
    array([1.], dtype=float32)

    Attributes:
        name: Name of the problem, part of URLs.
        context: Features of a context, known before a decision.
        actions: Actions to choose from: `Discrete` or `Continuous`.
        reward: Reward to maximise.
    """

    name: str
    context: Sequence[Feature]
    actions: ActionSpace
    reward: Reward = Reward()

    def __post_init__(self) -> None:
        check_name(self.name, "a problem's name")
        if not isinstance(self.context, (list, tuple)):
            raise InvalidProblem(f"context must be a list of features, got {shown(self.context)}")
        msgspec.structs.force_setattr(self, "context", tuple(self.context))
        for feature in self.context:
            if not isinstance(feature, Feature):
                types = ", ".join(kind.__name__ for kind in get_args(Feature))
                raise InvalidProblem(f"context must hold features ({types}), got {shown(feature)}")
        check_distinct(tuple(feature.name for feature in self.context), "feature")
        msgspec.structs.force_setattr(self, "actions", from_config(self.actions))
        if not is_space(self.actions):
            raise InvalidProblem(f"actions must be an action space such as Discrete([...]), got {shown(self.actions)}")
        if not isinstance(self.reward, Reward):
            raise InvalidProblem(f"reward must be a Reward, got {shown(self.reward)}")
        _ = self.objective

    @cached_property
    def objective(self) -> Objective | None:
        """What is maximised instead of the reward; None if it is the reward."""
        text, space = self.reward.objective, self.actions
        if text is None:
            return None
        if not isinstance(space, Continuous):
            raise InvalidProblem(
                f"reward: objective {shown(text)} needs a continuous action, such as Continuous('price', 1, 9); "
                "for a list of actions log what is to be maximised as the reward"
            )
        return parse(text, space.name, np.append(space.edges, space.middles))

    @property
    def maximised(self) -> Reward:
        """The reward with the bounds of what is maximised: those of the objective if there is one."""
        objective, space = self.objective, self.actions
        if objective is None or not isinstance(space, Continuous):
            return self.reward
        low, high = objective.bounds(np.linspace(space.low, space.high, 17), self.reward.low, self.reward.high)
        return msgspec.structs.replace(self.reward, low=low, high=high, objective=None, kind=None)

    @property
    def width(self) -> int:
        """Number of columns of an encoded context."""
        return self._encoder.width

    @property
    def labels(self) -> tuple[str, ...]:
        """Name of each encoded column, such as ``connection=4g``."""
        return self._encoder.labels

    @cached_property
    def hash(self) -> str:
        """32 hex digits over the name, features and actions, which policies and logged rows depend on.

        The reward is left out, since a longer window does not make an old policy unusable; so are fields at
        their defaults, so that a new option in a later version changes no hash.
        """
        described = {"name": self.name, "context": self.context, "actions": self.actions}
        return hashlib.sha256(msgspec.json.encode(described, order="sorted")).hexdigest()[:32]

    def encode(self, context: Context) -> Float32:
        """One context as float32[d]."""
        return self._encoder.one(context)

    def encode_many(self, contexts: Contexts) -> Float32:
        """Contexts as float32[N, d].

        Rows are encoded value by value; columns that are NumPy arrays are encoded as a whole.
        """
        return self._encoder.many(contexts)

    @classmethod
    def infer(
        cls,
        frame: Any,
        *,
        name: str,
        action: str = "action",
        reward: str = "reward",
        context: Sequence[str] = (),
        without: Sequence[str] = (),
        density: str | float | None = None,
    ) -> Problem:
        """The problem of a table of past decisions, as `potstill init --from` infers it.

        Columns that were known only after a decision must be left out: a table cannot tell which they are.

        Args:
            frame: A table in memory of Polars, pandas or Arrow, a relation of DuckDB, or the path of a file.
            name: Name of the problem.
            action: Column of the action.
            reward: Column of the reward.
            context: Columns known before a decision; all others that look like features if left out.
            without: Columns to leave out, such as that of the propensity.
            density: Column of the density, or a number: the action is then a number.
        """
        tables = tables_for("Problem.infer")
        columns = tables.Columns(
            action=action, reward=reward, propensity=density, is_density=density is not None, context=tuple(context)
        )
        found: Problem = tables.read_history(frame, columns, name, without=without).problem
        return found

    def save(self, path: str | Path) -> None:
        """Write the problem as TOML."""
        # Imported here: a server that only decides never writes a problem.
        import tomli_w

        Path(path).write_text(tomli_w.dumps(msgspec.to_builtins(self)), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Problem:
        """Read a problem from TOML (``problem.toml``)."""
        return cls.from_toml(Path(path).read_bytes(), str(path))

    @classmethod
    def from_toml(cls, data: bytes, where: str, items: bytes | None = None) -> Problem:
        """A problem from the text of its file; errors name `where`.

        Args:
            data: The text.
            where: Path of the file.
            items: Items of its catalogue as JSON, if they have a file of their own.
        """
        try:
            if items is None:
                return decode.from_toml(data, cls)
            return decode.convert(_with_items(msgspec.toml.decode(data), items, where), cls)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidProblem(f"{where}: {error}") from error

    @cached_property
    def _encoder(self) -> Encoder:
        return Encoder(self.context)


def _with_items(stated: Any, items: bytes, where: str) -> Any:
    """A problem as stated, with the items of its catalogue."""
    actions = stated.get("actions") if isinstance(stated, Mapping) else None
    if not isinstance(actions, Mapping) or actions.get("type") != "catalog":
        return stated
    if "items" in actions:
        raise InvalidProblem(f"{where}: items are stated here and in items.json; remove them in one of the two")
    try:
        return {**stated, "actions": {**actions, "items": msgspec.json.decode(items)}}
    except msgspec.DecodeError as error:
        raise InvalidProblem(f"{where}: items.json: {error}") from error
