"""Assignment of units to arms: a pure function of the experiment's name, the unit and the share.

    salt = the first 16 bytes of SHA-256("potstill experiment " + name)
    u    = (SipHash-2-4(key=salt, unit) >> 11) · 2⁻⁵³
    arm  = treatment if u < share, else control

with texts in UTF-8 and the hash of `potstill.policy.draw`. So a unit has the same arm on every machine for as long as
the experiment keeps its name, a larger share only moves units from control to treatment, and the arms of two
experiments are independent, since their salts differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from potstill.experiments.config import Arm
from potstill.policy import SALT_BYTES, Policy, uniform
from potstill.problem import Discrete, Problem


def arm_of(name: str, unit: str, share: float) -> Arm:
    """The arm of a unit in an experiment."""
    return "treatment" if uniform(unit, salt_of(name)) < share else "control"


def salt_of(name: str) -> bytes:
    """The key under which the units of an experiment are hashed."""
    return hashlib.sha256(f"potstill experiment {name}".encode()).digest()[:SALT_BYTES]


def unit_of(value: object) -> str | None:
    """The unit of a feature's value; None if it is missing or empty.

    Numbers are written in decimals, integers without a point: 7, not 7.0.
    """
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return None if value is None else str(value) or None


class Assignment:
    """Assignment of many units at a time: as `arm_of`, in a tenth of the time with the native kernel.

    Args:
        name: Name of the experiment.
        share: Share of units in treatment.
    """

    def __init__(self, name: str, share: float) -> None:
        self._share, self._uniforms = share, _uniforms(salt_of(name))

    def treated(self, units: Sequence[str]) -> NDArray[np.bool_]:
        """Whether each unit is in treatment, bool[N]."""
        return self._uniforms(units) < self._share


def _uniforms(salt: bytes) -> Callable[[Sequence[str]], NDArray[np.float64]]:
    """The uniform draws of a policy with this salt; only its hash is used."""
    policy = Policy.uniform(Problem(name="arms", context=[], actions=Discrete(["control", "treatment"])))
    return policy.with_salt(salt).uniforms
