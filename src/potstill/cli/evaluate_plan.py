"""Before launch: what a policy's log will be good for, and what a floor would change."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from potstill.cli.app import AsJson, needs, print_json, refusing
from potstill.cli.evaluate import evaluate
from potstill.cli.place import MENDABLE, Place

if TYPE_CHECKING:
    from potstill.evaluate.exploration import Floored, Foresight, Plan
    from potstill.evaluate.lake import LakeLog
    from potstill.workspace import Workspace

#: Contexts that are looked at, of the most recent ones.
_CONTEXTS = 20_000


@evaluate.command()
def plan(
    place: Place,
    policy: Annotated[
        str | None, typer.Option(help="A version or the file of a policy; the serving version if left out.")
    ] = None,
    floor: Annotated[float, typer.Option(min=0.0, max=0.5, help="A floor to consider.")] = 0.01,
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
        from potstill.evaluate.exploration import FLOORS
        from potstill.evaluate.exploration import plan as planned
        from potstill.evaluate.lake import LakeLog
        from potstill.workspace import Workspace

    with refusing(*MENDABLE):
        workspace = Workspace(place)
        if floor > 1 / len(workspace.problem.actions):
            raise ValueError(
                f"--floor must be at most 1/{len(workspace.problem.actions)}, one over the actions, got {floor}"
            )
        chosen = workspace.serving() if policy is None else policy_of(workspace, policy)
        log = LakeLog(workspace)
        found = planned(
            workspace.problem,
            chosen,
            _contexts(workspace, log, contexts),
            floors=sorted({*FLOORS, floor, chosen.floor}),
            sd=sd if sd is not None else _spread(log),
            rewards=_model(log),
            level=level,
        )
    if as_json:
        print_json(found)
    else:
        show_plan(found, floor, rows, Console())


def _contexts(workspace: Workspace, log: LakeLog, table: str | None) -> Any:
    from potstill.evaluate.table import table_contexts

    if table is not None:
        return table_contexts(table, workspace.problem, _CONTEXTS)
    found = log.recent_contexts(_CONTEXTS)
    if not len(found):
        raise ValueError(
            f"{workspace.url} has no observations to take contexts from; name a table of contexts with --contexts: "
            f"columns {', '.join(feature.name for feature in workspace.problem.context)}"
        )
    return found


def _spread(log: LakeLog) -> float | None:
    """The standard deviation of logged rewards; None if there are too few, or they are all the same."""
    import numpy as np

    rewards = [block.rewards for block in log.blocks()]
    return (float(np.std(np.concatenate(rewards))) or None) if rewards else None


def _model(log: LakeLog) -> Callable[[Any], Any] | None:
    """What each action earns by the log, for what a floor costs; None without a log."""
    from potstill.evaluate.models import fitted

    if not len(log):
        return None
    model = fitted(None, log)
    return lambda contexts: model.predict(contexts, 0)


def show_plan(found: Plan, floor: float, rows: int, console: Console) -> None:
    """What can be evaluated now and with a floor, what floors cost, and a sentence."""
    worst = ", the most that their bounds allow" if found.sd_is_worst else ""
    console.print(
        f"{rows:,} decisions by {escape(found.logging)}, foreseen from {found.contexts:,} contexts; rewards with a "
        f"standard deviation of {found.sd:.3g}{worst}; {100 * found.level:.4g} % intervals",
        highlight=False,
        soft_wrap=True,
    )
    console.print(_targets(found.current, _with_floor(found, floor), rows), "")
    console.print(_floors(found, rows), "")
    console.print(escape(sentence(found, floor, rows)), highlight=False, soft_wrap=True, style="bold")


def sentence(found: Plan, floor: float, rows: int) -> str:
    """How well the hardest policy can be evaluated, and what a floor would change."""
    now, then = _hardest(found.current), _with_floor(found, floor)
    said = (
        f"Hardest to evaluate is {_name(now)}: {rows:,} decisions will say as much about it as {_worth(now, rows)} of "
        f"its own, an interval of {_width(now, rows)}."
    )
    if floor <= found.current.floor:
        return f"{said} The policy has a floor of {found.current.floor:g} already."
    same = next(one for one in then.targets if one.target == now.target)
    if same.effective_share <= 1.01 * now.effective_share:
        return f"{said} A floor of {floor:g} would not change that."
    cost = "" if then.cost is None else f", and cost {'up to ' * found.cost_is_worst}{_cost(then)} per decision"
    return f"{said} A floor of {floor:g} would make that {_worth(same, rows)} and {_width(same, rows)}{cost}."


def _with_floor(found: Plan, floor: float) -> Floored:
    return next(one for one in found.floors if one.floor == floor)


def _hardest(floored: Floored) -> Foresight:
    return max(floored.targets, key=lambda one: (one.unsupported, one.half_width))


def _name(one: Foresight) -> str:
    return one.target if one.target == "uniform" else f"always {one.target}"


def _worth(one: Foresight, rows: int) -> str:
    return f"{one.effective_share * rows:,.0f}"


def _width(one: Foresight, rows: int) -> str:
    return f"± {one.half_width_at(rows):.2g}" if one.effective_share else "any width"


def _cost(one: Floored) -> str:
    return "–" if one.cost is None else f"{round(one.cost, 6):.2g}"


def _targets(now: Floored, then: Floored, rows: int) -> Table:
    titles = ("as good as", "interval", f"with floor {then.floor:g}", "interval")
    table = _table("to evaluate", *titles)
    for one, other in zip(now.targets, then.targets, strict=True):
        cells = [_worth(one, rows), _width(one, rows), _worth(other, rows), _width(other, rows)]
        table.add_row(escape(_name(one)), *cells)
    return table


def _floors(found: Plan, rows: int) -> Table:
    cost = "costs at most" if found.cost_is_worst else "costs"
    table = _table("floor", "least probability", cost, "uniform", "the hardest", "")
    for one in found.floors:
        own = "as it is" if one.floor == found.current.floor else ""
        widths = _width(one.targets[0], rows), _width(_hardest(one), rows)
        table.add_row(f"{one.floor:g}", f"{one.smallest:.2g}", _cost(one), *widths, own)
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(first, no_wrap=True)
    for title in others:
        table.add_column(title, justify="right")
    return table
