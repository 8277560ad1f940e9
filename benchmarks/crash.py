"""Crash test of the log: kill writers, flushers and a compactor under load, then compare the lake with the acks.

    python benchmarks/crash.py --rounds 300

Every acknowledged event must be in the lake exactly once. ``tests/events/crash.py`` has the processes and the count.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from events.crash import Summary, run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        summary = run(options.rounds, Path(folder), options.seed, lambda so_far: show(so_far, options.rounds))
    print(file=sys.stderr)
    report(summary)
    return 1 if summary.lost or summary.doubled else 0


def show(summary: Summary, rounds: int) -> None:
    kills = sum(summary.kills.values())
    print(f"\rround {summary.rounds} of {rounds}, {kills} kills", end="", file=sys.stderr, flush=True)


def report(summary: Summary) -> None:
    kills = ", ".join(f"{count} {kind}s" for kind, count in sorted(summary.kills.items()))
    print(f"rounds                 {summary.rounds} in {summary.seconds:.0f} s")
    print(f"kill -9                {sum(summary.kills.values())} ({kills})")
    print(f"torn segments          {summary.torn} injected, {summary.quarantined} pieces in quarantine")
    print(f"commits to the lake    {summary.commits}")
    print(f"rows acknowledged      {summary.acknowledged}")
    print(f"rows in the lake       {summary.in_lake} (the surplus was on disk, but not yet acknowledged)")
    print(f"acknowledged but lost  {len(summary.lost)}  {summary.lost[:3] or ''}")
    print(f"duplicated             {len(summary.doubled)}  {summary.doubled[:3] or ''}")


if __name__ == "__main__":
    sys.exit(main())
