"""The report of the experiment of a workspace, as `potstill experiment` makes it."""

from __future__ import annotations

from typing import Any

import msgspec

from potstill.events import now
from potstill.experiments.analysis import (
    Options,
    Report,
    effect_rows,
    report_of,
    segment_rows,
    set_up,
    split_sentence,
)
from potstill.pipeline.queries.errors import CannotAnswer
from potstill.workspace import Workspace


def experiment(workspace: Workspace, *, by: str | None = None) -> dict[str, Any]:
    """The report, and its tables in words.

    Args:
        workspace: The workspace.
        by: Feature to show effects by.
    """
    try:
        found = report_of(workspace, None, Options(by=by), now())
    except ValueError as error:  # no experiment, or a feature that there is not
        raise CannotAnswer(404, str(error)) from error
    return {"report": msgspec.to_builtins(found, enc_hook=str), **_tables(found)}


def _tables(found: Report) -> dict[str, Any]:
    some = bool(found.split.control + found.split.treatment)
    effects = effect_rows(found) if some and not found.split.broken else ([], [])
    segments = segment_rows(found.segments) if found.segments is not None and not found.split.broken else ([], [])
    return {
        "kind": found.verdict.kind,
        "sentence": found.verdict.sentence,
        "often": found.verdict.often,
        "warnings": [*found.warnings],
        "split": split_sentence(found),
        "broken": found.split.broken,
        "set_up": set_up(found),
        "effects": {"header": [*effects[0]], "rows": [[*row] for row in effects[1]]},
        "segments": {"header": [*segments[0]], "rows": [[*row] for row in segments[1]]},
    }
