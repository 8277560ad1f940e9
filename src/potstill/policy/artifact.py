"""The policy file: a safetensors file with the weights, and all else in its metadata. See `docs/policy-format.md`."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from potstill.errors import PotstillError
from potstill.policy.draw import SALT_BYTES
from potstill.policy.network import ACTIVATIONS, Activation, Layer
from potstill.policy.tower import Tower
from potstill.problem import Problem
from potstill.spaces import Catalog, FiniteSpace

#: Formats that are read. A file has the lowest that it needs, so that earlier readers read what they can.
FORMATS = (1, 2, 3, 4)
#: The format of masked policies.
_MASKED = 3
_KEY = "potstill"
#: Tensor of the effects of items.
_EFFECTS = "tower.effects"
_NO_CHECKSUM = "0" * 64
#: The deepest nesting of JSON that is read. Potstill writes about six levels; parsers run out of stack at thousands.
MAX_DEPTH = 64
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


class InvalidPolicy(PotstillError, ValueError):
    """A policy file cannot be trusted; the message says why."""


class Lineage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Provenance of a policy: enough to reproduce it from the same data, and whether its labels were exact.

    Attributes:
        library: Version of Potstill.
        seed: Seed of all randomness.
        teacher: Configuration of the teacher.
        exactness: Exactness of the labels.
        student: Configuration of the student.
        choice: How the student was chosen, if it was searched for: settings, students tried, and the choice.
        selection: Weights and scores of the teacher's candidates, if it weighs several.
        observations: Total number of observations that the teacher has learnt from.
        origin: Location of the last batch's observations, such as the cuts of a workspace's log.
    """

    library: str
    seed: int | None = None
    teacher: dict[str, Any] | None = None
    exactness: dict[str, Any] | None = None
    student: dict[str, Any] | None = None
    choice: dict[str, Any] | None = None
    selection: dict[str, dict[str, float]] | None = None
    observations: int = 0
    origin: dict[str, Any] | None = None


class Metadata(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Metadata of a policy file: everything but its weights.

    Attributes:
        format: Version of the file format.
        sha256: Checksum of the whole file, with this field as 64 zeros.
        problem: The whole problem, so that the file is enough to encode contexts.
        problem_hash: `Problem.hash`, for readers that do not compute it.
        version: Version number; 0 is the uniform policy before the first batch.
        parent: Version that preceded it when it was distilled, if any.
        salt: Key of the draw, 32 hex digits.
        floor: Smallest propensity of an eligible action.
        activation: Activation of the hidden layers.
        masked: Whether the network has one more input per action, 1 if it is not eligible: it was trained on masks.
        lineage: Provenance of the policy.
        fidelity: Measured fidelity to the teacher, on held-out contexts.
    """

    format: int
    sha256: str
    problem: Problem
    problem_hash: str
    version: int
    parent: int | None = None
    salt: str
    floor: float = 0.0
    activation: Activation = "tanh"
    masked: bool = False
    lineage: Lineage
    fidelity: dict[str, Any] | None = None


def to_bytes(metadata: Metadata, layers: list[Layer], mean: NDArray[np.float32], tower: Tower | None = None) -> bytes:
    """A policy as the bytes of its file; equal policies give equal bytes."""
    tensors = {"context.mean": mean, **_named("layers", layers)}
    if tower is not None:
        tensors |= {_EFFECTS: np.ascontiguousarray(tower.effects), **_named("tower", tower.layers)}
    blank = msgspec.structs.replace(metadata, sha256=_NO_CHECKSUM)
    data: bytes = safetensors.save(tensors, {_KEY: msgspec.json.encode(blank).decode()})
    return data.replace(_NO_CHECKSUM.encode(), hashlib.sha256(data).hexdigest().encode(), 1)


def _named(prefix: str, layers: list[Layer]) -> dict[str, NDArray[np.float32]]:
    """Layers as tensors."""
    named = {f"{prefix}.{i}": layer for i, layer in enumerate(layers)}
    return {
        f"{name}.{part}": np.ascontiguousarray(getattr(layer, part))
        for name, layer in named.items()
        for part in ("weight", "bias")
    }


def read(data: bytes) -> tuple[Metadata, list[Layer], NDArray[np.float32], Tower | None]:
    """A policy from the bytes of its file; `InvalidPolicy` if they are malformed or altered."""
    text = _metadata_text(data)
    metadata = _metadata(text)
    _verify_checksum(data, metadata.sha256)
    try:
        tensors = safetensors.load(data)
    except SafetensorError as error:
        raise InvalidPolicy(f"not a readable safetensors file: {error}") from error
    if metadata.problem_hash != metadata.problem.hash:
        raise InvalidPolicy(f"its problem has the hash {metadata.problem.hash}, but it says {metadata.problem_hash}")
    of_tower = {name: tensors.pop(name) for name in list(tensors) if name.startswith("tower.")}
    layers = _layers(tensors, metadata)
    mean = _tensor(tensors, "context.mean", (metadata.problem.width,))
    return metadata, layers, mean, _tower(of_tower, metadata, layers[-1]) if of_tower else None


class _Header(msgspec.Struct, rename={"metadata": "__metadata__"}):
    metadata: dict[str, str] = {}


def _metadata_text(data: bytes) -> str:
    """Potstill's entry of the safetensors metadata; the library reads metadata only from files on disk."""
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > len(data) - 8:
        raise InvalidPolicy(f"truncated, or no policy file: a header of {size} bytes in a file of {len(data)}")
    _refuse_depth(data[8 : 8 + size], "its header")
    try:
        header = msgspec.json.decode(data[8 : 8 + size], type=_Header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidPolicy(f"its header cannot be read: {error}") from error
    if _KEY not in header.metadata:
        raise InvalidPolicy("a safetensors file, but not a policy: it has no potstill metadata")
    return header.metadata[_KEY]


def _refuse_depth(text: bytes, where: str) -> None:
    brackets = np.frombuffer(_STRING.sub(b"", text), np.uint8)
    opened = np.isin(brackets, (ord("["), ord("{"))).astype(np.int64)
    closed = np.isin(brackets, (ord("]"), ord("}")))
    if (depth := (opened - closed).cumsum().max(initial=0)) > MAX_DEPTH:
        raise InvalidPolicy(f"{where} nests {depth} levels deep; a policy file has at most {MAX_DEPTH}")


def _metadata(text: str) -> Metadata:
    _refuse_depth(text.encode(), "its metadata")
    try:
        stated = msgspec.json.decode(text, type=_Format).format
        if stated not in FORMATS:
            raise InvalidPolicy(
                f"format version {stated}; this version of Potstill reads {FORMATS[0]} to {FORMATS[-1]}"
            )
        metadata = msgspec.json.decode(text, type=Metadata)
    except msgspec.DecodeError as error:
        raise InvalidPolicy(f"its metadata does not fit: {error}") from error
    _check_values(metadata)
    return metadata


class _Format(msgspec.Struct):
    format: int


def format_of(problem: Problem, *, masked: bool = False) -> int:
    """The format of a policy file: the lowest that its features, its actions and its inputs need."""
    needed = [getattr(problem.actions, "format", 1), *(feature.format for feature in problem.context)]
    return max([_MASKED, *needed] if masked else needed)


def _check_values(metadata: Metadata) -> None:
    needed = format_of(metadata.problem, masked=metadata.masked)
    if metadata.format != needed:
        what = "a masked policy is" if metadata.masked else "its problem is"
        raise InvalidPolicy(f"format version {metadata.format}, but {what} of format {needed}")
    if metadata.masked and not isinstance(metadata.problem.actions, FiniteSpace):
        raise InvalidPolicy("masked, but its actions are no list")
    try:
        salt = bytes.fromhex(metadata.salt)
    except ValueError:
        salt = b""
    if len(salt) != SALT_BYTES:
        raise InvalidPolicy(f"its salt must be {2 * SALT_BYTES} hex digits, got {metadata.salt!r}")
    if metadata.activation not in ACTIVATIONS:
        raise InvalidPolicy(f"unknown activation {metadata.activation!r}")


def _verify_checksum(data: bytes, stated: str) -> None:
    if len(stated) != len(_NO_CHECKSUM):
        raise InvalidPolicy(f"its checksum must be 64 hex digits, got {stated!r}")
    blank = data.replace(stated.encode(), _NO_CHECKSUM.encode(), 1)
    actual = hashlib.sha256(blank).hexdigest()
    if actual != stated:
        raise InvalidPolicy(f"truncated or altered: its SHA-256 is {actual}, but it says {stated}")


def _layers(tensors: dict[str, NDArray[Any]], metadata: Metadata) -> list[Layer]:
    """Layers of the network; beside them, there is only the mean context."""
    outputs = metadata.problem.actions.head().outputs
    inputs = metadata.problem.width + (outputs if metadata.masked else 0)
    return _network(tensors, "layers", inputs, outputs, others=1)


def _tower(tensors: dict[str, NDArray[Any]], metadata: Metadata, last: Layer) -> Tower:
    """Layers from items' inputs to the columns of the last layer, and items' effects."""
    space = metadata.problem.actions
    if not isinstance(space, Catalog) or metadata.masked:
        what = "a masked policy" if metadata.masked else "a policy whose actions are no catalogue"
        raise InvalidPolicy(f"tensors of an item tower in {what}: {', '.join(sorted(tensors))}")
    layers = _network(tensors, "tower", space.width + 2, len(last.weight) + 1, others=1)
    return Tower(layers, _tensor(tensors, _EFFECTS, (len(space), 2)))


def _network(tensors: dict[str, NDArray[Any]], prefix: str, inputs: int, outputs: int, *, others: int) -> list[Layer]:
    """Consecutive layers; `others` tensors are not theirs."""
    count = sum(name.endswith(".weight") for name in tensors)
    if not count or len(tensors) != 2 * count + others:
        raise InvalidPolicy(f"unexpected tensors: {', '.join(sorted(tensors))}")
    layers = []
    for i in range(count):
        units = outputs if i == count - 1 else tensors.get(f"{prefix}.{i}.bias", np.zeros(0)).size
        weight = _tensor(tensors, f"{prefix}.{i}.weight", (inputs, units))
        layers.append(Layer(weight, _tensor(tensors, f"{prefix}.{i}.bias", (units,))))
        if not units:
            raise InvalidPolicy(f"tensor {prefix}.{i}.bias is empty; a layer has at least one unit")
        inputs = units
    return layers


def _tensor(tensors: dict[str, NDArray[Any]], name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    tensor = tensors.get(name)
    if tensor is None:
        raise InvalidPolicy(f"tensor {name} is missing")
    if tensor.dtype != np.float32 or tensor.shape != shape:
        raise InvalidPolicy(f"tensor {name} must be float32{list(shape)}, got {tensor.dtype}{list(tensor.shape)}")
    if not np.isfinite(tensor).all():
        raise InvalidPolicy(f"tensor {name} holds a number that is not finite")
    return tensor
