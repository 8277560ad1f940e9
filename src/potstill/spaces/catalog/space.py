"""A catalogue: items with features, of which there may be thousands."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import msgspec

from potstill.features import Feature
from potstill.spaces.catalog.items import ID, Float32, check_features, check_items, encode_items
from potstill.spaces.contract import Actions, WireTypes
from potstill.spaces.named import NamedActions, check_retired, named_types


class Catalog(NamedActions, frozen=True, tag_field="type", tag="catalog", repr_omit_defaults=True):
    """Items with features, to choose one of. What is learnt of an item also tells about items like it.

    Items are named by their ids, as the actions of `Discrete` are by theirs, and arrays over actions follow their
    order. Up to 10,000 are practical.

    Args:
        features: Features of an item, of the same types as those of a context.
        items: Each item: its ``id``, and the value of each feature by name. A value may be left out where its feature
            says what a missing one means.
        retired: Items that are no longer chosen, while what was observed of them still teaches. One is chosen only
            where a request allows no other.
    """

    features: Sequence[Feature]
    items: Sequence[Any] = ()
    retired: Sequence[str] = ()

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "features", check_features(self.features))
        msgspec.structs.force_setattr(self, "items", check_items(self.items, self.features))
        msgspec.structs.force_setattr(self, "retired", check_retired(self.retired, self.names))
        _ = self.encoded

    def __repr__(self) -> str:
        features = ", ".join(feature.name for feature in self.features)
        return f"<Catalog of {len(self.items):,} items with features {features}>"

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Ids of the items."""
        return tuple(item[ID] for item in self.items)

    @property
    def format(self) -> int:
        """The lowest format of policy files that can state a catalogue."""
        return 4

    @cached_property
    def encoded(self) -> Float32:
        """Encoded features of all items, float32[K, e]."""
        return encode_items(self.items, self.features)

    def changed(self, before: Catalog) -> tuple[str, ...]:
        """Ids of the items of both catalogues whose features have other values than before."""
        known = {item[ID]: item for item in before.items}
        return tuple(item[ID] for item in self.items if known.get(item[ID], item) != item)

    @property
    def width(self) -> int:
        """Number of columns of an item's encoded features."""
        return int(self.encoded.shape[1])

    @cached_property
    def wire(self) -> WireTypes:
        """A string; thousands of literals would make large schemas. Unknown ids are refused by `parse`."""
        return named_types(str, len(self))

    def embed(self, actions: Actions) -> Float32:
        """Encoded features of items, float32[N, e]."""
        found: Float32 = self.encoded[actions]
        return found
