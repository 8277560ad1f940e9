"""Reproduce a version from its lineage, and compare it byte for byte."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from potstill._version import __version__
from potstill.distill import MEASURES, Still, Student
from potstill.errors import PotstillError
from potstill.events.lake import observation_chunks
from potstill.pipeline.check import check_teacher
from potstill.pipeline.contexts import ExtraContexts, extra_contexts
from potstill.pipeline.engines import LocalEngine
from potstill.pipeline.labels import LabelStore
from potstill.pipeline.load_teacher import with_options
from potstill.pipeline.origin import Origin
from potstill.pipeline.resume import continue_from
from potstill.policy import Policy
from potstill.registry import NoState
from potstill.teachers import AnyTeacher, InvalidState, Source, from_config, to_config
from potstill.workspace import Adaptation, Workspace, adapt_again, source_of

#: Defaults of student options that early lineages lack.
_EARLY_DEFAULTS = {"contexts": 0}


class NotReproducible(PotstillError, ValueError):
    """A version cannot be reproduced; the message says what is missing."""


class Reproduction(msgspec.Struct, frozen=True, kw_only=True):
    """Result of reproducing a version.

    Attributes:
        version: Version that was reproduced.
        identical: Whether its file is the same, byte for byte.
        differs: Differences, if it is not identical.
        replayed: Earlier versions that had to be reproduced first because their states were deleted.
    """

    version: int
    identical: bool
    differs: list[str]
    replayed: list[int]


def reproduce_version(workspace: Workspace, version: int) -> Reproduction:
    """Reproduce a version from the observations and contexts that its lineage names."""
    published = workspace.registry.policy(version)
    replayed: list[int] = []
    adaptation = Adaptation.of(published)
    if adaptation is None:
        again = _reproduce(workspace, published, replayed).policy
    else:
        again = adapt_again(workspace.registry.policy(adaptation.version), published, adaptation)
    identical = again.to_bytes() == published.to_bytes()
    differs = [] if identical else _differences(published, again)
    return Reproduction(version=version, identical=identical, differs=differs, replayed=replayed[:-1])


def _reproduce(workspace: Workspace, published: Policy, replayed: list[int]) -> Still:
    """Reproduce a version; returns the still that made it."""
    origin = Origin.of(published)
    lineage = published.metadata.lineage
    if lineage.teacher is None:
        raise NotReproducible(f"version {published.version} was not distilled: it is the initial policy")
    still = Still(
        published.problem,
        _teacher(workspace, published.version, lineage.teacher),
        student=msgspec.convert({**_EARLY_DEFAULTS, **(lineage.student or {})}, Student),
        seed=lineage.seed or 0,
        floor=published.floor,
    )
    still.choice = lineage.choice  # a student that was searched for is trained, not searched for again
    still.measures = _measures(published.metadata.fidelity or {})
    if origin.prior:
        return still  # its policy is that of the prior
    if (parent := _parent(workspace, published)) is not None:
        continue_from(still, parent.with_floor(published.floor))
    if origin.base is not None:
        _restore_memory(still, workspace, origin.base, replayed)
    with TemporaryDirectory() as folder:
        further = _contexts(workspace, origin, LabelStore(folder, published.version))
        still.update(
            observation_chunks(workspace.lake, published.problem, origin.after, origin.cut, without=origin.without),
            earlier=observation_chunks(workspace.lake, published.problem, 0, origin.after, without=origin.without),
            contexts=further.contexts if further else None,
            version=published.version,
            origin=lambda: _checked_origin(lineage.origin, further),
        )
    replayed.append(published.version)
    return still


def _teacher(workspace: Workspace, version: int, recorded: dict[str, Any]) -> AnyTeacher:
    """The teacher of a version: its options from the lineage, and its code from `potstill.toml` alone.

    A lineage is data of a policy file. It says which source was used, and never what to load.
    """
    if "source" not in recorded:
        return from_config(recorded)
    teacher = check_teacher(workspace)
    present = to_config(teacher)
    if "source" not in present or any(present.get(name) != recorded.get(name) for name in ("type", "model")):
        raise NotReproducible(
            f"version {version} has learnt with {_code(recorded)}, and potstill.toml has {_code(present)}; state the "
            "former in [teacher] to reproduce it: code is loaded from potstill.toml alone"
        )
    before, now = (msgspec.convert(config["source"], Source) for config in (recorded, present))
    if before != now:
        raise NotReproducible(
            f"version {version} has learnt with {_code(recorded)} of {before.in_words}, and it is now of "
            f"{now.in_words}; restore that source to reproduce it"
        )
    return with_options(teacher, recorded)


def _code(config: dict[str, Any]) -> str:
    """A teacher's type and model in words."""
    return f"type {config.get('type')!r}" + (f", model {config['model']!r}" if "model" in config else "")


def _measures(fidelity: dict[str, Any]) -> int:
    """Which measures of fidelity a version was published with, as `Still.measures`."""
    if "eligible" in fidelity:
        return MEASURES
    if "cost" in fidelity or "reward_range" not in fidelity:
        return 3
    return 2 if "floor_tv" in fidelity else 1


def _parent(workspace: Workspace, published: Policy) -> Policy | None:
    """The policy that a version was distilled after; None if it began from the uniform policy of a new problem."""
    if published.metadata.parent is None:
        return None
    parent = workspace.registry.policy(published.metadata.parent)
    return parent if parent.problem.hash == published.problem.hash else None


def _restore_memory(still: Still, workspace: Workspace, version: int, replayed: list[int]) -> None:
    """Restore the teacher's state of a version: from the registry, or by reproducing the version.

    It may have learnt another list of actions, which the policy to continue from is adapted from.
    """
    base = workspace.registry.policy(version)
    _, like = source_of(still.policy, workspace.registry.policy)
    try:
        still.recall(still.policy, workspace.registry.teacher(version), base.problem, like)
    except (NoState, InvalidState):
        memory = _reproduce(workspace, base, replayed).memory()
        still.recall(still.policy, memory, base.problem, like)


def _contexts(workspace: Workspace, origin: Origin, store: LabelStore) -> ExtraContexts | None:
    if origin.contexts is None:
        return None
    return extra_contexts(workspace, LocalEngine(), store, recorded=origin.contexts)


def _checked_origin(origin: dict[str, Any] | None, further: ExtraContexts | None) -> dict[str, Any]:
    """The origin, after checking that the extra contexts are those that it names."""
    stated = (origin or {}).get("contexts")
    if stated is not None and (further is None or further.lineage_entry["sha256"] != stated["sha256"]):
        raise NotReproducible(
            f"it was distilled on {stated['rows']:,} extra contexts of {stated['table']}, "
            "and that table, or the sample drawn from it, has changed; restore the table"
        )
    return origin or {}


def _differences(published: Policy, again: Policy) -> list[str]:
    found = []
    if published.metadata.lineage.library != __version__:
        found.append(f"published by Potstill {published.metadata.lineage.library}, reproduced by {__version__}")
    before, after = map(_stated, (published, again))
    found += [_difference(name, before[name], after.get(name)) for name in before if before[name] != after.get(name)]
    distance = max(
        (
            float(abs(a - b).max(initial=0))
            for x, y in zip(published.layers, again.layers, strict=False)
            for a, b in zip(x, y, strict=True)
            if a.shape == b.shape
        ),
        default=0.0,
    )
    if distance:
        found.append(f"weights differ by up to {distance:.3g}")
    return found


def _stated(policy: Policy) -> dict[str, Any]:
    """Metadata as in the file, without the checksum."""
    stated: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(policy.metadata))
    del stated["sha256"]
    return stated


def _difference(name: str, before: Any, after: Any) -> str:
    return f"{name}: published {str(before)[:200]}, now {str(after)[:200]}"
