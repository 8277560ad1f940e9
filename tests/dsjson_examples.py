"""Events of dsjson logs, as Personalizer and Vowpal Wabbit write them, for tests."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

DRINKS = ("Latte", "Mocha", "Tea")


def event(number: int, chosen: int, cost: float, probability: float, **fields: Any) -> dict[str, Any]:
    """One event with the drinks as actions; `fields` replace those of the line, None removes one."""
    others = [place for place in range(len(DRINKS)) if place != chosen]
    rest = (1 - probability) / len(others)
    found = {
        "_label_cost": cost,
        "_label_probability": probability,
        "_label_Action": chosen + 1,
        "_labelIndex": chosen,
        "o": [{"v": -cost, "EventId": f"e{number}", "ActionTaken": False}],
        "Timestamp": f"2021-02-04T16:{number // 60 % 60:02d}:{number % 60:02d}.2460000Z",
        "Version": "1",
        "EventId": f"e{number}",
        "a": [chosen + 1, *(place + 1 for place in others)],
        "c": {
            "FromUrl": [{"time": "Morning", "user": {"age": 20 + number % 50}}],
            "_multi": [{"_tag": name, "i": {"constant": 1, "id": name}, "j": [{"type": "hot"}]} for name in DRINKS],
        },
        "p": [probability, *(rest for _ in others)],
        "VWState": {"m": "m/1"},
        "_original_label_cost": cost,
        **fields,
    }
    return {name: value for name, value in found.items() if value is not None}


def log(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Events of a policy that explores: in the morning Latte earns most, in the evening Tea."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        morning, chosen = bool(rng.random() < 0.5), int(rng.integers(3))
        mean = 0.9 if chosen == (0 if morning else 2) else 0.2
        one = event(number, chosen, -float(rng.random() < mean), 1 / 3)
        one["c"]["FromUrl"] = [
            {"time": "Morning" if morning else "Evening", "user": {"age": int(rng.integers(18, 80))}}
        ]
        found.append(one)
    return found


def write(path: Any, lines: list[Any]) -> str:
    """Write lines: objects as JSON, texts as they are."""
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return str(path)
