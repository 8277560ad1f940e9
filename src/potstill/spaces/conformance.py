"""Conformance checks of the action-space contract, for any space, including your own.

>>> from potstill.spaces import Discrete, check_space
>>> check_space(Discrete(["low", "middle", "high"]), eligible=["low", "high"])
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import numpy as np

from potstill.errors import InvalidAction
from potstill.spaces.contract import Actions, ActionSpace, Distribution, Float64
from potstill.spaces.registry import from_config, lake_columns

_DRAWS = 20_000
_SEED = 20240511
_FLOOR = 1e-3
#: Largest accepted gap between a share of draws and its propensity; exceeded by chance with probability below 1e-6 per
#: comparison (Hoeffding: 2·exp(-2·draws·margin²)).
_MARGIN = float(np.sqrt(np.log(2e6) / (2 * _DRAWS)))


def check_space(space: ActionSpace, *, eligible: Any) -> None:
    """Run every check; an AssertionError names the part of the contract that is violated.

    Args:
        space: A registered space.
        eligible: A restriction that permits some of its actions, but not all.
    """
    for check in CHECKS:
        check(space, eligible)


def config_round_trip(space: ActionSpace, eligible: Any) -> None:  # noqa: ARG001
    """A space survives a JSON round trip, as in problems and policy files."""
    config = msgspec.json.decode(msgspec.json.encode(space))
    assert isinstance(config, dict), f"a space must be a Struct with a tag, got {config!r}"
    assert from_config(config) == space, f"{config} must give an equal space"


def values_round_trip(space: ActionSpace, eligible: Any) -> None:  # noqa: ARG001
    """Example values are canonical, and encoding and decoding is a round trip."""
    values = [space.parse(value) for value in space.examples]
    assert len(values) >= 2, "examples must have two or more values"
    assert [space.parse(value) for value in values] == values, "parse must leave canonical values unchanged"
    actions = space.encode(values)
    assert len(actions) == len(values), f"encode must give a row per value, got {len(actions)} for {len(values)}"
    assert space.decode(actions) == values, f"decode must undo encode, got {space.decode(actions)}"
    assert space.valid(actions).all(), "encoded values must be valid"
    features = space.embed(actions)
    assert features.dtype == np.float32, f"features must be float32, got {features.dtype}"
    assert features.ndim == 2, f"features must be [N, e], got {features.shape}"
    assert np.isfinite(features).all(), "features must be finite"


def what_is_no_action_is_refused(space: ActionSpace, eligible: Any) -> None:  # noqa: ARG001
    """Values of the wrong type, and values outside the space, raise `InvalidAction`."""
    for value in (None, object(), float("nan"), "\x00 no action", [], {}):
        try:
            space.parse(value)
        except InvalidAction:
            continue
        raise AssertionError(f"parse must raise InvalidAction for {value!r}")


def wire_round_trip(space: ActionSpace, eligible: Any) -> None:
    """Values and restrictions survive a JSON round trip with the types of `wire`, as in requests and logs."""
    for value in map(space.parse, space.examples):
        assert space.parse(msgspec.json.decode(msgspec.json.encode(value), type=space.wire.action)) == value
    stated = space.restrict(eligible).value
    again = msgspec.json.decode(msgspec.json.encode(stated), type=space.wire.eligible)
    assert space.restrict(again).value == stated, f"a restriction must survive JSON, got {again!r} for {stated!r}"


def lake_round_trip(space: ActionSpace, eligible: Any) -> None:
    """Actions and restrictions survive a round trip through the lake's columns."""
    import polars as pl

    from potstill.spaces.lake import polars_type

    values, columns = [space.parse(value) for value in space.examples], lake_columns(space)
    stated = space.restrict(eligible).value
    frame = pl.DataFrame(
        {"action": values, "eligible": [stated, *[None] * (len(values) - 1)]},
        schema={name: polars_type(kind) for name, kind in space.columns.items()},
        strict=False,
    )
    assert frame.select(columns.fits()).to_series().to_list() == [True] * len(values), (
        "written actions must fit the space"
    )
    np.testing.assert_array_equal(columns.actions(frame["action"]), space.encode(values))
    expected = space.allow([stated, *[None] * (len(values) - 1)])
    np.testing.assert_array_equal(columns.allowed(frame["eligible"]), expected)


def draws_follow_propensities(space: ActionSpace, eligible: Any) -> None:
    """Actions are drawn with their propensities, restricted or not; total false-alarm probability below 1e-4."""
    for allowed in (None, space.restrict(eligible).allowed):
        for floor in (0.0, _FLOOR):
            distribution = _distribution(space, allowed, floor)
            u = _uniforms(space)
            actions = distribution.draw(u)
            assert space.valid(actions).all(), "drawn actions must be valid"
            assert distribution.drawn(u, actions, 1e-9).all(), "`drawn` must recognise the actions of `draw`"
            propensities = distribution.propensity(actions)
            assert (propensities > 0).all(), "drawn actions must have a propensity above 0"
            if space.measure == "counting":
                _shares_agree(space, actions, propensities)
            else:
                _densities_agree(space, distribution, actions)


def restrictions_are_kept(space: ActionSpace, eligible: Any) -> None:
    """Under a restriction only permitted actions are drawn, each at least as often as the floor."""
    restriction = space.restrict(eligible)
    distribution = _distribution(space, restriction.allowed, _FLOOR)
    values = space.decode(distribution.draw(_uniforms(space)))
    assert all(map(restriction.permits, values)), "a restricted distribution must draw only permitted actions"
    assert restriction.permits(restriction.first()), "`first` must be permitted"
    if space.measure == "counting":
        first = np.repeat(space.encode([restriction.first()]), _DRAWS, axis=0)
        assert (distribution.propensity(first) >= _FLOOR * (1 - 1e-5)).all(), (
            "no permitted action may be below the floor"
        )


def zero_outputs_are_uniform(space: ActionSpace, eligible: Any) -> None:  # noqa: ARG001
    """Zero outputs, the first policy of every problem, give the uniform distribution, which a floor does not change."""
    head = space.head()
    actions = space.encode([space.parse(value) for value in space.examples])
    zeros = np.zeros((len(actions), head.outputs))
    propensities, floored = (head.distribution(zeros, None, floor).propensity(actions) for floor in (0.0, _FLOOR))
    np.testing.assert_allclose(floored, propensities, rtol=1e-5, err_msg="a floor must mix with the uniform policy")
    if space.measure == "counting":
        np.testing.assert_allclose(propensities, propensities[0], rtol=1e-5, err_msg="zeros must be uniform")


def weights_are_unbiased(space: ActionSpace, eligible: Any) -> None:  # noqa: ARG001
    """Importance weights turn expectations under one policy into those under another, by enumeration of `nodes`."""
    logged, target = (_distribution(space, None, _FLOOR, rows=3, seed=seed) for seed in (1, 2))
    weighed = expected = total = np.zeros(3)
    for actions, weight in logged.nodes():
        ratio = target.propensity(actions) / logged.propensity(actions)
        weighed = weighed + weight * ratio * _reward(space, actions)
    for actions, weight in target.nodes():
        expected, total = expected + weight * _reward(space, actions), total + weight
    np.testing.assert_allclose(total, 1, atol=1e-5, err_msg="the weights of `nodes` must add up to 1")
    tolerance = 1e-5 if space.measure == "counting" else 1e-2
    np.testing.assert_allclose(
        weighed, expected, rtol=tolerance, err_msg="importance-weighted rewards must equal those of the target"
    )


CHECKS = (
    config_round_trip,
    values_round_trip,
    what_is_no_action_is_refused,
    wire_round_trip,
    lake_round_trip,
    draws_follow_propensities,
    restrictions_are_kept,
    zero_outputs_are_uniform,
    weights_are_unbiased,
)


def _distribution(
    space: ActionSpace, allowed: Any, floor: float, rows: int = _DRAWS, seed: int = _SEED
) -> Distribution:
    """The distribution of one vector of random outputs, repeated in every row."""
    head = space.head()
    outputs = np.random.default_rng(seed).standard_normal((1, head.outputs)).astype(np.float32)
    every = None if allowed is None else np.repeat(np.asarray(allowed), rows, axis=0)
    return head.distribution(np.repeat(outputs, rows, axis=0), every, floor)


def _uniforms(space: ActionSpace) -> Float64:
    return np.random.default_rng(_SEED).random((_DRAWS, space.head().draws))


def _shares_agree(space: ActionSpace, actions: Actions, propensities: Float64) -> None:
    values = space.decode(actions)
    stated = dict(zip(map(repr, values), propensities.tolist(), strict=True))
    for value, count in Counter(map(repr, values)).items():
        gap = abs(count / len(values) - stated[value])
        assert gap < _MARGIN, f"the share of draws of {value} differs by {gap:.4f} from its propensity"


def _densities_agree(space: ActionSpace, distribution: Distribution, actions: Actions) -> None:
    """Compare the distribution functions of draws and of nodes, along the first feature."""
    drawn = space.embed(actions)[:, 0]
    nodes = [(space.embed(node[:1])[0, 0], weight[0]) for node, weight in distribution.nodes()]
    coarse = max(weight for _, weight in nodes)
    for threshold in np.quantile(drawn, (0.1, 0.3, 0.5, 0.7, 0.9)):
        gap = abs((drawn <= threshold).mean() - sum(weight for at, weight in nodes if at <= threshold))
        assert gap < _MARGIN + coarse, f"the share of draws differs by {gap:.4f} from the density's"


def _reward(space: ActionSpace, actions: Actions) -> Float64:
    """An arbitrary reward that depends on the action."""
    reward: Float64 = 1 + np.abs(
        space.embed(actions).astype(np.float64) @ np.arange(1, space.embed(actions).shape[1] + 1)
    )
    return reward
