"""An action space for tests: integers from low to high, restricted to intervals.

It uses only the public contract. Its head is not a softmax over a list: two outputs set the slope and the curvature of
the log-probabilities.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from scipy.special import entr, log_softmax, softmax

from potstill.errors import InvalidAction, shown
from potstill.spaces import Divergences, FiniteDistribution, WireTypes, check_floor, mix_floor, register

SHARP = 10  # outputs of order one concentrate the distribution on a few numbers


class IntegerRange(msgspec.Struct, frozen=True, tag_field="type", tag="integer-range"):
    low: int
    high: int

    measure: ClassVar = "counting"
    columns: ClassVar = {"action": "integer", "eligible": "integers"}

    @property
    def wire(self):
        return WireTypes(Annotated[int, msgspec.Meta(ge=self.low, le=self.high)], tuple[int, int])

    examples = property(lambda self: (self.low, self.high))

    def parse(self, value):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not self.low <= value <= self.high:
            raise InvalidAction(f"expected a whole number from {self.low} to {self.high}, got {shown(value)}")
        return int(value)

    def encode(self, values):
        return np.array([self.parse(value) for value in values], np.int32)

    def decode(self, actions):
        return actions.tolist()

    def valid(self, actions):
        return (actions >= self.low) & (actions <= self.high)

    def embed(self, actions):
        z = 2 * (actions - self.low) / (self.high - self.low) - 1
        return np.stack([z, z**2], axis=-1).astype(np.float32)

    def restrict(self, eligible):
        if not isinstance(eligible, (list, tuple)) or len(eligible) != 2 or not eligible[0] <= eligible[1]:
            raise InvalidAction(f"eligible must be [from, to], got {shown(eligible)}")
        return Interval(self.parse(eligible[0]), self.parse(eligible[1]))

    def allow(self, eligible):
        every = (self.low, self.high)
        return np.array([every if each is None else each for each in eligible], np.int32)

    def head(self):
        return QuadraticHead(self.low, self.high)


class Interval(NamedTuple):
    start: int
    end: int

    value = property(tuple)

    @property
    def allowed(self):
        return np.array([[self.start, self.end]], np.int32)

    def permits(self, action):
        return self.start <= action <= self.end

    def first(self):
        return self.start


class QuadraticHead(NamedTuple):
    low: int
    high: int
    outputs: int = 2
    draws: int = 1
    kernel: str = ""

    def check_floor(self, floor):
        check_floor(floor, self.high - self.low + 1)

    def distribution(self, outputs, allowed, floor):
        every, space = np.arange(self.low, self.high + 1), IntegerRange(self.low, self.high)
        scores = outputs @ (SHARP * space.embed(every).T)
        mask = None if allowed is None else (every >= allowed[:, :1]) & (every <= allowed[:, 1:])
        p = softmax(scores if mask is None else np.where(mask, scores, -np.inf), axis=1)
        return Integers(mix_floor(p.astype(np.float32), mask, floor), self.low)


@dataclass(frozen=True, eq=False)
class Integers(FiniteDistribution):
    low: int

    def draw(self, u):
        return (super().draw(u) + self.low).astype(np.int32)

    def propensity(self, actions):
        return super().propensity(actions - self.low)

    def drawn(self, u, actions, tolerance):
        return super().drawn(u, actions - self.low, tolerance)

    def nodes(self):
        return ((place + self.low, weight) for place, weight in super().nodes())


class HistogramLearning(msgspec.Struct, frozen=True):
    space: IntegerRange
    outputs: int = 2

    def label(self, teacher, state, contexts, key):
        sampled = teacher.sample_actions(state, contexts, 64, key) - self.space.low
        return np.stack([np.bincount(row, minlength=len(self._basis())) for row in sampled]).astype(np.float32) / 64

    def check(self, labels):
        return np.abs(labels.sum(axis=1) - 1) > 1e-3, "be shares of samples"

    def loss(self, outputs, labels):
        return -jnp.sum(labels * jax.nn.log_softmax(outputs @ self._basis().T), axis=1)

    def start(self, labels):
        return np.zeros(2, np.float32)

    def divergence(self, outputs, labels):
        return -(labels * log_softmax(outputs @ self._basis().T, axis=1)).sum(axis=1) - entr(labels).sum(axis=1)

    def divergences(self, labels, distribution):
        kl = -(labels * np.log(np.maximum(distribution.p, 1e-30))).sum(axis=1) - entr(labels).sum(axis=1)
        return Divergences(kl, np.abs(labels - distribution.p).sum(axis=1) / 2, float(distribution.p.min()))

    def labels_of(self, distribution):
        return distribution.p

    def _basis(self):
        return SHARP * self.space.embed(np.arange(self.space.low, self.space.high + 1))


def learning(space: IntegerRange) -> HistogramLearning:
    return HistogramLearning(space)


register(IntegerRange, learn="integer_range")
