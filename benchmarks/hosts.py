"""Several hosts: two services, two updaters and an object store on network namespaces, with faults. Is all learnt?

    sudo python benchmarks/hosts.py --minutes 10 --seed 1      # needs root, ip, cc and moto

Links to the store fail, processes are paused and killed. One clock is three seconds ahead of the others and is twice
set two days ahead for 80 seconds, in which its updates must stop and say so. Clients decide and reward at both hosts,
repeat what was not acknowledged, and send rewards to any host. At the end everything is healed, flushed and joined.
Then every acknowledged decision must have been learnt once, with the acknowledged action and exactly its acknowledged,
timely rewards.

A reward is timely if it was surely acknowledged within the window of its decision, and late if it was surely sent after
it. Those in between, within the difference of the clocks and the time that a request took, and those that were not
acknowledged may count or not. Addresses are in the namespaces only, which are deleted at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import polars as pl
from hosts_clients import PARTS, WORTH, Client, SentDecision, SentReward
from hosts_faults import Faults, Host, store
from hosts_network import command_in, network

from potstill.workspace import Workspace, template

HOSTS = {"a": 0, "b": 3}  # name and skew in seconds
WINDOW, SETTLE = 20, 5
#: Differences of clocks, and what timestamps and schedulers add to it, in seconds.
MARGIN = max(HOSTS.values()) + 1.0
CONFIG = f"""
[student]
hidden = [8]
[policy]
floor = 0.02
[join]
aggregate = "sum"
settle = "{SETTLE}s"
[update]
min_observations = 50
[log]
rotate_seconds = 1.0
"""
CLOCK = re.compile(r"clock is \S+ d ahead")


def create(host: Host, workspace: str, folder: Path) -> None:
    """Create the workspace, from a host that reaches the store."""
    problem = template.PROBLEM.replace('window = "1h"', f'window = "{WINDOW}s"')
    (folder / "problem").write_text(problem)
    (folder / "config").write_text(CONFIG)
    done = host.run("init", workspace)
    assert done.returncode == 0, done.stderr
    call(host, "replace", workspace, str(folder / "problem"), str(folder / "config"))


def call(host: Host, *arguments: str) -> str:
    """Run this script in a host's namespace, which alone reaches the store."""
    command = command_in(host.name, sys.executable, __file__, "--inside", *arguments)
    done = subprocess.run(command, capture_output=True, text=True, env=host.environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def inside(action: str, workspace: str, *arguments: str) -> None:
    """What is done in a namespace: replace the workspace's files, or write its rows to a file."""
    place = Workspace(workspace)
    if action == "replace":
        for name, path in zip(("problem.toml", "potstill.toml"), arguments, strict=True):
            place.storage.replace(name, Path(path).read_bytes())
        return
    for table, columns in (("observations", ("id", "action", "reward", "rewarded")), ("decisions", ("id", "action"))):
        place.lake.scan(table).select(columns).collect().write_parquet(f"{arguments[0]}-{table}")


def settle(hosts: list[Host], workspace: str) -> dict[str, object]:
    """Stop the services, flush both logs, and update until nothing is pending; returns the last report."""
    for host in hosts:
        print(f"exit code of host {host.name}: {host.stop()}")
    for host in hosts:
        done = host.run("events", "flush", workspace)
        assert done.returncode == 0, done.stdout + done.stderr
    time.sleep(WINDOW + SETTLE + MARGIN)
    report: dict[str, object] = {}
    for _ in range(10):
        done = hosts[0].run("update", workspace, "--json", "--force", "--wait")
        assert done.returncode in (0, 2), done.stderr
        report = json.loads(done.stdout)
        if not report["joined"]["pending"]:
            break
        time.sleep(5)
    return report


def timeliness(decision: SentDecision, reward: SentReward) -> str:
    """timely, late or unsure."""
    assert decision.acknowledged is not None
    if reward.sent is None:
        return "unsent"
    if reward.sent - decision.acknowledged > WINDOW + MARGIN:
        return "late"
    if reward.acknowledged is None:
        return "unacknowledged"
    return "timely" if reward.acknowledged - decision.sent < WINDOW - MARGIN else "near the border"


def judge(decisions: list[SentDecision], folder: Path) -> tuple[Counter[str], Counter[str]]:
    """Counts, and faults, of the comparison."""
    observed, logged = pl.read_parquet(f"{folder}/rows-observations"), pl.read_parquet(f"{folder}/rows-decisions")
    learnt = {row["id"]: row for row in observed.iter_rows(named=True)}
    actions = {name: set(found) for name, found in logged.group_by("id").agg("action").iter_rows()}
    counts, faults = Counter[str](learnt=len(observed)), Counter[str]()
    faults["doubled decisions"] = len(observed) - len(learnt)
    for decision in decisions:
        if decision.acknowledged is None:
            counts["decisions not acknowledged"] += 1
            continue
        counts["acknowledged decisions"] += 1
        counts["acknowledged rewards"] += sum(reward.acknowledged is not None for reward in decision.rewards)
        if (row := learnt.get(decision.id)) is None:
            ambiguous = len(actions.get(decision.id, ())) > 1
            (counts if ambiguous else faults)["ambiguous, left out" if ambiguous else "lost decisions"] += 1
            continue
        faults["other actions"] += row["action"] != decision.action
        _judge_rewards(decision, round(row["reward"] * PARTS) if row["rewarded"] else 0, counts, faults)
    return counts, faults


def _judge_rewards(decision: SentDecision, total: int, counts: Counter[str], faults: Counter[str]) -> None:
    for reward in decision.rewards:
        times, kind = total // WORTH[reward.number] % 3, timeliness(decision, reward)
        counts[f"rewards {kind}"] += 1
        counts[f"rewards {kind}, learnt"] += times > 0
        faults["doubled rewards"] += times > 1
        faults["timely rewards lost (wrongly defaulted)"] += kind == "timely" and times == 0
        faults["late rewards learnt"] += kind == "late" and times > 0
    sent = sum(WORTH[reward.number] for reward in decision.rewards if reward.sent is not None)
    faults["rewards made up"] += total > sent and not any(total // worth % 3 > 1 for worth in WORTH)


def play(folder: Path, options: argparse.Namespace) -> int:
    workspace = "s3://bucket/workspace"
    with network(tuple(HOSTS)) as links, store(links, folder) as variables:
        hosts = [Host(name, folder / name, workspace, skew, variables) for name, skew in HOSTS.items()]
        faults = Faults(links, hosts, options.seed)
        try:
            create(hosts[0], workspace, folder)
            for host in hosts:
                host.start()
            clients = [
                Client(f"{name}{number}", name, [other for other in HOSTS if other != name], options.rate, WINDOW)
                for name in HOSTS
                for number in range(options.clients)
            ]
            for client in clients:
                client.start()
            faults.run(options.minutes * 60)
            for client in clients:
                client.end()
            while any(client.is_alive() for client in clients):
                for host in hosts:
                    host.revive()
                time.sleep(1)
            report = settle(hosts, workspace)
            call(hosts[0], "rows", workspace, str(folder / "rows"))
        finally:
            for host in hosts:
                host.kill()
                if options.keep:
                    Path(options.keep, f"host-{host.name}.log").write_text(host.printed)
        stopped = {host.name: len(CLOCK.findall(host.printed)) for host in hosts}
    decisions = [decision for client in clients for decision in client.decisions]
    counts, found = judge(decisions, folder)
    print("faults caused:", ", ".join(f"{count} {kind}" for kind, count in sorted(faults.counts.items())))
    failures = sum(client.failures for client in clients)
    print(f"requests not acknowledged at once: {failures}; version {report['serving']} serves")
    print(f"lines that name a wrong clock, by host: {stopped}; pending: {report['joined']['pending']}")
    for name, count in sorted(counts.items()):
        print(f"{name:40}{count:8,}")
    for name, count in sorted(found.items()):
        print(f"{name:40}{count:8,}")
    good = not any(found.values()) and not report["joined"]["pending"] and all(stopped[host] for host in faults.set)
    print("acknowledged = learnt" if good else "NOT ALL THAT WAS ACKNOWLEDGED WAS LEARNT")
    return 0 if good else 1


def main() -> int:
    if sys.argv[1:2] == ["--inside"]:
        inside(*sys.argv[2:])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10, help="duration of the faults")
    parser.add_argument("--seed", type=int, default=1, help="seed of the faults")
    parser.add_argument("--rate", type=float, default=8, help="decisions per second of each client")
    parser.add_argument("--clients", type=int, default=4, help="clients of each host")
    parser.add_argument("--keep", help="folder for what the hosts print")
    options = parser.parse_args()
    if os.geteuid():
        parser.error("network namespaces need root")
    with tempfile.TemporaryDirectory() as place:
        return play(Path(place), options)


if __name__ == "__main__":
    sys.exit(main())
