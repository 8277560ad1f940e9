"""`potstill evaluate plan`: how precisely the log of a policy will evaluate others, and what a floor changes."""

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
from potstill.errors import InvalidOption

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from potstill.evaluate import ExplorationPlan, FloorEffect, LakeLog, TargetPrecision
    from potstill.problem import Problem
    from potstill.workspace import Workspace


#: Number of most recent contexts that a plan is based on.
_CONTEXTS = 20_000
#: Smallest floor that is considered by default.
_USUAL = 0.01


class PlanFormat(NamedTuple):
    """How numbers of a plan are formatted.

    Attributes:
        rows: Number of decisions that will be logged.
        range: Range of rewards, if known: a wider interval says nothing.
    """

    rows: int
    range: float | None

    def worth(self, one: TargetPrecision) -> str:
        """Effective sample size of the log for a target."""
        effective = one.effective_share * self.rows
        return "less than 1" if 0 < effective < 0.5 else f"{effective:,.0f}"

    def width(self, one: TargetPrecision) -> str:
        """Half-width of the interval, for a table cell."""
        if not one.effective_share:
            return "any width"
        return "> range" if self._exceeds(one) else f"± {_two_digits(one.half_width_at(self.rows))}"

    def interval(self, one: TargetPrecision) -> str:
        """The interval, for a sentence."""
        if one.effective_share and self._exceeds(one):
            return f"an interval wider than the range of rewards, {self.range:.3g}"
        return f"an interval of {self.width(one)}"

    def _exceeds(self, one: TargetPrecision) -> bool:
        return self.range is not None and 2 * one.half_width_at(self.rows) > self.range


def show_plan(found: ExplorationPlan, floor: float, shown: PlanFormat, console: Console) -> None:
    """Print the precision now and with a floor, the cost of floors, and a summary."""
    worst = ", the most that their bounds allow" if found.sd_is_worst else ""
    console.print(
        f"{shown.rows:,} decisions by {escape(found.logging)}, predicted from {found.contexts:,} contexts; rewards "
        f"with a standard deviation of {found.sd:.3g}{worst}; {100 * found.level:.4g} % intervals",
        highlight=False,
        soft_wrap=True,
    )
    console.print(_targets(found.current, _with_floor(found, floor), shown), "")
    console.print(_floors(found, shown), "")
    console.print(escape(sentence(found, floor, shown)), highlight=False, soft_wrap=True, style="bold")


def sentence(found: ExplorationPlan, floor: float, shown: PlanFormat) -> str:
    """How precisely the hardest policy can be evaluated, and what a floor changes."""
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


def _with_floor(found: ExplorationPlan, floor: float) -> FloorEffect:
    return next(one for one in found.floors if one.floor == floor)


def _hardest(floored: FloorEffect) -> TargetPrecision:
    return max(floored.targets, key=lambda one: (one.unsupported, one.half_width))


def _name(one: TargetPrecision) -> str:
    return one.target if one.target == "uniform" else f"always {one.target}"


def _cost(one: FloorEffect) -> str:
    if one.cost is None:
        return "–"
    rounded = round(one.cost, 6) + 0.0  # adding 0 turns a negative zero into a plain one
    return f"{'−' * (rounded < 0)}{abs(rounded):.2g}"


def _two_digits(number: float) -> str:
    """Two significant digits, without an exponent for large numbers."""
    decimals = max(1 - math.floor(math.log10(number)), 0) if number else 0
    return f"{number:.2g}" if decimals else f"{number:,.0f}"


def _targets(now: FloorEffect, then: FloorEffect, shown: PlanFormat) -> Table:
    titles = ("as good as", "interval", f"with floor {then.floor:g}", "interval")
    table = _table("to evaluate", *titles)
    for one, other in zip(now.targets, then.targets, strict=True):
        cells = [cell for each in (one, other) for cell in (shown.worth(each), shown.width(each))]
        table.add_row(escape(_name(one)), *cells)
    return table


def _floors(found: ExplorationPlan, shown: PlanFormat) -> Table:
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
        str | None, typer.Option(help="A version or a policy file. Default: the serving version.")
    ] = None,
    floor: Annotated[
        float | None,
        typer.Option(min=0.0, max=0.5, help="Floor to consider. Default: the next one above the policy's own."),
    ] = None,
    rows: Annotated[int, typer.Option(min=2, help="Number of decisions that will be logged.")] = 10_000,
    contexts: Annotated[
        str | None, typer.Option(help="Table of contexts. Default: the most recent ones of the lake.")
    ] = None,
    sd: Annotated[float | None, typer.Option(help="Standard deviation of rewards. Default: that of the lake.")] = None,
    level: Annotated[float, typer.Option(help="Confidence level of intervals.")] = 0.95,
    as_json: AsJson = False,
) -> None:
    """Predict, before a policy serves, how precisely its log will evaluate other policies.

    The log says little about actions that the policy rarely takes. A floor, the smallest probability of any action,
    makes later evaluations more precise, and costs a little reward now.

    Example: potstill evaluate plan video --floor 0.02
    """
    with requires("lake"):
        from potstill.cli.evaluate_logs import policy_of
        from potstill.cli.evaluate_plan import PlanFormat, show_plan
        from potstill.evaluate import FLOORS, LakeLog
        from potstill.evaluate import plan as make_plan
        from potstill.spaces import finite
        from potstill.workspace import Workspace

    with exit_on(*USER_ERRORS):
        workspace = Workspace(place)
        chosen = workspace.serving() if policy is None else policy_of(workspace, policy)
        considered = _floor(floor, chosen.floor, len(finite(workspace.problem.actions, "evaluate plan")))
        log = LakeLog(workspace)
        rewards = _rewards(log)
        found = make_plan(
            workspace.problem,
            chosen,
            _contexts(workspace, log, contexts),
            floors=sorted({*FLOORS, considered, chosen.floor}),
            sd=sd if sd is not None else float(rewards.std()) or None,
            rewards=_model(log),
            level=level,
        )
    if as_json:
        print_json(_as_data(found, rows))
    else:
        show_plan(found, considered, PlanFormat(rows, _range(workspace.problem, rewards)), Console())


def _floor(stated: float | None, own: float, actions: int) -> float:
    """The stated floor, or the next one above the policy's own that the number of actions allows."""
    from potstill.evaluate import FLOORS

    if stated is None:
        higher = [floor for floor in FLOORS if own < floor <= 1 / actions]
        return next((floor for floor in higher if floor >= _USUAL), max(higher, default=own))
    if stated > 1 / actions:
        raise InvalidOption(f"--floor must be at most 1/{actions}, one over the number of actions, got {stated}")
    return stated


def _as_data(found: ExplorationPlan, rows: int) -> dict[str, Any]:
    """The plan as data, with half-widths for `rows` rows beside those for one row."""

    def at_rows(floored: FloorEffect) -> dict[str, Any]:
        targets = [
            {**msgspec.to_builtins(one), "half_width_at_rows": one.half_width_at(rows)} for one in floored.targets
        ]
        return {**msgspec.to_builtins(floored), "targets": targets}

    widths = {"current": at_rows(found.current), "floors": [at_rows(each) for each in found.floors]}
    return {"rows": rows, **msgspec.to_builtins(found), **widths}


def _contexts(workspace: Workspace, log: LakeLog, table: str | None) -> Any:
    from potstill.evaluate import table_contexts

    if table is not None:
        return table_contexts(table, workspace.problem, _CONTEXTS)
    found = log.recent_contexts(_CONTEXTS)
    if not len(found):
        raise InvalidOption(
            f"{workspace.url} has no observations to take contexts from; state a table of contexts with --contexts: "
            f"columns {', '.join(feature.name for feature in workspace.problem.context)}"
        )
    return found


def _rewards(log: LakeLog) -> NDArray[np.float64]:
    """All logged rewards; one zero if there are none."""
    import numpy as np

    return np.concatenate([block.rewards for block in log.blocks()] or [np.zeros(1)])


def _range(problem: Problem, rewards: NDArray[np.float64]) -> float | None:
    """Range of rewards: by the problem's bounds, or of logged rewards; None if they are all equal."""
    low, high = problem.maximised.low, problem.maximised.high
    if low is not None and high is not None:
        return high - low
    return float(rewards.max() - rewards.min()) or None


def _model(log: LakeLog) -> Callable[[Any], Any] | None:
    """The reward model of the log, float[n, K], for the cost of a floor; None without a log."""
    import numpy as np

    from potstill.evaluate import FunctionModel, fitted
    from potstill.spaces import finite, off_policy

    if not len(log):
        return None
    model, space = fitted(None, log), finite(log.problem.actions, "evaluate plan")
    # One fold's model for all contexts: they are not rows of the log.
    one_fold = FunctionModel(lambda *rows: model.predict(*rows, 0))

    def rewards(contexts: Any) -> Any:
        predictions = off_policy(space).predictions(one_fold, contexts, 0, (-math.inf, math.inf))
        actions = (np.full(len(contexts), action, np.int32) for action in range(len(space)))
        return np.stack([predictions.at(each) for each in actions], axis=1)

    return rewards
