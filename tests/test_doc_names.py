"""Documentation names modules, commands and options that exist."""

import ast
import importlib
import inspect
import re
import shlex
from pathlib import Path

import msgspec
import pytest
import typer

from potstill.cli import app
from potstill.workspace import Config

ROOT = Path(__file__).parents[1]
#: Pages about the current code. Results and the changelog also describe the past.
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if not page.name.startswith("results")),
]
FILES = [
    path
    for folder in ("src", "tests", "benchmarks", "conformance", "examples", "js", ".ci")
    for path in (ROOT / folder).rglob("*")
    if path.is_file() and "__pycache__" not in path.parts and "node_modules" not in path.parts
]
MODULES = {
    ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "src").rglob("*.py")
}
#: Placeholders in example names.
PLACEHOLDER = "mine"
#: File extensions, which look like attributes.
SUFFIXES = [
    "py",
    "toml",
    "html",
    "json",
    "jsonl",
    "csv",
    "parquet",
    "policy",
    "txt",
    "log",
    "lock",
    "xz",
    "h",
    "c",
    "js",
    "md",
    "inc",
    "sqlite",
]
#: Names of other libraries that are also modules here.
FOREIGN = {"ray.init", "onnx.ModelProto"}
#: Options of other programs.
OTHERS = {
    *("--bag", "--squarecb", "--cb_explore", "--cb_explore_adf", "--cats", "--epsilon", "--cover", "--softmax"),
    *("--cb_type", "--power_t", "--learning_rate", "--interactions", "--explore_eval", "--eval", "--dsjson"),
}
SECTIONS = {
    field.name: [option.name for option in msgspec.structs.fields(field.type)]
    for field in msgspec.structs.fields(Config)
    if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct)
}


def spans(page):
    """Code spans, including those in comments of fenced blocks."""
    text = page.read_text(encoding="utf-8")
    fenced = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)
    comments = [comment for block in fenced for comment in re.findall(r"#.*`.*", block)]
    plain = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    return re.findall(r"`([^`\n]+)`", "\n".join([plain, *comments]))


def command_lines(page):
    """Lines that call `potstill`, from fenced blocks and code spans; continued lines are joined."""
    text = page.read_text(encoding="utf-8")
    lines = [line for block in re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S) for line in _joined(block)]
    for line in [*lines, *spans(page)]:
        if match := re.match(r"(?:\$ )?(?:\S*/)?(potstill(?: .*)?)$", line.split(" #")[0].strip()):
            yield match[1]


def _joined(block):
    return block.replace("\\\n", " ").split("\n")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_exist(page):
    """Files named by their path, or by its end, are in the repository."""
    paths = [f"/{path.relative_to(ROOT)}" for path in FILES]
    for span in spans(page):
        for name in re.findall(r"(?<![\w*…./-])[\w./-]*\w+\.(?:py|c|h|js|sh|lua|inc|pyi)(?![\w*])", span):
            if PLACEHOLDER not in name:
                assert any(path.endswith(f"/{name}") for path in paths), f"{page.name}: no file {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_modules_and_their_names_exist(page):
    """``room.module.name``, an option of potstill.toml (``update.contexts``), or a method (``still.update``)."""
    for span in spans(page):
        match = re.fullmatch(r"((?:[a-z_]+\.)+\w+)(?:\(.*\))?", span)
        if match and match[1].rpartition(".")[2] not in SUFFIXES:
            assert _exists(match[1]), f"{page.name}: there is no {match[1]}"


def test_names_in_docstrings_exist():
    for path in sorted((ROOT / "src").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            for name in re.findall(r"`((?:[a-z_]+\.)+\w+)`", ast.get_docstring(node) or ""):
                known = name.rpartition(".")[2] in SUFFIXES or name in FOREIGN
                assert known or _exists(name), f"{path.relative_to(ROOT)}: there is no {name}"


def _exists(name):
    first, second = name.split(".")[:2]
    homes = [module.removesuffix(first) for module in MODULES if module.rpartition(".")[2] == first]
    if not homes or second in SECTIONS.get(first, ()):
        return True
    classes = [_value(f"{home}{first}.{first.capitalize()}") for home in homes]
    return any(_value(f"{home}{name}") is not None for home in homes) or any(_has(each, second) for each in classes)


def _has(kind, attribute):
    return kind is not None and (hasattr(kind, attribute) or f"self.{attribute}" in inspect.getsource(kind))


def _value(name):
    """The object with a dotted name; None if there is none."""
    parts = name.split(".")
    end = next((end for end in range(len(parts), 0, -1) if ".".join(parts[:end]) in MODULES), 0)
    value = importlib.import_module(".".join(parts[:end])) if end else None
    for part in parts[end:]:
        value = getattr(value, part, None)
    return value


def tree():
    return typer.main.get_command(app)


def options_of(command):
    return {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}


def every_option(command):
    found = options_of(command) | {"--help"}
    for below in getattr(command, "commands", {}).values():
        found |= every_option(below)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_their_options_exist(page):
    for line in command_lines(page):
        top = command = tree()
        known = {"--help", "--version"} | options_of(top)
        for word in shlex.split(line.replace("…", " "))[1:]:
            if word.startswith("--"):
                assert word.split("=")[0].rstrip(",.") in known, f"{page.name}: {line}: no option {word}"
            elif word in getattr(command, "commands", {}):
                command = command.commands[word]
                known |= every_option(command)
            elif command is top and re.fullmatch(r"[a-z-]+", word):
                pytest.fail(f"{page.name}: {line}: there is no command {word}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_that_stand_alone_exist(page):
    known = every_option(tree()) | OTHERS
    for span in spans(page):
        if match := re.fullmatch(r"(--[a-z][a-z-]+)(?:[ =].*)?", span):
            assert match[1] in known, f"{page.name}: there is no option {match[1]}"


def test_what_does_not_exist_is_noticed():
    assert not _exists("studies.mapped")
    assert not _exists("potstill.studies")
    assert not _exists("update.contexs")
    assert _exists("potstill.spaces.check_space")
    assert "--nothing" not in every_option(tree())
