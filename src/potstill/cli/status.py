"""The status command: what this installation can do."""

from __future__ import annotations

import importlib.util
import platform

import typer

from potstill._version import __version__
from potstill.cli.app import AsJson, app, print_json

#: Extra: a module that comes with it, and what it is for.
EXTRAS = {
    "learn": ("jax", "teachers and distillation"),
    "lab": ("altair", "the paper's evaluation, tables of your own, the demo, reports"),
    "onnx": ("onnx", "export to ONNX"),
    "peers": ("vowpalwabbit", "other libraries in the lab, to compare against"),
    "programs": ("numpyro", "reward models written as probabilistic programs"),
}


@app.command()
def status(as_json: AsJson = False) -> None:
    """Show which runtime decides here, and which extras are installed."""
    from potstill.policy.runtime import default, why_not_native

    why_not = why_not_native()
    extras = {extra: importlib.util.find_spec(module) is not None for extra, (module, _) in EXTRAS.items()}
    if as_json:
        print_json(
            {
                "version": __version__,
                "python": platform.python_version(),
                "runtime": default(),
                "native": why_not is None,
                "why_not_native": why_not,
                "extras": extras,
            }
        )
        return
    typer.echo(f"potstill   {__version__} on Python {platform.python_version()}, {platform.machine()}")
    typer.echo(f"decisions  {default()}" + (f": {why_not}" if why_not else ""))
    for extra, there in extras.items():
        state = "installed" if there else f"not installed: pip install 'potstill[{extra}]'"
        typer.echo(f"{extra:10} {state} ({EXTRAS[extra][1]})")
