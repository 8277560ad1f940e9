"""Conformance: what every action space must do, as checks that can be run on any space, your own included.

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
#: A share of draws differs from its propensity by more than this with probability below 1e-6 per comparison
#: (Hoeffding: 2·exp(-2·draws·margin²)).
_MARGIN = float(np.sqrt(np.log(2e6) / (2 * _DRAWS)))


def check_space(space: ActionSpace, *, eligible: Any) -> None:
    """Run every check; an AssertionError says which part of the contract is broken.

    Args:
        space: A registered space.
        eligible: A restriction that permits some of its actions and not all.
    """
    for check in CHECKS:
        check(space, eligible)


def config_round_trip(space: ActionSpace, eligible: Any) -> None:  # noqa: ARG001
    """A space is the same after JSON, as problems and policy files hold it."""
    config = msgspec.json.decode(msgspec.json.encode(space))
    assert isinstance(config, dict), f"a space must be a Struct with a tag, got {config!r}"
    assert from_config(config) == space, f"{config} must give an equal space"


def values_round_trip(space: ActionSpace, eligible: Any) -> None:  # noqa: ARG001
    """Values are canonical, encode to rows and decode to themselves."""
    values = [space.parse(value) for value in space.examples]
    assert len(values) >= 2, "examples must have two or more values"
    assert [space.parse(value) for value in values] == values, "parse must leave canonical values alone"
    actions = space.encode(values)
    assert len(actions) == len(values), f"encode must give a row per value, got {len(actions)} for {len(values)}"
    assert space.decode(actions) == values, f"decode must undo encode, got {space.decode(actions)}"
    assert space.valid(actions).all(), "encoded values must be valid"
    features = space.features(actions)
    assert features.dtype == np.float32, f"features must be float32, got {features.dtype}"
    assert features.ndim == 2, f"features must be [N, e], got {features.shape}"
    assert np.isfinite(features).all(), "features must be finite"


def what_is_no_action_is_refused(space: ActionSpace, eligible: Any) -> None:  # noqa: ARG001
    """Values of any other type, and values of no space, are an `InvalidAction`."""
    for value in (None, object(), float("nan"), "\x00 no action", [], {}):
        try:
            space.parse(value)
        except InvalidAction:
            continue
        raise AssertionError(f"parse must refuse {value!r} with InvalidAction")


def wire_round_trip(space: ActionSpace, eligible: Any) -> None:
    """Requests and logs hold values and restrictions as JSON, typed by `wire`."""
    for value in map(space.parse, space.examples):
        assert space.parse(msgspec.json.decode(msgspec.json.encode(value), type=space.wire.action)) == value
    stated = space.restrict(eligible).value
    again = msgspec.json.decode(msgspec.json.encode(stated), type=space.wire.eligible)
    assert space.restrict(again).value == stated, f"a restriction must survive JSON, got {again!r} for {stated!r}"


def lake_round_trip(space: ActionSpace, eligible: Any) -> None:
    """Columns of the lake give back the actions and restrictions that were written."""
    import polars as pl

    from potstill.spaces.lake import polars_type

    values, columns = [space.parse(value) for value in space.examples], lake_columns(space)
    stated = space.restrict(eligible).value
    frame = pl.DataFrame(
        {"action": values, "eligible": [stated, *[None] * (len(values) - 1)]},
        schema={name: polars_type(kind) for name, kind in space.columns.items()},
        strict=False,
    )
    assert frame.select(columns.fits()).to_series().to_list() == [True] * len(values), "written actions must fit"
    np.testing.assert_array_equal(columns.actions(frame["action"]), space.encode(values))
    expected = space.allow([stated, *[None] * (len(values) - 1)])
    np.testing.assert_array_equal(columns.allowed(frame["eligible"]), expected)


def draws_follow_propensities(space: ActionSpace, eligible: Any) -> None:
    """Actions are drawn as often as their propensities say, restricted or not; false alarm below 1e-4 in all."""
    for allowed in (None, space.restrict(eligible).allowed):
        for floor in (0.0, _FLOOR):
            distribution = _distribution(space, allowed, floor)
            u = _uniforms(space)
            actions = distribution.draw(u)
            assert space.valid(actions).all(), "drawn actions must be valid"
            assert distribution.drawn(u, actions, 1e-9).all(), "`drawn` must recognise what `draw` gives"
            propensities = distribution.propensity(actions)
            assert (propensities > 0).all(), "what was drawn must have a propensity above 0"
            if space.measure == "counting":
                _shares_agree(space, actions, propensities)


def restrictions_are_kept(space: ActionSpace, eligible: Any) -> None:
    """Under a restriction only permitted actions are drawn, each at least as often as the floor."""
    restriction = space.restrict(eligible)
    distribution = _distribution(space, restriction.allowed, _FLOOR)
    values = space.decode(distribution.draw(_uniforms(space)))
    assert all(map(restriction.permits, values)), "a restricted distribution must draw permitted actions alone"
    assert restriction.permits(restriction.first()), "`first` must be permitted"
    if space.measure == "counting":
        first = np.repeat(space.encode([restriction.first()]), _DRAWS, axis=0)
        assert (distribution.propensity(first) >= _FLOOR * (1 - 1e-5)).all(), (
            "no permitted action may be below the floor"
        )


def zero_outputs_are_uniform(space: ActionSpace, eligible: Any) -> None:  # noqa: ARG001
    """A network of zeros, with which every problem starts, gives the uniform distribution."""
    head = space.head()
    actions = space.encode([space.parse(value) for value in space.examples])
    distribution = head.distribution(np.zeros((len(actions), head.outputs), np.float32), None, 0.0)
    propensities = distribution.propensity(actions)
    np.testing.assert_allclose(propensities, propensities[0], rtol=1e-5, err_msg="zeros must give equal propensities")


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
        weighed, expected, rtol=tolerance, err_msg="weighted rewards must be those of the target"
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
    """One distribution of random outputs, in every row."""
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
        assert gap < _MARGIN, f"{value} was drawn {gap:.4f} more or less often than its propensity says"


def _reward(space: ActionSpace, actions: Actions) -> Float64:
    """A made-up reward that depends on the action."""
    reward: Float64 = 1 + np.abs(
        space.features(actions).astype(np.float64) @ np.arange(1, space.features(actions).shape[1] + 1)
    )
    return reward
