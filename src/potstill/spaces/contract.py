"""The contract of an action space: what an action is, how it is stored, and how network outputs become a distribution.

A space is a frozen tagged Struct, stored in problems and policy files. Values are what callers, requests and logs use
("480p", 12.5). Actions are encoded values: arrays, rows first, for all numeric code. `check_space` tests a space,
including your own, against this contract.

`register` names a space and up to three modules, loaded only where policies are learnt or evaluated: ``learn``
(`Learning`), ``ope`` (`OffPolicy`) and ``lake`` (`LakeColumns`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Bool = NDArray[np.bool_]
#: Actions, rows first: positions int32[N], numbers float64[N], or lists int32[N, L].
Actions = NDArray[Any]
#: Allowed actions of each of N rows, rows first, in a form private to the space. None if every row allows everything.
Allowed = Any
#: Types of a column in requests and in the lake; plurals are lists.
ColumnType = Literal["string", "strings", "integer", "integers", "number", "numbers"]


class WireTypes(NamedTuple):
    """Types that msgspec validates.

    Attributes:
        action: Type of an action in requests, replies and logs.
        eligible: Type of a restriction in requests and logs.
    """

    action: Any
    eligible: Any


class Restriction(Protocol):
    """The allowed actions of one decision."""

    @property
    def value(self) -> Any:
        """Canonical form, as logged."""

    @property
    def allowed(self) -> Allowed:
        """The restriction as `Allowed` of one row."""

    def permits(self, action: Any) -> bool:
        """Whether a parsed action may be chosen."""

    def first(self) -> Any:
        """Fallback action if the default one is not permitted."""


class Distribution(Protocol):
    """Distributions over actions, one for each of N rows."""

    def draw(self, u: Float64) -> Actions:
        """The action of each row for its uniform numbers float64[N, draws]."""

    def propensity(self, actions: Actions) -> Float64:
        """The exact probability, or density, of one action per row, float[N]."""

    def drawn(self, u: Float64, actions: Actions, tolerance: float | Float64) -> Bool:
        """Whether `u` draws these actions, bool[N], up to an error of `tolerance` (of each row) in the propensities."""

    def nodes(self) -> Iterator[tuple[Actions, Float64]]:
        """Actions and weights such that Σ weight · f(action) is the expectation of f; exact for a counting measure."""


class Head(Protocol):
    """Maps network outputs to a distribution; bound once, when a policy is built."""

    @property
    def outputs(self) -> int:
        """Number of network outputs."""

    @property
    def draws(self) -> int:
        """Number of uniform draws per decision. The first hashes the id; the j-th hashes the id and j."""

    @property
    def kernel(self) -> str:
        """Name of the native kernel for this head; empty if it runs in NumPy."""

    def check_floor(self, floor: object) -> None:
        """Reject a floor that is not a number, or that no distribution can satisfy."""

    def distribution(self, outputs: Float64, allowed: Allowed | None, floor: float) -> Distribution:
        """Distributions for outputs float64[N, outputs]; zeros give the uniform one."""


@runtime_checkable
class ActionSpace(Protocol):
    """The set of actions that a decision chooses from."""

    @property
    def measure(self) -> Literal["counting", "lebesgue"]:
        """Whether a propensity is a probability or a density."""

    @property
    def wire(self) -> WireTypes:
        """Types of requests, replies and logs."""

    @property
    def columns(self) -> Mapping[str, ColumnType]:
        """Types of the lake's columns ``action`` and ``eligible``."""

    @property
    def examples(self) -> Sequence[Any]:
        """Two or more values, for documentation and checks."""

    def parse(self, value: object) -> Any:
        """One caller's value in canonical form; `InvalidAction` if there is no such action."""

    def encode(self, values: Sequence[Any]) -> Actions:
        """Values as actions; `InvalidAction` names the row."""

    def decode(self, actions: Actions) -> list[Any]:
        """Actions as values."""

    def valid(self, actions: Actions) -> Bool:
        """Which rows are actions of this space, bool[N]."""

    def embed(self, actions: Actions) -> Float32:
        """Features of actions, for reward models shared between actions, float32[N, e]."""

    def restrict(self, eligible: object) -> Restriction:
        """The restriction of one decision; `InvalidAction` if it is empty or not of this space."""

    def allow(self, eligible: Sequence[Any | None]) -> Allowed | None:
        """Allowed actions of several decisions. None, for a row or as the result, allows everything."""

    def head(self) -> Head:
        """The head that maps network outputs to distributions."""


@runtime_checkable
class FiniteSpace(ActionSpace, Protocol):
    """A space with a finite list of actions; encoded actions are positions in that list, int32[N].

    `Allowed` is bool[N, K], and distributions are `FiniteDistribution`.
    """

    def __len__(self) -> int:
        """Number of actions."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Readable names of the actions, in order."""


class Divergences(NamedTuple):
    """Distance of a student from its teacher, by row.

    Attributes:
        kl: KL(teacher ‖ student) in nats, float64[N].
        tv: Total variation distance, float64[N].
        smallest: Smallest propensity that the student gives to an allowed action; of densities, relative to the uniform
            one.
        w1: Wasserstein distance, in units of the action, float64[N]; None if the space has no distance.
    """

    kl: Float64
    tv: Float64
    smallest: float
    w1: Float64 | None = None


class Learning(Protocol):
    """Imitation of a teacher on this space (module ``learn``). Hashable, because compiled programs depend on it."""

    @property
    def outputs(self) -> int:
        """Number of outputs of the student's network."""

    def label(self, teacher: Any, state: Any, contexts: Float32, key: Any) -> Float32:
        """Labels: the teacher's behaviour in each context, float32[N, L]. Equal contexts may be labelled once."""

    def check(self, labels: Float32) -> tuple[Bool, str]:
        """Which rows are not valid labels, bool[N], and the rule that they violate."""

    def loss(self, outputs: Any, labels: Any) -> Any:
        """The loss of each row, [N], in JAX; minimal where the student matches its teacher."""

    def wasserstein(self, outputs: Any, labels: Any) -> Any:
        """The Wasserstein distance of each row, [N], in JAX, as a share of the largest distance between actions."""

    def lipschitz(self, rewards: Float64) -> Float64 | None:
        """The steepest slope of the rewards of labels' actions, float64[N], by row; None if there are no distances."""

    def start(self, labels: Float32) -> Float32:
        """Outputs of a student that predicts the mean label in every context, float32[outputs]."""

    def divergence(self, outputs: Float64, labels: Float32) -> Float64:
        """KL(teacher ‖ student) of each row in nats, float64[N], in NumPy."""

    def divergences(self, labels: Float32, distribution: Any) -> Divergences:
        """Distance of a student's distributions from the labels."""

    def labels_of(self, distribution: Any) -> Float32:
        """A student's distributions in the form of labels, float[N, L]."""


class LoggedRows(Protocol):
    """Consecutive rows of a log, for reward models to learn from."""

    @property
    def contexts(self) -> Float32:
        """Encoded contexts, float32[N, d]."""

    @property
    def actions(self) -> Actions:
        """Logged actions, rows first."""

    @property
    def rewards(self) -> Float64:
        """Rewards, float64[N]."""


class RewardPredictions(Protocol):
    """Predictions of a reward model on N rows."""

    def at(self, actions: Actions) -> Float64:
        """The predicted reward of one action per row, float64[N]."""

    def expected(self, distribution: Distribution) -> Float64:
        """The predicted reward under a distribution, float64[N]."""


class LoggedSupport(Protocol):
    """Records which actions occur in a log."""

    def add(self, actions: Actions) -> None:
        """Record logged actions."""

    def missing(self, distribution: Distribution, rows: int) -> Float64:
        """Probability of actions that were never logged, float64[N]; zeros if that is not recorded."""


class OffPolicy(Protocol):
    """Off-policy evaluation on a space (module ``ope``)."""

    def columns(self, width: int) -> int:
        """Numbers per row in the widest array of an evaluation, for contexts of the given width."""

    def permits(self, actions: Actions, allowed: Allowed) -> Bool:
        """Whether each row allowed its logged action, bool[N]; `InvalidLog` if `allowed` is not of this space."""

    def unrestricted(self, rows: int) -> Allowed:
        """`Allowed` of rows without a restriction, to be concatenated with restricted ones."""

    def uniform(self, rows: int, allowed: Allowed | None) -> Distribution:
        """The uniform distribution over the allowed actions of each row."""

    def distribution(
        self, answer: Any, rows: int, allowed: Allowed | None, *, name: str, first_row: int
    ) -> Distribution:
        """A target's answer for some rows as distributions over their allowed actions.

        Every space accepts distributions, encoded actions (one per row), and lists of values. Where a row does not
        allow the action, the distribution is uniform. `InvalidTarget` names the target and the row.
        """

    def matched(self, distribution: Distribution, u: Float64, actions: Actions) -> Bool:
        """Whether uniform draws float64[N, draws] give the logged actions; always false for densities."""

    def is_uniform(self, actions: Actions, propensities: Float64, allowed: Allowed | None) -> bool:
        """Whether all actions were drawn uniformly from the allowed ones."""

    def support(self) -> LoggedSupport:
        """A recorder of logged actions."""

    def fit(self, rows: Iterable[tuple[int, LoggedRows]], penalties: Sequence[float], prior: float) -> Any:
        """The space's default reward model, cross-fitted. Rows come in blocks with the number of their first row."""

    def predictions(
        self, model: Any, contexts: Float32, first_row: int, bounds: tuple[float, float]
    ) -> RewardPredictions:
        """A fitted model on some rows, clipped to the bounds of the reward; `InvalidModel` names the row."""


class LakeColumns(Protocol):
    """Conversion between the lake's columns and actions (module ``lake``), with Polars series and expressions."""

    def fits(self, column: Any = None) -> Any:
        """Expression for whether a column (default ``action``) holds actions of the space; null where it is null."""

    def actions(self, column: Any) -> Actions:
        """A valid column ``action`` as encoded actions."""

    def allowed(self, column: Any) -> Allowed | None:
        """A column ``eligible`` as `Allowed`; null allows everything."""
