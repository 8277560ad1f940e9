"""A fixed list of actions, by name."""

from potstill.spaces.discrete.space import Discrete

__all__ = ["Discrete"]
