"""Random vectors for the JavaScript runtime, in the format of conformance/README.md, with what Python makes of them.

They complement conformance/: many small problems rather than a few chosen ones, so that a mistake in some combination
of feature, option and value has hundreds of chances to show.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import potstill as ps
from potstill.policy import Layer, artifact
from potstill.policy.draw import uniform

POLICIES, CASES = 24, 25
NAMES = [
    "bandwidth",
    "naïve ✓",
    "東京",
    "𝔘",
    "it's",
    'a "b"',
    "constructor",
    "__proto__",
    "toString",
    "line\nbreak",
    " ",
]
ACTIONS = ["360p", "480p", "valueOf", "höher", "↑", "最高", "🎲", "it's"]
HIDDEN: list[tuple[int, ...]] = [(), (1,), (8,), (5, 3), (16, 16), (33, 100), (7, 9, 11)]
IDS = ["a", "upload-0123456", "é", "東京-", "🎲🎲", "\x00", "x" * 1500]


def write_vectors(directory: Path) -> None:
    """Policies, files to refuse, and vectors.json."""
    rng = np.random.default_rng(7)
    policies = [write_policy(rng, directory, i) for i in range(POLICIES)]
    refused = write_refused(random_policy(rng, hidden=(4, 5)), directory)
    (directory / "vectors.json").write_text(json.dumps({"policies": policies, "refused": refused}))


def write_policy(rng: np.random.Generator, directory: Path, i: int) -> dict[str, Any]:
    policy = random_policy(rng, hidden=HIDDEN[i % len(HIDDEN)])
    file = f"{i}.policy"
    policy.save(directory / file)
    cases = [random_case(rng, policy) for _ in range(CASES)]
    return {"file": file, "cases": cases, "invalid": invalid_contexts(policy, cases[0]["context"])}


def random_policy(rng: np.random.Generator, hidden: tuple[int, ...]) -> ps.Policy:
    names = rng.permutation(NAMES)[: rng.integers(1, len(NAMES))]
    actions = [str(name) for name in rng.permutation(ACTIONS)[: rng.integers(2, len(ACTIONS) + 1)]]
    context = [random_feature(rng, str(name)) for name in names]
    problem = ps.Problem(name="random", context=context, actions=ps.Discrete(actions))
    masked = bool(rng.random() < 0.4)
    sizes = [problem.width + masked * len(actions), *hidden, len(actions)]
    layers = [Layer(normal(rng, a, b) / np.float32(np.sqrt(a)), normal(rng, b)) for a, b in pairwise(sizes)]
    floor = float(rng.choice([0, 0.01, 1 / len(actions)], p=[0.6, 0.3, 0.1]))
    activation = pick(rng, ["tanh", "relu"])
    return ps.Policy.build(
        problem, layers, version=int(rng.integers(100)), floor=floor, activation=activation, masked=masked
    )


def normal(rng: np.random.Generator, *shape: int) -> Any:
    return (2 * rng.standard_normal(shape)).astype(np.float32)


def random_feature(rng: np.random.Generator, name: str) -> Any:
    low, high = sorted(float(bound) for bound in rng.normal(scale=100, size=2))
    make: list[Callable[[], Any]] = [
        lambda: ps.Numeric(name, low=low, high=high, missing=pick(rng, ["error", "flag", -3.5, 1e9])),
        lambda: ps.Numeric(name, low=0.001, high=abs(high) + 1, scale="log", missing=pick(rng, ["error", "flag", 0.5])),
        lambda: ps.Categorical(name, ACTIONS[: rng.integers(1, 7)], missing=pick(rng, ["unseen", "error"])),
        lambda: ps.Boolean(name, missing=pick(rng, ["error", "flag", True, False])),
        lambda: ps.Hashed(name, size=int(rng.integers(2, 40)), missing=pick(rng, ["error", "flag"])),
        lambda: ps.Text(name, int(rng.integers(2, 40)), int(rng.integers(2, 9)), pick(rng, ["error", "flag"])),
        lambda: timestamp(rng, name),
        lambda: ps.Vector(name, size=int(rng.integers(1, 9)), missing=pick(rng, ["error", "flag"]), **vector(rng)),
        lambda: ps.Numeric(name, low=low, high=high, scale="quantile", knots=knots(rng, low, high)),
    ]
    return pick(rng, make)()


def timestamp(rng: np.random.Generator, name: str) -> Any:
    unit = pick(rng, [None, "s", "ms", "us"])
    parts = ["day", "week", "year", "hour", "weekday", "monthday", "month"]
    chosen = [str(part) for part in rng.permutation(parts)[: rng.integers(1, 8)]]
    offset = pick(rng, ["Z", "+05:30", "-11:00", "+23:59"] + ([] if unit else ["own", "own"]))
    return ps.Timestamp(name, chosen, unit, offset, pick(rng, ["error", "flag"]))


def moment(rng: np.random.Generator, feature: Any) -> Any:
    seconds = int(rng.integers(-62_135_596_800, 253_402_300_800))
    if feature.unit is not None:
        return pick(rng, [seconds, 1.7e9, -0.25, 951_782_399]) * {"s": 1, "ms": 1000, "us": 1_000_000}[feature.unit]
    text = str(np.datetime64(seconds, "s"))
    return text[:10] if rng.random() < 0.2 else text + pick(rng, ["Z", "z", ".25Z", "+14:00", "-23:59"])


def vector(rng: np.random.Generator) -> dict[str, Any]:
    return pick(rng, [{}, {"norm": "unit"}, {"low": -1.5, "high": 0.7}])


def knots(rng: np.random.Generator, low: float, high: float) -> list[float]:
    return np.sort(rng.uniform(low, high, rng.integers(1, 12))).tolist()


def random_case(rng: np.random.Generator, policy: ps.Policy) -> dict[str, Any]:
    names = policy.problem.actions.names
    some = [str(name) for name in rng.permutation(names)[: rng.integers(1, len(names) + 1)]]
    context = random_context(rng, policy.problem)
    decision_id = f"{pick(rng, IDS)}{rng.integers(1 << 40)}"
    options: dict[str, Any] = {"eligible": pick(rng, [None, some]), "floor": pick(rng, [None, 0.0, 0.5 / len(names)])}
    decision = policy.decide(context, id=decision_id, **options)
    mask = None if options["eligible"] is None else policy.problem.actions.restrict(options["eligible"]).allowed
    return {
        "context": context,
        "id": decision_id,
        **options,
        "encoded": policy.problem.encode(context).tolist(),
        "probabilities": policy.probabilities(context, **options).tolist(),
        "agreement": float(policy.agreement([context], eligible=mask)[0]),
        "u": uniform(decision_id, bytes.fromhex(policy.metadata.salt)),
        "action": decision.action,
        "propensity": decision.propensity,
    }


def random_context(rng: np.random.Generator, problem: ps.Problem) -> dict[str, Any]:
    context = {}
    for feature in rng.permutation(np.array(problem.context, object)):
        way = rng.random() if feature.missing != "error" else 1.0
        if way > 0.2:
            context[feature.name] = random_value(rng, feature)
        elif way > 0.1:
            context[feature.name] = None
    return context


def random_value(rng: np.random.Generator, feature: Any) -> Any:
    if isinstance(feature, ps.Boolean):
        return bool(rng.integers(2))
    if isinstance(feature, ps.Categorical):
        return pick(rng, [*feature.values, "elsewhere", "", "__proto__"])
    if isinstance(feature, ps.Hashed):
        return pick(rng, [*IDS, "", "a\0", "e\u0301", str(rng.integers(1 << 60))])
    if isinstance(feature, ps.Timestamp):
        return moment(rng, feature)
    if isinstance(feature, ps.Text):
        return " ".join(pick(rng, [*NAMES, *ACTIONS, "", "\0", "Red SHOES", "x" * 300]) for _ in range(rng.integers(9)))
    if isinstance(feature, ps.Vector):
        large = 3.0 if feature.low is None and feature.norm is None else 1e30  # as they are, they go into the network
        return [pick(rng, [0, 1, float(rng.normal()), large, -1e-30]) for _ in range(feature.size)]
    inside = float(rng.uniform(feature.low, feature.high))
    return pick(rng, [inside, inside, inside, round(inside), feature.low, feature.high, -1e300, 1e300, 0, -0.0])


def invalid_contexts(policy: ps.Policy, good: dict[str, Any]) -> list[dict[str, Any]]:
    """Contexts that Python refuses, with its own words up to where languages show a value differently."""
    wrong = [
        good | {feature.name: value}
        for feature in policy.problem.context
        for value in ([1], ["1"] * 3, [None] * 9, {}, "12", 7, True, None, 1e300, "2025-02-29")
    ]
    absent = [{k: v for k, v in good.items() if k != feature.name} for feature in policy.problem.context]
    extra = [good | {name: None} for name in ("hasOwnProperty", "🎲", "it's not")]
    return [case for context in (*wrong, *absent, *extra) if (case := refused_case(policy, context))]


def refused_case(policy: ps.Policy, context: dict[str, Any]) -> dict[str, Any] | None:
    try:
        policy.decide(context)
    except ps.InvalidContext as error:
        return {"context": context, "error": str(error).split(", got ")[0].split(" (str)")[0]}
    return None


def write_refused(policy: ps.Policy, directory: Path) -> list[dict[str, str]]:
    """Files that Python refuses, with its own words."""
    refused = []
    for i, data in enumerate(refused_files(policy)):
        (directory / f"{i}.refused").write_bytes(data)
        refused.append({"file": f"{i}.refused", "reason": reason_against(data)})
    return refused


def refused_files(policy: ps.Policy) -> list[bytes]:
    data = policy.to_bytes()
    header = 8 + int.from_bytes(data[:8], "little")
    first, *others = policy.layers
    broken = Layer(np.full_like(first.weight, np.inf), first.bias)
    other = msgspec.structs.replace(policy.metadata, format=3 - policy.metadata.format)
    later = msgspec.structs.replace(policy.metadata, format=5)
    turned = msgspec.structs.replace(policy.metadata, masked=not policy.masked)
    third = msgspec.structs.replace(turned, format=3 if turned.masked else 1)
    steep = msgspec.structs.replace(policy.metadata, floor=0.9)
    truncated = [data[:length] for length in (0, 7, 8, 100, header - 1, header, header + 1, len(data) - 1)]
    altered = [data[:at] + bytes([data[at] ^ 64]) + data[at + 1 :] for at in (header, header + 50, len(data) - 1)]
    resealed = [
        artifact.to_bytes(later, policy.layers, policy.mean),
        artifact.to_bytes(other, policy.layers, policy.mean),
        artifact.to_bytes(turned, policy.layers, policy.mean),
        artifact.to_bytes(third, policy.layers, policy.mean),
        artifact.to_bytes(steep, policy.layers, policy.mean),
        artifact.to_bytes(policy.metadata, [broken, *others], policy.mean),
        artifact.to_bytes(policy.metadata, others, policy.mean),
        artifact.to_bytes(policy.metadata, policy.layers, policy.mean[:-1]),
    ]
    return [*truncated, *altered, *resealed]


def reason_against(data: bytes) -> str:
    try:
        ps.Policy.from_bytes(data)
    except ps.InvalidPolicy as error:
        return str(error).split(", got 0.9")[0]
    raise AssertionError("Python accepts a file that was made to be refused")


def pick(rng: np.random.Generator, options: list[Any]) -> Any:
    return options[rng.integers(len(options))]
