"""Audit: every logged propensity, computed again from its context and the policy version that decided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.events.lake.observations import eligible_mask, encoded_contexts
from potstill.policy import Policy
from potstill.policy.draw import uniforms
from potstill.problem import Problem
from potstill.registry import CorruptVersion, UnknownVersion
from potstill.tables.columns import context_column
from potstill.workspace import Workspace

#: Runtimes agree to this (docs/policy-format.md); a larger difference has another cause than rounding.
TOLERANCE = 1e-6
EXAMPLES = 20
#: Modes of decisions that no policy had a part in: an action with propensity 1. An experiment's control that is an
#: older policy has none of these modes, and is computed again like any decision of that version.
FIXED = ("log-only", "fallback", "control")


class Mismatch(msgspec.Struct, frozen=True, kw_only=True):
    """A decision that its policy would not have logged so."""

    id: str
    policy: int
    what: str
    logged: str | float
    computed: str | float


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """What an audit found.

    Attributes:
        decisions: in the lake.
        checked: of them, those that could be computed again.
        fixed: those that no policy had a part in, such as a fallback or a fixed control; there is nothing to compute.
        propensities: that do not agree.
        actions: that are not those which the draw of the id gives.
        missing: decisions whose policy version is not in the registry, or not readable, by version.
        unfit: decisions whose context or action does not fit their policy's problem.
        largest: the largest difference between a logged and a computed propensity.
        mismatches: the first of those that do not agree.
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
        """Whether everything agrees."""
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


def audit(workspace: Workspace, on_progress: Callable[[int, int], None] | None = None) -> Audit:
    """Compute every decision in the lake again."""
    lake = workspace.lake
    files = lake.files("decisions")
    total = sum(file.rows for file in files)
    policies = _Policies(workspace)
    found = Audit()
    for file in files:
        frame = lake.read("decisions", [file]).collect()
        fixed = pl.col("mode").is_in(FIXED).fill_null(value=False)
        found += Audit(decisions=(left_out := frame.select(fixed.sum()).item()), fixed=left_out)
        for (version, floor), rows in frame.filter(~fixed).group_by("policy", "floor", maintain_order=True):
            found += _checked(policies, int(version), floor, rows)
        if on_progress is not None:
            on_progress(found.decisions, total)
    return found


class _Policies:
    """Policies by version, each loaded once; None for those that cannot be."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._loaded: dict[int, Policy | None] = {}

    def __getitem__(self, version: int) -> Policy | None:
        if version not in self._loaded:
            self._loaded[version] = self._load(version)
        return self._loaded[version]

    def _load(self, version: int) -> Policy | None:
        try:
            return self._workspace.registry.policy(version)
        except (UnknownVersion, CorruptVersion):
            return None


def _checked(policies: _Policies, version: int, floor: float | None, rows: pl.DataFrame) -> Audit:
    policy = policies[version]
    if policy is None:
        return Audit(decisions=len(rows), missing={version: len(rows)})
    fit = rows.filter(_fits(policy.problem, rows))
    if not len(fit):
        return Audit(decisions=len(rows), unfit=len(rows))
    compared = _compared(policy, floor, fit)
    return msgspec.structs.replace(compared, decisions=len(rows), unfit=len(rows) - len(fit))


def _fits(problem: Problem, rows: pl.DataFrame) -> pl.Expr:
    """Known action, and no feature missing that must not be."""
    fits = pl.col("action").is_in(problem.actions.names)
    for feature in problem.context:
        column = context_column(feature.name)
        if feature.missing == "error":
            fits &= pl.col(column).is_not_null() if column in rows.columns else pl.lit(False)
    return fits


def _compared(policy: Policy, floor: float | None, rows: pl.DataFrame) -> Audit:
    names = policy.problem.actions.names
    logged = rows["action"].replace_strict(names, range(len(names)), return_dtype=pl.Int64).to_numpy()
    encoded = encoded_contexts(rows, policy.problem)
    p = policy.probabilities_many(encoded, eligible=eligible_mask(rows, names), floor=floor).astype(np.float64)
    computed, stated = p[np.arange(len(rows)), logged], rows["propensity"].to_numpy()
    drawn, possible = _drawn(policy, rows["id"].to_list(), p, logged)
    possible |= rows["mode"].is_not_null().to_numpy()  # an apprentice's choice is its own
    apart = np.abs(stated - computed)
    wrong = ~(apart <= TOLERANCE)
    mismatches = _examples(policy, rows, wrong, "propensity", stated, computed)
    mismatches += _examples(policy, rows, ~possible, "action", np.array(names)[logged], np.array(names)[drawn])
    return Audit(
        checked=len(rows),
        propensities=int(wrong.sum()),
        actions=int((~possible).sum()),
        largest=float(apart.max(initial=0)),
        mismatches=mismatches[:EXAMPLES],
    )


def _drawn(
    policy: Policy, ids: list[str], p: NDArray[np.float64], logged: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The action that each id draws, and whether the logged one is it, but for rounding."""
    upper = p.cumsum(axis=1)
    place = uniforms(ids, bytes.fromhex(policy.metadata.salt)) * upper[:, -1]
    row = np.arange(len(p))
    below = upper[row, logged] - p[row, logged] - TOLERANCE <= place
    return (place[:, None] >= upper).sum(axis=1), below & (place <= upper[row, logged] + TOLERANCE)


def _examples(
    policy: Policy, rows: pl.DataFrame, wrong: NDArray[np.bool_], what: str, logged: Any, computed: Any
) -> list[Mismatch]:
    first = np.flatnonzero(wrong)[:EXAMPLES]
    values = zip(rows["id"].gather(first).to_list(), logged[first].tolist(), computed[first].tolist(), strict=True)
    return [Mismatch(id=id, policy=policy.version, what=what, logged=was, computed=now) for id, was, now in values]  # noqa: A001
