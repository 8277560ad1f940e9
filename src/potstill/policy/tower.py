"""The item tower of a policy over a catalogue: from what is known of an item to its column of the output layer.

Runtimes do not need it: the output layer of the file is the tower's answer for every item of the catalogue. It is in
the file so that items which are added or changed later get their columns at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from potstill.policy.network import Activation, Float32, Layer, outputs


class Tower(NamedTuple):
    """A network from inputs of items to columns of the output layer.

    Attributes:
        layers: Its layers; the last has an output for each weight of a column, and one for the bias.
        effects: Mean and standard deviation of each item's effect, in units of the standard deviation that a new
            item's effect has, float32[K, 2]. A new item has 0 and 1.
    """

    layers: list[Layer]
    effects: Float32

    def columns(self, items: Float32, activation: Activation) -> Layer:
        """The output layer of items with these encoded features, float32[K, e], and this tower's effects."""
        found = outputs(self.layers, activation, inputs_of(items, self.effects)).astype(np.float32)
        return Layer(np.ascontiguousarray(found[:, :-1].T), np.ascontiguousarray(found[:, -1]))


#: Effect of an item that was never observed.
NEW_ITEM = np.array([0.0, 1.0], np.float32)


def inputs_of(items: Float32, effects: Float32) -> Float32:
    """Inputs of the tower, float32[K, e + 2]: encoded features, and effects."""
    return np.concatenate([items, effects], axis=1, dtype=np.float32)
