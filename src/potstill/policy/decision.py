"""One decision, as it is returned and logged."""

from __future__ import annotations

from typing import Any

import msgspec


class Decision(msgspec.Struct, frozen=True, repr_omit_defaults=True, omit_defaults=True):
    """A chosen action and its propensity.

    Attributes:
        id: Id of the decision. Its reward is reported under the same id, and the draw is a function of it.
        action: The chosen action, a value of the action space; for a list of actions, a name.
        propensity: Exact probability, or density, with which that action was chosen.
        policy: Version of the policy that decided.
        eligible: The allowed actions; None if all were allowed.
        floor: Smallest propensity, if the request set one; None for the policy's own.
    """

    id: str
    action: Any
    propensity: float
    policy: int
    eligible: Any = None
    floor: float | None = None
