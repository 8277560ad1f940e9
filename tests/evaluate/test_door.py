"""The public surface of `potstill.evaluate`: everything is there, and what needs more libraries is loaded late."""

import subprocess
import sys

import pytest

from potstill import evaluate


@pytest.mark.parametrize("name", evaluate.__all__)
def test_every_exported_name_is_there(name):
    assert getattr(evaluate, name) is not None
    assert name in dir(evaluate)


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = evaluate.nothing


def test_importing_it_brings_no_tables_and_nothing_that_learns():
    code = "import sys, potstill.evaluate; print(*{'polars', 'jax', 'scipy', 'altair'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
