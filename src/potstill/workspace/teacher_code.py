"""What section ``[teacher]`` names: a built-in teacher, a model file of the workspace, or a class of a package.

Nothing here runs or imports that code, so that a serving host without the learning half can compare and check it.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from potstill.decode import unknown_name
from potstill.errors import shown, syntax_error
from potstill.storage import Storage, child
from potstill.workspace.config import Config, InvalidConfig

#: Type of a teacher that is a NumPyro program in a file of the workspace.
PROGRAM = "program"
#: Group of entry points whose names are types of teachers.
GROUP = "potstill.teachers"


class ModelReference(NamedTuple):
    """A function in a file of the workspace, as ``models.py:uploads``."""

    path: str
    function: str

    def __str__(self) -> str:
        return f"{self.path}:{self.function}"

    def read(self, storage: Storage) -> bytes:
        """The text of the file; `InvalidConfig` if it is missing."""
        try:
            return storage.read(self.path)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            place = child(storage.url, self.path)
            raise InvalidConfig(
                f"teacher.model: there is no file {place}; the path is relative to the workspace"
            ) from None


def model_reference(stated: object) -> ModelReference:
    """The model that ``teacher.model`` states; `InvalidConfig` if it is not a file inside the workspace.

    Files elsewhere are refused: backups and other machines carry the workspace, and nothing beside it.
    """
    example = 'such as model = "models.py:uploads": a Python file in the workspace and a function in it'
    if stated is None:
        raise InvalidConfig(f'teacher.model is missing: type = "program" needs one, {example}')
    if not isinstance(stated, str):
        raise InvalidConfig(f"teacher.model must be a text {example}; got {shown(stated)}")
    path, colon, function = stated.rpartition(":")
    parts = PurePosixPath(path).parts
    if not colon or not path.endswith(".py") or not function.isidentifier():
        raise InvalidConfig(f"teacher.model must be a file and a function, {example}; got {stated!r}")
    if "\\" in path or "://" in path or ".." in parts or PurePosixPath(path).is_absolute():
        raise InvalidConfig(
            f"teacher.model must be inside the workspace, {example}; got {stated!r}. Copy the file into the workspace: "
            "backups and other machines carry it, and nothing beside it"
        )
    return ModelReference(str(PurePosixPath(path)), function)


def is_own_code(section: Mapping[str, Any]) -> bool:
    """Whether a section names a model file, or a class as ``yourpackage:YourTeacher`` or by an entry point."""
    kind = section.get("type")
    return kind == PROGRAM or (isinstance(kind, str) and (":" in kind or kind in installed_teachers()))


def states_prior(section: Mapping[str, Any]) -> bool:
    """Whether a section states a prior that prefers actions: an option ``prior``, or a program.

    A class of a package is not asked, because that would run it: an update does.
    """
    return section.get("type") == PROGRAM or (bool(section.get("prior")) and not is_own_code(section))


def installed_teachers() -> dict[str, list[str]]:
    """Teachers that installed packages offer, by the name of their entry point: ``yourpackage.module:YourTeacher``."""
    found: dict[str, set[str]] = {}
    for point in entry_points(group=GROUP):
        found.setdefault(point.name, set()).add(point.value)
    return {name: sorted(found[name]) for name in sorted(found)}


def class_reference(kind: str) -> str:
    """The class that a type names, as ``module:Class``; the type itself if it is no entry point."""
    references = [kind] if ":" in kind else installed_teachers().get(kind, [kind])
    if len(references) > 1:
        raise InvalidConfig(
            f"teacher {kind!r} is offered by several packages: state one of {', '.join(references)} as the type"
        )
    return references[0]


def model_files(config: Config) -> list[str]:
    """Paths of the model files that a configuration names."""
    if config.teacher.get("type") != PROGRAM or "model" not in config.teacher:
        return []
    return [model_reference(config.teacher["model"]).path]


def check_code(storage: Storage, section: Mapping[str, Any]) -> None:
    """Refuse a model file that is missing, has a syntax error or lacks the function; nothing is run."""
    if section.get("type") != PROGRAM:
        return
    model = model_reference(section.get("model"))
    try:
        tree = ast.parse(model.read(storage), model.path)
    except (SyntaxError, ValueError) as error:
        raise InvalidConfig(f"teacher.model: {syntax_error(model.path, error)}") from error
    defined = sorted({name for node in tree.body for name in _names(node)})
    if model.function not in defined:
        raise InvalidConfig(f"teacher.model: {unknown_name(f'function of {model.path}', model.function, defined)}")


def same_code(storage: Storage, section: Mapping[str, Any], recorded: Mapping[str, Any]) -> bool:
    """Whether a lineage's teacher has the type of a section, and the source of its model file.

    The source of a package is not compared: it need not be installed here.
    """
    kind, other = section.get("type"), recorded.get("type")
    if kind == PROGRAM == other:
        return _model_source(storage, section) == (recorded.get("model"), recorded.get("source"))
    return kind == other or (isinstance(kind, str) and isinstance(other, str) and _same_class(kind, other))


def _model_source(storage: Storage, section: Mapping[str, Any]) -> tuple[str, dict[str, str]] | None:
    """The model and its source as a lineage has them; None if there is no such file."""
    try:
        model = model_reference(section.get("model"))
        return str(model), {"sha256": hashlib.sha256(model.read(storage)).hexdigest()}
    except InvalidConfig:
        return None


def _same_class(stated: str, recorded: str) -> bool:
    """Whether two references may name one class: packages export classes of their modules."""
    if ":" not in recorded:
        return False
    (module, _, name), (other, _, named) = class_reference(stated).partition(":"), recorded.partition(":")
    return bool(name) and name == named and module.partition(".")[0] == other.partition(".")[0]


def _names(node: ast.stmt) -> list[str]:
    """Names that a statement at the top of a file binds, as far as can be told without running it."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    bound = [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
    inner = [one for part in ("body", "orelse", "handlers", "finalbody") for one in getattr(node, part, [])]
    return bound + [name for one in inner if isinstance(one, ast.stmt) for name in _names(one)]
