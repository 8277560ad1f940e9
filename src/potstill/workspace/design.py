"""The initial design of a workspace: which units are to get which actions first, in a file beside the configuration."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from potstill.errors import InvalidAction, PotstillError
from potstill.problem import Problem
from potstill.storage import AlreadyThere, Storage, child

DESIGN = "design.json"
FORMAT = 1


class InvalidDesign(PotstillError, ValueError):
    """A design cannot be made or carried out; the message gives the reason and the way out."""


class DesignPoint(msgspec.Struct, frozen=True):
    """One action for one unit.

    Attributes:
        unit: The unit that gets the action; None if it was forgotten.
        action: The action.
        variance: Posterior variance of its reward, given the points before it, in units of the reward.
    """

    unit: str | None
    action: Any
    variance: float


class InitialDesign(msgspec.Struct, frozen=True, kw_only=True):
    """An initial design.

    Attributes:
        format: Version of the format.
        id: Name of the design: points of another design are handed out again.
        time: When it was made, in microseconds since 1970, UTC.
        problem: Hash of the problem.
        teacher: Configuration of the Gaussian process.
        contexts: Where the contexts come from: table, column of the units, and number of contexts considered.
        information_gain: ½ log det(I + σ⁻²K) of the points, in nats: what their rewards tell about all rewards.
        points: The points, in order of selection.
    """

    format: int = FORMAT
    id: str
    time: int
    problem: str
    teacher: dict[str, Any]
    contexts: dict[str, Any]
    information_gain: float
    points: list[DesignPoint]

    @staticmethod
    def name(time: int, points: list[DesignPoint]) -> str:
        """Name of a design of these points."""
        return hashlib.sha256(msgspec.json.encode((time, points))).hexdigest()[:16]

    def check(self, problem: Problem) -> None:
        """Raise `InvalidDesign` if it is not of a problem."""
        again = "make it again with potstill design --replace, or end it with potstill design --end"
        if self.problem != problem.hash:
            raise InvalidDesign(f"{DESIGN} is for problem {self.problem}, and the problem is {problem.hash}; {again}")
        try:
            for point in self.points:
                problem.actions.parse(point.action)
        except InvalidAction as error:
            raise InvalidDesign(f"{DESIGN}: {error}; {again}") from error


def read_design(storage: Storage) -> InitialDesign | None:
    """The design of a workspace; None if there is none, `InvalidDesign` if it cannot be read."""
    try:
        data = storage.read(DESIGN)
    except FileNotFoundError:
        return None
    return decode_design(data, child(storage.url, DESIGN))


def decode_design(data: bytes, where: str) -> InitialDesign:
    """A design from the text of its file."""
    try:
        design = msgspec.json.decode(data, type=InitialDesign)
    except msgspec.DecodeError as error:
        raise InvalidDesign(f"{where} is not a design: {error}; end it with potstill design --end") from error
    if design.format != FORMAT:
        raise InvalidDesign(f"{where} has format {design.format}, and this version of Potstill reads {FORMAT}")
    return design


def write_design(storage: Storage, design: InitialDesign, *, replace: bool) -> None:
    """Write a design; `InvalidDesign` if there is one already and it is not to be replaced."""
    data = msgspec.json.format(msgspec.json.encode(design), indent=1)
    if replace:
        storage.replace(DESIGN, data)
        return
    try:
        storage.create(DESIGN, data)
    except AlreadyThere:
        raise InvalidDesign(
            f"{child(storage.url, DESIGN)} exists already; replace it with --replace, or end it with --end"
        ) from None


def end_design(storage: Storage) -> None:
    """Delete the design; services stop handing its points out."""
    storage.delete(DESIGN)


def forget_in_design(storage: Storage, unit: str) -> int:
    """Take a unit out of the design; returns the number of its points. Other points keep their places."""
    design = read_design(storage)
    count = 0 if design is None else sum(point.unit == unit for point in design.points)
    if design is not None and count:
        kept = [msgspec.structs.replace(one, unit=None) if one.unit == unit else one for one in design.points]
        write_design(storage, msgspec.structs.replace(design, points=kept), replace=True)
    return count
