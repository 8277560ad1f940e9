"""Adapt a policy to a problem whose actions have changed, so that it can serve until the next update.

Actions that were removed are dropped, and the others are renormalised. Actions that were added get a score that no
softmax sees, and the floor gives them their propensity: with share ε and K actions every decision is drawn uniformly
with probability ε, and by the policy otherwise. So each new action has the propensity ε / K exactly, in the policy
format as it is, and an audit recomputes it. Retired actions keep their scores, and the list of actions masks them.

New items of a catalogue get their scores from the item tower of the policy, if it has one: they are explored as much as
their features leave open, and no decision is spread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec
import numpy as np

from potstill._version import __version__
from potstill.policy import NEW_ITEM, Layer, Lineage, Policy, Tower
from potstill.problem import Catalog, Problem, difference
from potstill.spaces import NamedActions, finite

#: Score of an action without training. Its exponential is zero in float32 beside any trained score.
UNSEEN = -1e4
_ORIGIN = "adapted"


class Adaptation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a policy was adapted; in its lineage.

    Attributes:
        version: Version that it was adapted from.
        untrained: Actions whose scores mean nothing, so that they have only the floor's propensity.
        removed: Actions of that version that were dropped.
        share: Share of decisions that are drawn uniformly from all actions, if any is untrained.
        floor: The floor that was configured.
        like: Added actions that begin as another one at the next update, and that one.
    """

    version: int
    untrained: tuple[str, ...]
    removed: tuple[str, ...]
    share: float
    floor: float
    like: dict[str, str] = {}

    @classmethod
    def of(cls, policy: Policy) -> Adaptation | None:
        """How a policy was adapted; None if it was not."""
        stated = (policy.metadata.lineage.origin or {}).get(_ORIGIN)
        return None if stated is None else msgspec.convert(stated, cls)


def can_adapt(policy: Policy, problem: Problem) -> bool:
    """Whether a policy can be adapted: equal features, and lists of actions of which at least one is the same."""
    before, after = policy.problem.actions, problem.actions
    if not isinstance(before, NamedActions) or not isinstance(after, NamedActions) or type(before) is not type(after):
        return False
    if isinstance(before, Catalog) and isinstance(after, Catalog) and before.features != after.features:
        return False
    return policy.problem.context == problem.context and bool({*before.names} & {*after.names})


def adapt(
    policy: Policy,
    problem: Problem,
    *,
    version: int,
    seed: int,
    floor: float,
    share: float,
    like: Mapping[str, str] | None = None,
) -> Policy:
    """The policy for a changed list of actions; see `can_adapt`.

    Args:
        policy: Policy for the earlier problem.
        problem: The changed problem.
        version: Version of the adapted policy.
        seed: Seed of the draws.
        floor: The configured floor.
        share: Share of decisions to spread evenly over all actions, if any action is new.
        like: Added actions that begin as another one at the next update, and that one.
    """
    changed, untrained = difference(policy.problem, problem), _untrained(policy, problem)
    adaptation = Adaptation(
        version=policy.version,
        untrained=tuple(name for name in _names(problem) if name in untrained),
        removed=changed.removed,
        share=share,
        floor=floor,
        like=dict(like or {}),
    )
    explored = untrained & {*_available(problem)}
    smallest = max(floor, _evenly(share, problem)) if explored else floor
    layers, tower = _with_tower(policy, problem) if policy.tower else (_layers(policy, problem, untrained), None)
    return Policy.build(
        problem,
        layers,
        version=version,
        seed=seed,
        parent=policy.version,
        floor=smallest,
        activation=policy.metadata.activation,
        masked=policy.masked,
        tower=tower,
        mean=policy.mean,
        lineage=Lineage(
            library=__version__,
            seed=seed,
            observations=policy.metadata.lineage.observations,
            origin=_origin(policy, adaptation),
        ),
    )


def adapt_again(policy: Policy, adapted: Policy, adaptation: Adaptation) -> Policy:
    """Repeat an adaptation, to compare it with the published one."""
    return adapt(
        policy,
        adapted.problem,
        version=adapted.version,
        seed=adapted.metadata.lineage.seed or 0,
        floor=adaptation.floor,
        share=adaptation.share,
        like=adaptation.like,
    )


def source_of(policy: Policy, read: Callable[[int], Policy]) -> tuple[Policy, dict[str, str]]:
    """The version that a policy was adapted from, maybe in several steps, and the new actions that are like others.

    Args:
        policy: A policy; one that was not adapted is its own source.
        read: Reads a version.
    """
    like: dict[str, str] = {}
    removed: set[str] = set()
    while (adaptation := Adaptation.of(policy)) is not None:
        like = {**{name: other for name, other in adaptation.like.items() if name not in removed}, **like}
        removed.update(adaptation.removed)
        policy = read(adaptation.version)
    return policy, like


def is_uniform(policy: Policy) -> bool:
    """Whether a policy gives every action the same propensity in every context."""
    return not any(array.any() for array in policy.layers[-1])


def in_words(policy: Policy) -> str:
    """What a policy decides by, in words."""
    adaptation, lineage = Adaptation.of(policy), policy.metadata.lineage
    if adaptation is not None:
        return _adapted_in_words(policy, adaptation)
    if is_uniform(policy):
        return "uniform: it has learnt nothing"
    if (lineage.origin or {}).get("prior"):
        return "imitates its teacher's prior: it has learnt nothing yet"
    return f"learnt from {lineage.observations:,} observations"


def _adapted_in_words(policy: Policy, adaptation: Adaptation) -> str:
    told = [f"adapted from version {adaptation.version} until the next update"]
    if adaptation.removed:
        told.append(f"without {', '.join(map(repr, adaptation.removed))}")
    if retired := [name for name in _names(policy.problem) if name not in _available(policy.problem)]:
        told.append(f"{', '.join(map(repr, retired))} retired")
    if explored := [name for name in adaptation.untrained if name not in retired]:
        names = ", ".join(map(repr, explored))
        told.append(f"{names}: {100 * policy.floor:.3g} % of decisions each, where all actions are eligible")
    return "; ".join(told)


def _names(problem: Problem) -> tuple[str, ...]:
    return finite(problem.actions, "adapting a policy").labels


def _available(problem: Problem) -> tuple[str, ...]:
    """The actions that are not retired."""
    return problem.actions.available if isinstance(problem.actions, NamedActions) else _names(problem)


def _evenly(share: float, problem: Problem) -> float:
    """The share of each action that is not retired; the format takes a floor of at most one over all actions."""
    return min(share / len(_available(problem)), 1 / len(_names(problem)))


def _untrained(policy: Policy, problem: Problem) -> set[str]:
    """Actions without a score that means something: added ones, and those that were retired when it was distilled.

    None are where an item tower makes scores of all.
    """
    if policy.tower is not None:
        return set()
    before = Adaptation.of(policy)
    earlier = before.untrained if before else getattr(policy.problem.actions, "retired", ())
    return {*difference(policy.problem, problem).added, *earlier} & {*_names(problem)}


def _with_tower(policy: Policy, problem: Problem) -> tuple[list[Layer], Tower]:
    """The layers for another catalogue: new items and those with other features get their columns from the tower."""
    tower, (before, after) = policy.tower, (_catalog(policy.problem), _catalog(problem))
    assert tower is not None
    places, changed = {name: place for place, name in enumerate(before.names)}, set(after.changed(before))
    from_old = np.array([places.get(name, -1) for name in after.names])
    known = from_old >= 0
    effects = np.where(known[:, None], tower.effects[from_old], NEW_ITEM)
    tower = Tower(tower.layers, effects)
    weight, bias = tower.columns(after.encoded, policy.metadata.activation)
    # Others keep theirs to the bit: a matrix product may round a row otherwise among other rows.
    same = known & np.array([name not in changed for name in after.names])
    weight[:, same] = policy.layers[-1].weight[:, from_old[same]]
    bias[same] = policy.layers[-1].bias[from_old[same]]
    return [*policy.layers[:-1], Layer(weight, bias)], tower


def _catalog(problem: Problem) -> Catalog:
    space: Any = problem.actions
    assert isinstance(space, Catalog)
    return space


def _layers(policy: Policy, problem: Problem, untrained: Collection[str]) -> list[Layer]:
    """The layers for the new list."""
    known = {name: place for place, name in enumerate(_names(policy.problem)) if name not in untrained}
    first = _inputs(policy, problem, known) if policy.masked else policy.layers[0]
    if len(policy.layers) == 1:
        return [_outputs(first, problem, known)]
    return [first, *policy.layers[1:-1], _outputs(policy.layers[-1], problem, known)]


def _inputs(policy: Policy, problem: Problem, known: Mapping[str, int]) -> Layer:
    """The first layer of a masked policy: actions that are not known to it count as not eligible at all times."""
    (weight, bias), width = policy.layers[0], policy.problem.width
    of_masks = weight[width:]
    kept = [known[name] for name in _names(problem) if name in known]
    never = np.delete(of_masks, kept, axis=0).sum(axis=0, dtype=np.float32)
    rows = np.zeros((len(_names(problem)), len(bias)), np.float32)
    rows[[name in known for name in _names(problem)]] = of_masks[kept]
    return Layer(np.concatenate([weight[:width], rows]), bias + never)


def _outputs(layer: Layer, problem: Problem, known: Mapping[str, int]) -> Layer:
    """The output layer for the new list: known actions keep their weights."""
    weight, bias = layer
    places = [known.get(name) for name in _names(problem)]
    columns = np.zeros((len(weight), len(places)), np.float32)
    scores = np.full(len(places), UNSEEN, np.float32)
    for column, place in enumerate(places):
        if place is not None:
            columns[:, column], scores[column] = weight[:, place], bias[place]
    return Layer(columns, scores)


def _origin(policy: Policy, adaptation: Adaptation) -> dict[str, object]:
    """The adaptation, the last cut that was learnt from, and the arms of experiments that were left out."""
    before = policy.metadata.lineage.origin or {}
    kept = {name: value for name, value in before.items() if name in ("cut", "without")}
    return {_ORIGIN: msgspec.to_builtins(adaptation), **kept}
