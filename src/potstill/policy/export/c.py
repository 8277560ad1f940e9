"""Policy to C99: the weights as constants, with the kernel of the Python extension.

`name.h` and `name.c` are the policy, `potstill.*` is the kernel, which several policies can share, and `example.c`
shows their use. The code allocates no memory and needs only libm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np

from potstill._version import __version__
from potstill.policy.export.retired import refuse_retired
from potstill.policy.network import Float32, Layer
from potstill.policy.policy import Policy
from potstill.problem import Feature, KernelFeature
from potstill.spaces import Continuous, finite

_KERNEL = {
    "kernel.h": "potstill.h",
    "kernel.c": "potstill.c",
    "encoding.inc": "potstill_encoding.inc",
    "network.inc": "potstill_network.inc",
}
#: Columns are padded to whole vectors of the widest instruction set.
_LANES = 16


def write(policy: Policy, directory: Path, name: str) -> list[Path]:
    """Write the kernel, the policy's header and source, and an example."""
    refuse_retired(policy, "c")
    name = _identifier(name).lower()
    if name in ("potstill", "example"):
        raise ValueError(f"the name {name!r} is taken by another file of the export; give the policy another one")
    contents = {
        **_kernel(),
        f"{name}.h": _header(policy, name),
        f"{name}.c": _source(policy, name),
        "example.c": _example(policy, name),
    }
    for file, text in contents.items():
        (directory / file).write_text(text, encoding="utf-8")
    return [directory / file for file in contents]


def _kernel() -> dict[str, str]:
    """The kernel's files, renamed to be recognisable in another project."""
    folder, names = files("potstill.policy") / "native", {}
    for old, new in _KERNEL.items():
        text = (folder / old).read_text(encoding="utf-8")
        for included, renamed in _KERNEL.items():
            text = text.replace(f'#include "{included}"', f'#include "{renamed}"')
        names[new] = text
    return names


def _header(policy: Policy, name: str) -> str:
    upper, problem = name.upper(), policy.problem
    features = _constants(upper, "", [feature.name for feature in problem.context])
    return f"""\
/* Policy {_comment(problem.name)} version {policy.version}, exported by Potstill {__version__}. Generated: do not edit.
 *
 * Compile with: cc -std=c99 -O3 example.c {name}.c potstill.c -lm
 */
#ifndef {upper}_H
#define {upper}_H

#include "potstill.h"

#define {upper}_VERSION {policy.version}
#define {upper}_PROBLEM_HASH "{problem.hash}"

/* The features of a context: potstill_value values[{upper}_FEATURES]. */
enum {{
{_enumeration(features, problem.context)}
    {upper}_FEATURES = {len(problem.context)}
}};

{_declared_actions(policy, upper)}
enum {{ {upper}_WIDTH = {problem.width}, {upper}_SCRATCH = {_scratch(policy)} }};

#ifdef __cplusplus
extern "C" {{
#endif

extern const potstill_policy {name}_policy;
{"" if _is_number(policy) else f"extern const char *const {name}_actions[{upper}_ACTIONS];{chr(10)}"}
/* Encodes a context and chooses an action for it. The same id always gives the same action.
 * For eligible actions, another floor, or probabilities, call the functions of potstill.h with &{name}_policy. */
potstill_status {name}_decide(const potstill_value *values, const char *id, {_result(policy)} *decision);

#ifdef __cplusplus
}}
#endif

#endif
"""


def _source(policy: Policy, name: str) -> str:
    upper, problem, metadata = name.upper(), policy.problem, policy.metadata
    salt = ", ".join(f"0x{byte:02x}" for byte in bytes.fromhex(metadata.salt))
    parts = [
        f'#include "{name}.h"\n\n#include <string.h>\n',
        *_action_table(policy, name),
        *_feature_tables(problem.context),
        *_layer_tables(policy.layers),
        f"""\
const potstill_policy {name}_policy = {{
    .features = {"features" if problem.context else "NULL"},
    .feature_count = {upper}_FEATURES,
    .width = {upper}_WIDTH,
    .layers = layers,
    .layer_count = {len(policy.layers)},
    .activation = POTSTILL_{metadata.activation.upper()},
    .actions = {upper}_ACTIONS,
    .floor = {metadata.floor!r},{f"{chr(10)}    .edges = edges," if _is_number(policy) else ""}
    .masked = {str(policy.masked).lower()},
    .salt = {{{salt}}},
}};

potstill_status {name}_decide(const potstill_value *values, const char *id, {_result(policy)} *decision)
{{
    float encoded[{upper}_WIDTH + 1], scratch[{upper}_SCRATCH];
    const potstill_text text = {{id, strlen(id)}};
    const potstill_status status = potstill_encode(&{name}_policy, values, encoded, NULL);
    if (status != POTSTILL_OK) return status;
    return {_function(policy)}(&{name}_policy, encoded, text, NULL, {name}_policy.floor, scratch, decision);
}}
""",
    ]
    return "\n".join(parts)


def _example(policy: Policy, name: str) -> str:
    upper, features = name.upper(), policy.problem.context
    shown = (
        '"%.17g %.9g\\n", decision.value, decision.density'
        if _is_number(policy)
        else f'"%s %.9g\\n", {name}_actions[decision.action], decision.propensity'
    )
    constants = _constants(upper, "", [feature.name for feature in features])
    values = "".join(f"    values[{c}] = {_value(f)};\n" for c, f in zip(constants, features, strict=True))
    return f"""\
#include "{name}.h"

#include <stdio.h>

int main(void)
{{
    potstill_value values[{upper}_FEATURES + 1] = {{{{0}}}}; /* all missing */
    {_result(policy)} decision;
{values}    const potstill_status status = {name}_decide(values, "example", &decision);
    if (status != POTSTILL_OK) return fprintf(stderr, "%s\\n", potstill_message(status)), 1;
    printf({shown});
    return 0;
}}
"""


def _is_number(policy: Policy) -> bool:
    return isinstance(policy.problem.actions, Continuous)


def _result(policy: Policy) -> str:
    return "potstill_number" if _is_number(policy) else "potstill_decision"


def _function(policy: Policy) -> str:
    return "potstill_decide_number" if _is_number(policy) else "potstill_decide"


def _scratch(policy: Policy) -> int:
    """`potstill_scratch_size` of the policy."""
    widest = max(map(_stride, policy.layers))
    return 2 * widest + (widest // 4 if _is_number(policy) else 0) + (widest if policy.masked else 0)


def _declared_actions(policy: Policy, upper: str) -> str:
    space = policy.problem.actions
    if isinstance(space, Continuous):
        return f"""\
/* The action is a number, {_comment(space.name)}, from {space.low!r} to {space.high!r}, in one of these bins. */
enum {{ {upper}_ACTIONS = {space.bins} }};
"""
    names = finite(space, "export to C").labels
    return f"""\
/* The actions. */
enum {{
{_enumeration(_constants(upper, "ACTION_", names), names)}
    {upper}_ACTIONS = {len(names)}
}};
"""


def _action_table(policy: Policy, name: str) -> Iterator[str]:
    space = policy.problem.actions
    if isinstance(space, Continuous):
        yield f"static const double edges[{name.upper()}_ACTIONS + 1] = {{"
        yield from (f"    {edge!r}," for edge in space.edges.tolist())
    else:
        yield f"const char *const {name}_actions[{name.upper()}_ACTIONS] = {{"
        yield from (f"    {_text(action)}," for action in finite(space, "export to C").labels)
    yield "};\n"


def _value(feature: Feature) -> str:
    example = feature.example
    if isinstance(example, bool):
        return "(potstill_value){POTSTILL_TRUTH, {.truth = true}}"
    if isinstance(example, float):
        return f"(potstill_value){{POTSTILL_NUMBER, {{.number = {example!r}}}}}"
    if isinstance(example, list):
        numbers = f"(const double[]){{{', '.join(map(repr, example))}}}"
        return f"(potstill_value){{POTSTILL_NUMBERS, {{.numbers = {{{numbers}, {len(example)}}}}}}}"
    return f"(potstill_value){{POTSTILL_TEXT, {{.text = {_sized(example)}}}}}"


def _feature_tables(features: Sequence[Feature]) -> Iterator[str]:
    rows, column = [], 0
    for i, feature in enumerate(features):
        kernel = feature.kernel
        if kernel.categories:
            yield f"static const potstill_category categories_{i}[] = {{"
            # Sorted as the kernel's binary search expects: by length, then by bytes.
            for place, value in sorted(enumerate(kernel.categories), key=lambda v: (len(v[1].encode()), v[1].encode())):
                yield f"    {{{_sized(value)}, {place}}},"
            yield "};\n"
        if kernel.knots:
            yield f"static const double knots_{i}[] = {{{', '.join(map(repr, kernel.knots))}}};\n"
        if kernel.parts:
            parts = ", ".join(f"POTSTILL_{part.upper()}" for part in kernel.parts)
            yield f"static const potstill_part parts_{i}[] = {{{parts}}};\n"
        rows.append(f"    {{{_fields(feature.name, kernel, i, column)}}},")
        column += len(feature.labels)
    if rows:
        yield "static const potstill_feature features[] = {"
        yield from rows
        yield "};\n"


def _fields(name: str, kernel: KernelFeature, i: int, column: int) -> str:
    fields = {
        "name": _text(name),
        "kind": f"POTSTILL_{kernel.kind.upper()}",
        "missing": f"POTSTILL_{kernel.missing.upper()}",
        "column": str(column),
    }
    if kernel.categories:
        fields |= {"categories": f"categories_{i}", "category_count": str(len(kernel.categories))}
    elif kernel.missing == "stand_in":
        fields["stand_in"] = repr(kernel.stand_in)
    if kernel.low < kernel.high:
        fields |= {name: repr(getattr(kernel, name)) for name in ("low", "high", "origin", "span")}
        fields["log"] = "true" if kernel.log else "false"
    if kernel.size:
        fields |= {"size": str(kernel.size), "unit": "true" if kernel.unit else "false"}
    if kernel.ngrams:
        fields["ngrams"] = str(kernel.ngrams)
    if kernel.parts:
        fields |= {"parts": f"parts_{i}", "part_count": str(len(kernel.parts)), "offset": str(kernel.offset)}
        fields |= {"own": "true" if kernel.own else "false", "per_second": repr(kernel.per_second)}
    if kernel.knots:
        fields |= {"knots": f"knots_{i}", "knot_count": str(len(kernel.knots))}
    return ", ".join(f".{name} = {value}" for name, value in fields.items())


def _layer_tables(layers: Iterable[Layer]) -> Iterator[str]:
    rows = []
    for i, layer in enumerate(layers):
        stride = _stride(layer)
        padding = stride - len(layer.bias)
        yield from _array(f"weight_{i}", np.pad(layer.weight, ((0, 0), (0, padding))))
        yield from _array(f"bias_{i}", np.pad(layer.bias, (0, padding)))
        rows.append(f"    {{{len(layer.weight)}, {len(layer.bias)}, {stride}, weight_{i}, bias_{i}}},")
    yield "static const potstill_layer layers[] = {"
    yield from rows
    yield "};\n"


def _array(name: str, values: Float32) -> Iterator[str]:
    flat = values.ravel() if values.size else np.zeros(1, np.float32)
    yield f"static const float {name}[] = {{"
    for at in range(0, len(flat), _LANES):
        yield "    " + " ".join(f"{_float(x)}," for x in flat[at : at + _LANES])
    yield "};\n"


def _float(value: np.float32) -> str:
    """Nine digits represent every float32 exactly."""
    text = f"{value:.9g}"
    return f"{text}f" if any(c in text for c in ".e") else f"{text}.0f"


def _stride(layer: Layer) -> int:
    return -(-len(layer.bias) // _LANES) * _LANES


def _constants(upper: str, prefix: str, names: Iterable[str]) -> list[str]:
    """One distinct C constant for each name."""
    constants: list[str] = []
    for i, name in enumerate(names):
        constant = f"{upper}_{prefix}{_identifier(name).upper()}"
        reserved = constant.removeprefix(f"{upper}_") in ("FEATURES", "ACTIONS", "WIDTH", "SCRATCH", "VERSION", "H")
        constants.append(f"{constant}_{i}" if constant in constants or reserved else constant)
    return constants


def _enumeration(constants: Iterable[str], described: Iterable[object]) -> str:
    names = (getattr(item, "name", item) for item in described)
    return "\n".join(
        f"    {constant} = {i}, /* {_comment(str(name))} */"
        for i, (constant, name) in enumerate(zip(constants, names, strict=True))
    )


def _identifier(name: str) -> str:
    cleaned = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "x"
    return f"_{cleaned}" if cleaned[0].isdigit() else cleaned


def _comment(text: str) -> str:
    return text.replace("*/", "* /").replace("/*", "/ *").replace("\\", "/").replace("\n", " ")


def _text(text: str) -> str:
    """A C string literal; non-ASCII characters become octal escapes, which cannot merge with following digits."""
    plain = (chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in text.encode())
    return f'"{"".join(plain)}"'


def _sized(text: str) -> str:
    return f"{{{_text(text)}, {len(text.encode())}}}"
