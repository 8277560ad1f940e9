"""Before launch: what a policy's log will be good for, and what a floor would change."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console

from potstill.cli.app import AsJson, needs, print_json, refusing
from potstill.cli.common import MENDABLE, Place
from potstill.cli.evaluate import evaluate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from potstill.evaluate.lake_log import LakeLog
    from potstill.evaluate.planning import Floored, Plan
    from potstill.problem import Problem
    from potstill.workspace import Workspace

#: Contexts that are looked at, of the most recent ones.
_CONTEXTS = 20_000
#: The least floor that is considered if none is stated.
_USUAL = 0.01


@evaluate.command()
def plan(
    place: Place,
    policy: Annotated[
        str | None, typer.Option(help="A version or the file of a policy; the serving version if left out.")
    ] = None,
    floor: Annotated[
        float | None,
        typer.Option(min=0.0, max=0.5, help="A floor to consider; one above the policy's own if left out."),
    ] = None,
    rows: Annotated[int, typer.Option(min=2, help="How many decisions will be logged.")] = 10_000,
    contexts: Annotated[
        str | None, typer.Option(help="A table of contexts; the most recent ones of the lake if left out.")
    ] = None,
    sd: Annotated[
        float | None, typer.Option(help="The standard deviation of rewards; that of the lake if left out.")
    ] = None,
    level: Annotated[float, typer.Option(help="The confidence of intervals.")] = 0.95,
    as_json: AsJson = False,
) -> None:
    """Foresee how well the log of a policy will do to evaluate other policies, before it serves.

    What a policy hardly ever does, its log can say little about. A floor, the smallest probability of any action, makes
    later evaluations sharper, and costs a little reward now.

    Example: potstill evaluate plan video --floor 0.02
    """
    with needs("lake"):
        from potstill.cli.evaluate_logs import policy_of
        from potstill.cli.evaluate_plan_terminal import Shown, show_plan
        from potstill.evaluate.lake_log import LakeLog
        from potstill.evaluate.planning import FLOORS
        from potstill.evaluate.planning import plan as planned
        from potstill.workspace import Workspace

    with refusing(*MENDABLE):
        workspace = Workspace(place)
        chosen = workspace.serving() if policy is None else policy_of(workspace, policy)
        considered = _floor(floor, chosen.floor, len(workspace.problem.actions))
        log = LakeLog(workspace)
        rewards = _rewards(log)
        found = planned(
            workspace.problem,
            chosen,
            _contexts(workspace, log, contexts),
            floors=sorted({*FLOORS, considered, chosen.floor}),
            sd=sd if sd is not None else float(rewards.std()) or None,
            rewards=_model(log),
            level=level,
        )
    if as_json:
        print_json(_for_machines(found, rows))
    else:
        show_plan(found, considered, Shown(rows, _range(workspace.problem, rewards)), Console())


def _floor(stated: float | None, own: float, actions: int) -> float:
    """The floor to consider: what is stated, or the next one above the policy's own that the actions allow."""
    from potstill.evaluate.planning import FLOORS

    if stated is None:
        higher = [floor for floor in FLOORS if own < floor <= 1 / actions]
        return next((floor for floor in higher if floor >= _USUAL), max(higher, default=own))
    if stated > 1 / actions:
        raise ValueError(f"--floor must be at most 1/{actions}, one over the actions, got {stated}")
    return stated


def _for_machines(found: Plan, rows: int) -> dict[str, Any]:
    """The plan, with the half-widths that so many rows will give beside those for one row."""

    def at_rows(floored: Floored) -> dict[str, Any]:
        targets = [
            {**msgspec.to_builtins(one), "half_width_at_rows": one.half_width_at(rows)} for one in floored.targets
        ]
        return {**msgspec.to_builtins(floored), "targets": targets}

    widths = {"current": at_rows(found.current), "floors": [at_rows(each) for each in found.floors]}
    return {"rows": rows, **msgspec.to_builtins(found), **widths}


def _contexts(workspace: Workspace, log: LakeLog, table: str | None) -> Any:
    from potstill.evaluate.table_log import table_contexts

    if table is not None:
        return table_contexts(table, workspace.problem, _CONTEXTS)
    found = log.recent_contexts(_CONTEXTS)
    if not len(found):
        raise ValueError(
            f"{workspace.url} has no observations to take contexts from; name a table of contexts with --contexts: "
            f"columns {', '.join(feature.name for feature in workspace.problem.context)}"
        )
    return found


def _rewards(log: LakeLog) -> NDArray[np.float64]:
    """All that were logged; a zero if none were."""
    import numpy as np

    return np.concatenate([block.rewards for block in log.blocks()] or [np.zeros(1)])


def _range(problem: Problem, rewards: NDArray[np.float64]) -> float | None:
    """Of rewards: between their bounds, or of those that were logged; None if they are all the same."""
    low, high = problem.reward.low, problem.reward.high
    if low is not None and high is not None:
        return high - low
    return float(rewards.max() - rewards.min()) or None


def _model(log: LakeLog) -> Callable[[Any], Any] | None:
    """What each action earns by the log, for what a floor costs; None without a log."""
    from potstill.evaluate.models import fitted

    if not len(log):
        return None
    model = fitted(None, log)
    return lambda contexts: model.predict(contexts, 0)
