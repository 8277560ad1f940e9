"""What pyproject.toml cannot say: the native kernel, and the JavaScript runtime inside the package.

`POTSTILL_LIMITED_API=1` builds the kernel on CPython's limited API: one wheel for 3.11 and all later versions, as
packages for others have it. A build for one's own Python uses the full API, and decides somewhat faster.
"""

import os
import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

NATIVE = "src/potstill/policy/native"
LIMITED = os.environ.get("POTSTILL_LIMITED_API") == "1"
# Strict enough to be the same everywhere, and no -ffast-math: a score that is not finite must be noticed.
UNIX = ["-std=c11", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fvisibility=hidden", "-Wall", "-Wextra", "-g0"]


class BuildWithJavaScript(build_py):
    """Puts the JavaScript runtime beside the code that exports it; in a checkout that code finds it in js/."""

    def run(self) -> None:
        """Build the package, then copy."""
        super().run()
        package = Path(self.build_lib) / "potstill/policy/js"
        if self.editable_mode or not Path("js").is_dir():
            return
        shutil.copytree("js", package, dirs_exist_ok=True, ignore=shutil.ignore_patterns("test*", "node_modules"))


kernel = Extension(
    "potstill.policy._native",
    sources=[f"{NATIVE}/{name}.c" for name in ("module", "batch", "build", "request", "kernel")],
    depends=[f"{NATIVE}/{name}" for name in ("extension.h", "limited.h", "kernel.h", "encoding.inc", "network.inc")],
    extra_compile_args=["/O2", "/std:c11"] if sys.platform == "win32" else UNIX,
    libraries=[] if sys.platform == "win32" else ["m"],
    define_macros=[("Py_LIMITED_API", "0x030B0000")] if LIMITED else [],
    py_limited_api=LIMITED,
    optional=not LIMITED,  # on a machine without a compiler, policies decide in NumPy
)

setup(
    ext_modules=[kernel],
    cmdclass={"build_py": BuildWithJavaScript},
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if LIMITED else {},
)
