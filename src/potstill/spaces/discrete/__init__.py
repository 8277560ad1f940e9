"""A fixed list of actions. The modules ``ope`` and ``lake`` are loaded only offline."""

from potstill.spaces.discrete.head import SoftmaxHead, softmax
from potstill.spaces.discrete.space import Discrete

__all__ = ["Discrete", "SoftmaxHead", "softmax"]
