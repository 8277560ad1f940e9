"""Before launch: what a policy's log will be good for, and what a floor would change."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from potstill.cli.common import USER_ERRORS, AsJson, Place, exit_on, print_json
from potstill.cli.evaluate import evaluate
from potstill.cli.extras import requires

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from potstill.evaluate.lake_log import LakeLog
    from potstill.evaluate.planning import Floored, Foresight, Plan
    from potstill.problem import Problem
    from potstill.workspace import Workspace


#: Contexts that are looked at, of the most recent ones.
_CONTEXTS = 20_000
#: The least floor that is considered if none is stated.
_USUAL = 0.01


class Shown(NamedTuple):
    """How figures are shown.

    Attributes:
        rows: how many decisions will be logged.
        range: of rewards, if it is known: a wider interval says nothing.
    """

    rows: int
    range: float | None

    def worth(self, one: Foresight) -> str:
        """How many decisions of a target's own the log will be worth."""
        effective = one.effective_share * self.rows
        return "less than 1" if 0 < effective < 0.5 else f"{effective:,.0f}"

    def width(self, one: Foresight) -> str:
        """The interval to each side; in a cell of a table."""
        if not one.effective_share:
            return "any width"
        return "> range" if self._exceeds(one) else f"± {_two_digits(one.half_width_at(self.rows))}"

    def interval(self, one: Foresight) -> str:
        """The same in a sentence."""
        if one.effective_share and self._exceeds(one):
            return f"an interval wider than the range of rewards, {self.range:.3g}"
        return f"an interval of {self.width(one)}"

    def _exceeds(self, one: Foresight) -> bool:
        return self.range is not None and 2 * one.half_width_at(self.rows) > self.range


def show_plan(found: Plan, floor: float, shown: Shown, console: Console) -> None:
    """What can be evaluated now and with a floor, what floors cost, and a sentence."""
    worst = ", the most that their bounds allow" if found.sd_is_worst else ""
    console.print(
        f"{shown.rows:,} decisions by {escape(found.logging)}, foreseen from {found.contexts:,} contexts; rewards with "
        f"a standard deviation of {found.sd:.3g}{worst}; {100 * found.level:.4g} % intervals",
        highlight=False,
        soft_wrap=True,
    )
    console.print(_targets(found.current, _with_floor(found, floor), shown), "")
    console.print(_floors(found, shown), "")
    console.print(escape(sentence(found, floor, shown)), highlight=False, soft_wrap=True, style="bold")


def sentence(found: Plan, floor: float, shown: Shown) -> str:
    """How well the hardest policy can be evaluated, and what a floor would change."""
    now, then = _hardest(found.current), _with_floor(found, floor)
    said = (
        f"Hardest to evaluate is {_name(now)}: {shown.rows:,} decisions will say as much about it as "
        f"{shown.worth(now)} of its own, {shown.interval(now)}."
    )
    if floor <= found.current.floor:
        return f"{said} The policy has a floor of {found.current.floor:g} already."
    same = next(one for one in then.targets if one.target == now.target)
    if same.effective_share <= 1.01 * now.effective_share:
        return f"{said} A floor of {floor:g} would not change that."
    cost = "" if then.cost is None else f", and cost {'up to ' * found.cost_is_worst}{_cost(then)} per decision"
    return f"{said} A floor of {floor:g} would make that {shown.worth(same)} and {shown.interval(same)}{cost}."


def _with_floor(found: Plan, floor: float) -> Floored:
    return next(one for one in found.floors if one.floor == floor)


def _hardest(floored: Floored) -> Foresight:
    return max(floored.targets, key=lambda one: (one.unsupported, one.half_width))


def _name(one: Foresight) -> str:
    return one.target if one.target == "uniform" else f"always {one.target}"


def _cost(one: Floored) -> str:
    if one.cost is None:
        return "–"
    rounded = round(one.cost, 6) + 0.0  # adding 0 makes a plain zero of a negative one
    return f"{'−' * (rounded < 0)}{abs(rounded):.2g}"


def _two_digits(number: float) -> str:
    """Without an exponent where the number is large."""
    decimals = max(1 - math.floor(math.log10(number)), 0) if number else 0
    return f"{number:.2g}" if decimals else f"{number:,.0f}"


def _targets(now: Floored, then: Floored, shown: Shown) -> Table:
    titles = ("as good as", "interval", f"with floor {then.floor:g}", "interval")
    table = _table("to evaluate", *titles)
    for one, other in zip(now.targets, then.targets, strict=True):
        cells = [cell for each in (one, other) for cell in (shown.worth(each), shown.width(each))]
        table.add_row(escape(_name(one)), *cells)
    return table


def _floors(found: Plan, shown: Shown) -> Table:
    cost = "costs at most" if found.cost_is_worst else "costs"
    table = _table("floor", "least probability", cost, "uniform", "the hardest", "")
    for one in found.floors:
        own = "as it is" if one.floor == found.current.floor else ""
        widths = shown.width(one.targets[0]), shown.width(_hardest(one))
        table.add_row(f"{one.floor:g}", f"{one.smallest:.2g}", _cost(one), *widths, own)
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(first, no_wrap=True)
    for title in others:
        table.add_column(title, justify="right")
    return table


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
    with requires("lake"):
        from potstill.cli.evaluate_logs import policy_of
        from potstill.cli.evaluate_plan import Shown, show_plan
        from potstill.evaluate.lake_log import LakeLog
        from potstill.evaluate.planning import FLOORS
        from potstill.evaluate.planning import plan as planned
        from potstill.workspace import Workspace

    with exit_on(*USER_ERRORS):
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
