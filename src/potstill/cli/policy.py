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

from potstill.cli.app import AsJson, app, needs, print_json, refusing
from potstill.policy import Policy
from potstill.problem import Problem

BAR = 32

PolicyFile = Annotated[
    Path, typer.Argument(help="A policy file, such as Still.policy.save writes.", show_default=False)
]
ContextText = Annotated[
    str, typer.Argument(help="The context as JSON, such as '{\"hd_screen\": true}'; - reads it.", show_default=False)
]
Eligible = Annotated[list[str] | None, typer.Option("--eligible", help="An action that is allowed; repeat for more.")]
Floor = Annotated[
    float | None, typer.Option(help="Smallest propensity of an eligible action; the policy's own if left out.")
]


@app.command()
def show(policy: PolicyFile, as_json: AsJson = False) -> None:
    """Show what a policy file is: its problem, where it comes from, how faithful it is, and an example context."""
    with refusing(ValueError, OSError):
        loaded = Policy.load(policy)
    metadata, problem = loaded.metadata, loaded.problem
    example = {feature.name: feature.example for feature in problem.context}
    if as_json:
        print_json({**msgspec.to_builtins(metadata), "example": example})
        return
    lines = {
        "policy": f"{problem.name}, version {loaded.version}, problem {problem.hash}",
        "actions": ", ".join(problem.actions.names),
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
    id: Annotated[str | None, typer.Option(help="Names the decision; the same id decides the same.")] = None,  # noqa: A002
    eligible: Eligible = None,
    floor: Floor = None,
    as_json: AsJson = False,
) -> None:
    """Decide once, and show the probability of every action.

    Example: potstill decide video.policy '{"bandwidth_kbps": 900, "hd_screen": true}' --id upload-123
    """
    with refusing(ValueError, OSError):
        loaded = Policy.load(policy)
        values = read_context(context)
        decision = loaded.decide(values, id=id, eligible=eligible, floor=floor)
        p = loaded.probabilities(values, eligible=eligible, floor=floor)
    if as_json:
        named = {name: float(q) for name, q in zip(loaded.problem.actions.names, p, strict=True)}
        print_json({**msgspec.to_builtins(decision), "probabilities": named})
        return
    console = Console()
    console.print(_bars(dict(zip(loaded.problem.actions.names, map(float, p), strict=True)), decision.action))
    console.print(
        f"[bold]{escape(decision.action)}[/] with probability {decision.propensity:.4f}, "
        f"by policy version {decision.policy}, as decision {escape(decision.id)}"
    )


@app.command()
def explain(
    policy: PolicyFile,
    context: ContextText,
    eligible: Eligible = None,
    floor: Floor = None,
    top: Annotated[int, typer.Option(min=1, help="How many features to show.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show which features moved the probabilities.

    Each feature in turn is replaced by its mean over the training contexts; the change is its effect. Effects of
    features that act together do not add up.
    """
    from potstill.policy.explain import explain as explained

    with refusing(ValueError, OSError):
        explanation = explained(Policy.load(policy), read_context(context), eligible=eligible, floor=floor)
    if as_json:
        print_json(explanation)
        return
    console = Console()
    best = max(explanation.probabilities, key=explanation.probabilities.__getitem__)
    console.print(_bars(explanation.probabilities, best))
    table = Table(
        "feature", "value", "mass moved", "most for", "most against", title="What moved them", title_justify="left"
    )
    for effect in explanation.effects[:top]:
        up, down = (pick(effect.change, key=effect.change.__getitem__) for pick in (max, min))
        moved = (f"{up} {effect.change[up]:+.3f}", f"{down} {effect.change[down]:+.3f}") if effect.moved else ("", "")
        table.add_row(*map(Text, (effect.feature, _shown(effect.value), f"{effect.moved:.3f}", *moved)))
    console.print(table)


@app.command()
def export(
    policy: PolicyFile,
    to: Annotated[str, typer.Option(help="c, js or onnx.", show_default=False)],
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path(),
    name: Annotated[str | None, typer.Option(help="Base name of the files; the problem's name if left out.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write a policy for a place without Python.

    c: a header, a source with the weights inside, and an example. js: an ES module with the policy inside, and
    the runtime that it needs. onnx: a model from encoded contexts to probabilities.
    """
    from potstill.policy.export import export as exported

    with needs("onnx"), refusing(ValueError, OSError):
        loaded = Policy.load(policy)
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
