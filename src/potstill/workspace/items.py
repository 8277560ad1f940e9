"""Items of a workspace's catalogue: replace them by a table's, or remove some, while it serves.

`items.json` is replaced first, in one step; see `change` for what follows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from potstill.decode import unknown_name
from potstill.errors import InvalidAction
from potstill.policy import Policy
from potstill.problem import Catalog
from potstill.storage import child
from potstill.workspace.adapt import Adaptation
from potstill.workspace.change import CannotChangeActions, check_change, locked, publish_change, served
from potstill.workspace.problem_source import ITEMS, items_text, read_source
from potstill.workspace.workspace import Change, Workspace

#: Names that a message lists.
_LISTED = 20


class ItemsReport(msgspec.Struct, frozen=True, kw_only=True):
    """A catalogue after a change of its items.

    Attributes:
        items: Number of items.
        added: Ids of new items.
        changed: Ids of items whose features have other values now.
        removed: Ids of items that are gone.
        problem_hash: Hash of the problem.
        serving: The version that serves; None if none is published.
        published: Whether a version was published.
        text: What was done, in words.
    """

    items: int
    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    problem_hash: str
    serving: int | None
    published: bool
    text: str


def catalog_of(workspace: Workspace) -> Catalog:
    """The catalogue of a workspace; `CannotChangeActions` if its actions are none."""
    space: Any = workspace.problem.actions
    if not isinstance(space, Catalog):
        raise CannotChangeActions(f"{workspace.url}: the actions are no catalogue; see potstill actions for a list")
    return space


def sync_items(
    place: str,
    items: Sequence[Mapping[str, Any]],
    *,
    whole: bool = True,
    remove: Collection[str] = (),
    reason: str = "",
    by: str = "",
) -> ItemsReport:
    """Change the items of a catalogue. Those that stay keep their order, and new ones come last.

    Args:
        place: The workspace.
        items: Items with their ids and features.
        whole: Whether these are all items, so that others are removed; otherwise others stay as they are.
        remove: Ids of items to remove; those that are no items any more count as removed.
        reason: Why, for the registry's history.
        by: Who asks for it.

    Raises:
        InvalidProblem: An item does not fit the features; the message names both.
        CannotChangeActions: The items cannot be changed like this.
    """
    with locked(Workspace(place)) as workspace:
        space = catalog_of(workspace)
        wanted = _wanted(space, items, set(remove), whole=whole)
        return _changed(workspace, space, wanted, Change(reason, by))


def remove_items(place: str, names: Collection[str], *, reason: str = "", by: str = "") -> ItemsReport:
    """Remove items; see `sync_items`.

    Raises:
        InvalidAction: There is no such item, and the version that serves does not know it either.
    """
    with locked(Workspace(place)) as workspace:
        space, before = catalog_of(workspace), served(workspace)
        known = {*space.names, *_lately(before)}
        if unknown := next((name for name in names if name not in known), None):
            raise InvalidAction(unknown_name("item", unknown, space.names[:_LISTED]))
        return _changed(workspace, space, _wanted(space, (), set(names), whole=False), Change(reason, by))


def _lately(policy: Policy | None) -> Iterator[str]:
    """Items of the version that serves, and of the one that it was adapted from."""
    if policy is not None:
        yield from getattr(policy.problem.actions, "names", ())
        yield from getattr(Adaptation.of(policy), "removed", ())


def _wanted(space: Catalog, items: Sequence[Mapping[str, Any]], remove: set[str], *, whole: bool) -> Catalog:
    """The changed catalogue; `InvalidProblem` names what does not fit."""
    # Checked before they are sorted, so that duplicate and missing ids are named as they were given.
    given = Catalog(features=space.features, items=items).items if whole else _checked(space, items)
    stated = {item["id"]: item for item in given}
    kept = [stated.pop(item["id"], None if whole else item) for item in space.items]
    listed = [item for item in (*kept, *stated.values()) if item is not None and item["id"] not in remove]
    if gone := next((name for name in space.retired if name not in {item["id"] for item in listed}), None):
        raise CannotChangeActions(
            f"item {gone!r} cannot be removed while it is in actions.retired of problem.toml; take it out there first"
        )
    if len(listed) < 2:
        raise CannotChangeActions(f"two items must be left to choose from, and there would be {len(listed)}")
    return Catalog(features=space.features, items=listed, retired=space.retired)


def _checked(space: Catalog, items: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Items in canonical form, checked beside two that are known to fit."""
    ids = {item.get("id") for item in items if isinstance(item, Mapping)}
    others = [{**item, "id": f"{item['id']}\0"} for item in space.items[:2] if f"{item['id']}\0" not in ids]
    return Catalog(features=space.features, items=[*items, *others]).items[: len(items)]


def _changed(workspace: Workspace, space: Catalog, wanted: Catalog, change: Change) -> ItemsReport:
    before, kept, listed = served(workspace), set(wanted.names), set(space.names)
    removed = tuple(name for name in space.names if name not in kept)
    if wanted != space:
        problem = msgspec.structs.replace(workspace.problem, actions=wanted)
        where = child(workspace.url, ITEMS)
        if read_source(workspace.storage).items is None:
            raise CannotChangeActions(
                f"{workspace.url}: the items are in problem.toml; move them to {where}, a JSON list, so that commands "
                "can replace them"
            )
        check_change(workspace, problem, before, "remove" if removed else "change", removed or wanted.names, where)
        workspace.storage.replace(ITEMS, items_text(wanted.items))
        workspace = Workspace(workspace.url)
    published = publish_change(workspace, change, before)
    head = workspace.registry.head()
    added, changed = tuple(name for name in wanted.names if name not in listed), wanted.changed(space)
    return ItemsReport(
        items=len(wanted),
        added=added,
        changed=changed,
        removed=removed,
        problem_hash=workspace.problem.hash,
        serving=None if head is None else head.serving,
        published=published,
        text=_told(len(wanted), {"added": added, "changed": changed, "removed": removed}, published=published),
    )


def _told(count: int, changes: Mapping[str, Collection[str]], *, published: bool) -> str:
    """What was done, in words."""
    done = ", ".join(f"{len(names):,} {how}" for how, names in changes.items() if names)
    if done:
        return f"{count:,} items: {done}"
    if published:
        return f"{count:,} items are as stated; a version that follows them was missing, and is published now"
    return f"{count:,} items are as stated; nothing was changed"
