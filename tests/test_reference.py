"""The reference pages are those of the code, and everything public is described."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

import potstill as ps
from potstill.cli import COMMANDS
from potstill.service.metrics import COUNTERS
from potstill.service.routes import PROBLEM_ENDPOINTS

ROOT = Path(__file__).parents[1]


def load():
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs/reference.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["reference"] = module
    spec.loader.exec_module(module)
    return module


reference = load()


def test_the_pages_are_those_of_the_code():
    made = reference.pages()
    assert sorted(made) == sorted(path.name for path in (ROOT / "docs/reference").iterdir())
    for name, text in made.items():
        stored = (ROOT / "docs/reference" / name).read_text(encoding="utf-8")
        assert stored == text, f"docs/reference/{name} is not that of the code: run make reference"


def test_what_has_no_description_is_named():
    class Bare:
        """Has a method without one."""

        def method(self): ...

    with pytest.raises(reference.Undocumented, match=r"ps\.Bare\.method has no description"):
        reference._class("ps.Bare", Bare)


def test_every_public_name_endpoint_and_metric_is_in_the_pages():
    made = reference.pages()
    for name in COMMANDS:
        assert f"### potstill {name}\n" in made["commands.md"]
    for row in PROBLEM_ENDPOINTS:
        assert f"### {row.method} /v1/PROBLEM/{row.path}\n" in made["http.md"]
    for name in ps.__all__:
        if name != "__version__":
            assert f"# ps.{name}\n" in made["python.md"], name


def test_no_metric_is_missing():
    """The page reads the source of metrics, so every one that is constructed there must be found."""
    source = "".join((ROOT / f"src/potstill/service/{name}.py").read_text() for name in ("metrics", "summary_metrics"))
    constructed = source.count("MetricFamily(") - 1 + len(COUNTERS)  # one is constructed for each of COUNTERS
    assert len(set(re.findall(r"`(potstill_\w+)`", reference.metrics()))) == constructed
