"""The explicit policy: probabilities, decisions, and the one-file artifact."""

from potstill.policy.artifact import InvalidPolicy, Lineage, Metadata
from potstill.policy.decision import Decision
from potstill.policy.network import Activation, Layer
from potstill.policy.policy import Policy

__all__ = ["Activation", "Decision", "InvalidPolicy", "Layer", "Lineage", "Metadata", "Policy"]
