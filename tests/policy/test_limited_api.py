"""The extension on CPython's limited API, as wheels for others have it, passes the tests of the extension."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPILER = os.environ.get("CC", "cc")
SOURCES = [f"src/potstill/policy/native/{name}.c" for name in ("module", "batch", "build", "request", "kernel")]
TESTS = [f"tests/policy/test_native{kind}.py" for kind in ("", "_kernel", "_numbers", "_refusals")]


def run(*command, cwd=ROOT, **variables):
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(sys.platform != "linux" or not shutil.which(COMPILER), reason="needs Linux and a C compiler")
@pytest.mark.skipif(bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="free-threaded: no limited API")
def test_the_extension_on_the_limited_api_passes_its_tests(tmp_path):
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"))
    built = tmp_path / "src/potstill/policy/_native.abi3.so"
    flags = ["-std=c11", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Werror"]
    include = f"-I{sysconfig.get_path('include')}"
    run(COMPILER, *flags, "-DPy_LIMITED_API=0x030B0000", include, *SOURCES, "-lm", "-o", str(built))

    limited = {"PYTHONPATH": str(tmp_path / "src"), "POTSTILL_RUNTIME": "native"}
    loaded = run(sys.executable, "-c", "from potstill.policy import _native; print(_native.__file__)", **limited)
    assert loaded.strip() == str(built)
    assert " passed" in run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS, **limited)
