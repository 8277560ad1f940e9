"""Clients of `benchmarks/hosts.py`: decide, reward up to three times, retry, and record what was acknowledged.

The three rewards of a decision are worth 1, 3 and 9 of 64 parts and are summed, so that the learnt sum tells, in base
three, how often each of them was counted.
"""

from __future__ import annotations

import heapq
import http.client
import json
import random
import threading
import time
from collections.abc import Callable, Sequence

import msgspec
from hosts_network import connect

PARTS = 64
WORTH = (1, 3, 9)
PROBLEM, PORT = "video-upload", 8080
TIMEOUT, PAUSE, ATTEMPTS = 5.0, 0.4, 40


class SentReward(msgspec.Struct):
    """A reward. Times are by this machine's monotonic clock.

    Attributes:
        number: Its place among the rewards of its decision.
        hosts: Hosts that it was sent to.
        sent: When it was first sent; None if it was not.
        acknowledged: When it was acknowledged; None if it was not.
    """

    number: int
    hosts: set[str] = msgspec.field(default_factory=set)
    sent: float | None = None
    acknowledged: float | None = None


class SentDecision(msgspec.Struct):
    """A decision; as `SentReward`.

    Attributes:
        id: Its id.
        hosts: Hosts that it was sent to.
        sent: When it was first sent.
        acknowledged: When it was acknowledged; None if it was not.
        action: The acknowledged action.
        rewards: Its rewards.
    """

    id: str
    hosts: set[str] = msgspec.field(default_factory=set)
    sent: float = 0.0
    acknowledged: float | None = None
    action: str = ""
    rewards: list[SentReward] = msgspec.field(default_factory=list)


class Client(threading.Thread):
    """Decides at its host, and rewards at any; call `end`, then `join`: what is under way is finished first.

    Args:
        name: Prefix of its ids.
        home: Its host.
        others: The other hosts.
        rate: Decisions per second.
        window: Seconds in which rewards count.
    """

    def __init__(self, name: str, home: str, others: Sequence[str], rate: float, window: float) -> None:
        super().__init__(daemon=True)
        self.decisions: list[SentDecision] = []
        self.failures = 0
        self._prefix, self._home, self._others, self._rate, self._window = name, home, list(others), rate, window
        self._random, self._ended = random.Random(name), threading.Event()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._connections: dict[str, http.client.HTTPConnection] = {}

    def end(self) -> None:
        """Take no further decisions."""
        self._ended.set()

    def run(self) -> None:
        """Main loop of the thread."""
        self._later(0.0, self._decide_next)
        while self._due:
            due, _, action = heapq.heappop(self._due)
            time.sleep(max(0.0, due - time.monotonic()))
            action()

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._due, (time.monotonic() + seconds, self._order, action))

    def _decide_next(self) -> None:
        if self._ended.is_set():
            return
        self._later(1 / self._rate, self._decide_next)
        decision = SentDecision(f"{self._prefix}-{len(self.decisions)}", sent=time.monotonic())
        self.decisions.append(decision)
        self._decide(decision, ATTEMPTS)

    def _decide(self, decision: SentDecision, attempts: int) -> None:
        number = int(decision.id.rpartition("-")[2])
        context = {"bandwidth_kbps": 50 + number * 7919 % 90_000, "connection": "4g", "hd_screen": number % 3 == 0}
        # A few repeats go to another host, which cannot know what this one has decided.
        host = self._home if self._random.random() < 0.97 or not decision.hosts else self._random.choice(self._others)
        decision.hosts.add(host)
        reply = self._ask(host, "decide", {"id": decision.id, "context": context})
        if reply is None:
            if attempts:
                self._later(PAUSE, lambda: self._decide(decision, attempts - 1))
            return
        decision.acknowledged, decision.action = time.monotonic(), str(reply["action"])
        for number in range(self._random.choice((0, 1, 1, 2, 3))):
            reward = SentReward(number)
            decision.rewards.append(reward)
            self._later(self._delay(), lambda reward=reward: self._reward(decision, reward, ATTEMPTS))

    def _delay(self) -> float:
        """Mostly soon, some near the end of the window, some after it."""
        if self._random.random() < 0.85:
            return self._random.uniform(0, 0.6) * self._window
        return self._random.uniform(0.6, 1.5) * self._window

    def _reward(self, decision: SentDecision, reward: SentReward, attempts: int) -> None:
        host = self._random.choice([self._home, *self._others])
        reward.hosts.add(host)
        reward.sent = reward.sent or time.monotonic()
        body = {"id": decision.id, "reward": WORTH[reward.number] / PARTS, "key": f"{decision.id}-{reward.number}"}
        if self._ask(host, "reward", body) is not None:
            reward.acknowledged = time.monotonic()
        elif attempts:
            self._later(PAUSE, lambda: self._reward(decision, reward, attempts - 1))

    def _ask(self, host: str, path: str, body: object) -> dict[str, object] | None:
        """The reply; None if there was none, so that it is not known whether the request was carried out."""
        try:
            connection = self._connections.get(host) or self._connect(host)
            headers = {"Content-Type": "application/json"}
            connection.request("POST", f"/v1/{PROBLEM}/{path}", json.dumps(body), headers)
            reply = connection.getresponse()
            data = reply.read()
            if reply.status in (200, 202):
                return json.loads(data)
        except (OSError, http.client.HTTPException):
            if (broken := self._connections.pop(host, None)) is not None:
                broken.close()
        self.failures += 1
        return None

    def _connect(self, host: str) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=TIMEOUT)
        connection.sock, connection.auto_open = connect(host, PORT, TIMEOUT), 0
        self._connections[host] = connection
        return connection
