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
from potstill.cli.extras import is_installed, requires
from potstill.cli.format import mask_fidelity
from potstill.cli.root import app
from potstill.errors import InvalidOption
from potstill.policy import Explanation, NumberExplanation, Policy, explain_number
from potstill.policy import explain as explained
from potstill.problem import Problem
from potstill.spaces import Continuous, FiniteSpace

BAR = 32
#: Probabilities below this are shown by their size.
_SMALL = 5e-5

PolicyFile = Annotated[
    Path,
    typer.Argument(
        help="Policy file, as written by Policy.save, or a workspace's folder: what serves there.", show_default=False
    ),
]
ContextText = Annotated[
    str, typer.Argument(help="Context as JSON, such as '{\"hd_screen\": true}'; - reads stdin.", show_default=False)
]
Eligible = Annotated[
    list[str] | None,
    typer.Option("--eligible", help="Allowed action; repeat for more. For a number: the interval, '[from, to]'."),
]
Floor = Annotated[
    float | None,
    typer.Option(
        help="Smallest propensity of an eligible action; for a number, the share of uniform decisions. Default: the "
        "policy's own."
    ),
]


Version = Annotated[int | None, typer.Option(help="Version of the workspace. Default: the serving one.")]


def read_policy(path: Path, version: int | None = None) -> Policy:
    """A policy from its file, or a version of a workspace's folder: the serving one if none is named."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: there is no such file; name a policy file or a workspace's folder")
    if not path.is_dir():
        if version is not None:
            raise InvalidOption(f"--version is for a workspace's folder; {path} is a policy file")
        return Policy.load(path)
    with requires("lake"):
        from potstill.workspace import Workspace

        return Workspace(path).registry.policy(version)


@app.command()
def show(policy: PolicyFile, version: Version = None, as_json: AsJson = False) -> None:
    """Show a policy file: its problem, lineage, fidelity, and an example context."""
    with exit_on(*USER_ERRORS):
        loaded = read_policy(policy, version)
    metadata, problem = loaded.metadata, loaded.problem
    example = {feature.name: feature.example for feature in problem.context}
    if as_json:
        print_json({**msgspec.to_builtins(metadata), "example": example})
        return
    fidelity = dict(metadata.fidelity or {})
    by_mask = fidelity.pop("eligible", ())
    lines = {
        "policy": f"{problem.name}, version {loaded.version}, problem {problem.hash}",
        "actions": _actions(problem),
        "network": " × ".join(map(str, (problem.width, *(len(layer.bias) for layer in loaded.layers))))
        + (", trained on masks" if loaded.masked else ""),
        "floor": f"{loaded.floor:g}",
        "learnt": f"from {metadata.lineage.observations:,} observations, by Potstill {metadata.lineage.library}",
        "teacher": str((metadata.lineage.teacher or {}).get("type", "none")),
        "fidelity": ", ".join(f"{k} {v:.4g}" for k, v in fidelity.items()) or "not measured",
        **({"eligible": mask_fidelity(by_mask)} if by_mask else {}),
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
    version: Version = None,
    as_json: AsJson = False,
) -> None:
    """Decide once, and show the probability of every action, or of ranges of a number.

    Example: potstill decide video.policy '{"bandwidth_kbps": 900, "hd_screen": true}' --id upload-123
    """
    with exit_on(*USER_ERRORS):
        loaded = read_policy(policy, version)
        values = read_context(context)
        allowed = _restriction(eligible, loaded.problem)
        decision = loaded.decide(values, id=id, eligible=allowed, floor=floor)
        probabilities = _probabilities(loaded, values, allowed, floor)
    if as_json:
        shown = {} if probabilities is None else {"probabilities": probabilities}
        print_json({**msgspec.to_builtins(decision), **shown})
        return
    console = Console()
    if isinstance(loaded.problem.actions, Continuous):
        found = explain_number(loaded, values, eligible=allowed, floor=floor)
        _show_number(found, loaded.problem, console, decision.action)
    elif probabilities is not None:
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
    version: Version = None,
    as_json: AsJson = False,
) -> None:
    """Show which features change the probabilities, or the number that is expected.

    The effect of a feature is the change when it is replaced by its mean over the training contexts. Effects of
    interacting features do not add up. Log-odds compare the most probable action with the next one: they tell features
    apart where probabilities are all but 0 and 1. For a workspace, the serving version's teacher adds the expected
    reward of each action.
    """
    console = Console()
    with exit_on(*USER_ERRORS):
        loaded, values = read_policy(policy, version), read_context(context)
        allowed = _restriction(eligible, loaded.problem)
        if isinstance(loaded.problem.actions, Continuous):
            number = explain_number(loaded, values, eligible=allowed, floor=floor)
            if as_json:
                print_json(number)
            else:
                _show_number(number, loaded.problem, console)
                console.print(_number_effects(number, top))
            return
        explanation = explained(loaded, values, eligible=allowed, floor=floor)
        rewards = _expected_rewards(policy, loaded, values)
    if as_json:
        print_json({**msgspec.to_builtins(explanation), "rewards": rewards})
        return
    console.print(_bars(explanation.probabilities, explanation.best, rewards))
    console.print(_effects(explanation, top))


def _effects(explanation: Explanation, top: int) -> Table:
    odds = f"log-odds of {explanation.best} over {explanation.runner_up}: {explanation.log_odds:+.2f}"
    table = Table(title=escape(f"Effects of features; {odds}"), title_justify="left")
    for title in ("feature", "value", "mass moved", "most for", "most against", "log-odds"):
        table.add_column(title, justify="right" if title == "log-odds" else "left")
    for effect in explanation.effects[:top]:
        up, down = (pick(effect.change, key=effect.change.__getitem__) for pick in (max, min))
        moved = (f"{up} {effect.change[up]:+.3f}", f"{down} {effect.change[down]:+.3f}") if effect.moved else ("", "")
        cells = (effect.feature, _shown(effect.value), f"{effect.moved:.3f}", *moved, f"{effect.log_odds:+.2f}")
        table.add_row(*map(Text, cells))
    return table


def _expected_rewards(place: Path, policy: Policy, values: dict[str, Any]) -> dict[str, list[float]] | None:
    """Mean and interval of the reward of each action, by the serving version's teacher; None if it is not known."""
    if not place.is_dir() or not is_installed("learn"):
        return None
    from potstill.pipeline.queries import expect
    from potstill.workspace import Workspace

    found = expect.expect(Workspace(place), contexts=[values])
    if found["version"] != policy.version or not found["mean"]:
        return None
    ends = [found[name][0] if found[name] else found["mean"][0] for name in ("low", "high")]
    return {label: list(one) for label, *one in zip(found["labels"], found["mean"][0], *ends, strict=True)}


@app.command()
@requires("onnx")
def export(
    policy: PolicyFile,
    to: Annotated[str, typer.Option(help="Target: c, js or onnx.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path(),
    name: Annotated[str | None, typer.Option(help="Base name of the files. Default: the problem's name.")] = None,
    version: Version = None,
    as_json: AsJson = False,
) -> None:
    """Export a policy to run without Python.

    c: a header, a source file with the weights, and an example. js: an ES module with the policy, and its runtime.
    onnx: a model from encoded contexts to probabilities, and one that also takes the eligible actions. If the action is
    a number, these are probabilities of its bins.
    """
    from potstill.policy.export import export as exported

    with exit_on(*USER_ERRORS):
        loaded = read_policy(policy, version)
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
    if isinstance(space, Continuous):
        return f"{space.name}, a number from {space.low:g} to {space.high:g} ({space.scale} scale, {space.bins} bins)"
    return ", ".join(space.labels) if isinstance(space, FiniteSpace) else msgspec.json.encode(space).decode()


def _restriction(stated: list[str] | None, problem: Problem) -> Any:
    """What --eligible states: labels of a finite space, JSON for any other."""
    if stated is None or isinstance(problem.actions, FiniteSpace):
        return stated
    try:
        decoded = [msgspec.json.decode(text) for text in stated]
    except msgspec.DecodeError:
        raise InvalidOption(f"--eligible must be JSON, such as '[2, 5]', got {' '.join(stated)!r}") from None
    return decoded if len(decoded) > 1 else decoded[0]


def _probabilities(
    policy: Policy, values: dict[str, Any], eligible: Any, floor: float | None
) -> dict[str, float] | None:
    """The probability of each action; None where they cannot be listed."""
    space = policy.problem.actions
    if not isinstance(space, FiniteSpace):
        return None
    p = policy.probabilities(values, eligible=eligible, floor=floor)
    return dict(zip(space.labels, map(float, p), strict=True))


def _show_number(found: NumberExplanation, problem: Problem, console: Console, action: float | None = None) -> None:
    """Print the distribution of a number over ranges, that of the action marked, and its mean."""
    shares = {f"{one.low:.4g} to {one.high:.4g}": one.probability for one in found.ranges}
    held = (f"{one.low:.4g} to {one.high:.4g}" for one in found.ranges if action is not None and one.high >= action)
    console.print(_bars(shares, next(held, "")))
    name = escape(getattr(problem.actions, "name", "number"))
    interval = f"80 % from {found.low:.4g} to {found.high:.4g}"
    console.print(f"{name}: {found.expected:.4g} expected, {interval}", highlight=False)


def _number_effects(found: NumberExplanation, top: int) -> Table:
    title = f"Effects of features on the expected number; {found.average:.4g} at their means"
    table = Table("feature", "value", "change", "distance moved", title=title, title_justify="left")
    for effect in found.effects[:top]:
        cells = (effect.feature, _shown(effect.value), f"{effect.change:+.4g}", f"{effect.moved:.4g}")
        table.add_row(*map(Text, cells))
    return table


def _bars(probabilities: dict[str, float], marked: str, rewards: dict[str, list[float]] | None = None) -> Table:
    """Probabilities as bars; with mean, low and high of the reward of each action, these too."""
    table = Table(box=None, show_header=rewards is not None, padding=(0, 1), header_style="dim")
    for title in ("", "probability", "", *(["expected reward", "95 % interval"] if rewards else [])):
        table.add_column(title, justify="right" if title == "expected reward" else "left")
    longest = max(probabilities.values())
    for name, p in probabilities.items():
        length = round((BAR // 2 if rewards else BAR) * p / longest)
        label = Text(name, style="bold" if name == marked else "")
        reward = [f"{rewards[name][0]:.4g}", f"{rewards[name][1]:.4g} to {rewards[name][2]:.4g}"] if rewards else []
        table.add_row(label, _probability(p), "█" * length if length else "▏", *reward)
    return table


def _probability(p: float) -> str:
    """Four decimals; small ones by their size, since 0.0000 tells nothing."""
    return f"{p:.4f}" if p >= _SMALL or not p else f"{p:.0e}"


def _shown(value: object) -> str:
    return "missing" if value is None else str(value)
