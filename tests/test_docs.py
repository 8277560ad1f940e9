"""The code in the documentation runs, and its links and claims hold."""

import re
import tomllib
from pathlib import Path

import pytest

import potstill as ps

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page):
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_python_in_the_documentation_runs(page, tmp_path, monkeypatch):
    """The blocks of a page run one after another, as a reader would paste them."""
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for block in blocks(page):
        exec(compile(block, str(page), "exec"), names)


def test_links_in_the_documentation_lead_somewhere():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "js/README.md", ROOT / "conformance/README.md"]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_the_changelog_knows_the_version():
    newest = re.search(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert newest[1] == ps.__version__


def test_every_public_name_is_there():
    assert sorted(ps.__all__) == ps.__all__
    for name in ps.__all__:
        assert getattr(ps, name) is not None


def test_no_dependency_pulls_in_torch():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *(d for extra in project["optional-dependencies"].values() for d in extra)]
    assert not [name for name in wanted if name.startswith("torch")]
