"""The policy: loads from one file and takes decisions."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill._version import __version__
from potstill.files import SHARED, write_atomically
from potstill.policy import artifact, network
from potstill.policy.artifact import InvalidPolicy, Lineage, Metadata, format_of
from potstill.policy.contract import Mask, Row, RuntimeName
from potstill.policy.decision import Decision
from potstill.policy.draw import SALT_BYTES
from potstill.policy.network import Activation, Float32, Layer
from potstill.policy.runtime import start
from potstill.policy.tower import Tower
from potstill.problem import Context, Contexts, Problem
from potstill.spaces import Actions, Allowed, Distribution, FiniteSpace, NamedActions, SoftmaxHead, finite
from potstill.spaces.continuous import HistogramHead

#: Unit of `Policy.agreement`: 16 float32 roundoffs. The native kernel and ONNX Runtime stay below 6
#: (tests/policy/test_agreement.py).
AGREEMENT = 2.0**-20
#: Below this, a propensity may be 0 in float32.
UNDERFLOW = 1e-37


class Policy:
    """A small softmax network over encoded contexts. Immutable, and safe to share between threads.

    `Policy.load` reads one from a file. `Policy.uniform` is the first policy of a problem; `Still.update` makes the
    later ones.
    """

    def __init__(
        self,
        metadata: Metadata,
        layers: Sequence[Layer],
        mean: Float32 | None = None,
        tower: Tower | None = None,
        *,
        runtime: RuntimeName | None = None,
    ) -> None:
        self._metadata, self._tower = metadata, tower
        self._layers = [Layer(*layer) for layer in layers]
        self._mean = np.zeros(metadata.problem.width, np.float32) if mean is None else mean
        self._salt = bytes.fromhex(metadata.salt)
        self._head = metadata.problem.actions.head()
        self._head.check_floor(metadata.floor)
        self._runtime = start(metadata, self._layers, self._head, runtime)
        self._named_runtime = runtime
        self._decide_at_once, self._decide_row_at_once = self._runtime.decide, self._runtime.decide_row
        space = metadata.problem.actions
        self._narrowing = space if isinstance(space, NamedActions) and space.retired else None

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_bytes, (
            self.to_bytes(),
            self._named_runtime,
        )  # a copy or an unpickled policy builds its own kernel

    @classmethod
    def uniform(cls, problem: Problem, *, version: int = 0, seed: int = 0, floor: float = 0.0) -> Policy:
        """The uniform distribution over all actions: the first policy of a problem."""
        outputs = problem.actions.head().outputs
        zeros = Layer(np.zeros((problem.width, outputs), np.float32), np.zeros(outputs, np.float32))
        return cls.build(problem, [zeros], version=version, seed=seed, floor=floor)

    @classmethod
    def build(
        cls,
        problem: Problem,
        layers: Sequence[Layer],
        *,
        version: int,
        seed: int = 0,
        parent: int | None = None,
        floor: float = 0.0,
        activation: Activation = "tanh",
        mean: Float32 | None = None,
        lineage: Lineage | None = None,
        masked: bool = False,
        tower: Tower | None = None,
    ) -> Policy:
        """A policy from its layers. The salt derives from problem, seed and version, so equal runs give equal files.

        The first layer of a `masked` policy has one more input per action, 1 if it is not eligible.
        """
        salt = hashlib.sha256(f"{problem.hash}/{seed}/{version}".encode()).hexdigest()[: 2 * SALT_BYTES]
        metadata = Metadata(
            format=format_of(problem, masked=masked),
            sha256="",
            problem=problem,
            problem_hash=problem.hash,
            version=version,
            parent=parent,
            salt=salt,
            floor=floor,
            activation=activation,
            masked=masked,
            lineage=lineage or Lineage(library=__version__, seed=seed),
        )
        return cls(metadata, layers, mean, tower)

    @classmethod
    def load(cls, path: str | Path, problem: Problem | None = None) -> Policy:
        """Read a policy file. Safe for untrusted files: nothing in it is executed, and an invalid file is rejected.

        Args:
            path: Path of the file.
            problem: Problem that the policy must be for; any by default.
        """
        try:
            policy = cls.from_bytes(Path(path).read_bytes())
            if problem is not None and problem.hash != policy.problem.hash:
                raise InvalidPolicy(
                    f"a policy for problem {policy.problem.name!r} ({policy.problem.hash}), "
                    f"not for {problem.name!r} ({problem.hash})"
                )
        except InvalidPolicy as error:
            raise InvalidPolicy(f"{path}: {error}") from error
        return policy

    @classmethod
    def from_bytes(cls, data: bytes) -> Policy:
        """Read a policy from the bytes of its file."""
        try:
            return cls(*artifact.read(data))
        except InvalidPolicy:
            raise
        except ValueError as error:
            raise InvalidPolicy(str(error)) from error

    def to_bytes(self) -> bytes:
        """The bytes of the policy's file."""
        return artifact.to_bytes(self._metadata, self._layers, self._mean, self._tower)

    def save(self, path: str | Path) -> None:
        """Write the policy as one file, atomically."""
        write_atomically(path, self.to_bytes(), SHARED)

    def __repr__(self) -> str:
        sizes = " × ".join(str(n) for n in (self.problem.width, *(len(layer.bias) for layer in self._layers)))
        return f"<Policy {self.problem.name!r} version {self.version}: {sizes}>"

    @property
    def problem(self) -> Problem:
        """The problem that the policy decides."""
        return self._metadata.problem

    @property
    def version(self) -> int:
        """Version number: 0 before the first batch, then counting up."""
        return self._metadata.version

    @property
    def floor(self) -> float:
        """Smallest propensity of an eligible action."""
        return self._metadata.floor

    @property
    def masked(self) -> bool:
        """Whether it was trained on masks, so that it knows what is best of the eligible actions."""
        return self._metadata.masked

    @property
    def metadata(self) -> Metadata:
        """Metadata of the policy file."""
        return self._metadata

    @property
    def layers(self) -> list[Layer]:
        """Layers with their weights; do not modify them."""
        return self._layers

    @property
    def tower(self) -> Tower | None:
        """The item tower of a policy over a catalogue; None for others, and for uniform ones."""
        return self._tower

    @property
    def mean(self) -> Float32:
        """Mean encoded context of the training contexts, float32[d]."""
        return self._mean

    @property
    def runtime(self) -> RuntimeName:
        """Name of the runtime: ``"native"``, or ``"numpy"`` if the kernel was not built or not selected."""
        return self._runtime.name

    def with_runtime(self, runtime: RuntimeName) -> Policy:
        """The same policy on another runtime."""
        return Policy(self._metadata, self._layers, self._mean, self._tower, runtime=runtime)

    def with_floor(self, floor: float) -> Policy:
        """The same policy under another floor."""
        return self._with(floor=floor)

    def with_fidelity(self, fidelity: dict[str, Any]) -> Policy:
        """The same policy with a report of its fidelity to the teacher."""
        return self._with(fidelity=fidelity)

    def with_salt(self, salt: bytes) -> Policy:
        """The same policy under another salt, which gives the same ids different draws."""
        return self._with(salt=salt.hex())

    def agreement(self, contexts: Contexts, *, eligible: Allowed | None = None) -> NDArray[np.float64]:
        """The relative precision to which all runtimes agree on propensities, float64[N].

        It grows with the size of the scores' terms: float32 rounds a score of 50 by 50 times as much as a score of 1.
        Scores of actions that are not eligible, or whose probability is below `UNDERFLOW`, do not matter.
        """
        encoded = self._runtime.encode_many(contexts)
        allowed = self._allowed(eligible, len(encoded))
        inputs = network.masked_inputs(encoded, allowed, self._head.outputs) if self.masked else encoded
        error = network.rounding_error(self._layers, self._metadata.activation, inputs)
        if isinstance(self._head, (SoftmaxHead, HistogramHead)):
            scores = network.outputs(self._layers, self._metadata.activation, inputs)
            mask = self._head.mask(allowed)
            scores = scores if mask is None else np.where(mask, scores, -np.inf)
            error = np.where(scores - scores.max(axis=1, keepdims=True) > np.log(UNDERFLOW), error, 0.0)
        relative: NDArray[np.float64] = AGREEMENT * (1 + error.max(axis=1))
        return relative

    def uniforms(self, ids: Sequence[str]) -> NDArray[np.float64]:
        """The draws of decisions with these ids: float64[N] if the action space takes one each."""
        return self._runtime.uniforms(ids)

    def _with(self, **changes: Any) -> Policy:
        metadata = msgspec.structs.replace(self._metadata, **changes)
        return Policy(metadata, self._layers, self._mean, self._tower, runtime=self._named_runtime)

    def probabilities(self, context: Context, *, eligible: Any = None, floor: float | None = None) -> Float32:
        """The probability of each action in a context, float32[K], for a finite list of actions.

        Args:
            context: Feature names and values, or an encoded context float32[d].
            eligible: Allowed actions; others get probability 0, and the rest is renormalised, unless the policy was
                trained on masks. All by default.
            floor: Smallest propensity of an eligible action; the policy's own by default.
        """
        finite(self.problem.actions, "Policy.probabilities")
        allowed = None if eligible is None else self.problem.actions.restrict(eligible).allowed
        encoded = self._runtime.encode(context)[None]
        allowed = self._allowed(allowed, 1)
        p: Float32 = self._finite(self._runtime.probabilities(encoded, allowed, self._floor(floor)))[0]
        return p

    def probabilities_many(
        self, contexts: Contexts, *, eligible: Mask | None = None, floor: float | None = None
    ) -> Float32:
        """The probability of each action in each context, float32[N, K]; `eligible` is bool[K] or bool[N, K]."""
        finite(self.problem.actions, "Policy.probabilities_many")
        encoded = self._runtime.encode_many(contexts)
        allowed = self._allowed(eligible, len(encoded))
        return self._finite(self._runtime.probabilities(encoded, allowed, self._floor(floor)))

    def distribution(
        self, contexts: Contexts, *, eligible: Allowed | None = None, floor: float | None = None
    ) -> Distribution:
        """The distribution over actions in each context; `eligible` is the result of `ActionSpace.allow`."""
        encoded = self._runtime.encode_many(contexts)
        return self._runtime.distribution(encoded, self._allowed(eligible, len(encoded)), self._floor(floor))

    def decide(
        self,
        context: Context,
        *,
        id: str | None = None,  # noqa: A002 - the word that callers know
        eligible: Any = None,
        floor: float | None = None,
    ) -> Decision:
        """Choose an action.

        Args:
            context: Feature names and values, or an encoded context float32[d].
            id: Id of the decision; the same id under the same policy gives the same draw. Random by default.
            eligible: Allowed actions; all by default.
            floor: Smallest propensity of an eligible action; the policy's own by default.
        """
        if self._narrowing is not None:
            return self._decide_narrowed(self._decide_at_once, context, id, eligible, floor)
        decision = self._decide_at_once(context, id, eligible, floor)
        return self._decide_by_steps(context, id, eligible, floor) if decision is NotImplemented else decision

    def decide_row(self, values: Row, *, id: str | None = None, eligible: Any = None) -> Decision:  # noqa: A002
        """`decide` for the values of a context in the order of the features; None is a missing value."""
        if self._narrowing is not None:
            return self._decide_narrowed(self._decide_row_at_once, values, id, eligible, None)
        decision = self._decide_row_at_once(values, id, eligible, None)
        if decision is NotImplemented:
            return self._decide_by_steps(self.encode_rows([values])[0], id, eligible, None)
        return decision

    def decide_many(
        self,
        contexts: Contexts,
        ids: Sequence[str],
        *,
        eligible: Allowed | None = None,
        floor: float | None = None,
    ) -> tuple[Actions, NDArray[Any]]:
        """Choose an action for each context, as `decide` would: actions, and propensities float[N].

        Actions are encoded by the action space; for a list they are positions int64[N]. `eligible` is the result of
        `ActionSpace.allow`; for a list it is bool[K] or bool[N, K].
        """
        return self._choose(self._runtime.encode_many(contexts), ids, eligible, self._floor(floor))

    def decide_rows(
        self, rows: list[Row], ids: Sequence[str], *, eligible: Allowed | None = None
    ) -> tuple[Actions, NDArray[Any]]:
        """`decide_many` for values in the order of the features; None is a missing value."""
        return self._choose(self.encode_rows(rows), ids, eligible, self.floor)

    def _choose(
        self, encoded: Float32, ids: Sequence[str], eligible: Allowed | None, floor: float
    ) -> tuple[Actions, NDArray[Any]]:
        mask = self._allowed(eligible, len(encoded))
        if len(ids) != len(encoded):
            raise ValueError(f"as many ids as contexts are needed, got {len(ids)} for {len(encoded)}")
        chosen, propensities = self._runtime.choose(encoded, self._runtime.uniforms(ids), mask, floor)
        return chosen, self._finite(propensities)

    def encode_rows(self, rows: list[Row]) -> Float32:
        """Encoded contexts, float32[N, d], from their values in the order of the features; None is a missing value."""
        return self._runtime.encode_rows(rows)

    def _decide_narrowed(
        self,
        at_once: Callable[..., Any],
        given: Any,
        decision_id: str | None,
        eligible: Any,
        floor: float | None,
    ) -> Decision:
        """A decision of a policy with retired actions; it states what the request allows, not what was left of it.

        Args:
            at_once: `decide` or `decide_row` of the runtime.
            given: A context, or the values of one.
            decision_id: Id of the decision.
            eligible: Allowed actions.
            floor: Smallest propensity.
        """
        assert self._narrowing is not None
        if eligible is None or isinstance(eligible, (list, tuple)):
            found = at_once(given, decision_id, self._narrowing.narrow_names(eligible), floor)
            if found is not NotImplemented:
                stated = None if eligible is None else tuple(eligible)
                return Decision(found.id, found.action, found.propensity, found.policy, stated, found.floor)
        encoded = self.encode_rows([given])[0] if isinstance(given, tuple) else given
        return self._decide_by_steps(encoded, decision_id, eligible, floor)

    def _decide_by_steps(
        self, context: Context, decision_id: str | None, eligible: Any, floor: float | None
    ) -> Decision:
        restriction = None if eligible is None else self.problem.actions.restrict(eligible)
        encoded = self._runtime.encode(context)[None]
        smallest = self._floor(floor)
        if decision_id is None:
            decision_id = uuid.uuid4().hex
        allowed = self._allowed(None if restriction is None else restriction.allowed, 1)
        chosen, propensities = self._runtime.choose(encoded, self._runtime.uniforms([decision_id]), allowed, smallest)
        action, propensity = self.problem.actions.decode(chosen)[0], float(self._finite(propensities)[0])
        stated = None if restriction is None else restriction.value
        return Decision(decision_id, action, propensity, self.version, stated, floor)

    def _floor(self, floor: float | None) -> float:
        if floor is None:
            return self._metadata.floor
        self._head.check_floor(floor)
        return float(floor)

    def _allowed(self, eligible: Allowed | None, count: int) -> Allowed | None:
        space = self.problem.actions
        if not isinstance(space, FiniteSpace):
            return eligible
        if eligible is None:
            return None if self._narrowing is None else self._narrowing.narrow(None, count)
        mask, actions = np.asarray(eligible, bool), len(space)
        if mask.shape not in ((actions,), (count, actions)):
            raise ValueError(f"eligible must be bool[{actions}] or bool[{count}, {actions}], got shape {mask.shape}")
        if not mask.any(axis=-1).all():
            raise ValueError("eligible has a row without any action; allow at least one")
        if self._narrowing is not None:
            return self._narrowing.narrow(mask, count)
        return np.broadcast_to(mask, (count, actions))

    def _finite(self, p: NDArray[Any]) -> NDArray[Any]:
        """Reject scores that are not finite, which finite weights can sum up to."""
        if not np.isfinite(p).all():
            raise InvalidPolicy(f"{self!r}: its weights are so large that its scores are not finite in this context")
        return p


def _from_bytes(data: bytes, runtime: RuntimeName | None) -> Policy:
    return Policy(*artifact.read(data), runtime=runtime)
