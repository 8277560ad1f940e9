"""The runtimes that Python can drive, each behind the same questions; JavaScript's are in tests/js."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import potstill as ps
from potstill.policy.export import export
from potstill.policy.export.onnx import to_model

WARNINGS = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]


class PythonRuntime:
    """A Policy in NumPy or native."""

    encodes = draws = True

    def __init__(self, policy: ps.Policy, name: Any) -> None:
        self.policy = policy.with_runtime(name)

    def encode(self, context: dict[str, Any]) -> Any:
        return self.policy._runtime.encode(context)

    def probabilities(self, case: dict[str, Any]) -> Any:
        return self.policy.probabilities(case["context"], eligible=case["eligible"], floor=case["floor"])

    def u(self, decision_id: str) -> Any:
        return self.policy._runtime.uniforms([decision_id])[0].tolist()

    def decide(self, case: dict[str, Any]) -> tuple[str, float]:
        options = {name: case[name] for name in ("id", "eligible", "floor")}
        decision = self.policy.decide(case["context"], **options)
        return decision.action, decision.propensity


class OnnxRuntime:
    """The exported graph; it starts after encoding, and has only the policy's own floor."""

    encodes = draws = False

    def __init__(self, policy: ps.Policy) -> None:
        import onnxruntime

        self.actions = policy.problem.actions
        self.floor = policy.floor

        @cache
        def session(floor: float, eligible: bool) -> Any:
            model = to_model(policy.with_floor(floor), eligible=eligible)
            return onnxruntime.InferenceSession(model.SerializeToString())

        self.session = session

    def probabilities(self, case: dict[str, Any]) -> Any:
        floor = self.floor if case["floor"] is None else case["floor"]
        feed = {"context": np.array([case["encoded"]], np.float32)}
        if case["eligible"] is not None:
            feed["eligible"] = self.actions.restrict(case["eligible"]).allowed
        return self.session(floor, "eligible" in feed).run(None, feed)[0][0]


class Text(ctypes.Structure):
    _fields_ = (("bytes", ctypes.c_char_p), ("length", ctypes.c_size_t))


class Numbers(ctypes.Structure):
    _fields_ = (("items", ctypes.POINTER(ctypes.c_double)), ("count", ctypes.c_size_t))


class As(ctypes.Union):
    _fields_ = (("number", ctypes.c_double), ("truth", ctypes.c_bool), ("text", Text), ("numbers", Numbers))


class Value(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("as_", As))


class Decided(ctypes.Structure):
    _fields_ = (("action", ctypes.c_size_t), ("propensity", ctypes.c_float), ("u", ctypes.c_double))


class Number(ctypes.Structure):
    _fields_ = (
        ("value", ctypes.c_double),
        ("density", ctypes.c_double),
        ("bin", ctypes.c_size_t),
        ("u", ctypes.c_double * 2),
    )


class CompiledC:
    """The exported C, compiled as it is into a shared library."""

    encodes = draws = True

    def __init__(self, policy: ps.Policy, directory: Path) -> None:
        compiler = shutil.which("cc")
        assert compiler, "no C compiler"
        sources = [
            str(p) for p in export(policy, "c", directory, "exported") if p.suffix == ".c" and p.stem != "example"
        ]
        library = directory / "exported.so"
        subprocess.run(
            [compiler, *WARNINGS, "-O3", "-fPIC", "-shared", *sources, "-lm", "-o", str(library)], check=True
        )
        self.library = ctypes.CDLL(str(library))
        self.policy = ctypes.byref(ctypes.c_char.in_dll(self.library, "exported_policy"))
        self.library.potstill_scratch_size.restype = ctypes.c_size_t
        self.library.potstill_message.restype = ctypes.c_char_p
        self.scratch = (ctypes.c_float * self.library.potstill_scratch_size(self.policy))()
        self.problem, self.floor = policy.problem, policy.floor

    def values(self, context: dict[str, Any]) -> Any:
        """Values by the feature's position: C has no names to get wrong, so an unknown one is refused here."""
        if unknown := set(context) - {feature.name for feature in self.problem.context}:
            raise ps.InvalidContext(f"unknown feature {unknown}")
        return (Value * (len(self.problem.context) + 1))(*(as_value(context.get(f.name)) for f in self.problem.context))

    def encode(self, context: dict[str, Any]) -> Any:
        encoded, refused = np.zeros(self.problem.width + 1, np.float32), ctypes.c_size_t()
        status = self.library.potstill_encode(
            self.policy, self.values(context), pointer(encoded), ctypes.byref(refused)
        )
        if status:
            name = self.problem.context[refused.value].name
            raise ps.InvalidContext(f"{name}: {self.library.potstill_message(status).decode()}")
        return encoded[:-1]

    def options(self, case: dict[str, Any]) -> tuple[Any, ctypes.c_double]:
        mask = None if case["eligible"] is None else self.problem.actions.restrict(case["eligible"]).allowed[0]
        floor = self.floor if case["floor"] is None else case["floor"]
        return None if mask is None else (ctypes.c_uint8 * len(mask))(*mask.tolist()), ctypes.c_double(floor)

    def probabilities(self, case: dict[str, Any]) -> Any:
        p = np.zeros(len(self.problem.actions), np.float32)
        encoded = self.encode(case["context"])
        status = self.library.potstill_probabilities(
            self.policy, pointer(encoded), *self.options(case), self.scratch, pointer(p)
        )
        assert status == 0, self.library.potstill_message(status)
        return p

    def u(self, decision_id: str) -> Any:
        count = self.problem.actions.head().draws
        u, data = (ctypes.c_double * count)(), decision_id.encode()
        assert self.library.potstill_uniforms(self.policy, Text(data, len(data)), ctypes.c_size_t(count), u) == 0
        return u[0] if count == 1 else list(u)

    def decide(self, case: dict[str, Any]) -> tuple[Any, float]:
        return self.number(case) if isinstance(self.problem.actions, ps.Continuous) else self.name(case)

    def number(self, case: dict[str, Any]) -> tuple[float, float]:
        decided, data, encoded = Number(), case["id"].encode(), self.encode(case["context"])
        interval = None if case["eligible"] is None else (ctypes.c_double * 2)(*case["eligible"])
        floor = ctypes.c_double(self.floor if case["floor"] is None else case["floor"])
        text = Text(data, len(data))
        status = self.library.potstill_decide_number(
            self.policy, pointer(encoded), text, interval, floor, self.scratch, ctypes.byref(decided)
        )
        assert status == 0, self.library.potstill_message(status)
        return decided.value, decided.density

    def name(self, case: dict[str, Any]) -> tuple[str, float]:
        decided, data, encoded = Decided(), case["id"].encode(), self.encode(case["context"])
        status = self.library.potstill_decide(
            self.policy,
            pointer(encoded),
            Text(data, len(data)),
            *self.options(case),
            self.scratch,
            ctypes.byref(decided),
        )
        assert status == 0, self.library.potstill_message(status)
        return self.problem.actions.names[decided.action], decided.propensity


def as_value(value: Any) -> Value:
    if value is None:
        return Value()
    if isinstance(value, bool):
        return Value(2, As(truth=value))
    if isinstance(value, (int, float)):
        return Value(1, As(number=float(value)))
    if isinstance(value, list):
        numbers = [number for number in value if isinstance(number, (int, float))]
        return Value(4, As(numbers=Numbers((ctypes.c_double * len(numbers))(*numbers), len(numbers))))
    # What is no number, truth or text has no place in a potstill_value; text stands for it, as a C caller's mistake.
    data = str(value).encode()
    return Value(3, As(text=Text(data, len(data))))


def pointer(array: Any) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(ctypes.c_float))


RUNTIMES = {
    "numpy": lambda policy, _: PythonRuntime(policy, "numpy"),
    "native": lambda policy, _: PythonRuntime(policy, "native"),
    "c": CompiledC,
    "onnx": lambda policy, _: OnnxRuntime(policy),
}

__all__ = ["RUNTIMES", "WARNINGS"]
