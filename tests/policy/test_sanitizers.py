"""The kernel and the extension under AddressSanitizer and UBSan, and the kernel's own tests in C: see sanitize.sh."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
COMPILER = os.environ.get("CC", "cc")


def why_not(tmp_path):
    """Why the sanitizers cannot run here; None if they can."""
    if sys.platform != "linux" or not shutil.which(COMPILER) or not shutil.which("bash"):
        return "needs Linux, bash and a C compiler"
    (tmp_path / "empty.c").write_text("int main(void) { return 0; }\n")
    command = [COMPILER, "-fsanitize=address,undefined", "empty.c", "-o", "empty"]
    linked = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    library = subprocess.run([COMPILER, "-print-file-name=libasan.so"], capture_output=True, text=True, check=False)
    if linked.returncode or not Path(library.stdout.strip()).is_absolute():
        return f"{COMPILER} has no shared sanitizer libraries"
    return None


def test_nothing_is_found(tmp_path):
    if reason := why_not(tmp_path):
        pytest.skip(reason)
    run = subprocess.run(
        ["bash", str(HERE / "sanitize.sh"), sys.executable], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "failures, running on" in run.stdout
    assert " passed" in run.stdout
