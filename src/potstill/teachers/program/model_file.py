"""A program in a file of a workspace."""

from __future__ import annotations

import hashlib
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from types import ModuleType
from typing import Any

from potstill.decode import unknown_name
from potstill.errors import InvalidOption, shown, syntax_error
from potstill.teachers.source import Source, source_of_text


@dataclass(frozen=True)
class ModelFile:
    """A function of a Python file, as a program.

    It is equal to another of the same text and function, so that compiled programs are reused, and it is pickled as
    text, so that the workers of an engine run the same code without the file.

    Args:
        path: Path of the file in its workspace, such as ``models.py``.
        function: Name of the function.
        text: Text of the file.
    """

    path: str
    function: str
    text: bytes = field(repr=False)

    def __call__(self, *args: Any, **options: Any) -> Any:
        """What the function returns."""
        return self.program(*args, **options)

    def __str__(self) -> str:
        return f"{self.path}:{self.function}"

    @property
    def source(self) -> Source:
        """SHA-256 of the text."""
        return source_of_text(self.text)

    @property
    def program(self) -> Callable[..., Any]:
        """The function; `InvalidOption` if the file cannot be run or has none of this name."""
        module = _run(self.text, self.path)
        found = getattr(module, self.function, None)
        if found is None:
            functions = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
            raise InvalidOption(unknown_name(f"function of {self.path}", self.function, sorted(functions)))
        if not callable(found) or isinstance(found, type):
            raise InvalidOption(f"{self} must be a function (contexts, actions, rewards), got {shown(found)}")
        called: Callable[..., Any] = found
        return called


@lru_cache(maxsize=32)
def _run(text: bytes, path: str) -> ModuleType:
    """The module of a file's text. It is run once a process, and again when the text has changed."""
    module = ModuleType(f"potstill_model_{hashlib.sha256(text).hexdigest()[:16]}")
    module.__file__ = path
    try:
        code = compile(text, path, "exec")
    except (SyntaxError, ValueError) as error:
        raise InvalidOption(syntax_error(path, error)) from error
    sys.modules[module.__name__] = module  # dataclasses and pickle look their module up there
    try:
        exec(code, module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise InvalidOption(f"{path} cannot be loaded: {describe(error, path)}{_way_out(error)}") from error
    return module


def describe(error: BaseException, path: str) -> str:
    """An error of a model in one line: its type, its message and the line of the file."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    message = (str(error).strip().splitlines() or ["no message"])[0]
    place = f" in line {lines[-1]}" if lines else ""
    return f"{type(error).__name__}{place}: {message}"


def _way_out(error: BaseException) -> str:
    if not isinstance(error, ModuleNotFoundError):
        return ""
    return f"; install {error.name}, or write the model in one file: the workspace is not on the import path"
