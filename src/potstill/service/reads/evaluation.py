"""Off-policy evaluation of what could serve: begun from the page, and run by a process of low priority."""

from __future__ import annotations

import asyncio
import os
from datetime import datetime

import msgspec
from msgspec import Struct

from potstill.files import hold, make_folder
from potstill.service.background import begin
from potstill.service.http import Refusal
from potstill.service.problem_service import ProblemService
from potstill.service.wire import moment

#: Named, not imported: what it loads must not be loaded here.
MODULE = "potstill.pipeline.queries.evaluation"
_PROGRESS, _LOCK, _RESULT = "evaluation.json", "evaluation.lock", "evaluation.json"


class EvaluationRow(Struct, frozen=True, kw_only=True):
    """One policy: its estimated reward per decision, and the difference to the serving version, with intervals.

    `kind` is logged, serving, candidate, uniform or fixed; `version` is null for what is no version. `effective` is the
    number of decisions of its own that would say as much; `grade` (good, caution or no) and `sentence` say how far the
    estimate can be trusted.
    """

    kind: str
    version: int | None
    name: str
    value: float | None
    low: float | None
    high: float | None
    difference: float | None
    difference_low: float | None
    difference_high: float | None
    effective: float | None
    grade: str
    sentence: str

    @property
    def is_worse(self) -> bool:
        """Whether it earns surely less than the serving version, as far as the log can be trusted."""
        return self.grade != "no" and self.difference_high is not None and self.difference_high < 0


class EvaluationResult(Struct, frozen=True, kw_only=True):
    """The last evaluation: who asked for it, when it began and ended, on how many decisions, and its rows."""

    by: str
    begun: int
    ended: int
    decisions: int
    span: tuple[int, int] | None
    level: float
    left_out: list[str]
    rows: list[EvaluationRow]


class EvaluationReply(Struct, frozen=True, kw_only=True):
    """The last evaluation, and the one that runs.

    `state` is none, running, done, interrupted or failed; while it runs, `done` of `of` policies are evaluated, and
    `step` is the present one. `error` says why the last one failed.
    """

    state: str
    since: datetime | None = None
    by: str = ""
    done: int = 0
    of: int = 0
    step: str = ""
    error: str | None = None
    result: EvaluationResult | None = None


class _Progress(Struct, frozen=True):
    begun: int
    by: str
    done: int
    of: int
    step: str
    error: str | None = None


def read_evaluation(service: ProblemService) -> EvaluationReply:
    """The last evaluation, and the one that runs on this machine."""
    result, progress = _result(service), _progress(service)
    if progress is None:
        return EvaluationReply(state="none" if result is None else "done", result=result)
    state = progress.step if progress.step in ("done", "failed") else "running" if _runs(service) else "interrupted"
    return EvaluationReply(
        state=state,
        since=moment(progress.begun),
        by=progress.by,
        done=progress.done,
        of=progress.of,
        step=progress.step,
        error=progress.error,
        result=result,
    )


async def begin_evaluation(service: ProblemService, by: str) -> None:
    """Begin an evaluation; `Refusal` if one runs on this machine."""
    if await asyncio.to_thread(_runs, service):
        raise Refusal(409, "conflict", "an evaluation runs already; wait until it is done")
    progress = service.workspace.spool / _PROGRESS
    progress.unlink(missing_ok=True)
    await begin(service, MODULE, [by], progress.exists)


def worse_than_serving(service: ProblemService, version: int) -> str | None:
    """Why the last evaluation is against a version; None if it is not, or says nothing about it."""
    result = _result(service)
    for row in [] if result is None else result.rows:
        if row.version == version and row.kind == "candidate" and row.is_worse and row.difference is not None:
            return f"by the last evaluation it earns {row.difference:+.3g} per decision against the serving version"
    return None


def _runs(service: ProblemService) -> bool:
    make_folder(service.workspace.spool)
    held = hold(service.workspace.spool / _LOCK, wait=False)
    if held is None:
        return True
    os.close(held)
    return False


def _progress(service: ProblemService) -> _Progress | None:
    try:
        return msgspec.json.decode((service.workspace.spool / _PROGRESS).read_bytes(), type=_Progress)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _result(service: ProblemService) -> EvaluationResult | None:
    try:
        return msgspec.json.decode(service.workspace.storage.read(_RESULT), type=EvaluationResult)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
