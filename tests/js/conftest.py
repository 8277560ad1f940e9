"""What the JavaScript tests need: Node or a browser, and vectors that Python made."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from js.vectors import write_vectors

JS = Path(__file__).parents[2] / "js"


@pytest.fixture(scope="session")
def program() -> Callable[[str], str]:
    """The path of a program; without it the test is skipped, or fails where POTSTILL_REQUIRE_BROWSER=1 (as in CI)."""

    def find(name: str) -> str:
        path = shutil.which(name)
        if path is None:
            miss = pytest.fail if os.environ.get("POTSTILL_REQUIRE_BROWSER") == "1" else pytest.skip
            miss(f"{name} is not on the PATH")
        return path

    return find


@pytest.fixture(scope="session")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of policies and vectors.json."""
    directory = tmp_path_factory.mktemp("vectors")
    write_vectors(directory)
    return directory


@pytest.fixture(scope="session")
def js() -> Path:
    """The folder of the JavaScript runtime."""
    return JS
