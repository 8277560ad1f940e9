"""The demo in a terminal: one line per batch, then the results and how to use the policy."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import msgspec
from rich.console import Console
from rich.text import Text

from potstill.lab.demo import report as demo_report
from potstill.lab.demo.demo import Batch, Demo, usage
from potstill.lab.demo.results import Results, Row, microseconds, ratio
from potstill.progress import bars

# Heading and width of each column; 78 characters in total, to fit a terminal of 80.
_COLUMNS = {
    "decisions": 9,
    "Potstill": 9,
    "Thompson": 9,
    "uniform": 8,
    "best": 7,
    "of best": 8,
    "KL": 8,
    "µs/decision": 12,
    "update": 8,
}


def run(demo: Demo, out: Path, *, as_json: bool) -> Path:
    """Run the demo in a directory and return the path of its report; with JSON, stdout holds nothing else."""
    started = time.perf_counter()
    console = Console(stderr=as_json)
    batches = play(demo, console)
    policy, report = out / "video-upload.policy", out / "report.html"
    results = Results.of(demo, batches)
    with console.status("writing the report"):
        batches[-1].policy.save(policy)
        demo_report.write(report, results, batches, policy)
    seconds = time.perf_counter() - started
    if as_json:
        _print_json(results, policy, report, seconds)
    else:
        conclude(results, policy, report, seconds, console)
    return report


def _print_json(results: Results, policy: Path, report: Path, seconds: float) -> None:
    figures = {
        "regret_ratio": results.regret_ratio,
        "gap_closed": results.gap_closed,
        "decide_us": results.decide_us,
        "sample_us": results.sample_us,
        "seconds": seconds,
        "policy": str(policy),
        "report": str(report),
    }
    encoded = msgspec.json.encode({**msgspec.structs.asdict(results), **figures})
    print(msgspec.json.format(encoded, indent=2).decode())


def play(demo: Demo, console: Console) -> list[Batch]:
    """Run the demo and show each batch as it ends; the progress bar appears only in a terminal."""
    console.print(_INTRODUCTION, highlight=False)
    console.print(_line(list(_COLUMNS), "bold"))
    batches = []
    with bars(console) as progress:
        task = progress.add_task("batch 1", total=demo.decisions)
        for batch in demo.run():
            batches.append(batch)
            console.print(_line(_cells(Row.of(batch)), ""))
            progress.update(task, completed=batch.decisions, description=f"batch {batch.number + 1}")
    return batches


_INTRODUCTION = (
    "A simulated upload service chooses one of 7 video qualities for each upload, from 38 context columns, and updates "
    "its policy after each batch. All algorithms get the same uploads.\n\n"
    "  Potstill     mean reward in the batch: the distilled policy\n"
    "  Thompson     the same for undistilled Thompson sampling\n"
    "  uniform      the same for uniform choice\n"
    "  best         the same for the best possible choice\n"
    "  of best      Potstill's reward as a share of the best possible\n"
    "  KL           divergence of the next policy from its teacher, nats, held-out\n"
    "  µs/decision  median time of one decision\n"
    "  update       time to learn and distil the next policy\n"
)


def _cells(row: Row) -> list[str]:
    rewards = [f"{row.reward[name]:.3f}" for name in ("potstill", "thompson", "uniform", "best")]
    return [
        f"{row.decisions:,}",
        *rewards,
        f"{ratio(row.reward['potstill'], row.reward['best']):.0%}",
        f"{row.fidelity.kl_mean:.4f}",
        f"{row.timing.decide_us:.1f}",
        f"{row.timing.update_s:.1f} s",
    ]


def _line(cells: list[str], style: str) -> Text:
    """A row of the table, with Potstill's column highlighted."""
    line = Text(no_wrap=True, style=style)
    for (heading, width), cell in zip(_COLUMNS.items(), cells, strict=True):
        line.append(cell.rjust(width), style="bold yellow" if heading == "Potstill" else "")
    return line


def _interpreter() -> str:
    """The Python interpreter with Potstill, as typed from the current folder."""
    path, here = Path(sys.executable), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def conclude(results: Results, policy: Path, report: Path, seconds: float, console: Console) -> None:
    """Print the result, the files and how to use them."""
    share = results.late_share
    findings = {
        "reward": f"{share['potstill']:.0%} of the best possible in the last quarter of the run "
        f"(Thompson sampling {share['thompson']:.0%}, uniform {share['uniform']:.0%})",
        "regret": f"{results.regret_ratio:.2f} times that of undistilled Thompson sampling, over the whole run",
        "time": f"{microseconds(results.decide_us)} per decision "
        f"(sampling from the posterior: {microseconds(results.sample_us)})",
        "policy": str(policy),
        "report": str(report),
    }
    console.print(f"\n{results.settings.decisions:,} decisions in {seconds:.0f} s:")
    for name, finding in findings.items():
        console.print(Text.assemble((f"  {name:8}", "bold"), finding), soft_wrap=True)
    console.print(f"\nTo use the policy, start {_interpreter()} in this directory and paste:\n", soft_wrap=True)
    # Soft-wrapped, so that the lines can be pasted.
    console.print(Text(usage(policy)), soft_wrap=True)
