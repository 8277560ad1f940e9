"""The documentation as a site in ``site/``: `make site`, without a network. Warnings, such as dead links, are errors.

The pages link each other as they lie in the repository. The site's root is ``docs/``, so that pages beside it are
copied into it, and links to files that are no pages are shown as their name.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
#: Pages outside of docs/, and where the site has them.
BESIDE = {"README.md": "readme.md", "js/README.md": "js.md", "conformance/README.md": "conformance.md"}
_LINK = re.compile(r"\[([^\]]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")


def main(out: Path) -> None:
    """Build the site into a folder."""
    with tempfile.TemporaryDirectory() as folder:
        build = Path(folder)
        stage(build / "docs")
        config = (ROOT / "zensical.toml").read_text(encoding="utf-8")
        (build / "zensical.toml").write_text(config, encoding="utf-8")
        command = [str(Path(sys.executable).with_name("zensical")), "build", "--strict", "--clean"]
        subprocess.run(command, cwd=build, check=True)
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(build / "site", out)


def stage(docs: Path) -> None:
    """Copy what the site shows, with links that hold there."""
    shutil.copytree(ROOT / "docs", docs, ignore=shutil.ignore_patterns("*.py", "__pycache__", "*.tar.xz"))
    for source, page in BESIDE.items():
        shutil.copy(ROOT / source, docs / page)
    sources = {page: PurePosixPath(source) for source, page in BESIDE.items()}
    for path in docs.rglob("*.md"):
        page = path.relative_to(docs).as_posix()
        where = sources.get(page, PurePosixPath("docs") / page)
        text = path.read_text(encoding="utf-8")
        path.write_text(_LINK.sub(partial(_moved, where=where, page=page), text), encoding="utf-8")


def _moved(link: re.Match[str], where: PurePosixPath, page: str) -> str:
    """A link of a page as the site has it; only its text if it leads to a file that the site does not have."""
    target = _normal(where.parent / link[2])
    if target.parts[0] == "docs":
        inside = PurePosixPath(*target.parts[1:])
    elif str(target) in BESIDE:
        inside = PurePosixPath(BESIDE[str(target)])
    else:
        return link[1]
    up = "../" * (len(PurePosixPath(page).parts) - 1)
    return f"[{link[1]}]({up}{inside}{link[3] or ''})"


def _normal(path: PurePosixPath) -> PurePosixPath:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return PurePosixPath(*parts)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "site")
