"""Policy to ONNX: from encoded contexts to probabilities, in one model for all actions and one for eligible ones.

There are two models, because ONNX Runtime warns about an input with a default. The caller encodes contexts and draws
actions. The model's metadata (key ``potstill``, the same JSON as in the policy file) and docs/policy-format.md specify
the encoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from potstill.policy.export.retired import refuse_retired
from potstill.policy.policy import Policy
from potstill.spaces import Continuous

OPSET = 17
_OPERATORS = {"tanh": "Tanh", "relu": "Relu"}


def write(policy: Policy, directory: Path, name: str) -> list[Path]:
    """Write and check ``name.onnx`` and ``name.eligible.onnx``."""
    models = {f"{name}.onnx": to_model(policy), f"{name}.eligible.onnx": to_model(policy, eligible=True)}
    for file, model in models.items():
        (directory / file).write_bytes(model.SerializeToString())
    return [directory / file for file in models]


def to_model(policy: Policy, *, eligible: bool = False) -> Any:
    """The policy as a checked ``onnx.ModelProto``.

    Inputs: ``context`` float32[N, d] and, if `eligible`, ``eligible`` bool[N, K] or bool[1, K]. Output:
    ``probabilities`` float32[N, K]. If the action is a number, these are the probabilities of its bins.
    """
    import onnx
    from onnx import TensorProto, helper

    refuse_retired(policy, "onnx")

    actions = len(policy.layers[-1].bias)
    nodes = [*_network(policy, masked=eligible and policy.masked), *(_eligible_head() if eligible else _head())]
    used = {name for _, inputs, _ in nodes for name in inputs}
    inputs = [helper.make_tensor_value_info("context", TensorProto.FLOAT, ["N", policy.problem.width])]
    if eligible:
        inputs.append(helper.make_tensor_value_info("eligible", TensorProto.BOOL, ["N or 1", actions]))
    graph = helper.make_graph(
        [helper.make_node(operator, inputs, [output]) for operator, inputs, output in nodes],
        policy.problem.name,
        inputs=inputs,
        outputs=[helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", actions])],
        initializer=[
            onnx.numpy_helper.from_array(array, name) for name, array in _constants(policy).items() if name in used
        ],
    )
    model = helper.make_model(
        graph, producer_name="potstill", opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8
    )
    helper.set_model_props(model, {"potstill": msgspec.json.encode(policy.metadata).decode()})
    onnx.checker.check_model(model, full_check=True)
    return model


def _constants(policy: Policy) -> dict[str, Any]:
    outputs = len(policy.layers[-1].bias)
    # The floor of a number is a share of all decisions; the model's is that of each bin.
    floor = policy.floor / outputs if isinstance(policy.problem.actions, Continuous) else policy.floor
    everywhere = max(0.0, 1 - outputs * floor)
    constants: dict[str, Any] = {
        "never": np.array(-np.inf, np.float32),
        "floor": np.array(floor, np.float32),
        "share of the network": np.array(everywhere, np.float32),
        "zero": np.array(0, np.float32),
        "one": np.array(1, np.float32),
        "last axis": np.array([-1], np.int64),
    }
    for i, layer in enumerate(policy.layers):
        constants |= {f"weight {i}": layer.weight, f"bias {i}": layer.bias}
    if policy.masked:
        width = policy.problem.width
        constants |= {"weight 0": policy.layers[0].weight[:width], "weight of masks": policy.layers[0].weight[width:]}
    return constants


#: Operator, inputs, output.
_Node = tuple[str, list[str], str]


def _network(policy: Policy, *, masked: bool) -> Iterator[_Node]:
    """Scores. The mask has a product of its own, as it may be one row for all contexts."""
    hidden, last = "context", len(policy.layers) - 1
    for i in range(last + 1):
        yield "MatMul", [hidden, f"weight {i}"], f"product {i}" if i or not masked else "context product"
        if masked and not i:
            yield from _mask_product()
        yield "Add", [f"product {i}", f"bias {i}"], "all scores" if i == last else f"layer {i}"
        if i < last:
            hidden = f"hidden {i}"
            yield _OPERATORS[policy.metadata.activation], [f"layer {i}"], hidden


def _mask_product() -> Iterator[_Node]:
    yield "Where", ["eligible", "zero", "one"], "not eligible"
    yield "MatMul", ["not eligible", "weight of masks"], "mask product"
    yield "Add", ["context product", "mask product"], "product 0"


def _head() -> Iterator[_Node]:
    yield "Softmax", ["all scores"], "softmax"
    yield "Mul", ["share of the network", "softmax"], "shared"
    yield "Add", ["shared", "floor"], "probabilities"


def _eligible_head() -> Iterator[_Node]:
    """The floor's share is 1 - m·floor over the m eligible actions."""
    yield "Where", ["eligible", "all scores", "never"], "scores"
    yield "Softmax", ["scores"], "softmax"
    yield "Where", ["eligible", "floor", "zero"], "floors"
    yield "ReduceSum", ["floors", "last axis"], "floor mass"
    yield "Sub", ["one", "floor mass"], "share"
    yield "Mul", ["share", "softmax"], "shared"
    yield "Add", ["shared", "floors"], "probabilities"
