"""What became of each line of a log."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from potstill.tables.dsjson.names import NameRule

#: Places that are named of the lines left out for one reason.
PLACES = 3


class LeftOut(msgspec.Struct, kw_only=True):
    """Lines that were left out for one reason.

    Attributes:
        lines: Their number.
        places: The first of them, as ``FILE:LINE``.
    """

    lines: int = 0
    places: list[str] = []

    def add(self, place: str) -> None:
        """Count a line."""
        self.lines += 1
        if len(self.places) < PLACES:
            self.places.append(place)


class DsjsonReport(msgspec.Struct, frozen=True, kw_only=True):
    """Every line once: events, outcomes, and lines left out.

    Attributes:
        files: Number of files.
        lines: Number of lines that are not blank.
        events: Events that became rows of the table.
        outcomes: Lines that hold an outcome of an event.
        dangling: Those of them whose event is not among the rows.
        left_out: Other lines, by reason.
        named_by: What actions are named by.
        actions: Number of actions.
        action_features: Whether actions have features beside their names.
        restricted: Events in which not all actions were offered.
        weighted: Events that had a probability of being dropped, and weigh more than 1.
        baselines: Events that name a baseline action.
        untimed: Events without a usable time, which have that of the event before.
        left_out_features: Features that are left out: others are more frequent, or differ only in case.
    """

    files: int
    lines: int
    events: int
    outcomes: int
    dangling: int
    left_out: Mapping[str, LeftOut]
    named_by: NameRule
    actions: int
    action_features: bool
    restricted: int
    weighted: int
    baselines: int
    untimed: int
    left_out_features: int
