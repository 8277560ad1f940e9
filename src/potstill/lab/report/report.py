"""Report of finished trials: HTML page, pictures, JSON summary and Markdown."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from potstill.errors import LabError
from potstill.files import SHARED, write_atomically
from potstill.lab.measure import PROBLEMS, Measurements, take_measurements
from potstill.lab.problems import MissingData, scenario
from potstill.lab.report.page import page
from potstill.lab.report.runs import PEERS, Runs
from potstill.lab.report.summary import Summary, summary
from potstill.lab.runs import ALGORITHMS, results
from potstill.pages import Page, Section, Table, png

Notify = Callable[[str], None]
#: Archive of the trials, written beside a Markdown page.
TRIALS = "trials.tar.xz"


def write_markdown(path: Path, page: Page, pictures: Path) -> None:
    """Write a page whose figures are already in `pictures`, as NAME.png."""
    folder = Path(os.path.relpath(pictures, path.parent)).as_posix()
    path.write_text(markdown_text(page, folder), encoding="utf-8")


def markdown_text(page: Page, folder: str) -> str:
    """The page as Markdown; its pictures are in a folder beside it."""
    headlines = [f"- **{figure}** {said}" for figure, said in page.headlines]
    parts = [f"# {page.title}", page.subtitle, "\n".join(headlines)]
    parts += [part for section in page.sections for part in _section(section, folder)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(section: Section, folder: str) -> list[str]:
    pictures = " ".join(f"![{name.replace('-', ' ')}]({folder}/{name}.png)" for name in section.figures)
    tables = [part for table in section.tables for part in (table.caption, _table(table))]
    code = f"```\n{section.code}\n```" if section.code else ""
    return [f"## {section.title}", section.caption, pictures, *tables, code]


def _table(table: Table) -> str:
    rules = ["---:" if table.is_numeric(column) else "---" for column in range(len(table.header))]
    return "\n".join(_line(row) for row in (table.header, rules, *table.rows))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


class ReportFiles(msgspec.Struct, frozen=True):
    """Files of a report, and its summary."""

    page: Path
    summary: Summary


def write_report(
    folder: Path,
    out: Path,
    *,
    calls: int = 100_000,
    again: bool = False,
    markdown: Path | None = None,
    notes: str = "",
    command: str = "",
    say: Notify = lambda _: None,
) -> ReportFiles:
    """Write the report of a folder of results.

    Args:
        folder: Folder written by `potstill lab run`.
        out: Folder for report.html, summary.json, results.md and the pictures.
        calls: Number of timed calls for each latency; 0 measures none.
        again: Measure again, even if `out` has measurements of the same settings.
        markdown: Path of the Markdown page instead; pictures and trials go to a folder of the same name beside it.
        notes: Remarks to print, in paragraphs.
        command: Command line to print in the report.
        say: Called with a description of the next step.
    """
    if markdown and markdown.suffix != ".md":
        raise LabError(f"the Markdown page must end in .md, as in something.md, got {markdown}")
    runs = Runs.read(folder)
    out.mkdir(parents=True, exist_ok=True)
    measured = _measured(runs, out, calls, again, say) if calls else None
    say("tables")
    said = summary(runs, folder, measured, notes, _commands(command or f"potstill lab report {folder.name}", markdown))
    whole = page(runs, said)
    say("figures")
    whole.write(out / "report.html")
    pictures = {f"{name}.png": png(chart) for name, chart in whole.figures.items()}
    _write(out, {**pictures, "summary.json": _indented(said)})
    if markdown is None:
        write_markdown(out / "results.md", whole, out)
    else:
        _write(markdown.with_suffix(""), {**pictures, TRIALS: results.archive(folder)})
        write_markdown(markdown, whole, markdown.with_suffix(""))
    return ReportFiles(out / "report.html", said)


def _measured(runs: Runs, out: Path, calls: int, again: bool, say: Notify) -> Measurements:
    """Latency of Potstill's algorithms on the problems that were run, and complexity."""
    problems = [name for name in PROBLEMS if name in runs.problems and _is_available(name, say)]
    ran = {run.algorithm for run in runs.runs if run.preset != PEERS}
    algorithms = [name for name in ALGORITHMS if name in ran]
    return take_measurements(out / "measured.json", problems, algorithms, calls, again=again, say=say)


def _is_available(problem: str, say: Notify) -> bool:
    try:
        scenario(problem).environment()
    except MissingData as error:
        say(f"no latency for {problem}: {error}")
        return False
    return True


def _commands(report: str, markdown: Path | None) -> list[str]:
    """The command that makes the report, and one that unpacks its trials instead of running them."""
    if markdown is None:
        return [report]
    return [f"tar xf {markdown.with_suffix('') / TRIALS}  # the trials of this page, instead of running them", report]


def _write(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        write_atomically(folder / name, content, SHARED)


def _indented(said: Summary) -> bytes:
    return msgspec.json.format(msgspec.json.encode(said), indent=1) + b"\n"
