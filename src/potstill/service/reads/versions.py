"""Versions of the policy: what each has learnt, how it compares, what was against it, and who changed what serves."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from potstill.policy import Policy
from potstill.registry import Conflict, CorruptVersion, Entry, Registry, UnknownVersion
from potstill.registry import Version as Published
from potstill.service.http import Refusal
from potstill.service.problem_service import ProblemService
from potstill.service.wire import HoldReply, Version, hold_reply, moment
from potstill.workspace import in_words

#: Versions whose reports a worker keeps in memory: they never change.
_KEPT = 256
#: Versions before one among which its ancestors are looked for: each is a file to read.
_LINEAGE = 100
Limit = Annotated[int, Meta(ge=1, le=1000)]


class VersionsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many versions and changes to list."""

    limit: Limit = 20


class VersionQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which version to read."""

    version: Version


class ComparisonReply(Struct, frozen=True, kw_only=True):
    """A new version against the one that served, by off-policy evaluation on decisions that it learnt from.

    `value` is its estimated reward per decision with its interval; `difference` is that minus the value of version
    `against`, with its interval at `level`. `effective` is the effective sample size: the number of decisions of its
    own that would say as much. `grade` and `sentence` say how far the estimate can be trusted.
    """

    against: int
    rows: int
    effective: float | None
    value: float
    value_low: float | None
    value_high: float | None
    difference: float
    low: float
    high: float
    level: float
    grade: str
    sentence: str


class VersionSummary(Struct, frozen=True, kw_only=True):
    """One version.

    `state` is serving, served before, staged or refused; `kl` the mean held-out divergence from its teacher in nats;
    `reasons` say why it was not to serve; `current_problem` is false for a version of an earlier problem.
    """

    version: int
    state: str
    published: datetime
    parent: int | None
    observations: int
    kl: float | None
    comparison: ComparisonReply | None
    reasons: list[str]
    note: str
    current_problem: bool


class ChangeReply(Struct, frozen=True, kw_only=True):
    """One change of the registry: what happened to which version, who did it and why."""

    number: int
    time: datetime
    event: str
    version: int
    serving: int | None
    by: str
    note: str


class VersionsReply(Struct, frozen=True, kw_only=True):
    """The latest versions and the latest changes, newest first; `damage` says which entries cannot be read."""

    serving: int | None
    mode: str
    pinned: HoldReply | None
    paused: HoldReply | None
    versions: list[VersionSummary]
    more: bool
    changes: list[ChangeReply]
    damage: list[str]


class VersionReply(Struct, frozen=True, kw_only=True):
    """A version: its ancestors from its parent on, its teacher, student and fidelity, and the update that made it.

    `decides` says in words what it decides by. `selection` has the weight and the error of each candidate of its
    teacher, and `seconds` how long each step took.
    """

    summary: VersionSummary
    ancestors: list[int]
    decides: str
    teacher: dict[str, Any] | None
    student: dict[str, Any] | None
    exactness: dict[str, Any] | None
    selection: dict[str, dict[str, float]] | None
    fidelity: dict[str, Any] | None
    origin: dict[str, Any] | None
    seconds: dict[str, float]
    joined: dict[str, Any] | None
    policy_bytes: int


def read_versions(service: ProblemService, query: VersionsQuery) -> VersionsReply:
    """The latest versions and changes."""
    registry, snapshot = service.workspace.registry, service.snapshots.current
    head = registry.standing()
    latest, last = (head.latest, head.number) if head else (0, 0)
    after = latest - query.limit
    found = registry.versions(max(after, -1))
    return VersionsReply(
        serving=head.serving if head else None,
        mode=snapshot.mode,
        pinned=hold_reply(head.pinned if head else None),
        paused=hold_reply(head.paused if head else None),
        versions=[_summary(service, one) for one in reversed(found)],
        more=after >= 0,
        changes=_changes(registry, last, query.limit),
        damage=registry.damage(max(after, 0)),
    )


def read_version(service: ProblemService, query: VersionQuery) -> VersionReply:
    """One version; `Refusal` if there is none, or it is damaged."""
    registry = service.workspace.registry
    try:
        policy = registry.policy(query.version)
        listed = {one.version: one for one in registry.versions(query.version - 1)}
        report = _report(registry, listed[query.version])
    except UnknownVersion as error:
        raise Refusal(404, "unknown", str(error)) from error
    except (CorruptVersion, KeyError, msgspec.DecodeError) as error:
        raise Refusal(
            409, "conflict", f"version {query.version} is damaged: {error}; potstill verify says more"
        ) from error
    return _version(service, policy, listed[query.version], report)


class _Compared(Struct, frozen=True, kw_only=True):
    against: int
    rows: int
    effective: float | None = None
    value: float
    value_low: float | None = None
    value_high: float | None = None
    difference: float
    low: float
    high: float
    level: float
    trust: dict[str, str]


class _Still(Struct, frozen=True):
    seconds: dict[str, float] = {}


class _Report(Struct, frozen=True):
    """What is shown of the report of an update; versions of an earlier Potstill may lack some of it."""

    compared: _Compared | None = None
    joined: dict[str, Any] | None = None
    still: _Still | None = None


_reports: dict[tuple[str, str], _Report] = {}


def _report(registry: Registry, published: Published) -> _Report:
    key = (registry.storage.url, published.files.report.sha256)
    if key not in _reports:
        while len(_reports) >= _KEPT:
            _reports.pop(next(iter(_reports)), None)
        _reports[key] = msgspec.json.decode(registry.report(published.version), type=_Report)
    return _reports[key]


def _summary(service: ProblemService, one: Published) -> VersionSummary:
    try:
        compared = _report(service.workspace.registry, one).compared
    except (CorruptVersion, msgspec.DecodeError):  # `damage` and `potstill verify` say so
        compared = None
    return VersionSummary(
        version=one.version,
        state=one.state,
        published=moment(one.time),
        parent=one.parent,
        observations=one.observations,
        kl=one.kl,
        comparison=None if compared is None else _comparison(compared),
        reasons=[*one.reasons],
        note=one.note,
        current_problem=one.problem == service.workspace.problem.hash,
    )


def _comparison(one: _Compared) -> ComparisonReply:
    return ComparisonReply(
        **{name: getattr(one, name) for name in _Compared.__struct_fields__ if name != "trust"},
        grade=one.trust.get("grade", ""),
        sentence=one.trust.get("sentence", ""),
    )


def _version(service: ProblemService, policy: Policy, published: Published, report: _Report) -> VersionReply:
    lineage = policy.metadata.lineage
    return VersionReply(
        summary=_summary(service, published),
        ancestors=_ancestors(service.workspace.registry, published),
        decides=in_words(policy),
        teacher=lineage.teacher,
        student=lineage.student,
        exactness=lineage.exactness,
        selection=lineage.selection,
        fidelity=policy.metadata.fidelity,
        origin=lineage.origin,
        seconds=report.still.seconds if report.still else {},
        joined=report.joined,
        policy_bytes=published.files.policy.bytes,
    )


def _ancestors(registry: Registry, published: Published) -> list[int]:
    """The versions that a version goes back to, its parent first, as far as the latest entries before it say."""
    parents = {one.version: one.parent for one in registry.versions(max(published.version - _LINEAGE, -1))}
    found: list[int] = []
    parent = published.parent
    while parent is not None and parent not in found:
        found.append(parent)
        parent = parents.get(parent)
    return found


def _changes(registry: Registry, last: int, limit: int) -> list[ChangeReply]:
    try:
        entries = registry.entries(max(last - limit, 0))
    except (CorruptVersion, Conflict):  # `damage` names the entry
        return []
    return [_change(entry) for entry in reversed(entries)]


def _change(entry: Entry) -> ChangeReply:
    return ChangeReply(
        number=entry.number,
        time=moment(entry.time),
        event=entry.event,
        version=entry.version,
        serving=entry.serving,
        by=entry.by,
        note=entry.note,
    )
