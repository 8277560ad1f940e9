"""One decision, as it is returned and logged."""

from __future__ import annotations

import msgspec


class Decision(msgspec.Struct, frozen=True, repr_omit_defaults=True, omit_defaults=True):
    """What was decided, and with what probability.

    Attributes:
        id: names the decision; its reward arrives under the same id, and the draw is a function of it.
        action: the chosen action.
        propensity: the exact probability with which that action was chosen.
        policy: version of the policy that decided.
        eligible: the actions that were allowed, if not all of them were.
        floor: the smallest propensity that was asked for, if it was not the policy's own.
    """

    id: str
    action: str
    propensity: float
    policy: int
    eligible: tuple[str, ...] | None = None
    floor: float | None = None
