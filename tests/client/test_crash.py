"""kill -9 at any moment loses no decision that `decide` returned, and doubles nothing."""

import json
import random
import signal
import subprocess
import sys
import time

from potstill.client import EdgeClient, Retry

LIVES = 5
DEVICE = """
import os, sys
from potstill.client import EdgeClient, Retry
url, folder, life, survives = sys.argv[1:]
client = EdgeClient(url, folder, survives=survives, retry=Retry(timeout=5.0))
client.start(every=0.001)
for i in range(1_000_000):
    id = f"{life}-{i}"
    decision = client.decide({"bandwidth_kbps": i, "connection": "4g", "hd_screen": i % 2 == 0}, id=id)
    os.write(1, f"decision {id} {decision.action} {decision.propensity!r}\\n".encode())
    client.reward(id, i, key="k")
    os.write(1, f"reward {id}\\n".encode())
"""


def lived(service, folder, life, seconds):
    """Run a device, kill it, and give the lines that it wrote after calls had returned."""
    survives = "power" if life % 3 == 0 else "process"
    command = [sys.executable, "-c", DEVICE, service.url, str(folder), str(life), survives]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        first = process.stdout.readline()
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        lines = [first, *process.stdout.read().splitlines(keepends=True)]
    assert process.returncode == -signal.SIGKILL
    return [line.decode().split() for line in lines if line.endswith(b"\n")]


def once(arrived):
    """What the service has, if what it was told twice was the same."""
    assert all(len({json.dumps(one, sort_keys=True) for one in told}) == 1 for told in arrived.values())
    return {name: told[0] for name, told in arrived.items()}


def test_a_device_that_is_killed(service, tmp_path):
    rng = random.Random(7)
    returned = []
    for life in range(LIVES):
        if life == 2:
            service.stop()  # a life without a network
        returned += lived(service, tmp_path, life, rng.uniform(0.01, 0.15))
        if life == 2:
            service.start()
    with EdgeClient(service.url, tmp_path, retry=Retry(timeout=5.0)) as client:
        client.sync()
        assert (client.queued, client.refused()) == (0, [])
    decisions = {line[1]: (line[2], float(line[3])) for line in returned if line[0] == "decision"}
    rewards = {(line[1], "k") for line in returned if line[0] == "reward"}
    arrived = {name: (told["action"], told["propensity"]) for name, told in once(service.observations).items()}
    assert len(decisions) > 50
    assert decisions.items() <= arrived.items()
    assert rewards <= once(service.rewards).keys()
    # At most one call per life was under way: it may be there, or not.
    assert len(arrived) - len(decisions) <= LIVES
    assert len(service.rewards) - len(rewards) <= LIVES
    twice = sum(len(told) > 1 for told in service.observations.values())
    print(f"{len(decisions)} decisions, {len(rewards)} rewards; {twice} decisions were sent twice, and count once")
