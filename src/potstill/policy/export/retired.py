"""Retired actions, which exports to C and ONNX know nothing of."""

from __future__ import annotations

from potstill.errors import UnsupportedSpace
from potstill.policy.policy import Policy


def refuse_retired(policy: Policy, target: str) -> None:
    """Raise `UnsupportedSpace` if a policy has retired actions, which the export would choose."""
    retired = getattr(policy.problem.actions, "retired", ())
    if retired:
        raise UnsupportedSpace(
            f"a policy with retired actions ({', '.join(retired)}) cannot be exported to {target}, which would choose "
            "them; remove them with potstill actions remove and export the version that follows, or export to js"
        )
