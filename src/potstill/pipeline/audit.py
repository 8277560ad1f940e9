"""Audit: recompute every logged propensity and draw from the context and the policy version that decided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.policy import UNDERFLOW, Policy
from potstill.registry import CorruptVersion, UnknownVersion
from potstill.spaces import Actions, LakeColumns, lake_columns
from potstill.tables import context_fits, encode_contexts
from potstill.workspace import Workspace

EXAMPLES = 20
#: Modes of decisions without a policy: a fixed action with propensity 1. A control arm that is an older policy has no
#: such mode, and is recomputed like any decision of that version.
FIXED = ("log-only", "fallback", "control", "design")


class Mismatch(msgspec.Struct, frozen=True, kw_only=True):
    """A decision whose log and policy disagree.

    Attributes:
        id: Id of the decision.
        policy: Version of the policy.
        what: ``"propensity"`` or ``"action"``.
        logged: Value in the log.
        computed: Value that the policy gives.
    """

    id: str
    policy: int
    what: str
    logged: Any
    computed: Any


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an audit.

    Attributes:
        decisions: Number of decisions in the lake.
        checked: Number of decisions that were recomputed.
        fixed: Number of decisions without a policy, such as a fallback or a fixed control.
        propensities: Number of propensities that disagree.
        actions: Number of actions that differ from the draw of their id.
        missing: Number of decisions whose policy version is not in the registry or not readable, by version.
        unfit: Number of decisions whose context or action does not fit the problem of their policy.
        largest: Largest difference between a logged and a recomputed propensity, relative to the recomputed one.
        mismatches: First decisions that disagree.
    """

    decisions: int = 0
    checked: int = 0
    fixed: int = 0
    propensities: int = 0
    actions: int = 0
    missing: dict[int, int] = {}
    unfit: int = 0
    largest: float = 0.0
    mismatches: list[Mismatch] = []

    @property
    def clean(self) -> bool:
        """Whether every decision agrees with its policy."""
        return not (self.propensities or self.actions or self.missing or self.unfit)

    def __add__(self, other: Audit) -> Audit:
        missing = {v: self.missing.get(v, 0) + other.missing.get(v, 0) for v in self.missing | other.missing}
        return Audit(
            decisions=self.decisions + other.decisions,
            checked=self.checked + other.checked,
            fixed=self.fixed + other.fixed,
            propensities=self.propensities + other.propensities,
            actions=self.actions + other.actions,
            missing=missing,
            unfit=self.unfit + other.unfit,
            largest=max(self.largest, other.largest),
            mismatches=(self.mismatches + other.mismatches)[:EXAMPLES],
        )


def run_audit(workspace: Workspace, on_progress: Callable[[int, int], None] | None = None) -> Audit:
    """Recompute every decision in the lake."""
    lake = workspace.lake
    files = lake.files("decisions")
    total = sum(file.rows for file in files)
    policies = LoadedPolicies(workspace)
    found = Audit()
    for file in files:
        found += _audit(policies, lake.read("decisions", [file]).collect())
        if on_progress is not None:
            on_progress(found.decisions, total)
    return found


def audit_rows(workspace: Workspace, rows: pl.DataFrame) -> Audit:
    """Recompute some decisions, with the columns of the table ``decisions``."""
    return _audit(LoadedPolicies(workspace), rows)


def _audit(policies: LoadedPolicies, frame: pl.DataFrame) -> Audit:
    fixed = pl.col("mode").is_in(FIXED).fill_null(value=False)
    found = Audit(decisions=(without_policy := frame.select(fixed.sum()).item()), fixed=without_policy)
    for (version, floor), rows in frame.filter(~fixed).group_by("policy", "floor", maintain_order=True):
        found += _check(policies, int(version), floor, rows)
    return found


class LoadedPolicies:
    """Policies by version, each loaded once; None for those that cannot be read."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._loaded: dict[int, Policy | None] = {}

    def __getitem__(self, version: int) -> Policy | None:
        if version not in self._loaded:
            self._loaded[version] = self._load(version)
        return self._loaded[version]

    def _load(self, version: int) -> Policy | None:
        try:
            return self._workspace.registry.policy(version).with_runtime("numpy")  # the definition
        except (UnknownVersion, CorruptVersion):
            return None


def _check(policies: LoadedPolicies, version: int, floor: float | None, rows: pl.DataFrame) -> Audit:
    policy = policies[version]
    if policy is None:
        return Audit(decisions=len(rows), missing={version: len(rows)})
    fit = rows.filter(context_fits(policy.problem, rows.columns))
    if not len(fit):
        return Audit(decisions=len(rows), unfit=len(rows))
    compared = _compare(policy, floor, fit)
    return msgspec.structs.replace(compared, decisions=len(rows), unfit=len(rows) - len(fit))


def _compare(policy: Policy, floor: float | None, rows: pl.DataFrame) -> Audit:
    space = policy.problem.actions
    columns = lake_columns(space)
    logged, allowed = columns.actions(rows["action"]), columns.allowed(rows["eligible"])
    contexts = encode_contexts(rows, policy.problem)
    tolerance = policy.agreement(
        contexts, eligible=allowed
    )  # a larger difference is not rounding (docs/policy-format.md)
    distribution = policy.distribution(contexts, eligible=allowed, floor=floor)
    computed = distribution.propensity(logged).astype(np.float64)
    stated = rows["propensity"].to_numpy()
    u = policy.uniforms(rows["id"].to_list()).reshape(len(rows), -1)
    possible = distribution.drawn(u, logged, tolerance)
    possible |= rows["mode"].is_not_null().to_numpy()  # in apprentice mode the policy did not draw the action
    possible &= _would_be_drawn(rows, columns, lambda actions: distribution.drawn(u, actions, tolerance))
    error = np.abs(stated - computed)
    wrong = ~(error <= tolerance * computed + UNDERFLOW)
    mismatches = _mismatches(policy, rows, wrong, "propensity", stated.tolist(), computed.tolist())
    if not possible.all():
        drawn = space.decode(distribution.draw(u))
        mismatches += _mismatches(policy, rows, ~possible, "action", rows["action"].to_list(), drawn)
    return Audit(
        checked=len(rows),
        propensities=int(wrong.sum()),
        actions=int((~possible).sum()),
        largest=float((error / np.maximum(computed, UNDERFLOW)).max(initial=0)),
        mismatches=mismatches[:EXAMPLES],
    )


def _would_be_drawn(
    rows: pl.DataFrame, columns: LakeColumns, drawn: Callable[[Actions], NDArray[np.bool_]]
) -> NDArray[np.bool_]:
    """Whether the policy draws what the log says that it would have drawn; true where the log says nothing."""
    stated = rows["would"].is_not_null()
    if not stated.any():
        return np.ones(len(rows), np.bool_)
    fits = rows.select(columns.fits(pl.col("would")).fill_null(value=False)).to_series()
    would = rows.select(pl.when(fits).then("would").otherwise("action")).to_series()
    return np.asarray(drawn(columns.actions(would)) & fits.to_numpy() | ~stated.to_numpy())


def _mismatches(
    policy: Policy, rows: pl.DataFrame, wrong: NDArray[np.bool_], what: str, logged: list[Any], computed: list[Any]
) -> list[Mismatch]:
    ids = rows["id"]
    return [
        Mismatch(id=ids[row], policy=policy.version, what=what, logged=logged[row], computed=computed[row])
        for row in np.flatnonzero(wrong)[:EXAMPLES].tolist()
    ]
