"""Which rows of a log a policy was trained on, by its lineage, and what that does to the verdict."""

from __future__ import annotations

from potstill.evaluate.diagnostics import Trust
from potstill.evaluate.log import Log
from potstill.evaluate.targets import Target
from potstill.policy import Policy

#: Caveat for policies that were trained on rows of the log, and the way out.
LOOKS_BETTER = "A policy looks a little better on what it has learnt from than it is."
UNSEEN = "--unseen takes later decisions only."
#: ... and the way out where the log does not say which rows these are.
HELD_OUT = "--held-out states that it was not."


def training_rows(log: Log, target: Target) -> int | None:
    """Number of a log's rows that a target was trained on, by its lineage; None if the log cannot tell.

    A log that can tell has a method ``training_rows(policy)``, as `LakeLog` has.
    """
    policy: Policy | None = getattr(target, "policy", None)
    if policy is None or not _has_learnt(policy):
        return 0
    count = getattr(log, "training_rows", None)
    return None if count is None else count(policy)


def _has_learnt(policy: Policy) -> bool:
    lineage = policy.metadata.lineage
    return bool(lineage.observations) or (lineage.origin is not None and not lineage.origin.get("prior"))


def with_training_overlap(found: Trust, learnt: int | None, rows: int) -> Trust:
    """The verdict on a policy that was trained on some of the rows, which flatter it; None if that is not known."""
    if found.grade != "good" or learnt == 0:
        return found
    if learnt is None:
        return Trust("caution", f"This policy was trained, perhaps on these decisions. {LOOKS_BETTER}", HELD_OUT)
    of = "all" if learnt == rows else f"{learnt:,}"
    return Trust("caution", f"This policy has learnt from {of} of these decisions. {LOOKS_BETTER}", UNSEEN)


def is_training_overlap(found: Trust) -> bool:
    """Whether the verdict is a caution for training overlap."""
    return found.advice in (UNSEEN, HELD_OUT)
