"""The contract of an action space: what an action is, how it is stored, and what a network's outputs become.

A space is a frozen tagged Struct, so that it travels in a problem and in a policy file. Values are what callers,
requests and logs hold ("480p", 12.5); actions are the same as arrays, rows first, which everything numeric works on.
`check_space` tests a space, your own included, against this page.

Beside the space, and loaded only where policies are learnt or evaluated, `register` names up to three modules:
``learn`` (`Learning`), ``ope`` (`OffPolicy`) and ``lake`` (`LakeColumns`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Bool = NDArray[np.bool_]
#: Actions, rows first: positions int32[N], numbers float32[N, k], or lists int32[N, L].
Actions = NDArray[Any]
#: What each of N rows allows, rows first; a space's own business. None where every row allows everything.
Allowed = Any
#: Types of a column in requests and in the lake; a plural is a list.
ColumnType = Literal["string", "strings", "integer", "integers", "number", "numbers"]


class WireTypes(NamedTuple):
    """Types as msgspec validates them.

    Attributes:
        action: An action in a request, a reply and a log.
        eligible: A restriction in a request and a log.
    """

    action: Any
    eligible: Any


class Restriction(Protocol):
    """What one decision may choose from."""

    @property
    def value(self) -> Any:
        """The canonical form that is logged."""

    @property
    def allowed(self) -> Allowed:
        """The same for one row."""

    def permits(self, action: Any) -> bool:
        """Whether a parsed action may be chosen."""

    def first(self) -> Any:
        """The action to fall back on where the usual one is not permitted."""


class Distribution(Protocol):
    """Distributions over actions, one for each of N rows."""

    def draw(self, u: Float64) -> Actions:
        """The action of each row for its uniform numbers float64[N, draws]."""

    def propensity(self, actions: Actions) -> Float64:
        """The exact probability, or density, of one action per row, float[N]."""

    def drawn(self, u: Float64, actions: Actions, tolerance: float) -> Bool:
        """Whether `u` draws these actions, where propensities may be off by `tolerance`, bool[N]."""

    def nodes(self) -> Iterator[tuple[Actions, Float64]]:
        """Actions and weights such that Σ weight · f(action) is the expectation of f; exact for a counting measure."""


class Head(Protocol):
    """From the outputs of a network to a distribution; bound once, when a policy is built."""

    @property
    def outputs(self) -> int:
        """Outputs of the network."""

    @property
    def draws(self) -> int:
        """Uniform numbers per decision. The first is the hash of the id; the j-th that of the id and j."""

    @property
    def kernel(self) -> str:
        """The native kernel that computes this head; empty if NumPy does."""

    def check_floor(self, floor: object) -> None:
        """Refuse a floor that is not a number, or that no distribution can keep."""

    def distribution(self, outputs: Float32, allowed: Allowed | None, floor: float) -> Distribution:
        """Distributions for outputs float32[N, outputs]; zeros give the uniform one."""


@runtime_checkable
class ActionSpace(Protocol):
    """What can be chosen."""

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

    def features(self, actions: Actions) -> Float32:
        """What reward models that share strength between actions regress on, float32[N, e]."""

    def restrict(self, eligible: object) -> Restriction:
        """What one decision may choose from; `InvalidAction` if that is nothing, or not of this space."""

    def allow(self, eligible: Sequence[Any | None]) -> Allowed | None:
        """What each of several decisions may choose from; None for those, or for all, that may choose anything."""

    def head(self) -> Head:
        """How the outputs of a network become a distribution."""


@runtime_checkable
class FiniteSpace(ActionSpace, Protocol):
    """A space whose actions can be listed: as arrays they are positions in that list, int32[N].

    `Allowed` is bool[N, K], and distributions are `FiniteDistribution`.
    """

    def __len__(self) -> int:
        """How many actions there are."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The actions as people read them, in order."""


class Divergences(NamedTuple):
    """How far students are from their teacher, by row.

    Attributes:
        kl: KL(teacher ‖ student) in nats, float64[N].
        tv: Total variation, float64[N].
        smallest: The smallest propensity that a student gives to any allowed action.
    """

    kl: Float64
    tv: Float64
    smallest: float


class Learning(Protocol):
    """How a student imitates a teacher on this space (module ``learn``). Hashable: compiled programs depend on it."""

    @property
    def outputs(self) -> int:
        """Outputs of the student's network."""

    def label(self, teacher: Any, state: Any, contexts: Float32, key: Any) -> Float32:
        """What the teacher would do in each context, float32[N, L]; equal contexts may be labelled once."""

    def check(self, labels: Float32) -> tuple[Bool, str]:
        """Which rows are no labels, bool[N], and what they must be."""

    def loss(self, outputs: Any, labels: Any) -> Any:
        """The loss of each row, [N], in JAX, least where the student chooses as its teacher does."""

    def start(self, labels: Float32) -> Float32:
        """Outputs of a student that gives every context the mean label, float32[outputs]."""

    def divergence(self, outputs: Float32, labels: Float32) -> Float64:
        """KL(teacher ‖ student) of each row in nats, float64[N], in NumPy."""

    def divergences(self, labels: Float32, distribution: Any) -> Divergences:
        """How far a student's distributions are from the labels."""


class LoggedRows(Protocol):
    """Consecutive rows of a log, as reward models learn from them."""

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
    """A reward model on N rows."""

    def at(self, actions: Actions) -> Float64:
        """The predicted reward of one action per row, float64[N]."""

    def expected(self, distribution: Distribution) -> Float64:
        """The predicted reward under a distribution, float64[N]."""


class LoggedSupport(Protocol):
    """Which actions a log holds."""

    def add(self, actions: Actions) -> None:
        """Record logged actions."""

    def missing(self, distribution: Distribution, rows: int) -> Float64:
        """The probability of actions that were never logged, float64[N]; zeros where that cannot be said."""


class OffPolicy(Protocol):
    """What off-policy evaluation needs to know of a space (module ``ope``)."""

    def columns(self, width: int) -> int:
        """Numbers per row in the widest array that an evaluation holds, for contexts of a width."""

    def permits(self, actions: Actions, allowed: Allowed) -> Bool:
        """Which rows allowed their action, bool[N]; `InvalidLog` if `allowed` is not of this space."""

    def unrestricted(self, rows: int) -> Allowed:
        """What rows that allow everything allow, so that they can be joined with restricted ones."""

    def uniform(self, rows: int, allowed: Allowed | None) -> Distribution:
        """The uniform distribution over what each row allows."""

    def distribution(
        self, answer: Any, rows: int, allowed: Allowed | None, *, name: str, first_row: int
    ) -> Distribution:
        """A target's answer for some rows as distributions over what they allow.

        Every space takes distributions, and actions: one per row as an array, or as a list of values. Where a row
        does not allow the action, the distribution is uniform. `InvalidTarget` names the target and the row.
        """

    def matched(self, distribution: Distribution, u: Float64, actions: Actions) -> Bool:
        """Whether uniform numbers float64[N, draws] draw the logged actions; never for densities."""

    def is_uniform(self, actions: Actions, propensities: Float64, allowed: Allowed | None) -> bool:
        """Whether all rows were drawn uniformly from what they allowed."""

    def support(self) -> LoggedSupport:
        """Recorder of logged actions."""

    def fit(self, rows: Iterable[tuple[int, LoggedRows]], penalties: Sequence[float], prior: float) -> Any:
        """The space's own reward model, cross-fitted; rows come in blocks, each with the number of its first row."""

    def predictions(
        self, model: Any, contexts: Float32, first_row: int, bounds: tuple[float, float]
    ) -> RewardPredictions:
        """A fitted model on some rows, clipped to the bounds of the reward; `InvalidModel` names the row."""


class LakeColumns(Protocol):
    """Columns of the lake's tables as actions, and back (module ``lake``). Series and expressions are Polars'."""

    def fits(self, column: Any = None) -> Any:
        """An expression: whether a column holds actions of the space, null if it is null; ``action`` if left out."""

    def actions(self, column: Any) -> Actions:
        """A column ``action`` whose rows fit, as actions."""

    def allowed(self, column: Any) -> Allowed | None:
        """A column ``eligible`` as what each row allowed; null is everything."""
