"""Write the conformance vectors: policies × contexts × ids × eligibility × floors, as the NumPy oracle decides them.

Usage: python conformance/generate.py [DIRECTORY]
`tests/conformance/` checks that every runtime reproduces them; conformance/README.md says how to check a new one.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import potstill as ps
from potstill.policy import Layer, Tower, artifact
from potstill.policy.draw import uniform

HERE = Path(__file__).parent
CASES = 40

EVERY_FEATURE = [
    ps.Numeric("speed", low=-10, high=10),
    ps.Numeric("price", low=0.01, high=1e6, scale="log", missing=1.0),
    ps.Numeric("age", low=0, high=120, missing="flag"),
    ps.Categorical("place", ["home", "work", "straße", "東京"]),
    ps.Categorical("plan", ["free", "paid"], missing="error"),
    ps.Boolean("new"),
    ps.Boolean("plugged in", missing="flag"),
    ps.Boolean("constructor", missing=True),
]
#: Feature types of format 2.
LATER_FEATURES = [
    ps.Hashed("merchant", size=7),
    ps.Hashed("city", size=64, missing="flag"),
    ps.Vector("embedding", size=5, norm="unit"),
    ps.Vector("position", size=2, low=-10, high=30, missing="flag"),
    ps.Vector("signal", size=3),
    ps.Numeric("amount", low=0, high=1e6, scale="quantile", knots=[1, 3.5, 20, 400], missing="flag"),
    ps.Boolean("new"),
]
TEXTS = [
    ps.Text("title", size=24),
    ps.Text("query", size=5, ngrams=2, missing="flag"),
    ps.Text("comment", size=64, ngrams=8, missing="flag"),
    ps.Boolean("new"),
]
PARTS = ["day", "week", "year", "hour", "weekday", "monthday", "month"]
TIMES = [
    ps.Timestamp("at", PARTS),
    ps.Timestamp("local", PARTS[::-1], offset="own", missing="flag"),
    ps.Timestamp("there", offset="-09:30", missing="flag"),
    ps.Timestamp("seconds", PARTS, unit="s", missing="flag"),
    ps.Timestamp("millis", ["hour", "week"], unit="ms", offset="+05:45", missing="flag"),
    ps.Timestamp("micros", ["year"], unit="us", offset="+23:59", missing="flag"),
]
#: Lengths of every remainder modulo eight, other scripts, an empty string, NULs at the end, beyond one buffer.
STRINGS = ["", "a", "a\0", "a\0\0", "shop", "straße", "東京", "🎲🎲", "e\u0301", "é", "__proto__", "x" * 2000]
#: Case, separators, other scripts and their capitals, words too short for an n-gram, no words, words in one column.
SENTENCES = [
    "", " ", "\0", "!?", "a", "A a", "Red shoes", "red\0SHOES, red-shoes_RED", "C3PO & R2-D2!", "Straße STRASSE",
    "İI ıi", "東京タワー", "🎲", "👩\u200d👩\u200d👧 family", "e\u0301 é", "\u00a0nbsp\u2028line",
    "__proto__ constructor", "aaaaaaaaaaaa", "\x7f\x80\u07ff\u0800\uffff\U00010000\U0010ffff", "x" * 4096, "🎲" * 4096,
    "to be or not to be " * 200,
]  # fmt: skip
#: Ends of years, leap years and centuries, of the range and beyond it by an offset; every spelling that is allowed.
MOMENTS = [
    "2026-01-31T12:00:00Z", "2024-02-29", "2000-02-29T23:59:59.999999999Z", "1900-02-28t23:59:60z", "1900-03-01",
    "2023-12-31 23:30:00-05:00", "2024-01-01T00:29:59+05:45", "1969-12-31T23:59:59Z", "1970-01-01T00:00:00.0-00:00",
    "0001-01-01T00:00:00+23:59", "0001-01-01", "9999-12-31T23:59:60-23:59", "9999-12-31", "2016-12-31T23:59:60Z",
    "0004-02-29T06:00:00Z", "1582-10-10T18:00:00+00:00",
]  # fmt: skip
ACTIONS = ["stay", "left", "right", "↑", "down"]


def problems() -> dict[str, ps.Problem]:
    """One problem for each thing that a runtime can get wrong."""
    return {
        "every-feature": problem("every-feature", EVERY_FEATURE, ACTIONS),
        "numbers": problem("numbers", [ps.Numeric(f"x{i}", low=-1, high=2) for i in range(38)], list("abcdefg")),
        "no-features": problem("no-features", [], ACTIONS[:2]),
        "later-features": problem("later-features", LATER_FEATURES, ACTIONS),
        "texts": problem("texts", TEXTS, ACTIONS),
        "times": problem("times", TIMES, ACTIONS),
        "many-actions": problem("many-actions", EVERY_FEATURE[:4], [f"item {i}" for i in range(200)]),
        "retired-actions": problem("retired-actions", EVERY_FEATURE[:4], ACTIONS, retired=["left", "down"]),
        "catalog": catalog("catalog"),
        "retired-items": catalog("retired-items", retired=["item 3", "größe"]),
    }


def catalog(name: str, retired: Sequence[str] = ()) -> ps.Problem:
    """Items with features of all shapes, of which some have no value."""
    names = [f"item {i}" for i in range(20)] + ["größe", "日本"]
    items = [
        {
            "id": item,
            "price": 3.5 * i,
            "kind": "abx"[i % 3],
            "place": [i / 7, -1.0],
            **({"new": i % 2 == 0} if i % 4 else {}),
        }
        for i, item in enumerate(names)
    ]
    features = [
        ps.Numeric("price", low=0, high=100), ps.Categorical("kind", ["a", "b"]), ps.Vector("place", size=2),
        ps.Boolean("new", missing="flag"),
    ]  # fmt: skip
    space = ps.Catalog(features=features, items=items, retired=retired)
    return ps.Problem(name=name, context=EVERY_FEATURE[:4], actions=space)


def problem(name: str, context: list[Any], actions: list[str], retired: Sequence[str] = ()) -> ps.Problem:
    return ps.Problem(name=name, context=context, actions=ps.Discrete(actions, retired=retired))


#: file: problem, hidden layers, activation, scale of the weights, floor
POLICIES: dict[str, tuple[str, tuple[int, ...], Any, float, float]] = {
    "every-feature.policy": ("every-feature", (20, 12), "tanh", 1.0, 0.0),
    "relu.policy": ("every-feature", (17, 5, 3), "relu", 1.0, 0.01),
    "linear.policy": ("every-feature", (), "tanh", 3.0, 0.0),
    "sharp.policy": ("every-feature", (16,), "tanh", 40.0, 0.0),
    "numbers.policy": ("numbers", (33, 20), "tanh", 0.5, 0.0),
    "no-features.policy": ("no-features", (4,), "tanh", 1.0, 0.1),
    "many-actions.policy": ("many-actions", (12,), "tanh", 1.0, 0.001),
    "later-features.policy": ("later-features", (24, 10), "tanh", 1.0, 0.0),
    "texts.policy": ("texts", (24, 10), "tanh", 3.0, 0.0),
    "times.policy": ("times", (24, 10), "tanh", 3.0, 0.0),
    # Scores 14 to 90 apart: propensities down to the smallest float32, where rounding matters most.
    "far-apart.policy": ("numbers", (50,), "tanh", 20.0, 0.0),
    "farther-apart.policy": ("many-actions", (24, 24), "relu", 6.0, 0.0),
    "retired-actions.policy": ("retired-actions", (12,), "tanh", 1.0, 0.02),
    "catalog.policy": ("catalog", (16, 6), "tanh", 1.0, 0.0),
    "retired-items.policy": ("retired-items", (12,), "relu", 1.0, 0.01),
}


#: The same, of policies whose network also takes which actions are not eligible.
MASKED_POLICIES: dict[str, tuple[str, tuple[int, ...], Any, float, float]] = {
    "masked.policy": ("every-feature", (20, 12), "tanh", 1.0, 0.0),
    "masked-linear.policy": ("later-features", (), "tanh", 3.0, 0.01),
    "masked-many.policy": ("many-actions", (24, 24), "relu", 2.0, 0.0005),
    "masked-no-features.policy": ("no-features", (4,), "tanh", 2.0, 0.1),
    "masked-retired.policy": ("retired-actions", (12,), "tanh", 1.0, 0.02),
}


def make_policy(file: str) -> ps.Policy:
    name, hidden, activation, scale, floor = (POLICIES | MASKED_POLICIES)[file]
    return build(problems()[name], file, hidden, activation, scale, floor, masked=file in MASKED_POLICIES)


def build(
    chosen: ps.Problem,
    file: str,
    hidden: tuple[int, ...],
    activation: Any,
    scale: float,
    floor: float,
    masked: bool = False,
) -> ps.Policy:
    rng = np.random.default_rng(list(file.encode()))
    outputs = chosen.actions.head().outputs
    sizes = [chosen.width + (outputs if masked else 0), *hidden, outputs]
    layers = [
        Layer((scale * rng.standard_normal((i, o)) / np.sqrt(max(i, 1))).astype(np.float32), normal(rng, o))
        for i, o in itertools.pairwise(sizes)
    ]
    tower = None
    if isinstance(chosen.actions, ps.Catalog) and not chosen.actions.retired:
        tower = make_tower(rng, chosen.actions, sizes[-2], scale)
        layers[-1] = tower.columns(chosen.actions.encoded, activation)
    policy = ps.Policy.build(chosen, layers, version=7, activation=activation, floor=floor, masked=masked, tower=tower)
    return policy.with_runtime("numpy")


def make_tower(rng: np.random.Generator, space: ps.Catalog, units: int, scale: float) -> Tower:
    """An item tower with one hidden layer."""
    sizes = [space.width + 2, 8, units + 1]
    layers = [
        Layer((scale * rng.standard_normal((i, o)) / np.sqrt(i)).astype(np.float32), normal(rng, o))
        for i, o in itertools.pairwise(sizes)
    ]
    return Tower(layers, np.abs(rng.standard_normal((len(space), 2))).astype(np.float32))


def normal(rng: np.random.Generator, n: int) -> Any:
    return rng.standard_normal(n).astype(np.float32)


def make_context(rng: np.random.Generator, features: tuple[Any, ...]) -> dict[str, Any]:
    context = {}
    for feature in features:
        value = make_value(rng, feature)
        optional = feature.missing != "error"
        if optional and rng.random() < 0.2:
            value = None
        if not (optional and rng.random() < 0.1):
            context[feature.name] = value
    return context


def make_value(rng: np.random.Generator, feature: Any) -> Any:
    if isinstance(feature, ps.Hashed):
        return STRINGS[rng.integers(len(STRINGS))] if rng.random() < 0.5 else f"shop {rng.integers(1 << 40)}"
    if isinstance(feature, ps.Timestamp):
        return make_moment(rng, feature)
    if isinstance(feature, ps.Text):
        one, other = (SENTENCES[i] for i in rng.integers(len(SENTENCES), size=2))
        return one if rng.random() < 0.7 or len(one + other) >= 4096 else f"{one} {other}"
    if isinstance(feature, ps.Vector):
        return make_numbers(rng, feature)
    if isinstance(feature, ps.Numeric) and feature.scale == "quantile":
        inside = float(np.exp(6 * rng.normal()))
        return feature.points[rng.integers(len(feature.points))] if rng.random() < 0.4 else inside
    if isinstance(feature, ps.Numeric):
        span = feature.high - feature.low
        edges = [feature.low, feature.high, feature.low - span, feature.high + span, 0, 1]
        inside = feature.low + span * rng.random() if feature.scale == "linear" else float(np.exp(3 * rng.normal()))
        return edges[rng.integers(len(edges))] if rng.random() < 0.3 else inside
    if isinstance(feature, ps.Boolean):
        return bool(rng.random() < 0.5)
    return str(rng.choice(np.array([*feature.values, "elsewhere", "ß"])))


def make_moment(rng: np.random.Generator, feature: Any) -> Any:
    if feature.unit is None:
        years, clock = 1 + rng.integers(9999), [rng.integers(most) for most in (24, 60, 61, 24, 60)]
        text = (
            f"{years:04}-{1 + rng.integers(12):02}-{1 + rng.integers(28):02}T{clock[0]:02}:{clock[1]:02}:{clock[2]:02}"
        )
        made = f"{text}{'+-'[rng.integers(2)]}{clock[3]:02}:{clock[4]:02}"
        return MOMENTS[rng.integers(len(MOMENTS))] if rng.random() < 0.6 else made
    ends = [-62_135_596_800, 253_402_300_799.9, 0, -0.5, -1, 86_399.999, 951_782_400, 4_107_542_399]
    seconds = ends[rng.integers(len(ends))] if rng.random() < 0.4 else float(rng.uniform(ends[0], ends[1]))
    return seconds * {"s": 1, "ms": 1000, "us": 1_000_000}[feature.unit]


def make_numbers(rng: np.random.Generator, feature: Any) -> list[Any]:
    way = rng.random()
    if way < 0.1:
        return [0] * feature.size
    unscaled = feature.low is None and feature.norm is None  # goes into the network as it is
    scale = 1.0 if unscaled else 10.0 ** rng.integers(-3, 4) if way < 0.8 else 1e30
    return [float(number) for number in scale * rng.standard_normal(feature.size)]


def make_id(rng: np.random.Generator, i: int) -> str:
    """Ids of every length modulo eight, with ASCII and without."""
    return f"{'é☃𝔘'[i % 3] if i % 4 == 0 else ''}{'upload-0123456789'[: 1 + i % 17]}{rng.integers(1 << 30)}"


def make_case(rng: np.random.Generator, policy: ps.Policy, i: int) -> dict[str, Any]:
    names = policy.problem.actions.names
    context = make_context(rng, policy.problem.context)
    eligible = None if i % 3 else [str(n) for n in rng.permutation(names)[: rng.integers(1, len(names) + 1)]]
    floor = None if i % 4 else float(rng.choice([0.0, 0.001, 1 / len(names)]))
    decision_id = make_id(rng, i)
    p = policy.probabilities(context, eligible=eligible, floor=floor)
    decision = policy.decide(context, id=decision_id, eligible=eligible, floor=floor)
    mask = None if eligible is None else policy.problem.actions.restrict(eligible).allowed
    return {
        "context": context,
        "id": decision_id,
        "eligible": eligible,
        "floor": floor,
        "encoded": policy.problem.encode(context).tolist(),
        "probabilities": p.tolist(),
        "agreement": float(policy.agreement([context], eligible=mask)[0]),
        "u": uniform(decision_id, bytes.fromhex(policy.metadata.salt)),
        "action": decision.action,
        "propensity": decision.propensity,
    }


#: file: low, high, scale, bins, hidden layers, scale of the weights, floor
NUMBER_POLICIES: dict[str, tuple[float, float, Any, int, tuple[int, ...], float, float]] = {
    "price.policy": (0.5, 20, "linear", 128, (20, 12), 1.0, 0.0),
    "bid.policy": (0.01, 1e6, "log", 200, (16,), 4.0, 0.02),
    "two-bins.policy": (-3, 1e9, "linear", 2, (), 1.0, 0.3),
}


def make_number_policy(file: str) -> ps.Policy:
    low, high, scale, bins, hidden, spread, floor = NUMBER_POLICIES[file]
    space = ps.Continuous("amount", low, high, scale, bins)
    chosen = ps.Problem(name=file.removesuffix(".policy"), context=EVERY_FEATURE[:4], actions=space)
    return build(chosen, file, hidden, "tanh", spread, floor)


def make_number_case(rng: np.random.Generator, policy: ps.Policy, i: int) -> dict[str, Any]:
    edges = policy.problem.actions.edges
    ends = np.sort(rng.choice(np.concatenate([edges, rng.uniform(edges[0], edges[-1], 20)]), 2, replace=False))
    options = {
        "id": make_id(rng, i),
        "eligible": None if i % 3 else ends.tolist(),
        "floor": None if i % 4 else float(rng.choice([0.0, 0.1, 1.0])),
    }
    context = make_context(rng, policy.problem.context)
    decision = policy.decide(context, **options)
    allowed = None if i % 3 else ends[None]
    return {
        "context": context,
        **options,
        "encoded": policy.problem.encode(context).tolist(),
        "agreement": float(policy.agreement([context], eligible=allowed)[0]),
        "u": policy.uniforms([options["id"]])[0].tolist(),
        "action": decision.action,
        "propensity": decision.propensity,
    }


def invalid_contexts(policy: ps.Policy) -> list[dict[str, Any]]:
    """Contexts that every runtime refuses, with what its message names."""
    if policy.problem.name == "later-features":
        return later_invalid()
    if policy.problem.name == "times":
        return times_invalid()
    if policy.problem.name == "texts":
        good = {"title": "Red shoes", "new": True}
        wrong = [("title", 3), ("title", ["a"]), ("title", None), ("query", False), ("title", "x" * 4097),
                 ("query", "🎲" * 4097), ("comment", "x" * 100_000)]  # fmt: skip
        missing = [{"context": {"new": True}, "error": "title"}]
        return missing + [{"context": good | {name: value}, "error": name} for name, value in wrong]
    if policy.problem.name != "every-feature":
        required = {f.name: 0.5 for f in policy.problem.context if f.missing == "error"}
        return [{"context": required | {"nothing like this": 1}, "error": "nothing like this"}]
    good = {"speed": 1.5, "plan": "free", "new": True}
    changes: list[tuple[str, Any]] = [
        ("speed", "fast"), ("speed", True), ("speed", None), ("speed", [1]), ("speed", {}), ("price", "1"),
        ("place", 3), ("place", False), ("plan", None), ("new", 1), ("new", "true"), ("new", None),
        ("colour", "red"), ("toString", 1), ("__proto__", 1),
    ]  # fmt: skip
    missing = [{"context": {k: v for k, v in good.items() if k != name}, "error": name} for name in good]
    return missing + [{"context": good | {name: value}, "error": name} for name, value in changes]


def times_invalid() -> list[dict[str, Any]]:
    good = {"at": "2026-01-31T12:00:00Z"}
    texts = [
        "", "2025-02-29", "1900-02-29", "0000-12-31", "2026-13-01", "2026-04-31", "2026-01-01T24:00:00Z",
        "2026-01-01T12:00:61Z", "2026-01-01T12:00:00", "2026-01-01T12:00Z", "2026-01-01T12:00:00.Z", "20260101",
        "2026-01-01T12:00:00+24:00", "2026-01-01T12:00:00+0200", "2026-01-01T12:00:00Z\n", "2026-01-01\0", "٢٠٢٦-01-01",
        1_700_000_000, None, True, ["2026-01-01"],
    ]  # fmt: skip
    numbers = [("seconds", 253_402_300_800), ("seconds", -62_135_596_801), ("seconds", "2026-01-01"), ("seconds", True),
               ("millis", 253_402_300_800_000), ("micros", 1e300), ("local", 5), ("there", "now")]  # fmt: skip
    missing = [{"context": {}, "error": "at"}]
    changes = [*(("at", text) for text in texts), *numbers]
    return missing + [{"context": good | {name: value}, "error": name} for name, value in changes]


def later_invalid() -> list[dict[str, Any]]:
    good = {"merchant": "shop", "embedding": [1, 2, 3, 4, 5], "signal": [0.5, 1, 2], "new": True}
    changes: list[tuple[str, Any]] = [
        ("merchant", 3), ("merchant", None), ("merchant", ["shop"]), ("city", True), ("city", 1.5),
        ("embedding", [1, 2, 3, 4]), ("embedding", [1, 2, 3, 4, 5, 6]), ("embedding", []), ("embedding", None),
        ("embedding", 1), ("embedding", "12345"), ("embedding", {}), ("signal", [1, 2, 1e39]),
        ("position", [-1e300, 0]), ("amount", "1"), ("amount", [1]),
    ]  # fmt: skip
    missing = [{"context": {k: v for k, v in good.items() if k != name}, "error": name} for name in good]
    return missing + [{"context": good | {name: value}, "error": name} for name, value in changes]


def refused_files(policy: ps.Policy) -> dict[str, tuple[bytes, str]]:
    """Files that every runtime refuses, and a word of the reason."""
    data = policy.to_bytes()
    broken = policy.layers[0].weight.copy()
    broken[0, 0] = np.nan
    not_finite = [Layer(broken, policy.layers[0].bias), *policy.layers[1:]]
    later, latest, unknown, unread = (
        msgspec.structs.replace(policy.metadata, format=number) for number in (2, 3, 4, 5)
    )
    tower = make_policy("catalog.policy").tower
    masked = msgspec.structs.replace(policy.metadata, masked=True)
    masked_latest = msgspec.structs.replace(latest, masked=True)
    return {
        "empty.refused": (b"", "truncated"),
        "truncated.refused": (data[: len(data) // 2], "truncated"),
        "altered.refused": (data[:-3] + bytes([data[-3] ^ 1]) + data[-2:], "altered"),
        "later-format.refused": (artifact.to_bytes(later, policy.layers, policy.mean), "format version 2"),
        "latest-format.refused": (artifact.to_bytes(latest, policy.layers, policy.mean), "format version 3"),
        "newest-format.refused": (artifact.to_bytes(unknown, policy.layers, policy.mean), "format version 4"),
        "unread-format.refused": (artifact.to_bytes(unread, policy.layers, policy.mean), "format version 5"),
        "tower-of-a-list.refused": (
            artifact.to_bytes(policy.metadata, policy.layers, policy.mean, tower),
            "tensors of an item tower",
        ),
        "masked-format.refused": (artifact.to_bytes(masked, policy.layers, policy.mean), "masked"),
        "masked-shapes.refused": (artifact.to_bytes(masked_latest, policy.layers, policy.mean), "layers.0.weight"),
        "not-finite.refused": (artifact.to_bytes(policy.metadata, not_finite, policy.mean), "not finite"),
        "shapes.refused": (artifact.to_bytes(policy.metadata, policy.layers[1:], policy.mean), "layers.0.weight"),
    }


def generate() -> dict[str, bytes]:
    """Every file of the suite, by name."""
    files: dict[str, bytes] = {}
    entries = []
    for file in [*POLICIES, *MASKED_POLICIES]:
        policy = make_policy(file)
        rng = np.random.default_rng(list(file.encode()))
        files[file] = policy.to_bytes()
        cases = [make_case(rng, policy, i) for i in range(CASES)]
        entries.append({"file": file, "cases": cases, "invalid": invalid_contexts(policy)})
    numbers = []
    for file in NUMBER_POLICIES:
        policy = make_number_policy(file)
        rng = np.random.default_rng(list(file.encode()))
        files[file] = policy.to_bytes()
        cases = [make_number_case(rng, policy, i) for i in range(CASES)]
        numbers.append({"file": file, "edges": policy.problem.actions.edges.tolist(), "cases": cases})
    refused = refused_files(make_policy("every-feature.policy"))
    files |= {file: data for file, (data, _) in refused.items()}
    listed = [{"file": file, "reason": reason} for file, (_, reason) in refused.items()]
    vectors = {"policies": entries, "refused": listed, "numbers": numbers}
    files["vectors.json"] = (
        json.dumps(vectors, ensure_ascii=False, indent=None, separators=(",", ":")) + "\n"
    ).encode()
    return files


def main() -> None:
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "vectors"
    directory.mkdir(parents=True, exist_ok=True)
    files = generate()
    for name, data in files.items():
        (directory / name).write_bytes(data)
    print(f"{len(files)} files, {sum(map(len, files.values())) / 1e6:.2f} MB, in {directory}")


if __name__ == "__main__":
    main()
