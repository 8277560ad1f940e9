"""Why rows of a log are left out of an evaluation. A module of its own, without Polars: the command line shows it."""

from __future__ import annotations

#: Reason by source of an observation, ``"unfit"``, or ``"outside"`` of the time asked for.
WHY = {
    "import-estimated": "imported without propensities; each action's share of the log is used instead",
    "apprentice": "your code chose, so the policy's propensity is not that of the choice",
    "log-only": "your code decided and stated no probability",
    "fallback": "no policy was available, and a fixed action was taken",
    "control": "the control's fixed action or rule decided, with probability 1",
    "unfit": "do not fit the present problem: it has changed since",
}
