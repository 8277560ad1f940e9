"""What differs between two problems: the one that a policy decides, and the one in `problem.toml` now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from potstill.problem.problem import Problem
from potstill.spaces import ActionSpace, Catalog, Continuous, FiniteSpace

#: Names that are told one by one.
_LISTED = 20


class Difference(NamedTuple):
    """Differences of a problem from an earlier one.

    Attributes:
        added: Actions that the earlier one does not have.
        removed: Actions that only the earlier one has.
        others: All other differences, in words.
        retired: Actions of both that are retired in the later one alone.
        restored: Actions of both that are retired in the earlier one alone.
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    others: tuple[str, ...]
    retired: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()

    @property
    def in_words(self) -> str:
        """All differences, such as ``action '4k' was added, feature 'device' was removed``."""
        told = [*_told("action", self.added, "added"), *_told("action", self.removed, "removed")]
        told += [*_told("action", self.retired, "retired"), *_told("action", self.restored, "restored"), *self.others]
        return ", ".join(told) or "nothing was changed"


def difference(before: Problem, after: Problem) -> Difference:
    """Differences of a problem from an earlier one."""
    names = [tuple(one.actions.labels) if isinstance(one.actions, FiniteSpace) else () for one in (before, after)]
    added, removed = _missing(names[1], names[0]), _missing(names[0], names[1])
    others = [*_features(before, after)]
    if before.name != after.name:
        others.append(f"the name was changed from {before.name!r} to {after.name!r}")
    old, new = (frozenset(getattr(one.actions, "retired", ())) for one in (before, after))
    retired = tuple(name for name in names[1] if name in new - old and name not in added)
    restored = tuple(name for name in names[1] if name in old - new)
    if before.actions != after.actions and not (added or removed or retired or restored):
        others.append(_actions(before.actions, after.actions))
    if before.reward != after.reward:
        others.append("the reward was changed")
    return Difference(added, removed, tuple(others), retired, restored)


def only_actions_differ(before: Problem, after: Problem) -> bool:
    """Whether two problems have the same name and features, and a list of actions each."""
    lists = isinstance(before.actions, FiniteSpace) and isinstance(after.actions, FiniteSpace)
    return lists and before.name == after.name and before.context == after.context


def _actions(before: ActionSpace, after: ActionSpace) -> str:
    """The difference of spaces with the same names, or without any."""
    if isinstance(before, Continuous) and isinstance(after, Continuous):
        return f"{before.name!r} was changed from {_interval(before)} to {_interval(after)}"
    if not isinstance(before, FiniteSpace) or not isinstance(after, FiniteSpace):
        return "the actions were changed"
    if isinstance(before, Catalog) and isinstance(after, Catalog):
        return _items(before, after)
    if tuple(before.labels) == tuple(after.labels):
        return "the distances between actions were changed"
    return "the actions were reordered"


def _items(before: Catalog, after: Catalog) -> str:
    """The difference of catalogues with the same ids."""
    if before.features != after.features:
        return "the features of items were changed"
    changed = after.changed(before)
    return ", ".join(_told("item", changed, "changed")) or "the items were reordered"


def _interval(space: Continuous) -> str:
    return f"{space.low:g} to {space.high:g} ({space.scale}, {space.bins} bins)"


def _features(before: Problem, after: Problem) -> list[str]:
    old, new = ({feature.name: feature for feature in one.context} for one in (before, after))
    changed = tuple(name for name in new if name in old and new[name] != old[name])
    told = [
        *_told("feature", _missing(tuple(new), tuple(old)), "added"),
        *_told("feature", _missing(tuple(old), tuple(new)), "removed"),
        *_told("feature", changed, "changed"),
    ]
    return told or ([] if list(old) == list(new) else ["the features were reordered"])


def _missing(names: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    known = set(others)
    return tuple(name for name in names if name not in known)


def _told(what: str, names: Sequence[str], how: str) -> list[str]:
    told = [f"{what} {name!r} was {how}" for name in names[:_LISTED]]
    return [*told, f"{len(names) - _LISTED:,} more were {how}"] if len(names) > _LISTED else told
