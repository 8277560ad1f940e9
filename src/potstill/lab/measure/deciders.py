"""Deciders that take one decision at a time, as online; latency and complexity are measured on them.

Posteriors are optimised for serving from NumPy: everything that does not depend on the context is precomputed, a
context costs as few calls as possible, numbers are float32, and one generator serves all calls.
`teacher.sample_actions` is written for batches and would be slower: it solves a triangular system for each action and
runs all networks of an ensemble where one is enough. Both draw from the same distribution.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from potstill.keys import Key
from potstill.lab.problems import Float32
from potstill.lab.runs import Agent, Fixed, Undistilled
from potstill.policy import Policy
from potstill.teachers import BootstrapTS, LinearTS, NeuralGreedy, NeuralLinearTS
from potstill.teachers.linear import Posterior
from potstill.teachers.neural import Networks

#: Decides on one encoded context, float32[d]; the form of the result depends on the decider.
Decider = Callable[[Float32], Any]

#: Ids are precomputed: online they come with the request.
_IDS = [f"request-{i}" for i in range(10_000)]
_ACTIVATIONS: dict[str, Callable[[Float32], Float32]] = {"tanh": np.tanh, "relu": lambda x: np.maximum(x, 0)}


def decider(agent: Agent, seed: int) -> Decider:
    """The decider of an agent."""
    if isinstance(agent, Fixed):
        return by_policy(agent.policy)
    rng = Key(seed).child("decide").generator()
    if not isinstance(agent, Undistilled):
        return lambda context: agent.choose(context[None])
    teacher, state = agent.teacher, agent.state
    if type(teacher) is LinearTS:
        return by_posterior(state.posterior, rng)
    if type(teacher) is NeuralLinearTS:
        return by_features(state.networks, state.posterior, rng)
    if type(teacher) is NeuralGreedy:
        return by_networks(state.networks, rng)
    if type(teacher) is BootstrapTS and not teacher.prior_scale and not teacher.smoothing:
        return by_networks(state.networks, rng)
    keys = (Key(seed).child("decide", number) for number in count())
    return lambda context: teacher.sample_actions(state, context[None], 1, next(keys))


def by_policy(policy: Policy) -> Decider:
    """A distilled policy: the network, a draw by the decision's id, and the decision with its propensity."""
    decide, ids = policy.decide, _cycle()
    return lambda context: decide(context, id=next(ids))


def by_policy_in_numpy(policy: Policy, rng: np.random.Generator) -> Decider:
    """A distilled policy in NumPy, optimised as the posteriors are: the network, and a draw with its propensity."""
    *hidden, (weight, bias) = [(_float32(w), _float32(b)) for w, b in policy.layers]
    activation, floor = _ACTIVATIONS[policy.metadata.activation], np.float32(policy.floor)
    share = np.float32(1 - policy.floor * len(bias))

    def decide(context: Float32) -> tuple[int, float]:
        x = context
        for w, b in hidden:
            x = activation(x @ w + b)
        scores = x @ weight + bias
        p = np.exp(scores - scores.max())
        p *= share / p.sum()
        p += floor
        cumulative = p.cumsum()
        action = int(cumulative.searchsorted(rng.random() * cumulative[-1], side="right"))
        return action, float(p[action])

    return decide


def by_posterior(posterior: Posterior, rng: np.random.Generator) -> Decider:
    """Linear-TS: the Student-t reward of each action, whose scale is ‖L⁻¹x‖ with precomputed inverse roots.

    The paper draws θ for each action by a triangular solve: the same arithmetic, k·d², and the same distribution.
    """
    k, p = posterior.mean.shape
    whitening, mean = whitened(posterior).reshape(k * p, p), posterior.mean.astype(np.float32)
    dof, regressors = 2 * posterior.alpha, np.ones(p, np.float32)

    def decide(context: Float32) -> int:
        regressors[:-1] = context
        z = (whitening @ regressors).reshape(k, p)
        scale = np.sqrt(np.einsum("kp,kp->k", z, z))
        return int((mean @ regressors + scale * rng.standard_t(dof)).argmax())

    return decide


def whitened(posterior: Posterior) -> Float32:
    """For each action L⁻¹ in the unit of its reward, float32[k, p, p]: ‖L⁻¹x‖ is the scale of the reward at x."""
    unit, identity = np.sqrt(posterior.beta / posterior.alpha), np.eye(posterior.mean.shape[1])
    inverse = np.stack([solve_triangular(L, identity, lower=True) for L in posterior.root])
    found: Float32 = (inverse * unit[:, None, None]).astype(np.float32)
    return found


def by_features(networks: Networks, posterior: Posterior, rng: np.random.Generator) -> Decider:
    """NeuralLinear-TS: Linear-TS on the last hidden layer."""
    layers, on_features = layers_of(networks, 0)[:-1], by_posterior(posterior, rng)
    return lambda context: on_features(_hidden(layers, context))


def by_networks(networks: Networks, rng: np.random.Generator) -> Decider:
    """The best prediction of a randomly chosen network: Bootstrap-NN-TS, and with one network Neural-Greedy."""
    stacks, size = [layers_of(networks, b) for b in range(networks.size)], networks.size

    def decide(context: Float32) -> int:
        layers = stacks[rng.integers(size) if size > 1 else 0]
        weight, bias = layers[-1]
        return int((_hidden(layers[:-1], context) @ weight + bias).argmax())

    return decide


def layers_of(networks: Networks, b: int) -> list[tuple[Float32, Float32]]:
    """Weights and biases of network b of an ensemble."""
    pairs = zip(networks.weights, networks.biases, strict=True)
    return [(_float32(weight[b]), _float32(bias[b])) for weight, bias in pairs]


def _hidden(layers: list[tuple[Float32, Float32]], x: Float32) -> Float32:
    for weight, bias in layers:
        x = np.maximum(x @ weight + bias, 0)
    return x


def _float32(array: NDArray[Any]) -> Float32:
    return np.ascontiguousarray(array, np.float32)


def _cycle() -> Any:
    while True:
        yield from _IDS
