"""Off-policy comparison of a new policy with the serving one, for the gates of an update."""

from __future__ import annotations

import math

import msgspec

from potstill.evaluate import LakeLog, Trust, evaluate
from potstill.policy import Policy
from potstill.workspace import Workspace

#: Doubly robust: unbiased, as propensities are exact, and precise if the reward model is good.
ESTIMATOR = "dr"
LEVEL = 0.95


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A new policy against the serving one, on the same logged decisions.

    The new one was trained on these decisions, which favours it slightly: the comparison detects regressions, and does
    not prove improvements. Experiments do.

    Attributes:
        against: Serving version.
        rows: Number of logged decisions with exact propensities.
        value: Estimated reward of the new policy per decision.
        difference: Value of the new policy minus that of the serving one.
        low: Lower end of the difference's interval.
        high: Upper end of the difference's interval.
        level: Confidence level of the interval.
        trust: Verdict on the estimate.
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
        """The difference with its interval, as text."""
        said = (
            f"{self.difference:+.3g} per decision ({100 * self.level:.4g} % interval {self.low:+.3g} to "
            f"{self.high:+.3g}, from {self.rows:,} decisions)"
        )
        return said.replace("-", "−")


def compare(workspace: Workspace, policy: Policy, serving: Policy, after: int, to: int) -> Comparison | None:
    """Compare on the observations of cuts above `after` and up to `to`; None if there is no finite interval."""
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
