"""One decision, as it is returned and logged."""

from __future__ import annotations

from typing import Any

import msgspec


class Decision(msgspec.Struct, frozen=True, repr_omit_defaults=True, omit_defaults=True):
    """What was decided, and with what probability.

    Attributes:
        id: Names the decision; its reward arrives under the same id, and the draw is a function of it.
        action: The chosen action: a name of a list, or what else the action space has.
        propensity: The exact probability, or density, with which that action was chosen.
        policy: Version of the policy that decided.
        eligible: The actions that were allowed, if not all of them were.
        floor: The smallest propensity that was asked for, if it was not the policy's own.
    """

    id: str
    action: Any
    propensity: float
    policy: int
    eligible: Any = None
    floor: float | None = None
