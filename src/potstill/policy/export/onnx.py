"""Policy to ONNX: from encoded contexts, and optionally eligible actions, to probabilities.

The caller encodes contexts and draws actions. The model's metadata (key ``potstill``, the same JSON as in the policy
file) and docs/policy-format.md specify the encoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from potstill.policy.policy import Policy

OPSET = 17
_OPERATORS = {"tanh": "Tanh", "relu": "Relu"}


def write(policy: Policy, directory: Path, name: str) -> list[Path]:
    """Write and check ``name.onnx``."""
    path = directory / f"{name}.onnx"
    path.write_bytes(to_model(policy).SerializeToString())
    return [path]


def to_model(policy: Policy) -> Any:
    """The policy as a checked ``onnx.ModelProto``.

    Inputs: ``context`` float32[N, d]; ``eligible`` bool[N, K] or bool[1, K], all true by default. Output:
    ``probabilities`` float32[N, K].
    """
    import onnx
    from onnx import TensorProto, helper

    actions = len(policy.layers[-1].bias)
    graph = helper.make_graph(
        [helper.make_node(operator, inputs, [output]) for operator, inputs, output in _nodes(policy)],
        policy.problem.name,
        inputs=[
            helper.make_tensor_value_info("context", TensorProto.FLOAT, ["N", policy.problem.width]),
            helper.make_tensor_value_info("eligible", TensorProto.BOOL, ["N or 1", actions]),
        ],
        outputs=[helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", actions])],
        initializer=[onnx.numpy_helper.from_array(array, name) for name, array in _constants(policy).items()],
    )
    model = helper.make_model(
        graph, producer_name="potstill", opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8
    )
    helper.set_model_props(model, {"potstill": msgspec.json.encode(policy.metadata).decode()})
    onnx.checker.check_model(model, full_check=True)
    return model


def _constants(policy: Policy) -> dict[str, Any]:
    # An initializer with the name of an input is that input's default.
    constants: dict[str, Any] = {
        "eligible": np.ones((1, len(policy.layers[-1].bias)), bool),
        "never": np.array(-np.inf, np.float32),
        "floor": np.array(policy.floor, np.float32),
        "zero": np.array(0, np.float32),
        "one": np.array(1, np.float32),
        "last axis": np.array([-1], np.int64),
    }
    for i, layer in enumerate(policy.layers):
        constants |= {f"weight {i}": layer.weight, f"bias {i}": layer.bias}
    return constants


def _nodes(policy: Policy) -> Iterator[tuple[str, list[str], str]]:
    """The graph as operator, inputs, output; the floor's share is 1 - m·floor over the m eligible actions."""
    hidden = "context"
    for i in range(len(policy.layers)):
        yield "MatMul", [hidden, f"weight {i}"], f"product {i}"
        yield "Add", [f"product {i}", f"bias {i}"], f"layer {i}"
        hidden = f"layer {i}"
        if i < len(policy.layers) - 1:
            hidden = f"hidden {i}"
            yield _OPERATORS[policy.metadata.activation], [f"layer {i}"], hidden
    yield "Where", ["eligible", hidden, "never"], "scores"
    yield "Softmax", ["scores"], "softmax"
    yield "Where", ["eligible", "floor", "zero"], "floors"
    yield "ReduceSum", ["floors", "last axis"], "floor mass"
    yield "Sub", ["one", "floor mass"], "share"
    yield "Mul", ["share", "softmax"], "shared"
    yield "Add", ["shared", "floors"], "probabilities"
