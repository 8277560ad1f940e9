"""The explicit policy: probabilities, decisions, and the one-file artifact."""

from potstill.policy.artifact import InvalidPolicy, Lineage, Metadata
from potstill.policy.decision import Decision
from potstill.policy.draw import SALT_BYTES, uniform
from potstill.policy.explain import Explanation, explain
from potstill.policy.explain_number import NumberExplanation, explain_number
from potstill.policy.native_runtime import digests
from potstill.policy.network import Activation, Layer, masked_inputs, outputs
from potstill.policy.policy import UNDERFLOW, Policy
from potstill.policy.runtime import default, why_not_native
from potstill.policy.tower import NEW_ITEM, Tower, inputs_of

__all__ = [
    "NEW_ITEM",
    "SALT_BYTES",
    "UNDERFLOW",
    "Activation",
    "Decision",
    "Explanation",
    "InvalidPolicy",
    "Layer",
    "Lineage",
    "Metadata",
    "NumberExplanation",
    "Policy",
    "Tower",
    "default",
    "digests",
    "explain",
    "explain_number",
    "inputs_of",
    "masked_inputs",
    "outputs",
    "uniform",
    "why_not_native",
]
