"""Code metrics: sizes of files, coupling, and files that assume a list of actions.

python benchmarks/shape.py                      # the working tree
python benchmarks/shape.py --against 1c0e425    # compared with an earlier commit
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import statistics
import subprocess
import tarfile
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LISTS = re.compile(r"actions\.names|actions\.index|len\((?:\w+\.)*problem\.actions\)")


def modules(source: Path) -> dict[str, Path]:
    """The modules under a source folder by dotted name; packages by the name of their folder."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path) -> list[tuple[str, str]]:
    """Modules and names that a file imports from them; an empty name is the module itself."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found += [(node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
    return found


def importers(found: dict[str, Path], *, through_doors: bool) -> Counter[str]:
    """For each module, the number of others that import it or one of its names.

    With `through_doors`, a name exported by a package's `__init__` counts for the module that defines it, and the
    `__init__` itself does not count.
    """
    doors = {name: path for name, path in found.items() if path.name == "__init__.py"}
    homes = {
        (room, name): home
        for room, path in doors.items()
        for home, name in imports(path)
        if home in found and home != room
    }
    counts: Counter[str] = Counter()
    for path in found.values():
        if through_doors and path in doors.values():
            continue
        targets = set()
        for module, name in imports(path):
            whole = f"{module}.{name}"
            home = module
            while through_doors and (home, name) in homes:
                home = homes[home, name]
            targets.add(whole if whole in found else home)
        counts.update(targets & found.keys())
    return counts


def shape(source: Path) -> dict[str, float]:
    found = modules(source)
    literally, counts = importers(found, through_doors=False), importers(found, through_doors=True)
    plain = {name: path for name, path in found.items() if path.name != "__init__.py"}
    sizes = sorted(len(path.read_text(encoding="utf-8").splitlines()) for path in plain.values())
    knows = [path for path in found.values() if LISTS.search(path.read_text(encoding="utf-8"))]
    return {
        "files": len(found),
        "lines": sum(sizes),
        "lines of a file, median": statistics.median(sizes),
        "lines of a file, 95th percentile": sizes[int(0.95 * (len(sizes) - 1))],
        "modules under 50 lines": sum(size < 50 for size in sizes),
        "modules imported by exactly one other": sum(counts[name] == 1 for name in plain),
        "the same by import lines, doors counted": sum(literally[name] == 1 for name in plain),
        "files outside spaces/discrete that use a list of actions": sum("spaces/discrete" not in str(p) for p in knows),
    }


def at(commit: str, folder: Path) -> dict[str, float]:
    archive = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return shape(folder / "src")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="COMMIT", help="a commit to compare with")
    given = parser.parse_args()
    now = shape(ROOT / "src")
    with tempfile.TemporaryDirectory() as folder:
        before = at(given.against, Path(folder)) if given.against else {}
    for name, value in now.items():
        print(f"{name:58} {f'{before[name]:>8g}' if before else '':>8} {value:>8g}")


if __name__ == "__main__":
    main()
