"""The documentation builds as a site without a warning, with every page in its navigation."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}


def navigated(entries):
    for entry in entries:
        for value in entry.values():
            yield from [value] if isinstance(value, str) else navigated(value)


def test_every_page_is_in_the_navigation_once():
    nav = list(navigated(tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]))
    assert len(nav) == len(set(nav))
    assert set(nav) >= PAGES, "pages that no one finds"


@pytest.mark.skipif(not shutil.which(Path(sys.executable).with_name("zensical")), reason="needs the extra docs")
def test_the_site_builds_and_asks_no_other_host(tmp_path):
    site = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, ROOT / "docs/site.py", site], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for page in PAGES - {"index.md"}:
        assert (site / page.removesuffix(".md") / "index.html").is_file()
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r'<(?:script|link|img)[^>]+(?:src|href)="https?://', text), page
        for image in re.findall(r'<img[^>]+src="([^":]+)"', text):
            assert (page.parent / image).is_file(), f"{page}: {image}"
