"""Search the model of flushes, watermarks, cuts and the registry (`tests/model/protocol.py`) with more time.

    .venv/bin/python benchmarks/protocol_model.py

Prints the number of states of each configuration, and the shortest trace to a violation if there is one. The protocol
as it is must have none; without one of its rules there must be one.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from model.protocol import Rules, check

RULES = {
    "as it is, to time 2": Rules(end=2),
    "as it is, to time 3": Rules(end=3),
    "as it is, two rewards": Rules(end=2, rewards=2),
    "as it is, two updaters": Rules(end=2, updaters=2),
    "decisions before rewards": Rules(end=3, rewards_first=False),
    "without watermarks": Rules(end=3, watermarks=False),
    "registered after the first event": Rules(end=3, register_first=False),
    "tables read before watermarks": Rules(end=3, marks_first=False),
}


def main() -> None:
    """Search every configuration."""
    for name, rules in RULES.items():
        began = time.perf_counter()
        states, trace = check(rules)
        print(f"{name}: {states:,} states in {time.perf_counter() - began:.0f} s; ", end="")
        print("no violation" if trace is None else "violated by: " + "; ".join(trace), flush=True)


if __name__ == "__main__":
    main()
