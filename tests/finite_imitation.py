"""Imitation and fidelity on a list of actions, from plain arrays of probabilities."""

import numpy as np

from potstill import distill
from potstill.distill import averaged, streamed
from potstill.spaces import FiniteDistribution
from potstill.spaces.finite_learning import FiniteLearning


def imitate(contexts, labels, *options, **more):
    learning = FiniteLearning(labels.shape[1] if np.ndim(labels) == 2 else 1)
    return distill.imitate(contexts, labels, *options, learning=learning, **more)


def imitate_streamed(labels, *options, **more):
    return streamed.imitate_streamed(labels, *options, learning=_learning(labels), **more)


def imitate_averaged(labels, *options, **more):
    return averaged.imitate_averaged(labels, *options, learning=_learning(labels), **more)


def fidelity(labels, probabilities, reward_range):
    labels = np.asarray(labels)
    learning = FiniteLearning(labels.shape[1] if labels.ndim == 2 else 1)
    return distill.fidelity(learning, labels, FiniteDistribution(np.asarray(probabilities)), reward_range)


def _learning(labels):
    return FiniteLearning(labels.read(0)[1].shape[1])
