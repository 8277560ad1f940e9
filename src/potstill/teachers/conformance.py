"""Conformance checks of the teacher contract. They run on any teacher, your own included.

>>> from potstill.teachers import LinearTS, check_teacher
>>> check_teacher(LinearTS())
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import msgspec
import numpy as np

from potstill.keys import Key
from potstill.problem import Boolean, Categorical, Discrete, Numeric, Observations, Problem, Reward, reward_range
from potstill.spaces import ActionSpace, Catalog, Continuous
from potstill.teachers.contract import (
    AnyContinuousTeacher,
    AnyFiniteTeacher,
    MeanRewards,
    PerAction,
    Rereading,
    ResultT,
    Summarising,
    reward_kinds,
)

AnyCheckable = AnyFiniteTeacher | AnyContinuousTeacher


def _problem(actions: Any) -> Problem:
    return Problem(
        name="conformance",
        context=[Numeric("speed", low=0, high=10), Categorical("place", ["home", "work"]), Boolean("new")],
        actions=actions,
    )


def _items(*names: str) -> list[dict[str, Any]]:
    """Items with a feature that says which they are; a new one is in the middle."""
    return [{"id": name, "level": {"low": 0, "high": 2}.get(name, 1)} for name in names]


PROBLEM = _problem(Discrete(["low", "middle", "high"]))
#: The problems of the checks, by the action space that a teacher supports.
PROBLEMS = (
    PROBLEM,
    _problem(Continuous("dose", low=0.5, high=8, scale="log", bins=8)),
    _problem(Catalog(features=[Numeric("level", low=0, high=2)], items=_items("low", "middle", "high"))),
)
_KEY = Key(20240511)
_DRAWS = 4000
#: A sampled share differs from its propensity by more than this with probability below 1e-6 per comparison
#: (Hoeffding: 2·exp(-2·draws·margin²)).
_MARGIN = float(np.sqrt(np.log(2e6) / (2 * _DRAWS)))


def check_teacher(teacher: AnyCheckable) -> None:
    """Run every check; an AssertionError names the broken part of the contract."""
    for check in CHECKS:
        check(teacher)


def problem_for(teacher: AnyCheckable) -> Problem:
    """The problem that a teacher is checked on: the first whose actions it supports, with rewards it learns from."""
    found = next((problem for problem in PROBLEMS if teacher.supports(problem.actions) is None), PROBLEM)
    kinds = reward_kinds(teacher)
    return msgspec.structs.replace(found, reward=Reward(kind=kinds[0])) if kinds else found


def example_observations(n: int = 60, key: Key = _KEY, problem: Problem = PROBLEM) -> Observations:
    """Observations of a conformance problem: the reward of an action is its position times speed, plus noise.

    Of kind ``yes/no`` or ``count`` it is drawn with such a mean.
    Propensities are from 0.02 to 1, because teachers may weight observations by them.
    """
    rng = key.child("observations").generator()
    contexts = example_contexts(n, key)
    actions, positions = _example_actions(problem.actions, n, rng)
    rewards = _example_rewards(problem, positions * contexts[:, 0], rng)
    propensities = 0.02 ** key.child("propensities").generator().random(n)
    return Observations.from_columns(
        problem, contexts=contexts, actions=actions, rewards=rewards, propensities=propensities
    )


def _example_actions(space: ActionSpace, n: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Random actions and their positions in the space, from 0 to 2."""
    if isinstance(space, Continuous):
        actions = space.from_unit(rng.random(n))
        return actions, 2 * space.unit(actions)
    positions = rng.integers(3, size=n)
    return positions, positions


def _example_rewards(problem: Problem, means: Any, rng: np.random.Generator) -> Any:
    """Rewards of the problem's kind, from means between 0 and 2."""
    if problem.reward.kind == "yes/no":
        return (rng.random(len(means)) < means / 2).astype(np.float64)
    if problem.reward.kind == "count":
        return rng.poisson(means).astype(np.float64)
    return means + 0.1 * rng.standard_normal(len(means))


def _shares(space: ActionSpace, actions: Any) -> Any:
    """Shares of sampled actions [N, n]: of each action, or in each bin, float[N, K]."""
    bins = np.searchsorted(space.edges[1:-1], actions, side="right") if isinstance(space, Continuous) else actions
    return np.stack([(bins == a).mean(axis=1) for a in range(_outputs(space))], axis=1)


def _outputs(space: ActionSpace) -> int:
    return space.head().outputs


def _close(teacher: AnyCheckable, p: Any, q: Any, tolerance: float, message: str) -> None:
    """Propensities are equal up to a tolerance; of sampled ones a few draws may differ, after rounding."""
    few = 0.0 if teacher.exactness.draws is None else 4.1 / teacher.exactness.draws
    np.testing.assert_allclose(p, q, atol=max(tolerance, few), err_msg=message)


def _by_propensity(observations: Observations) -> Observations:
    """The rarest first: parts of them differ as much as they can in what they weigh."""
    return observations[np.argsort(observations.propensities, kind="stable")]


def example_contexts(n: int, key: Key = _KEY) -> Any:
    """Encoded contexts of the conformance problem, float32[n, d]."""
    rng = key.child("contexts").generator()
    return PROBLEM.encode_many(
        {
            "speed": rng.uniform(0, 10, n),
            "place": rng.choice(np.array(["home", "work", "elsewhere"]), n),
            "new": rng.random(n) < 0.5,
        }
    )


def _observed(teacher: AnyCheckable, n: int = 60, key: Key = _KEY) -> Observations:
    return example_observations(n, key, problem_for(teacher))


def _states(teacher: AnyCheckable) -> list[Any]:
    prior = teacher.init(problem_for(teacher))
    return [prior, teacher.update(prior, _observed(teacher), _KEY)]


def propensities_are_probabilities(teacher: AnyCheckable) -> None:
    """Propensities are float32[N, K], non-negative, and sum to 1, for 50, 1 and 0 contexts."""
    k = _outputs(problem_for(teacher).actions)
    for state in _states(teacher):
        for n in (50, 1, 0):
            p = teacher.propensities(state, example_contexts(n), _KEY)
            assert p.shape == (n, k), f"propensities must have shape {(n, k)}, got {p.shape}"
            assert p.dtype == np.float32, f"propensities must be float32, got {p.dtype}"
            assert (p >= 0).all(), f"propensities must not be negative, got {p.min()}"
            np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-5, err_msg="propensities must sum to 1")


def mean_rewards_fit_the_rewards(teacher: AnyCheckable) -> None:
    """Mean rewards are float64[N, K], finite, and in units of the reward: they rise if all rewards do."""
    if not isinstance(teacher, MeanRewards):
        return
    contexts, observed, k = example_contexts(50), _observed(teacher), _outputs(problem_for(teacher).actions)
    for state in _states(teacher):
        for n in (50, 1):
            rewards = teacher.mean_rewards(state, contexts[:n])
            assert rewards.shape == (n, k), f"mean_rewards must have shape {(n, k)}, got {rewards.shape}"
            assert rewards.dtype == np.float64, f"mean_rewards must be float64, got {rewards.dtype}"
            assert np.isfinite(rewards).all(), "mean_rewards must be finite"
    shifted = replace(observed, rewards=np.minimum(observed.rewards + 100, reward_range(observed.problem).high))
    before, after = (
        teacher.mean_rewards(teacher.update(teacher.init(problem_for(teacher)), rows, _KEY), observed.contexts)
        for rows in (observed, shifted)
    )
    moved = float((after - before).mean())
    # How far depends on the prior; means in standardised units would stay where they are.
    assert moved > 0.01, f"rewards that are 100 larger, or `high`, must raise mean_rewards, which rose by {moved:.3g}"


def update_leaves_its_input_alone(teacher: AnyCheckable) -> None:
    """An update does not modify its input state."""
    state = teacher.init(problem_for(teacher))
    before = copy.deepcopy(state)
    teacher.update(state, _observed(teacher), _KEY)
    _assert_same(before, state, "update must not change the state it is given")


def same_key_same_result(teacher: AnyCheckable) -> None:
    """Equal inputs and keys give bit-identical outputs."""
    first, second = _states(teacher)[1], _states(teacher)[1]
    _assert_same(first, second, "two updates with the same key must give the same state")
    contexts = example_contexts(20)
    p, q = (teacher.propensities(state, contexts, _KEY) for state in (first, second))
    np.testing.assert_array_equal(p, q, err_msg="propensities with the same key must be equal")


def contexts_are_independent(teacher: AnyCheckable) -> None:
    """A context's propensities do not depend on the other contexts of the batch."""
    if teacher.exactness.kind != "exact":
        return
    state, contexts = _states(teacher)[1], example_contexts(20)
    whole = teacher.propensities(state, contexts, _KEY)
    parts = np.concatenate([teacher.propensities(state, contexts[i : i + 7], _KEY) for i in range(0, 20, 7)])
    np.testing.assert_allclose(whole, parts, atol=1e-6, err_msg="a context's propensities must not depend on others")


def samples_follow_propensities(teacher: AnyCheckable) -> None:
    """Sampled action frequencies match the propensities; false alarm rate below 1e-4 overall."""
    contexts = example_contexts(5)
    for state in _states(teacher):
        actions = teacher.sample_actions(state, contexts, _DRAWS, _KEY)
        assert actions.shape == (5, _DRAWS), f"sample_actions must give shape {(5, _DRAWS)}, got {actions.shape}"
        share = _shares(problem_for(teacher).actions, actions)
        gap = np.abs(share - teacher.propensities(state, contexts, _KEY.child("other"))).max()
        allowed = _MARGIN + 5 * (teacher.exactness.standard_error or 0.0)
        assert gap < allowed, f"sampled shares differ from propensities by {gap:.3f}"


def shards_add_up(teacher: AnyCheckable) -> None:
    """A `Summarising` teacher has the same posterior from summed shards as from one update, first and later."""
    if not isinstance(teacher, Summarising):
        return
    contexts, message = example_contexts(20), "shards must add up to the whole"
    whole = sharded = teacher.init(problem_for(teacher))
    for observations in (_by_propensity(_observed(teacher)), _observed(teacher, 30, _KEY.child("later"))):
        shards = [teacher.summarise(observations[i : i + 13]) for i in range(0, len(observations), 13)]
        whole, sharded = teacher.update(whole, observations, _KEY), teacher.absorb(sharded, reduce(add, shards))
        p, q = (teacher.propensities(state, contexts, _KEY) for state in (whole, sharded))
        _close(teacher, p, q, 1e-5, message)


def parts_are_read_as_the_whole(teacher: AnyCheckable) -> None:
    """A `Rereading` teacher has the same posterior from `reread` as from `update`, and keeps no observations."""
    if not isinstance(teacher, Rereading) or not teacher.passes:
        return
    observations, contexts = _by_propensity(_observed(teacher)), example_contexts(20)
    first, second = observations[:30], observations[30:]
    before = teacher.update(teacher.init(problem_for(teacher)), first, _KEY)
    again = teacher.reread(teacher.init(problem_for(teacher)), _InMemoryParts([first]), _KEY)
    whole, read = teacher.update(before, second, _KEY), teacher.reread(again, _InMemoryParts([first, second]), _KEY)
    p, q = (teacher.propensities(state, contexts, _KEY) for state in (whole, read))
    _close(teacher, p, q, 1e-3, "reread must give the posterior of update")
    try:
        teacher.update(read, second, _KEY)
    except ValueError:
        return
    raise AssertionError("update must refuse a state that reread made, since it holds no observations")


class _InMemoryParts:
    """`Parts` over lists in memory."""

    def __init__(self, parts: list[Observations]) -> None:
        self._parts = parts

    def each(self, function: Callable[..., ResultT], *common: Any) -> Iterator[ResultT]:
        return (function(number, part, *common) for number, part in enumerate(self._parts))


def no_observations_change_nothing(teacher: AnyCheckable) -> None:
    """An empty batch does not change the prior."""
    prior, contexts = teacher.init(problem_for(teacher)), example_contexts(5)
    after = teacher.update(prior, Observations.none(problem_for(teacher)), _KEY)
    p, q = (teacher.propensities(state, contexts, _KEY) for state in (prior, after))
    np.testing.assert_allclose(p, q, atol=1e-6, err_msg="an empty batch must change nothing")


def hard_data_stay_finite(teacher: AnyCheckable) -> None:
    """Degenerate data: one observation, untried actions, constant and collinear columns, huge and equal rewards."""
    contexts = example_contexts(8)
    one = _observed(teacher, 1)
    problem = problem_for(teacher)
    same = Observations.from_columns(
        problem,
        contexts=np.repeat(contexts[:1], 8, axis=0),
        actions=[problem.actions.examples[0]] * 8,
        rewards=np.full(8, min(1e9, reward_range(problem).high)),
        propensities=np.full(8, 1.0),
    )
    for observations in (one, same):
        state = teacher.update(teacher.init(problem_for(teacher)), observations, _KEY)
        p = teacher.propensities(state, contexts, _KEY)
        assert np.isfinite(p).all(), "propensities must stay finite"
        np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-5)


def a_changed_list_keeps_each_action(teacher: AnyCheckable) -> None:
    """The state for another list of actions knows of each what it knew, and of a new one what the prior says."""
    if not (isinstance(teacher, PerAction) and isinstance(teacher, MeanRewards)):
        return
    problem, contexts = problem_for(teacher), example_contexts(20)
    space, names = problem.actions, ("high", "new", "low", "middle")
    listed = Catalog(features=space.features, items=_items(*names)) if isinstance(space, Catalog) else Discrete(names)
    changed = msgspec.structs.replace(problem, actions=listed)
    state = _states(teacher)[1]
    try:
        kept = teacher.with_actions(state, problem, changed, {})
    except ValueError:  # as the contract allows
        return
    before, after = (teacher.mean_rewards(one, contexts) for one in (state, kept))
    message = "with_actions must keep what is known of each action"
    np.testing.assert_allclose(after[:, [2, 3, 0]], before, rtol=1e-9, atol=1e-9, err_msg=message)
    try:
        like = teacher.mean_rewards(teacher.with_actions(state, problem, changed, {"new": "high"}), contexts)
    except ValueError:
        return
    nearer = np.abs(like[:, 1] - after[:, 0]).mean() < np.abs(after[:, 1] - after[:, 0]).mean()
    assert nearer, "a new action that is like another must be expected to do as well"


def _assert_same(a: Any, b: Any, message: str) -> None:
    left, right = _leaves(a), _leaves(b)
    assert len(left) == len(right), message
    for x, y in zip(left, right, strict=True):
        np.testing.assert_array_equal(x, y, err_msg=message)


def _leaves(state: Any) -> list[Any]:
    """The arrays of a state (nested tuples, lists and mappings of arrays)."""
    if isinstance(state, (tuple, list)):
        return [leaf for part in state for leaf in _leaves(part)]
    if isinstance(state, dict):
        return [leaf for name in sorted(state) for leaf in _leaves(state[name])]
    return [np.asarray(state)]


CHECKS: tuple[Callable[[AnyCheckable], None], ...] = (
    propensities_are_probabilities,
    mean_rewards_fit_the_rewards,
    update_leaves_its_input_alone,
    same_key_same_result,
    contexts_are_independent,
    samples_follow_propensities,
    shards_add_up,
    parts_are_read_as_the_whole,
    no_observations_change_nothing,
    hard_data_stay_finite,
    a_changed_list_keeps_each_action,
)
