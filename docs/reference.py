"""The reference pages, from the code: `make reference` writes ``docs/reference/``, and a test compares them.

Everything public must be described: `Undocumented` names what is not.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec

OUT = Path(__file__).parent / "reference"
NOTE = "<!-- Made by `make reference` from the code; edit the docstrings there. -->\n"


class Undocumented(Exception):
    """Something public has no description."""


def main() -> None:
    """Write all pages."""
    OUT.mkdir(exist_ok=True)
    for name, text in pages().items():
        (OUT / name).write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """The text of each page by the name of its file."""
    made = {
        "commands.md": commands(),
        "configuration.md": configuration(),
        "http.md": http(),
        "metrics.md": metrics(),
        "python.md": python(),
    }
    return {name: f"{NOTE}\n{text.rstrip()}\n" for name, text in made.items()}


# ---- text ---------------------------------------------------------------------------------------------------------


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table; empty without rows."""
    titles = list(header)
    lines = [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows]
    return "\n".join([f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}", *lines, ""]) if lines else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def described(text: str | None, what: str) -> str:
    """A description; `Undocumented` if there is none."""
    if not text or not text.strip():
        raise Undocumented(f"{what} has no description")
    return text.strip()


def sections(documentation: str) -> tuple[str, dict[str, str]]:
    """The body of a docstring, and what its sections Attributes and Args say of each name."""
    body, *rest = re.split(r"(?m)^(Attributes|Args|Raises|Returns):\n", inspect.cleandoc(documentation))
    found = {}
    for title, text in zip(rest[::2], rest[1::2], strict=True):
        if title in ("Attributes", "Args"):
            for name, about in re.findall(r"(?m)^    (\w+): ((?:.|\n(?!    \w|\S))*)", text):
                found[name] = " ".join(about.split())
    return body.strip(), found


def plain(text: str) -> str:
    """Text of a docstring as Markdown: code in single backticks, examples in blocks."""
    text = re.sub(r"``([^`]+?)``", r"`\1`", re.sub(r"  # doctest:.*", "", text))
    return re.sub(r"(?m)^>>> (?:.+\n?)+", lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)


# ---- commands -----------------------------------------------------------------------------------------------------


def commands() -> str:
    """All commands with their arguments and options."""
    import typer

    from potstill.cli import COMMANDS, TASKS, app

    root: Any = typer.main.get_command(app)
    context = typer.Context(root)
    parts = ["# Commands\n", _EXIT_CODES]
    for task, names in TASKS.items():
        parts.append(f"## {task}\n")
        for name in names:
            parts.extend(_command(root.get_command(context, name), f"potstill {name}", context))
    if missing := set(root.commands) - set(COMMANDS):
        raise Undocumented(f"commands {sorted(missing)} belong to no task")
    return "\n".join(parts)


_EXIT_CODES = """| exit code | means |
|---|---|
| 0 | done |
| 1 | an error; the message names the value, the place and the way out |
| 2 | the arguments do not fit; or what was checked failed: a gate, `reproduce`, `audit`, `verify` |
| 130 | interrupted |

`--json` prints one JSON document to standard output; messages and progress go to standard error.
"""


def _command(command: Any, path: str, context: Any) -> Iterator[str]:
    if inner := getattr(command, "commands", None):
        yield f"### {path}\n\n{described(command.help, path)}\n"
        for name, each in inner.items():
            yield from _command(each, f"{path} {name}", context)
        return
    parameters = [p for p in command.params if not getattr(p, "hidden", False) and p.name != "help"]
    arguments = " ".join(_usage(p) for p in parameters if p.param_type_name == "argument")
    text = described(command.help, path).replace("\b", "")
    yield f"### {path}\n\n```console\n$ {path} {arguments}\n```\n\n{_examples(text)}\n"
    yield table(["", ""], ((f"`{_names(p, context)}`", plain(_about(p, path))) for p in parameters))


def _examples(text: str) -> str:
    """Help with its examples as code."""
    return re.sub(r"(?m)^(Examples?: )?(potstill .+)$", lambda m: f"{m[1] or ''}`{m[2]}`", plain(text))


def _usage(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    name = f"{name}…" if parameter.nargs == -1 else name
    return name if parameter.required else f"[{name}]"


def _names(parameter: Any, context: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper())
    names = ", ".join((*parameter.opts, *parameter.secondary_opts))
    return names if parameter.is_flag else f"{names} {parameter.metavar or _type(parameter, context)}"


def _type(parameter: Any, context: Any) -> str:
    """The type of an option that names none, or its choices."""
    named = str(parameter.display_type(context)).strip("<>")
    return {"str": "TEXT", "list[str]": "TEXT", "int": "NUMBER", "int range": "NUMBER", "float": "NUMBER"}.get(
        named, named
    )


def _about(parameter: Any, path: str) -> str:
    about = described(parameter.help, f"{path} {parameter.opts[-1]}")
    default = parameter.default
    shown = not parameter.required and default not in (None, False, (), [], "") and not callable(default)
    return f"{about} Default: `{default}`." if shown and "efault" not in about else about


# ---- configuration ------------------------------------------------------------------------------------------------


def configuration() -> str:
    """`problem.toml` and `potstill.toml`, key by key."""
    from potstill.distill import Student
    from potstill.experiments import ExperimentConfig
    from potstill.problem import Feature, Reward
    from potstill.spaces.registry import SPACES
    from potstill.teachers import available, from_config
    from potstill.workspace import Config

    parts = ["# Configuration\n\nUnknown keys are refused, with the nearest name.\n\n## problem.toml\n"]
    parts.append("`name` is the problem's name, part of URLs. Each feature is a table `[[context]]`.\n")
    parts.extend(_keys(f'[[context]] type = "{_tag(kind)}"', kind) for kind in get_args(Feature))
    own = {name: one.space for name, one in SPACES.items() if one.space.__module__.startswith("potstill.")}
    parts.extend(_keys(f'[actions] type = "{name}"', space) for name, space in own.items())
    parts.append(_keys("[reward]", Reward))
    parts.append("## potstill.toml\n")
    for field in msgspec.structs.fields(Config):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            parts.append(_keys(f"[{field.name}]", field.type))
    parts.append(_keys("[experiment]", ExperimentConfig))
    parts.append(_keys("[student]", Student))
    for name in available():
        parts.append(_keys(f'[teacher] type = "{name}"', type(from_config({"type": name}))))
    return "\n".join(parts)


def _tag(kind: Any) -> str:
    return str(kind.__struct_config__.tag)


def _keys(title: str, kind: type[Any]) -> str:
    """The keys of a table."""
    body, about = sections(described(inspect.getdoc(kind), title))
    inherited = [sections(inspect.getdoc(base) or "")[1] for base in kind.__mro__[1:-1]]
    rows = []
    for field in msgspec.structs.fields(kind):
        text = next((names[field.name] for names in (about, *inherited) if field.name in names), None)
        rows.append((f"`{field.encode_name}`", _default(field), plain(described(text, f"{title} {field.name}"))))
    first = body.split("\n\n")[0]
    return f"### {title}\n\n{plain(first)}\n\n{table(['key', 'default', ''], rows)}"


def _default(field: Any) -> str:
    if field.default is not msgspec.NODEFAULT:
        value = field.default
    elif field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    else:
        return "required"
    if value is None or value is msgspec.UNSET:
        return "none"
    return f"`{msgspec.json.encode(msgspec.to_builtins(value)).decode()}`"


# ---- HTTP ---------------------------------------------------------------------------------------------------------


def http() -> str:
    """All endpoints, from the table that the service dispatches by."""
    from potstill.service import routes

    parts = [
        "# HTTP\n\nEndpoints of a problem are below `/v1/PROBLEM/`. `/openapi.json` has the schemas of a running "
        "service, typed by its problems, and `/docs` shows them.\n"
    ]
    personalizer = "of Azure Personalizer, with `serve --personalizer`"
    for title, rows, base, meanings in (
        ("of a problem", routes.PROBLEM_ENDPOINTS, "/v1/PROBLEM/", routes.REFUSALS),
        ("of the service", routes.SERVICE_ENDPOINTS, "/", routes.REFUSALS),
        (personalizer, routes.PERSONALIZER_ENDPOINTS, routes.PERSONALIZER, routes.PERSONALIZER_REFUSALS),
    ):
        parts.append(f"## Endpoints {title}\n")
        parts.extend(_endpoint(row, base, meanings) for row in rows)
    return "\n".join(parts)


def _endpoint(row: Any, base: str, meanings: Mapping[int, str]) -> str:
    from potstill.service.schemas import QUERY_FIELDS

    path = f"{row.method} {base}{row.path}"
    about = " ".join(part for part in (described(row.summary, path) + ".", row.text) if part)
    scope = f"Scope `{row.scope}`." if row.scope else "Needs no token."
    parts = [f"### {path}\n\n{plain(about)} {scope}\n"]
    parts.extend(_fields(kind, "field", path) for kind in row.request)
    if row.query:
        parts.append(_fields(row.query, "query", path, QUERY_FIELDS))
    if row.refusals:
        statuses = ((f"{row.status}", "Success."), *((str(code), meanings[code]) for code in sorted(row.refusals)))
        parts.append(table(["status", ""], statuses))
    return "\n".join(parts)


def _fields(kind: Any, title: str, path: str, about: Mapping[str, str] | None = None) -> str:
    body, _ = sections(inspect.getdoc(kind) or "")
    stated = dict(about or {})
    for base in reversed(kind.__mro__[:-1]):
        stated |= sections(inspect.getdoc(base) or "")[1]
    rows = [
        (
            f"`{field.encode_name}`",
            "required" if _is_required(field) else "optional",
            plain(described(stated.get(field.name), f"{path} {field.name}")),
        )
        for field in msgspec.structs.fields(kind)
    ]
    return f"{plain(described(body, path))}\n\n{table([title, '', ''], rows)}"


def _is_required(field: Any) -> bool:
    return field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT


# ---- metrics ------------------------------------------------------------------------------------------------------


def metrics() -> str:
    """All metrics of `/metrics`."""
    families = list(_families())
    rows = sorted(
        (f"`{name}`", kind, ", ".join(f"`{label}`" for label in labels), about)
        for name, kind, labels, about in families
    )
    return (
        "# Metrics\n\n`GET /metrics` has the format of Prometheus, and needs the scope `read`. Each metric of a "
        "problem has the label `problem`.\n\n" + table(["metric", "type", "labels", ""], rows)
    )


def _families() -> Iterator[tuple[str, str, list[str], str]]:
    """Name, type, labels and description of each family, as the source constructs them."""
    from potstill.service import metrics as service
    from potstill.service import summary_metrics

    for name, counter in service.COUNTERS.items():
        yield f"potstill_{name}_total", "counter", [*counter.labels], described(counter.about, name)
    pattern = r'(Counter|Gauge|Histogram)MetricFamily\(\s*"(\w+)",\s*((?:"[^"]*"\s*)+|\w+),\s*labels=\[([^\]]*)\]'
    for module in (service, summary_metrics):
        for kind, name, about, labels in re.findall(pattern, inspect.getsource(module)):
            text = "".join(re.findall(r'"([^"]*)"', about)) if '"' in about else _HISTOGRAM
            named = [label for label in re.findall(r'"(\w+)"', labels) if label != "problem"]
            suffix = "_total" if kind == "Counter" else ""
            yield f"{name}{suffix}", kind.lower(), named, described(text, name)


_HISTOGRAM = "Duration of requests to decide, until the decision is on disk."


# ---- Python -------------------------------------------------------------------------------------------------------


def python() -> str:
    """The public names of `potstill`."""
    import potstill

    parts = ["# Python\n\n`import potstill as ps`.\n"]
    for name in potstill.__all__:
        value = getattr(potstill, name)
        if inspect.isclass(value):
            parts.append(_class(f"ps.{name}", value))
    for room in ("teachers", "evaluate", "spaces"):
        parts.append(f"## ps.{room}\n\n{_first(getattr(potstill, room), room)}\n")
        parts.append(table(["name", ""], _members(getattr(potstill, room), f"ps.{room}")))
    return "\n".join(parts)


#: Classes that are used by stating them.
STATED = (
    "Boolean",
    "Categorical",
    "Continuous",
    "Discrete",
    "Hashed",
    "Numeric",
    "Reward",
    "Text",
    "Timestamp",
    "Vector",
)


def _members(module: Any, path: str) -> Iterator[tuple[str, str]]:
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isroutine(value):
            yield f"`{name}`", plain(_first(value, f"{path}.{name}"))


def _first(value: Any, what: str) -> str:
    return " ".join(described(inspect.getdoc(value), what).split("\n\n")[0].split())


def _class(path: str, kind: type[Any]) -> str:
    body, about = sections(described(inspect.getdoc(kind), path))
    rows: list[tuple[str, str]] = []
    if issubclass(kind, msgspec.Struct):
        names = (field.name for field in msgspec.structs.fields(kind))
        rows.extend((f"`{name}`", plain(described(about.get(name), f"{path}.{name}"))) for name in names)
    # What features and spaces do is a contract for those who write one; a problem only states them.
    calls = [] if path.removeprefix("ps.") in STATED else _public(kind)
    methods = ((f"`{name}{_arguments(value)}`", plain(_first(value, f"{path}.{name}"))) for name, value in calls)
    return f"### {path}\n\n{plain(body)}\n\n{table(['attribute', ''], rows)}\n{table(['method', ''], methods)}"


def _public(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """Methods and properties that a class states itself."""
    for name, value in vars(kind).items():
        function = getattr(value, "__func__", value)
        if not name.startswith("_") and (inspect.isfunction(function) or isinstance(value, property)):
            yield name, value if isinstance(value, property) else function


def _arguments(value: Any) -> str:
    if isinstance(value, property):
        return ""
    names = [_argument(p) for p in inspect.signature(value).parameters.values() if p.name not in ("self", "cls")]
    return f"({', '.join(names)})"


def _argument(parameter: inspect.Parameter) -> str:
    star: Mapping[Any, str] = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
    name = f"{star.get(parameter.kind, '')}{parameter.name}"
    return name if parameter.default is parameter.empty else f"{name}={parameter.default!r}"


if __name__ == "__main__":
    main()
