"""Thompson sampling and distilled policies in C, timed without Python between the calls.

The source is compiled when it is needed, with the flags of the decision kernel. Both sides go through the kernel's own
vectorised layers: the scale of a linear posterior is one more layer.
"""

from __future__ import annotations

import ctypes
import subprocess
import sysconfig
from collections.abc import Sequence
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.errors import PotstillError
from potstill.lab.measure.deciders import layers_of, whitened
from potstill.lab.problems import Float32
from potstill.policy import Policy
from potstill.teachers.linear import Posterior
from potstill.teachers.neural import Networks

#: Flags of the kernel, in setup.py.
FLAGS = ("-std=c11", "-O3", "-ffp-contract=fast", "-fno-math-errno")
#: Columns of a layer in memory are a multiple of this.
LANES = 16
#: Ids of decisions, all of one length.
_IDS = [f"request-{i:04}" for i in range(10_000)]

Int64 = NDArray[np.int64]
Pairs = Sequence[tuple[Float32, Float32]]


class NoCompiler(PotstillError, RuntimeError):
    """The C code cannot be compiled here; the message says why."""


class CDecider(NamedTuple):
    """A decider in C.

    Attributes:
        function: Function of the library that decides many times.
        arguments: Its first arguments.
        kept: Memory that the arguments point to.
    """

    function: str
    arguments: tuple[Any, ...]
    scratch: Float32
    rng: np.random.Generator | None
    kept: list[Any]

    def run(self, contexts: Float32, calls: int) -> tuple[Int64, Int64]:
        """Decide on the contexts in turn: the action of each call, and its nanoseconds with about 20 for the clock."""
        contexts = np.ascontiguousarray(contexts, np.float32)
        actions, taken = np.empty(calls, np.int64), np.empty(calls, np.int64)
        generator = () if self.rng is None else (self.rng.bit_generator.ctypes.bit_generator,)
        given = (*self.arguments, _pointer(contexts), ctypes.c_size_t(len(contexts)), ctypes.c_size_t(calls))
        getattr(library(), self.function)(
            *given, *generator, _pointer(self.scratch), _pointer(actions), _pointer(taken)
        )
        return actions, taken


def c_posterior(posterior: Posterior, rng: np.random.Generator, hidden: Pairs = ()) -> CDecider:
    """Linear-TS, and with hidden layers NeuralLinear-TS."""
    k, p = posterior.mean.shape
    padded = -(-p // LANES) * LANES
    weight = np.zeros((p, k * padded + k), np.float32)
    for action, matrix in enumerate(whitened(posterior)):
        weight[:, action * padded : action * padded + p] = matrix.T
    weight[:, k * padded :] = posterior.mean.T
    network, kept = _network([*hidden, (weight[:-1], weight[-1])], relu=True)
    dof = np.ascontiguousarray(2 * posterior.alpha, np.float64)
    made = _Posterior(network, k, padded, dof.ctypes.data)
    scratch = _aligned(_scratch(network) + k)
    return CDecider("time_posterior", (ctypes.byref(made),), scratch, rng, [made, dof, *kept])


def c_networks(networks: Networks, rng: np.random.Generator) -> CDecider:
    """Bootstrap-NN-TS."""
    made = [_network(layers_of(networks, b), relu=True) for b in range(networks.size)]
    structs = (_Policy * len(made))(*(network for network, _ in made))
    scratch = _aligned(max(_scratch(network) for network, _ in made))
    kept = [structs, *(memory for _, memories in made for memory in memories)]
    return CDecider("time_networks", (structs, ctypes.c_size_t(len(made))), scratch, rng, kept)


def c_policy(policy: Policy) -> CDecider:
    """A distilled policy, as `potstill export --to c` writes it."""
    layers = [(layer.weight, layer.bias) for layer in policy.layers]
    network, kept = _network(layers, relu=policy.metadata.activation == "relu")
    network.width, network.masked = policy.problem.width, policy.masked
    network.floor = policy.floor
    network.salt[:] = bytes.fromhex(policy.metadata.salt)
    ids = "".join(_IDS).encode()
    given = ctypes.byref(network), ids, ctypes.c_size_t(len(_IDS)), ctypes.c_size_t(len(_IDS[0]))
    return CDecider("time_policy", given, _aligned(_scratch(network)), None, [network, ids, *kept])


def c_ids(calls: int) -> list[str]:
    """The ids of the first calls of a policy."""
    return [_IDS[i % len(_IDS)] for i in range(calls)]


@cache
def library() -> ctypes.CDLL:
    """The compiled code; `NoCompiler` if it cannot be compiled."""
    compiler = (sysconfig.get_config_var("CC") or "cc").split()
    package = files("potstill")
    random = Path(np.random.__file__).parent / "lib"
    with (
        TemporaryDirectory(prefix="potstill-") as folder,
        as_file(package / "lab" / "measure" / "native") as own,
        as_file(package / "policy" / "native") as kernel,
    ):
        made = Path(folder) / "same_language.so"
        includes = [f"-I{path}" for path in (kernel, np.get_include(), sysconfig.get_paths()["include"])]
        source, draws = str(own / "same_language.c"), str(random / "libnpyrandom.a")
        command = [*compiler, *FLAGS, "-w", "-shared", "-fPIC", *includes, source, draws, "-lm", "-o", str(made)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except OSError as error:
            raise NoCompiler(f"{compiler[0]} cannot be run: {error}; install a C compiler") from error
        except subprocess.CalledProcessError as error:
            said = error.stderr.strip()[-500:]
            raise NoCompiler(f"{compiler[0]} failed; install Python's headers if they are missing: {said}") from error
        loaded = ctypes.CDLL(str(made))
    for name in ("time_posterior", "time_networks", "time_policy"):
        getattr(loaded, name).restype = None
    return loaded


class _Layer(ctypes.Structure):
    """potstill_layer of kernel.h."""

    _fields_ = (
        ("inputs", ctypes.c_size_t),
        ("outputs", ctypes.c_size_t),
        ("stride", ctypes.c_size_t),
        ("weight", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
    )


class _Policy(ctypes.Structure):
    """potstill_policy of kernel.h."""

    _fields_ = (
        ("features", ctypes.c_void_p),
        ("feature_count", ctypes.c_size_t),
        ("width", ctypes.c_size_t),
        ("layers", ctypes.POINTER(_Layer)),
        ("layer_count", ctypes.c_size_t),
        ("activation", ctypes.c_int),
        ("actions", ctypes.c_size_t),
        ("floor", ctypes.c_double),
        ("edges", ctypes.c_void_p),
        ("salt", ctypes.c_uint8 * 16),
        ("masked", ctypes.c_bool),
    )


class _Posterior(ctypes.Structure):
    """linear_posterior of same_language.c."""

    _fields_ = (
        ("network", _Policy),
        ("actions", ctypes.c_size_t),
        ("padded", ctypes.c_size_t),
        ("dof", ctypes.c_void_p),
    )


def _network(layers: Pairs, *, relu: bool) -> tuple[_Policy, list[Any]]:
    """Layers as the kernel reads them, and the memory that they lie in."""
    kept, structs = [], []
    for weight, bias in layers:
        inputs, outputs = weight.shape
        stride = -(-outputs // LANES) * LANES
        own, offsets = _aligned(inputs * stride).reshape(inputs, stride), _aligned(stride)
        own[:, :outputs], offsets[:outputs] = weight, bias
        kept += [own, offsets]
        structs.append(_Layer(inputs, outputs, stride, own.ctypes.data, offsets.ctypes.data))
    array = (_Layer * len(structs))(*structs)
    network = _Policy(
        width=structs[0].inputs,
        layers=array,
        layer_count=len(structs),
        activation=int(relu),
        actions=structs[-1].outputs,
    )
    return network, [array, *kept]


def _scratch(network: _Policy) -> int:
    """Thrice the widest stride: at least `potstill_scratch_size`."""
    return 3 * max(int(network.layers[i].stride) for i in range(network.layer_count))


def _aligned(count: int) -> Float32:
    """Zeros that begin at a cache line."""
    memory = np.zeros(4 * count + 64, np.uint8)
    first = -memory.ctypes.data % 64
    aligned: Float32 = memory[first : first + 4 * count].view(np.float32)
    return aligned


def _pointer(array: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
