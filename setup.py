"""What pyproject.toml cannot say: the native kernel, and the JavaScript runtime inside the package."""

import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

NATIVE = "src/potstill/policy/native"
# Strict enough to be the same everywhere, and no -ffast-math: a score that is not finite must be noticed.
UNIX = ["-std=c11", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fvisibility=hidden", "-Wall", "-Wextra"]


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
    depends=[f"{NATIVE}/{name}" for name in ("extension.h", "kernel.h", "encoding.inc", "network.inc")],
    extra_compile_args=["/O2", "/std:c11"] if sys.platform == "win32" else UNIX,
    libraries=[] if sys.platform == "win32" else ["m"],
    optional=True,  # without a compiler the install goes on, and policies decide in NumPy
)

setup(ext_modules=[kernel], cmdclass={"build_py": BuildWithJavaScript})
