"""The client of `benchmarks/soak.py`, in a process of its own: decides and rewards at a constant rate.

    python benchmarks/soak_load.py PORT RATE SECONDS LATE RESULT     # RATE 0: half of what it measures first

Each connection has its own ids, `soak-CONNECTION-NUMBER`. The reward of a decision follows from its number, so that one
byte for the action and one for the reward record what was acknowledged. Rewards that take more than LATE seconds are
kept apart. Requests that fail are repeated under their id.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

CONNECTIONS, GROUP, PATIENCE = 32, 40, 20
PROBLEM, ACTIONS = "video-upload", ("360p", "480p", "720p", "1080p")
#: One decision in so many gets no reward.
SILENT = 5
#: States of a reward: none sent; acknowledged; sent and not acknowledged; acknowledged when its window was nearly over.
NONE, ACKNOWLEDGED, UNKNOWN, LATE = range(4)
#: Seconds to measure what the service sustains.
MEASURE = 10.0
CONNECTION_TYPES = ("2g", "3g", "4g", "wifi")


def reward_of(number: Any) -> Any:
    """The reward of a decision by its number; also of a column of numbers."""
    return number % 101 / 100


class Caller:
    """One connection.

    Attributes:
        actions: For each number, 1 + the index of the acknowledged action; 0 if none was acknowledged.
        rewards: For each number, the state of its reward.
        failures: Number of requests that were not acknowledged at once.
    """

    def __init__(self, name: int, port: int, late: float) -> None:
        self.actions, self.rewards, self.failures = bytearray(), bytearray(), 0
        self._name, self._port, self._late = name, port, late
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def run(self, rate: float, until: float, most: float = float("inf")) -> None:
        """Decide at a rate (infinite: as fast as possible) until a monotonic time, and reward in groups.

        Args:
            rate: Decisions per second.
            until: Monotonic time.
            most: End after this number of decisions, rounded up to a group.
        """
        due, begun = time.monotonic(), len(self.actions)
        while time.monotonic() < until and len(self.actions) - begun < most:
            first, started = len(self.actions), time.monotonic()
            for _ in range(GROUP):
                await self._decide()
                due = max(due + 1 / rate, time.monotonic() - 1)  # at most a second is made up for
                await asyncio.sleep(max(0.0, due - time.monotonic()))
            await self._reward(range(first, len(self.actions)), started)

    async def _decide(self) -> None:
        number = len(self.actions)
        body = {
            "id": f"soak-{self._name}-{number}",
            "context": {
                "bandwidth_kbps": 50 + number * 7919 % 90_000,
                "connection": CONNECTION_TYPES[number % 4],
                "hd_screen": number % 3 == 0,
            },
        }
        reply = await self._ask("decide", body)
        self.actions.append(0 if reply is None else 1 + ACTIONS.index(reply["action"]))
        self.rewards.append(NONE)

    async def _reward(self, numbers: range, started: float) -> None:
        chosen = [number for number in numbers if self.actions[number] and number % SILENT]
        rewards = [
            {"id": f"soak-{self._name}-{number}", "reward": reward_of(number), "key": f"{self._name}-{number}"}
            for number in chosen
        ]
        done = await self._ask("reward", {"rewards": rewards}) is not None
        in_time = time.monotonic() - started < self._late
        state = (ACKNOWLEDGED if in_time else LATE) if done else UNKNOWN
        for number in chosen:
            self.rewards[number] = state

    async def _ask(self, path: str, body: object) -> dict[str, str] | None:
        data = json.dumps(body).encode()
        head = f"POST /v1/{PROBLEM}/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        request = f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data
        for _ in range(PATIENCE):
            try:
                status, reply = await asyncio.wait_for(self._exchange(request), 10)
                if status in (200, 202):
                    return json.loads(reply)
            except (OSError, EOFError, TimeoutError):
                self._close()
            self.failures += 1
            await asyncio.sleep(0.1)
        return None

    async def _exchange(self, request: bytes) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        return int(head[9:12]), await reader.readexactly(length)

    def _close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


async def main(port: int, rate: float, seconds: float, late: float, result: Path) -> None:
    callers = [Caller(name, port, late) for name in range(CONNECTIONS)]
    end = time.monotonic() + seconds
    if not rate:
        await asyncio.gather(*(caller.run(float("inf"), time.monotonic() + MEASURE) for caller in callers))
        rate = sum(len(caller.actions) for caller in callers) / MEASURE / 2
    print(f"{rate:.0f} decisions per second", flush=True)
    await asyncio.gather(*(caller.run(rate / CONNECTIONS, end) for caller in callers))
    arrays = {
        f"{kind}-{name}": np.frombuffer(getattr(caller, kind), np.uint8)
        for name, caller in enumerate(callers)
        for kind in ("actions", "rewards")
    }
    np.savez(result, failures=sum(caller.failures for caller in callers), **arrays)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]), Path(sys.argv[5])))
