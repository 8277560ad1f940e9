"""The log of a workspace: observations of its lake with exact propensities, in order of time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.errors import InvalidLog
from potstill.evaluate.log import Block
from potstill.policy import Policy
from potstill.problem import Problem
from potstill.registry import CorruptVersion, UnknownVersion
from potstill.spaces import Actions, Allowed, FiniteDistribution, NamedActions, lake_columns
from potstill.tables import context_column, decision_fits, encode_contexts, moment, reward_fits
from potstill.workspace import Workspace

#: Sources of observations with exact propensities: the log, and imports that state them. In mode apprentice the
#: caller decides: such a row has one if the caller stated its own.
EXACT = ("log", "import")
_STATED = (pl.col("source") == "apprentice") & pl.col("own_propensity").is_not_null()
_IS_EXACT = pl.col("source").is_in(EXACT) | _STATED.fill_null(value=False)
#: Approximate number of rows in memory at a time.
ROWS = 200_000
_WHY = "why"
#: Relative precision of propensities in the lake.
_FLOAT32 = 1e-6

#: Called with the rows read so far and the total; a log is read several times.
Progress = Callable[[int, int], None]


class LakeLog:
    """Observations of a workspace as a log to evaluate policies on. Rows added later are not read.

    Args:
        workspace: The workspace.
        after: Cuts up to this one are excluded.
        to: Last cut to include; the newest if left out.
        since: First moment to include; microseconds since 1970.
        until: First moment to exclude; microseconds since 1970.
        by: Features whose raw values the blocks carry, for segments.
        on_progress: Called with the rows read so far and the total.
    """

    def __init__(
        self,
        workspace: Workspace,
        after: int = 0,
        to: int | None = None,
        *,
        since: int | None = None,
        until: int | None = None,
        by: Sequence[str] = (),
        on_progress: Progress | None = None,
    ) -> None:
        self.problem: Problem = workspace.problem
        self._lake, self._registry = workspace.lake, workspace.registry
        self._by, self._on_progress = tuple(by), on_progress
        self._files = self._lake.files("observations")
        self._versions: dict[Any, Policy | None] = {}
        self._retired_by: dict[Any, tuple[str, ...]] = {}
        self._within = _within(after, to, since, until)
        _check_features(self.problem, self._by)

    def __len__(self) -> int:
        return len(self.times)

    @property
    def span(self) -> tuple[int, int] | None:
        """Times of the first and the last row; microseconds since 1970."""
        return (int(self.times[0]), int(self.times[-1])) if len(self) else None

    @cached_property
    def left_out(self) -> Mapping[str, int]:
        """Number of unused rows by reason: a source, or ``"unfit"``; see `left_out.WHY`."""
        counted = self._selection.drop_nulls(_WHY).group_by(_WHY).len().sort("len", _WHY, descending=[True, False])
        return dict(counted.rows())

    def count_up_to(self, cut: int) -> int:
        """Number of rows of this cut and earlier ones, from which a policy made then has learnt."""
        used = self._selection.filter(pl.col(_WHY).is_null(), pl.col("cut") <= cut)
        return len(used)

    def training_rows(self, policy: Policy) -> int | None:
        """Number of rows that a policy was trained on; None if this workspace has not published it."""
        try:
            published = self._registry.policy(policy.version)
        except UnknownVersion:
            return None
        cut = (published.metadata.lineage.origin or {}).get("cut")
        same = published.metadata.sha256 == policy.metadata.sha256
        return self.count_up_to(cut) if same and cut is not None else None

    def blocks(self) -> Iterator[Block]:
        """Rows by time and id, in blocks; rows of one time stay together."""
        times, done = self.times, 0
        while done < len(times):
            first = int(times[done])
            last = int(times[min(done + ROWS, len(times)) - 1])
            frame = self._rows(first, last).sort("time", "id")
            done += len(frame)
            yield self._block(frame)
            if self._on_progress is not None:
                self._on_progress(done, len(times))

    def recent_contexts(self, at_most: int) -> NDArray[np.float32]:
        """Encoded contexts of the last decisions, float32[N, d]."""
        times = self.times[-at_most:]
        if not len(times):
            return np.zeros((0, self.problem.width), np.float32)
        frame = self._rows(int(times[0]), int(times[-1])).sort("time", "id").tail(at_most)
        return encode_contexts(frame, self.problem)

    @cached_property
    def _selection(self) -> pl.DataFrame:
        """Time of each row in the range, and why it is left out, if it is."""
        fits = decision_fits(self.problem) & reward_fits(self.problem)
        why = pl.when(~_IS_EXACT).then("source").when(~fits).then(pl.lit("unfit")).alias(_WHY)
        rows = self._lake.read("observations", self._files).filter(*self._within)
        return rows.select(pl.col("time").dt.epoch("us"), "cut", why).collect(engine="streaming")

    @cached_property
    def times(self) -> NDArray[np.int64]:
        """Sorted times of the used rows."""
        used = self._selection.filter(pl.col(_WHY).is_null())["time"].sort()
        return used.to_numpy()

    def _rows(self, first: int, last: int) -> pl.DataFrame:
        near = [file for file in self._files if file.first <= last and file.last >= first]
        rows = self._lake.read("observations", near).filter(
            pl.col("time").is_between(moment(first), moment(last)),
            *self._within,
            _IS_EXACT,
            decision_fits(self.problem),
            reward_fits(self.problem),
        )
        return rows.collect(engine="streaming")

    def _block(self, frame: pl.DataFrame) -> Block:
        columns = lake_columns(self.problem.actions)
        contexts = encode_contexts(frame, self.problem)
        return Block(
            contexts=contexts,
            actions=columns.actions(frame["action"]),
            rewards=frame["reward"].to_numpy(),
            propensities=self._propensities(frame, contexts),
            eligible=self._eligible(frame, columns.actions(frame["action"])),
            times=frame["time"].dt.epoch("us").to_numpy(),
            groups={name: raw_values(frame[context_column(name)]) for name in self._by},
        )

    def _eligible(self, frame: pl.DataFrame, actions: Actions) -> Allowed | None:
        """What each decision chose from: what its request allowed, without actions that its version had retired."""
        allowed = lake_columns(self.problem.actions).allowed(frame["eligible"])
        if not isinstance(self.problem.actions, NamedActions):
            return allowed
        for (version,), rows in frame.with_row_index("row").group_by("policy"):
            retired = self._retired(version)
            if retired:
                allowed = _without(retired, allowed, self.problem.actions, rows["row"].to_numpy(), actions)
        return allowed

    def _retired(self, version: Any) -> tuple[str, ...]:
        """The actions that a version has retired; none if it cannot be read."""
        if version not in self._retired_by:
            policy = self._policy(version)
            self._retired_by[version] = tuple(getattr(policy.problem.actions, "retired", ())) if policy else ()
        return self._retired_by[version]

    def _policy(self, version: Any) -> Policy | None:
        try:
            return self._registry.policy(int(version))
        except (UnknownVersion, CorruptVersion, TypeError):
            return None

    def _propensities(self, frame: pl.DataFrame, contexts: NDArray[np.float32]) -> NDArray[np.float64]:
        """Propensities given that the action is one of the problem's.

        Rows of actions that were removed are left out, so that the others are as probable as their share of what is
        left. Otherwise inverse-propensity weights would add up to too much.
        """
        known = pl.when(_STATED).then("own_propensity").otherwise("propensity")
        propensities = frame.select(known).to_series().to_numpy().astype(np.float64)
        for (version, source), rows in frame.with_row_index("row").group_by("policy", "source"):
            policy = self._wider(version) if source == "log" else None
            if policy is not None:
                at = rows["row"].to_numpy()
                share = _share_left(policy, self.problem, rows, contexts[at])
                # Logged and computed propensities differ by rounding, so that the quotient can exceed 1 by it.
                propensities[at] = np.minimum(propensities[at] / share, 1.0)
        return propensities

    def _wider(self, version: Any) -> Policy | None:
        """A version with the features of the problem and actions that the problem no longer has; None for others."""
        if version not in self._versions:
            policy = self._policy(version)
            same = policy is not None and policy.problem.context == self.problem.context
            self._versions[version] = policy if policy and same and _removed(policy, self.problem) else None
        return self._versions[version]


def _without(
    retired: tuple[str, ...], allowed: Allowed | None, space: NamedActions, rows: NDArray[Any], actions: Actions
) -> Allowed:
    """Allowed actions bool[N, K] without retired ones in some rows, unless nothing is left or one was taken."""
    found = np.ones((len(actions), len(space)), bool) if allowed is None else np.array(allowed)
    left = found[rows] & np.array([name not in retired for name in space.names])
    taken = left[np.arange(len(rows)), actions[rows]]  # a fixed action, such as a fallback, may be a retired one
    found[rows] = np.where(taken[:, None], left, found[rows])
    return found


def _removed(policy: Policy, problem: Problem) -> list[int]:
    """Positions of the policy's actions that the problem does not have."""
    before, after = policy.problem.actions, problem.actions
    if not isinstance(before, NamedActions) or not isinstance(after, NamedActions):
        return []
    kept = set(after.names)
    return [position for position, name in enumerate(before.names) if name not in kept]


def _share_left(
    policy: Policy, problem: Problem, rows: pl.DataFrame, contexts: NDArray[np.float32]
) -> NDArray[np.float64]:
    """The probability with which a policy chose any action that the problem still has; 1 where it did not choose."""
    columns = lake_columns(policy.problem.actions)
    allowed = columns.allowed(rows["eligible"])
    distribution = policy.distribution(contexts, eligible=allowed)
    assert isinstance(distribution, FiniteDistribution)
    left = 1 - distribution.p[:, _removed(policy, problem)].sum(axis=1, dtype=np.float64)
    # A fallback, the control arm and an initial design state propensities of their own, which need no correction.
    computed = distribution.propensity(columns.actions(rows["action"]))
    tolerance = policy.agreement(contexts, eligible=allowed) + _FLOAT32
    drawn = np.abs(rows["propensity"].to_numpy() - computed) <= tolerance * computed
    return np.where(drawn & (left > 0), left, 1.0)


def raw_values(column: pl.Series) -> NDArray[Any]:
    """Values of a column for segments: numbers as float64 with NaN for null, others as objects with None."""
    if column.dtype.is_numeric():
        return column.cast(pl.Float64).fill_null(float("nan")).to_numpy()
    if column.dtype in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    # Equal values share one object: eight bytes per row, however long the values are.
    found = column.drop_nulls().unique()
    values = np.array([*found.to_list(), None], dtype=object)
    shared: NDArray[Any] = values[column.replace_strict(found, range(len(found)), default=len(found)).to_numpy()]
    return shared


def _within(after: int, to: int | None, since: int | None, until: int | None) -> list[pl.Expr]:
    cut, time = pl.col("cut"), pl.col("time")
    conditions = [cut > after]
    conditions += [cut <= to] if to is not None else []
    conditions += [time >= moment(since)] if since is not None else []
    conditions += [time < moment(until)] if until is not None else []
    return conditions


def _check_features(problem: Problem, names: Sequence[str]) -> None:
    known = [feature.name for feature in problem.context]
    for name in names:
        if name not in known:
            raise InvalidLog(f"there is no feature {name!r} to segment by; the features are {', '.join(known)}")
    for feature in problem.context:
        if feature.name in names and feature.holds == "numbers":
            raise InvalidLog(f"feature {feature.name!r} is a list of numbers, which has no segments; name another one")
