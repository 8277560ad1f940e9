"""Which features matter to the policy and to the reward, and which ones are likely broken."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.keys import Key
from potstill.pipeline.recent_rows import latest_rows
from potstill.policy import Policy
from potstill.problem import Feature, Problem
from potstill.spaces import FiniteSpace, lake_columns
from potstill.summaries import Estimate, FeatureReport, FeatureRow, Sums, mean_of
from potstill.summaries.build import value_of
from potstill.tables import context_column, decision_fits, encode_contexts, reward_fits
from potstill.workspace import Workspace

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
#: Observations that are looked at, the latest; and rows whose distributions are compared.
ROWS, COMPARED = 20_000, 2_000
#: Rows that the worth of a feature is estimated on, and values of the feature that a policy without it averages over.
WORTH_ROWS, SHUFFLES = 5_000, 4
#: Sources of observations with the propensity of the policy that decided.
EXACT = ("log", "import")
#: Rows without which nothing is said.
FEWEST = 100
#: Columns of the reward model above which actions share the coefficients of the context.
MOST_COLUMNS = 1_500
#: Ridge penalty, per row.
PENALTY = 1e-3
#: When a feature is suspicious: share of missing values, share of distinct strings, share of unseen values, and the
#: population stability index that is usually called a shift.
MISSING, UNIQUE, UNSEEN, DRIFT = 0.5, 0.5, 0.02, 0.25
#: Rows that the index needs.
DRIFT_ROWS = 400
_BINS = 10


def read_features(workspace: Workspace, policy: Policy, now: int) -> FeatureReport:
    """The report over the latest observations.

    Args:
        workspace: The workspace.
        policy: The policy; its problem must be that of the workspace.
        now: Microseconds since 1970, UTC.
    """
    problem = workspace.problem
    fits = (decision_fits(problem), reward_fits(problem))
    frame = value_of(latest_rows(workspace.lake, "observations", ROWS, *fits).lazy(), problem).collect()
    if len(frame) < FEWEST:
        return FeatureReport(made=now, version=policy.version, rows=len(frame))
    encoded = encode_contexts(frame, problem)
    moved = dict(_moved(policy, encoded))
    model = _RewardModel(problem, frame, encoded)
    worth = _Worth(policy, frame, encoded, model)
    rows = []
    for feature, columns in _places(problem):
        gain, error = model.loss_without(columns)
        row = _described(feature, frame[context_column(feature.name)])
        rows.append(
            msgspec.structs.replace(
                row,
                policy=moved[feature.name],
                reward=gain,
                reward_error=error,
                worth=worth.of(columns),
                warnings=_warnings(feature, row, len(frame)),
            )
        )
    rows.sort(key=lambda one: -(one.policy or 0.0))
    return FeatureReport(made=now, version=policy.version, rows=len(frame), explained=model.explained, features=rows)


def _places(problem: Problem) -> Iterator[tuple[Feature, slice]]:
    """Each feature with its encoded columns."""
    at = 0
    for feature in problem.context:
        width = len(feature.labels)
        yield feature, slice(at, at + width)
        at += width


def _moved(policy: Policy, encoded: Float32) -> Iterator[tuple[str, float]]:
    """Mean total variation between the policy's distributions before and after each feature is shuffled."""
    rows = encoded[-COMPARED:]
    before = _distribution(policy, rows)
    order = Key(0).child("features").generator().permutation(len(rows))
    for feature, columns in _places(policy.problem):
        shuffled = rows.copy()
        shuffled[:, columns] = rows[order][:, columns]
        yield feature.name, float(np.abs(_distribution(policy, shuffled) - before).sum(axis=1).mean() / 2)


def _distribution(policy: Policy, rows: Float32) -> Float64:
    """Probabilities of the actions, or of the bins of a number, float64[N, K]."""
    return np.stack([weight for _, weight in policy.distribution(rows).nodes()], axis=1)


class _RewardModel:
    """A ridge regression of the value on context and action, trained on half of the rows and tested on the other.

    Attributes:
        explained: Share of the variance that it predicts on the held-out half; None if nothing varies.
    """

    def __init__(self, problem: Problem, frame: pl.DataFrame, encoded: Float32) -> None:
        self._context = encoded.astype(np.float64)
        self._actions = _action_features(problem, frame)
        value = frame["value"].to_numpy()
        self._train = Key(0).child("halves").generator().random(len(value)) < 0.5
        #: Rows that it was not trained on.
        self.held_out: NDArray[np.bool_] = ~self._train
        self._interact = self._context.shape[1] * self._actions.shape[1] <= MOST_COLUMNS
        self._shift = float(value[self._train].mean())
        self._weights = _ridge(
            self._columns(self._context, self._actions)[self._train], value[self._train] - self._shift
        )
        self._held = value[~self._train] - self._shift
        self._variance = float(self._held.var())
        self._errors = self._squared_errors(self._context)
        self.explained = None if self._variance == 0 else float(1 - self._errors.mean() / self._variance)

    def loss_without(self, columns: slice) -> tuple[float | None, float | None]:
        """Share of the variance that is lost if some columns are shuffled, and its standard error."""
        if self._variance == 0:
            return None, None
        shuffled = self._context.copy()
        order = Key(1).child("rows").generator().permutation(len(shuffled))
        shuffled[:, columns] = self._context[order][:, columns]
        lost = (self._squared_errors(shuffled) - self._errors) / self._variance
        return float(lost.mean()), float(lost.std() / np.sqrt(len(lost)))

    def predictions(self, rows: NDArray[np.int64]) -> Float64:
        """Predicted rewards of every action in the contexts of some rows, float64[N, K], for a list of actions."""
        context, count = self._context[rows], self._actions.shape[1]
        each = [np.tile(action, (len(rows), 1)) for action in np.eye(count)]
        return np.stack([self._columns(context, taken) @ self._weights for taken in each], axis=1) + self._shift

    def _squared_errors(self, context: Float64) -> Float64:
        errors: Float64 = (self._columns(context, self._actions)[~self._train] @ self._weights - self._held) ** 2
        return errors

    def _columns(self, context: Float64, actions: Float64) -> Float64:
        parts = [np.ones((len(context), 1)), actions, context]
        if self._interact:
            parts.append((context[:, :, None] * actions[:, None, :]).reshape(len(context), -1))
        return np.concatenate(parts, axis=1)


class _Worth:
    """What knowing a feature is worth to a policy: its value less that of itself without the feature, doubly robust.

    Without a feature, the policy is averaged over values of the feature from other rows. Rows are the latest with exact
    propensities that the reward model has not learnt from.
    """

    def __init__(self, policy: Policy, frame: pl.DataFrame, encoded: Float32, model: _RewardModel) -> None:
        self._policy = policy
        self._rows = np.flatnonzero(model.held_out & frame["source"].is_in(EXACT).to_numpy())[-WORTH_ROWS:]
        if not isinstance(policy.problem.actions, FiniteSpace) or len(self._rows) < FEWEST:
            self._rows = self._rows[:0]
            return
        part, columns = frame[self._rows], lake_columns(policy.problem.actions)
        self._contexts, self._allowed = encoded[self._rows], columns.allowed(part["eligible"])
        self._taken, self._predicted = columns.actions(part["action"]), model.predictions(self._rows)
        unexplained = part["value"].to_numpy() - _of(self._predicted, self._taken)
        self._correction = unexplained / part["propensity"].to_numpy().astype(np.float64)
        self._p = self._probabilities(self._contexts)

    def of(self, columns: slice) -> Estimate | None:
        """Reward per decision that is lost without the feature of some columns, with its interval; None if unknown."""
        if not len(self._rows):
            return None
        less = self._p - np.mean([self._probabilities(self._shuffled(columns, at)) for at in range(SHUFFLES)], axis=0)
        # Doubly robust: what the model expects of the difference, and what the log adds where the model is wrong.
        each = (less * self._predicted).sum(axis=1) + _of(less, self._taken) * self._correction
        return mean_of(Sums(len(each), float(each.sum()), float(np.square(each).sum())))

    def _shuffled(self, columns: slice, at: int) -> Float32:
        order = Key(2).child("shuffle", at).generator().permutation(len(self._contexts))
        shuffled = self._contexts.copy()
        shuffled[:, columns] = self._contexts[order][:, columns]
        return shuffled

    def _probabilities(self, contexts: Float32) -> Float64:
        return np.asarray(self._policy.probabilities_many(contexts, eligible=self._allowed), np.float64)


def _of(columns: Float64, taken: NDArray[np.int32]) -> Float64:
    """The value of the action that was taken, by row."""
    return columns[np.arange(len(taken)), taken]


def _action_features(problem: Problem, frame: pl.DataFrame) -> Float64:
    space = problem.actions
    actions = lake_columns(space).actions(frame["action"])
    return space.embed(actions).astype(np.float64)


def _ridge(columns: Float64, value: Float64) -> Float64:
    gram = columns.T @ columns
    gram[np.diag_indices_from(gram)] += PENALTY * len(columns) + 1e-9
    return np.asarray(np.linalg.solve(gram, columns.T @ value), np.float64)


def _described(feature: Feature, column: pl.Series) -> FeatureRow:
    """What the values of a feature look like."""
    known = column.drop_nulls()
    common = 0.0
    if len(known):
        counts = known.value_counts()["count"]
        common = float(counts.max()) / len(column)  # type: ignore[arg-type]
    return FeatureRow(
        name=feature.name,
        kind=str(type(feature).__struct_config__.tag),
        missing=column.null_count() / len(column),
        distinct=known.n_unique(),
        common=common,
        unseen=_unseen(feature, known) / len(column),
        drift=_drift(feature, column),
    )


def _unseen(feature: Feature, known: pl.Series) -> int:
    """Number of values that the feature does not list, or that are outside its range."""
    kernel = feature.kernel
    if kernel.kind == "categorical":
        return int((~known.is_in(list(kernel.categories))).sum())
    if kernel.kind == "numeric" and kernel.high > kernel.low:
        values = known.cast(pl.Float64)
        return int(((values < kernel.low) | (values > kernel.high)).sum())
    return 0


def _drift(feature: Feature, column: pl.Series) -> float | None:
    """Population stability index between the older and the newer half of the rows, less what chance alone gives."""
    if feature.holds == "numbers" or len(column) < DRIFT_ROWS:
        return None
    middle = len(column) // 2
    labels = _binned(column, middle) if feature.holds == "number" else column.cast(pl.String).fill_null("\0missing")
    older, newer = (_counts(part) for part in (labels[:middle], labels[middle:]))
    names = [*{**older, **newer}]
    if len(names) > len(column) // 20:  # nearly unique strings: shares of each say nothing
        return None
    # Half a count more in each bin, so that a bin that is empty by chance does not count as a shift.
    shares = [np.array([part.get(name, 0) + 0.5 for name in names]) for part in (older, newer)]
    p, q = (part / part.sum() for part in shares)
    chance = (len(names) - 1) * (1 / middle + 1 / (len(column) - middle))
    return max(float(((q - p) * np.log(q / p)).sum()) - chance, 0.0)


def _binned(column: pl.Series, middle: int) -> pl.Series:
    """Bin of each number, by the deciles of the older half."""
    values = column.cast(pl.Float64)
    known = values[:middle].drop_nulls().to_numpy()
    edges = np.unique(np.quantile(known, np.linspace(0, 1, _BINS + 1)[1:-1])) if len(known) else np.zeros(0)
    places = np.searchsorted(edges, values.fill_null(0.0).to_numpy(), side="right").astype(np.int64)
    places[values.is_null().to_numpy()] = -1
    return pl.Series(places)


def _counts(part: pl.Series) -> dict[object, int]:
    found = part.value_counts()
    return dict(zip(found[found.columns[0]].to_list(), found["count"].to_list(), strict=True))


def _warnings(feature: Feature, row: FeatureRow, rows: int) -> list[str]:
    """What is likely wrong with a feature, in words."""
    text, known = feature.holds == "string", rows * (1 - row.missing)
    unseen = "values that the problem does not list" if text else "numbers outside of low and high"
    rules = (
        (row.missing == 1, "always missing"),
        (row.distinct == 1 and rows >= FEWEST, "constant: it has one value"),
        (MISSING < row.missing < 1, f"missing in {row.missing:.0%} of the rows"),
        (text and row.distinct > UNIQUE * known > 0, "nearly unique: nothing can be learnt from an identifier"),
        (row.unseen > UNSEEN, f"{row.unseen:.0%} of the rows have {unseen}"),
        (
            row.drift is not None and row.drift > DRIFT,
            f"drifting over time: stability index {row.drift or 0:.2f}",
        ),
    )
    return [words for applies, words in rules if applies]
