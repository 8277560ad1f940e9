"""Architecture: packages are imported by their `__init__`, every module has a layer, private names stay private."""

import ast
import importlib
import inspect
import pkgutil
import tomllib
from pathlib import Path

import pytest

import potstill
from potstill import PotstillError

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"


def modules():
    found = {}
    for path in sorted((SOURCE / "potstill").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()
PACKAGES = {name for name, path in MODULES.items() if path.name == "__init__.py"}
IMPORTS = [
    (name, node.module, alias.name)
    for name, path in MODULES.items()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("potstill")
    for alias in node.names
]


EXPORTS = {
    name: {
        element.value
        for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8")))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        for element in ast.walk(node.value)
        if isinstance(element, ast.Constant)
    }
    for name in PACKAGES
}


def room(module):
    """Package of a module; for a package, the package itself."""
    return module if module in PACKAGES else module.rpartition(".")[0]


def test_rooms_are_entered_by_their_doors():
    """A module is imported only within its package; others import the package."""
    around = []
    for importer, module, name in IMPORTS:
        target = f"{module}.{name}" if f"{module}.{name}" in MODULES else module
        if target in PACKAGES or target not in MODULES or name in EXPORTS.get(module, ()):
            continue
        if not f"{room(importer)}.".startswith(f"{room(target)}."):
            around.append(f"{importer} imports {target}; import {room(target)} instead")
    assert not around, "\n".join(around)


def test_no_private_name_crosses_a_file():
    private = [f"{i} imports {name} of {m}" for i, m, name in IMPORTS if name.startswith("_") and name[1] != "_"]
    assert not [line for line in private if not line.endswith(("_version", "_native of potstill.policy"))]


def test_every_module_stands_in_a_layer():
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = next(each["layers"] for each in linter["contracts"] if each["type"] == "layers")
    listed = [name.strip() for layer in layers for name in layer.split("|")]
    missing = [
        name
        for name in MODULES
        if not any(f"{name}.".startswith(f"{each}.") or f"{each}.".startswith(f"{name}.") for each in listed)
    ]
    assert not missing, f"no layer of pyproject.toml has {', '.join(missing)}"


def test_every_error_has_one_base():
    for found in pkgutil.walk_packages(potstill.__path__, "potstill."):
        if found.name.endswith("__main__"):
            continue
        try:
            module = importlib.import_module(found.name)
        except ModuleNotFoundError as error:
            pytest.skip(f"not installed: {error.name}")
        for name, value in vars(module).items():
            if inspect.isclass(value) and issubclass(value, Exception) and value.__module__ == found.name:
                assert issubclass(value, PotstillError), f"{found.name}.{name} must derive from PotstillError"
