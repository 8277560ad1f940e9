"""What a new policy would have earned in place of the one that serves, from what was logged."""

from __future__ import annotations

import math

import msgspec

from potstill.evaluate import LakeLog, Trust, evaluate
from potstill.policy import Policy
from potstill.workspace import Workspace

#: Doubly robust: right if either the propensities are, which they are, or the reward model is, and precise if both.
ESTIMATOR = "dr"
LEVEL = 0.95


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A new policy against the serving one, on the same logged decisions.

    The new one has learnt from these decisions, so that the comparison is a little in its favour: it finds what went
    wrong, and does not prove what went right. For that there are experiments.

    Attributes:
        against: the version that serves.
        rows: logged decisions with exact propensities.
        value: what the new policy would have earned per decision.
        difference: what it would have earned more.
        low: the lower end of that difference's interval.
        high: the upper end.
        level: the confidence of the interval.
        trust: whether the log can tell, in words.
    """

    against: int
    rows: int
    value: float
    difference: float
    low: float
    high: float
    level: float
    trust: Trust

    @property
    def in_words(self) -> str:
        """The difference, with its interval."""
        said = (
            f"{self.difference:+.3g} per decision ({100 * self.level:.4g} % interval {self.low:+.3g} to "
            f"{self.high:+.3g}, from {self.rows:,} decisions)"
        )
        return said.replace("-", "−")


def compare(workspace: Workspace, policy: Policy, serving: Policy, after: int, to: int) -> Comparison | None:
    """Compare on the observations of cuts above `after` and up to `to`; None if they cannot tell at all."""
    log = LakeLog(workspace, after, to)
    if not len(log) or serving.problem.hash != policy.problem.hash:
        return None
    found = evaluate(log, policy, against=serving, estimators=(ESTIMATOR,), level=LEVEL)
    value, difference = found.estimate.value, (found.difference or {})[ESTIMATOR]
    low, high = difference.intervals["normal"].ends
    if value is None or difference.value is None or not math.isfinite(high - low):
        return None
    return Comparison(
        against=serving.version,
        rows=found.rows,
        value=value,
        difference=difference.value,
        low=low,
        high=high,
        level=LEVEL,
        trust=found.target.trust,
    )
