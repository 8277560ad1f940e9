"""The rows in a frame of a segment, of any format."""

from __future__ import annotations

import msgspec

from potstill.events.records import DecisionBlock, DecisionRow, FeatureValue, ObservationRow, Row, Value


class _FirstDecision(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="d", forbid_unknown_fields=True):
    """A decision of the first segments of format 1, which had no place for unit and mode before the values."""

    id: str
    time: int
    action: Value
    propensity: float
    policy: int
    eligible: Value | None
    floor: float | None
    values: tuple[FeatureValue, ...]

    def row(self) -> DecisionRow:
        """The same as it is stored now."""
        stated = (self.id, self.time, self.action, self.propensity, self.policy, self.eligible, self.floor)
        return DecisionRow(*stated, unit=None, mode=None, values=self.values)


class _FirstObservation(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="o", forbid_unknown_fields=True):
    """An observation of the same segments."""

    decision: _FirstDecision
    reward: float | None
    reward_time: int

    def row(self) -> ObservationRow:
        """The same as it is stored now."""
        return ObservationRow(self.decision.row(), self.reward, self.reward_time)


def rows_of(payload: bytes | memoryview, segment_format: int) -> list[Row]:
    """The rows of a frame.

    Args:
        payload: The frame without length and checksum.
        segment_format: Format that the segment's header states.

    Raises:
        msgspec.DecodeError: They cannot be decoded.
        ValueError: The columns of a block differ in length.
    """
    try:
        found = _decode(payload)
    except msgspec.ValidationError:
        if segment_format > 1:
            raise
        return [_decode_first(payload).row()]
    return list(found.rows()) if isinstance(found, DecisionBlock) else [found]


_decode = msgspec.msgpack.Decoder(Row | DecisionBlock).decode
_decode_first = msgspec.msgpack.Decoder(_FirstDecision | _FirstObservation).decode
