"""The choice of a student: what a search has tried, which student it chose, and what an update says of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from potstill.distill.student import AutoStudent
from potstill.policy import Lineage


class TriedStudent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A student that a search has trained.

    Attributes:
        hidden: Units of each hidden layer.
        steps: Number of steps that it was allowed.
        kl: Held-out KL(teacher ‖ student) in nats.
        bytes: Bytes of its weights in a policy file.
        microseconds: Median time of one decision on this machine; None in a lineage, which holds no timings.
    """

    hidden: tuple[int, ...]
    steps: int
    kl: float
    bytes: int
    microseconds: float | None = None


class StudentChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A choice, as recorded in the lineage of every policy whose student it is.

    Attributes:
        auto: Settings of the search.
        version: Version whose update searched.
        kl: Held-out KL of that version in nats.
        hidden: Units of each hidden layer of the chosen student.
        steps: Steps of the chosen student.
        tried: Students that were compared.
    """

    auto: AutoStudent
    version: int
    kl: float
    hidden: tuple[int, ...]
    steps: int
    tried: list[TriedStudent]

    @classmethod
    def of(cls, lineage: Lineage, auto: AutoStudent) -> StudentChoice | None:
        """The choice in a lineage, if it was made with the same settings; another budget is no other setting."""
        if lineage.choice is None:
            return None
        try:
            found = msgspec.convert(lineage.choice, cls)
        except ValueError:  # a setting that this version of Potstill does not have
            return None
        return found if msgspec.structs.replace(found.auto, budget=auto.budget) == auto else None

    def record(self) -> dict[str, Any]:
        """The choice for a lineage, without timings: equal results give equal files."""
        timeless = [msgspec.structs.replace(one, microseconds=None) for one in self.tried]
        record: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(self, tried=timeless))
        return record

    def still_good(self, kl: float) -> bool:
        """Whether a divergence is not above `again` times that after the search, and negligible nats."""
        return kl <= self.auto.again * self.kl + self.auto.negligible


class ChoiceReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an update says of a student that was chosen.

    Attributes:
        searched: Whether this update searched.
        why: Why it did, or why it did not.
        version: Version whose update chose the student.
        hidden: Units of each hidden layer.
        steps: Number of steps that it is allowed.
        file_bytes: Size of the policy file.
        microseconds: Median time of one decision from an encoded context, on this machine.
        tried: Students that were compared, the lowest divergence first; from the last search.
        seconds: Duration of the search; 0 if this update did not search.
    """

    searched: bool
    why: str
    version: int
    hidden: tuple[int, ...]
    steps: int
    file_bytes: int
    microseconds: float
    tried: list[TriedStudent]
    seconds: float


def smallest_within(tried: Sequence[TriedStudent], auto: AutoStudent) -> TriedStudent:
    """The smallest student whose divergence is within the tolerance of the best; of equal ones that of fewest steps."""
    most = min(one.kl for one in tried) * (1 + auto.tolerance) + auto.negligible
    return min((one for one in tried if one.kl <= most), key=lambda one: (one.bytes, one.steps))
