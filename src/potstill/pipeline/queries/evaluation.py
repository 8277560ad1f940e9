"""``python -m potstill.pipeline.queries.evaluation PLACE BY``: evaluate what could serve, for the page.

Rows are what was logged, the serving version, versions that are staged or refused, the uniform policy, and fixed
actions; all on the same decisions and compared with the serving version. Progress is in a file of this machine's
spool, and the result in the workspace.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from potstill.errors import PotstillError
from potstill.evaluate import Evaluation, FixedActionTarget, LakeLog, Target, evaluate, target, text
from potstill.events import now
from potstill.files import hold, make_folder, write_atomically
from potstill.policy import Policy
from potstill.registry import CorruptVersion, UnknownVersion
from potstill.spaces import FiniteSpace
from potstill.workspace import Workspace, fallback_of

#: Files in the spool: progress, and a lock while an evaluation runs; and the result in the workspace.
PROGRESS, LOCK, RESULT = "evaluation.json", "evaluation.lock", "evaluation.json"
#: The most candidates, and the most actions of which each is evaluated as a policy of its own.
CANDIDATES, ACTIONS = 4, 8
#: Seconds between two writes of the progress.
PAUSE = 0.5
ESTIMATOR, LEVEL = "dr", 0.95


class _Named(NamedTuple):
    kind: str
    version: int | None
    target: Target


def main() -> None:
    """Evaluate, unless an evaluation runs already."""
    workspace, by = Workspace(sys.argv[1]), sys.argv[2]
    make_folder(workspace.spool)
    if (held := hold(workspace.spool / LOCK, wait=False)) is None:
        return
    state = {"begun": now(), "by": by, "done": 0, "of": 0, "step": "reading the log", "error": None}

    def write(**changes: Any) -> None:
        state.update(changes)
        write_atomically(workspace.spool / PROGRESS, msgspec.json.encode(state))

    try:
        write()
        workspace.storage.replace(RESULT, msgspec.json.encode(_run(workspace, by, write)))
        write(step="done")
    except (PotstillError, OSError, ValueError) as error:
        write(step="failed", error=str(error))
    finally:
        os.close(held)


def _run(workspace: Workspace, by: str, write: Callable[..., None]) -> dict[str, Any]:
    begun, last = now(), [0.0]

    def progress(done: int, of: int) -> None:
        if time.monotonic() - last[0] >= PAUSE:
            last[0] = time.monotonic()
            write(rows=[done, of])

    log = LakeLog(workspace, on_progress=progress)
    if not len(log):
        raise ValueError(_empty(log))
    serving = target(workspace.problem, workspace.registry.policy())
    named = [*_targets(workspace)]
    rows, logged = [], None
    for number, one in enumerate(named):
        write(done=number, of=len(named), step=one.target.name)
        against = None if one.kind == "serving" else serving
        found = evaluate(log, one.target, against, estimators=(ESTIMATOR,), level=LEVEL)
        logged = found.logged
        rows.append(_row(one, found))
    return {
        "by": by,
        "begun": begun,
        "ended": now(),
        "decisions": len(log),
        "span": log.span,
        "level": LEVEL,
        "left_out": text.left_out(log.left_out),
        "rows": [*([] if logged is None else [_logged(logged)]), *rows],
    }


def _empty(log: LakeLog) -> str:
    why = "; ".join(text.left_out(log.left_out))
    then = "potstill update joins decisions with their rewards once their window has closed"
    return f"there are no observations to evaluate on{f' ({why})' if why else ''}: {then}"


def _targets(workspace: Workspace) -> Iterator[_Named]:
    """What is evaluated; the serving version first."""
    problem, serving = workspace.problem, workspace.registry.policy()
    yield _Named("serving", serving.version, target(problem, serving))
    listed = [one for one in workspace.registry.versions() if one.problem == problem.hash]
    fit = [one.version for one in listed if one.state in ("staged", "refused")]
    before = [one.version for one in listed if one.state == "served before" and one.observations]
    for version in [*reversed(fit[-CANDIDATES:]), *before[-1:]]:
        with contextlib.suppress(UnknownVersion, CorruptVersion):
            policy: Policy = workspace.registry.policy(version)
            yield _Named("candidate", version, target(problem, policy))
    yield _Named("uniform", None, target(problem, "uniform"))
    fallback = fallback_of(workspace)
    actions = problem.actions.labels if isinstance(problem.actions, FiniteSpace) else ()
    fixed = list(actions) if len(actions) <= ACTIONS else []
    if fallback is not None:
        fixed = [fallback, *(action for action in fixed if action != fallback)]
    for action in fixed:
        name = f"always {action}" + (" (fallback)" if action == fallback else "")
        yield _Named("fixed", None, target(problem, FixedActionTarget(problem, action), name))


def _row(one: _Named, found: Evaluation) -> dict[str, Any]:
    estimate, trust = found.estimate, found.target.trust
    difference = (found.difference or {}).get(ESTIMATOR)
    return {
        "kind": one.kind,
        "version": one.version,
        "name": found.target.name,
        "value": estimate.value,
        **_ends("", estimate.intervals.get("likelihood")),
        "difference": None if difference is None else difference.value,
        **_ends("difference_", None if difference is None else difference.intervals.get("likelihood")),
        "effective": found.target.diagnostics.effective,
        "grade": trust.grade,
        "sentence": " ".join(part for part in (trust.sentence, trust.advice) if part),
    }


def _logged(logged: Any) -> dict[str, Any]:
    nothing = {"difference": None, "difference_low": None, "difference_high": None, "effective": None}
    about = {"kind": "logged", "version": None, "name": "what was done", "grade": "good", "sentence": ""}
    return {**about, "value": logged.value, **_ends("", logged.intervals.get("likelihood")), **nothing}


def _ends(prefix: str, interval: Any) -> dict[str, Any]:
    """Ends of an interval; None where they are infinite, which JSON does not have."""
    low, high = (None, None) if interval is None else interval.ends
    finite = {"low": low, "high": high}
    return {
        f"{prefix}{name}": end if end is not None and abs(end) < float("inf") else None for name, end in finite.items()
    }


if __name__ == "__main__":
    main()
