"""A report page as Markdown, for a repository: the same sections, with pictures beside the page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from potstill.pages.page import Page, Section, Table


def write(path: Path, page: Page, pictures: Path) -> None:
    """Write a page whose figures are already in `pictures`, as NAME.png."""
    folder = Path(os.path.relpath(pictures, path.parent)).as_posix()
    path.write_text(text(page, folder), encoding="utf-8")


def text(page: Page, folder: str) -> str:
    """The page, whose pictures are in a folder beside it."""
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
