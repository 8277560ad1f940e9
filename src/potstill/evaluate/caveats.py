"""What the weights of an estimate do not show: an estimator that is biased, a policy that has learnt from the log."""

from __future__ import annotations

from potstill.evaluate.diagnostics import Trust

#: Share of the rows that a policy has learnt from, above which its estimate rests on them more than on others.
LEARNT_CAUTION = 0.5

_REPLAY = "the log's actions were not uniformly random, so replay is biased"
_MODEL = "the intervals leave out how wrong the reward model is"
_OTHERS = "Let another estimator speak, such as dr or snips."
#: Said of policies that have learnt from rows of the log, and what to do about it.
LOOKS_BETTER = "A policy looks a little better on what it has learnt from than it is."
UNSEEN = "--unseen takes later decisions only."


def note(estimator: str, *, uniform: bool) -> str:
    """Why an estimator may be biased on a log, whose actions were `uniform`ly random or not; mostly empty."""
    if estimator == "replay" and not uniform:
        return _REPLAY
    return _MODEL if estimator == "dm" else ""


def by_estimator(found: Trust, said: str) -> Trust:
    """The trust in an estimate that has such a note: none in one that is biased, and good in neither."""
    if not said or (found.grade != "good" and said != _REPLAY):
        return found
    return Trust("no" if said == _REPLAY else "caution", f"{said[0].upper()}{said[1:]}.", _OTHERS)


def by_learning(found: Trust, learnt: int, rows: int) -> Trust:
    """The trust in a policy that has learnt from some of the rows: it looks better on them than it is."""
    if found.grade != "good" or learnt <= LEARNT_CAUTION * rows:
        return found
    of = "all" if learnt == rows else f"{learnt:,}"
    return Trust("caution", f"This policy has learnt from {of} of these decisions. {LOOKS_BETTER}", UNSEEN)


def is_by_learning(found: Trust) -> bool:
    """Whether that is why there is caution."""
    return found.advice == UNSEEN
