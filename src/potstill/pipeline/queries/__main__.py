"""``python -m potstill.pipeline.queries PLACE``: answer queries from stdin, a line of JSON each, until it ends.

A query is ``{"name": …, "arguments": {…}}``. Its answer is a line too: ``{"reply": …}``, or ``{"status": …, "error":
…}`` with a status of HTTP.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import msgspec

from potstill.errors import PotstillError
from potstill.pipeline.queries.errors import CannotAnswer
from potstill.registry import CorruptVersion, UnknownVersion
from potstill.workspace import InvalidConfig, Workspace

#: Queries by name, and the module that has a function of that name.
QUERIES = {
    "decisions": "decisions",
    "decision": "decision",
    "compare": "compare",
    "expect": "expect",
    "fidelity": "fidelity",
    "action_counts": "action_counts",
    "experiment": "experiment",
}
#: Niceness: decisions come first.
NICE = 10


class _Query(msgspec.Struct):
    name: str
    arguments: dict[str, Any]


def main() -> None:
    """Answer queries until stdin ends, as it does when the worker dies that started this process."""
    os.nice(NICE)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not become an answer
    workspace: Workspace | None = None
    for line in sys.stdin.buffer:
        try:
            workspace = _current(sys.argv[1], workspace)
            answer = _answer(workspace, msgspec.json.decode(line, type=_Query))
        except Exception as error:  # one query must not end the others
            answer = _failed(error)
        answers.write(msgspec.json.encode(answer, enc_hook=str) + b"\n")
        answers.flush()


def _current(place: str, known: Workspace | None) -> Workspace:
    """The workspace; the known one, with what it has read of its tables, unless its files have changed."""
    found = Workspace(place)
    same = known is not None and found.problem == known.problem and found.config == known.config
    return known if same and known is not None else found


def _answer(workspace: Workspace, query: _Query) -> dict[str, Any]:
    module = importlib.import_module(f"potstill.pipeline.queries.{QUERIES[query.name]}")
    function: Callable[..., Any] = getattr(module, query.name)
    return {"reply": function(workspace, **query.arguments)}


def _failed(error: Exception) -> dict[str, Any]:
    if isinstance(error, CannotAnswer):
        return {"status": error.status, "error": str(error)}
    if isinstance(error, UnknownVersion):
        return {"status": 404, "error": str(error)}
    if isinstance(error, CorruptVersion | InvalidConfig):
        return {"status": 409, "error": str(error)}
    if isinstance(error, PotstillError | OSError):
        return {"status": 503, "error": str(error)}
    places = "".join(traceback.format_tb(error.__traceback__))  # without the message, which may quote a context
    print(f"a query failed with {type(error).__name__}:\n{places}", file=sys.stderr, flush=True)
    return {"status": 500, "error": "internal error; the log of the service says where"}


if __name__ == "__main__":
    main()
