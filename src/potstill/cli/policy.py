"""Commands on a policy file: show, decide, explain, export."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from potstill.cli.common import USER_ERRORS, AsJson, exit_on, print_json
from potstill.cli.extras import requires
from potstill.cli.root import app
from potstill.policy import Policy
from potstill.problem import Problem
from potstill.spaces import FiniteSpace

BAR = 32

PolicyFile = Annotated[
    Path,
    typer.Argument(
        help="Policy file, as written by Policy.save, or a workspace's folder: what serves there.", show_default=False
    ),
]
ContextText = Annotated[
    str, typer.Argument(help="Context as JSON, such as '{\"hd_screen\": true}'; - reads stdin.", show_default=False)
]
Eligible = Annotated[list[str] | None, typer.Option("--eligible", help="Allowed action; repeat for more.")]
Floor = Annotated[
    float | None, typer.Option(help="Smallest propensity of an eligible action. Default: the policy's own.")
]


def read_policy(path: Path) -> Policy:
    """A policy from its file, or the serving one of a workspace's folder."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file; name a policy file or a workspace's folder")
    if not path.is_dir():
        return Policy.load(path)
    with requires("lake"):
        from potstill.workspace import Workspace

        return Workspace(path).registry.policy()


@app.command()
def show(policy: PolicyFile, as_json: AsJson = False) -> None:
    """Show a policy file: its problem, lineage, fidelity, and an example context."""
    with exit_on(*USER_ERRORS):
        loaded = read_policy(policy)
    metadata, problem = loaded.metadata, loaded.problem
    example = {feature.name: feature.example for feature in problem.context}
    if as_json:
        print_json({**msgspec.to_builtins(metadata), "example": example})
        return
    lines = {
        "policy": f"{problem.name}, version {loaded.version}, problem {problem.hash}",
        "actions": _actions(problem),
        "network": " × ".join(map(str, (problem.width, *(len(layer.bias) for layer in loaded.layers)))),
        "floor": f"{loaded.floor:g}",
        "learnt": f"from {metadata.lineage.observations:,} observations, by Potstill {metadata.lineage.library}",
        "teacher": str((metadata.lineage.teacher or {}).get("type", "none")),
        "fidelity": ", ".join(f"{k} {v:.4g}" for k, v in (metadata.fidelity or {}).items()) or "not measured",
        "example": msgspec.json.encode(example).decode(),
    }
    for name, line in lines.items():
        typer.echo(f"{name:9} {line}")


@app.command()
def decide(
    policy: PolicyFile,
    context: ContextText,
    id: Annotated[str | None, typer.Option(help="Id of the decision; the same id gives the same action.")] = None,  # noqa: A002
    eligible: Eligible = None,
    floor: Floor = None,
    as_json: AsJson = False,
) -> None:
    """Decide once, and show the probability of every action.

    Example: potstill decide video.policy '{"bandwidth_kbps": 900, "hd_screen": true}' --id upload-123
    """
    with exit_on(*USER_ERRORS):
        loaded = read_policy(policy)
        values = read_context(context)
        allowed = _restriction(eligible, loaded.problem)
        decision = loaded.decide(values, id=id, eligible=allowed, floor=floor)
        probabilities = _probabilities(loaded, values, allowed, floor)
    if as_json:
        shown = {} if probabilities is None else {"probabilities": probabilities}
        print_json({**msgspec.to_builtins(decision), **shown})
        return
    console = Console()
    if probabilities is not None:
        console.print(_bars(probabilities, str(decision.action)))
    measure = "probability" if loaded.problem.actions.measure == "counting" else "density"
    console.print(
        f"[bold]{escape(str(decision.action))}[/] with {measure} {decision.propensity:.4f}, "
        f"by policy version {decision.policy}, as decision {escape(decision.id)}"
    )


@app.command()
def explain(
    policy: PolicyFile,
    context: ContextText,
    eligible: Eligible = None,
    floor: Floor = None,
    top: Annotated[int, typer.Option(min=1, help="Number of features to show.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show which features change the probabilities.

    The effect of a feature is the change when it is replaced by its mean over the training contexts. Effects of
    interacting features do not add up.
    """
    from potstill.policy import explain as explained

    with exit_on(*USER_ERRORS):
        explanation = explained(read_policy(policy), read_context(context), eligible=eligible, floor=floor)
    if as_json:
        print_json(explanation)
        return
    console = Console()
    best = max(explanation.probabilities, key=explanation.probabilities.__getitem__)
    console.print(_bars(explanation.probabilities, best))
    table = Table(
        "feature", "value", "mass moved", "most for", "most against", title="Effects of features", title_justify="left"
    )
    for effect in explanation.effects[:top]:
        up, down = (pick(effect.change, key=effect.change.__getitem__) for pick in (max, min))
        moved = (f"{up} {effect.change[up]:+.3f}", f"{down} {effect.change[down]:+.3f}") if effect.moved else ("", "")
        table.add_row(*map(Text, (effect.feature, _shown(effect.value), f"{effect.moved:.3f}", *moved)))
    console.print(table)


@app.command()
@requires("onnx")
def export(
    policy: PolicyFile,
    to: Annotated[str, typer.Option(help="Target: c, js or onnx.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path(),
    name: Annotated[str | None, typer.Option(help="Base name of the files. Default: the problem's name.")] = None,
    as_json: AsJson = False,
) -> None:
    """Export a policy to run without Python.

    c: a header, a source file with the weights, and an example. js: an ES module with the policy, and its runtime.
    onnx: a model from encoded contexts to probabilities, and one that also takes the eligible actions.
    """
    from potstill.policy.export import export as exported

    with exit_on(*USER_ERRORS):
        loaded = read_policy(policy)
        written = exported(loaded, to, out, name or file_name(loaded.problem))
    if as_json:
        print_json({"written": [str(path) for path in written]})
        return
    for path in written:
        typer.echo(f"{path}  {path.stat().st_size:,} bytes")


def read_context(text: str) -> dict[str, Any]:
    """A context from JSON text, or from standard input if the text is ``-``."""
    if text == "-":
        text = sys.stdin.read()
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ValueError(f"the context must be a JSON object: {error}") from None


def file_name(problem: Problem) -> str:
    """The problem's name as a file name and identifier."""
    return re.sub(r"\W+", "_", problem.name, flags=re.ASCII).strip("_") or "policy"


def _actions(problem: Problem) -> str:
    space = problem.actions
    return ", ".join(space.labels) if isinstance(space, FiniteSpace) else msgspec.json.encode(space).decode()


def _restriction(stated: list[str] | None, problem: Problem) -> Any:
    """What --eligible states: labels of a finite space, JSON for any other."""
    if stated is None or isinstance(problem.actions, FiniteSpace):
        return stated
    return [msgspec.json.decode(text) for text in stated] if len(stated) > 1 else msgspec.json.decode(stated[0])


def _probabilities(
    policy: Policy, values: dict[str, Any], eligible: Any, floor: float | None
) -> dict[str, float] | None:
    """The probability of each action; None where they cannot be listed."""
    space = policy.problem.actions
    if not isinstance(space, FiniteSpace):
        return None
    p = policy.probabilities(values, eligible=eligible, floor=floor)
    return dict(zip(space.labels, map(float, p), strict=True))


def _bars(probabilities: dict[str, float], marked: str) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 1))
    longest = max(probabilities.values())
    for name, p in probabilities.items():
        length = round(BAR * p / longest)
        label = Text(name, style="bold" if name == marked else "")
        table.add_row(label, f"{p:.4f}", "█" * length if length else "▏")
    return table


def _shown(value: object) -> str:
    return "missing" if value is None else str(value)
