"""Who acts in a simulated world: clients, devices, flushers, updaters, and whoever compacts the lake."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from simulation.oracle import WINDOW, learnt, value_of
from simulation.scheduler import MILLISECOND, SECOND

from potstill.client import EdgeClient
from potstill.client.calls import post_rows
from potstill.client.errors import NoPolicy, ServiceError
from potstill.client.retry import Retry, exchange
from potstill.client.sansio import Request, run
from potstill.client.session import Session, request_of
from potstill.client.wire import encode, reward_report
from potstill.errors import PotstillError
from potstill.events.lake import compact
from potstill.events.watermarks import ImplausibleClock
from potstill.pipeline import update
from potstill.pipeline.origin import Origin
from potstill.pipeline.resume import Start
from potstill.policy import Layer, Lineage, Policy
from potstill.registry import Registry
from potstill.service.process.flusher import WorkspaceFlusher
from potstill.workspace import Workspace

if TYPE_CHECKING:
    from simulation.host import Host
    from simulation.world import World

#: The address that clients use.
URL = "http://service/v1/simulated"


class Actor:
    """Base: the world, its scheduler, and a host."""

    def __init__(self, world: World, host: Host) -> None:
        self.world, self.host = world, host
        self.scheduler, self.random = world.scheduler, world.scheduler.random

    def sleep(self, low: float, high: float) -> None:
        """Wait for a random number of seconds."""
        self.scheduler.sleep(int((low + (high - low) * self.random.random()) * SECOND))

    def retry(self, retries: int = 3) -> Retry:
        """A retry policy in virtual time."""
        return Retry(
            retries=retries,
            timeout=20.0,
            jitter=self.random.random,
            clock=lambda: self.scheduler.now / SECOND,
        )

    def pause(self, seconds: float) -> None:
        """Wait between two attempts."""
        self.scheduler.sleep(int(seconds * SECOND))


class Client(Actor):
    """A program that asks the service for decisions, carries them out and reports rewards, with retries."""

    def __init__(self, world: World, host: Host, name: str) -> None:
        super().__init__(world, host)
        self._name = name

    def live(self, number: int) -> None:
        """One decision and its rewards."""
        name = f"{self._name}-{number}"
        if self._decide(name):
            for _ in range(self.random.choice((0, 1, 1, 2, 3))):
                self.sleep(0, WINDOW / 2)
                self._reward(name)

    def _decide(self, name: str) -> bool:
        session = Session(self.retry(), None, 100, 100)
        asked = request_of({"returning": self.random.random() < 0.5}, name)
        self.world.oracle.decisions[name]  # it may be logged from now on
        for _ in range(4 if self.world.options.retries else 1):
            try:
                answer = run(session.decide(asked), self.world.network.send, self.pause)
            except ServiceError:
                self.sleep(1, 60)
                continue
            assert answer.policy is not None
            self.world.oracle.answered(name, answer.action, answer.propensity, answer.policy)
            return True
        return False

    def _reward(self, name: str) -> None:
        if self.world.options.keyless and self.random.random() < 0.3:
            self._keyless(name)
            return
        place = self.world.oracle.reward(name)
        body = encode(reward_report(name, value_of(place), None, None))
        for _ in range(5):
            try:
                run(post_rows("reward", "rewards", [body], self.retry()), self.world.network.send, self.pause)
            except ServiceError:
                self.sleep(1, 30)
                continue
            self.world.oracle.decisions[name].rewards[place].acknowledged = True
            return

    def _keyless(self, name: str) -> None:
        """Equal rewards without keys in one request, which is sent once: a repetition would count again."""
        place = self.world.oracle.reward(name, self.random.randint(2, 3))
        sent = self.world.oracle.decisions[name].rewards[place]
        rewards = [{"id": name, "reward": value_of(place)}] * sent.copies
        request = Request("POST", "reward", msgspec.json.encode({"rewards": rewards}), {})
        try:
            reply = run(exchange(request, self.retry(retries=0)), self.world.network.send_once, self.pause)
        except ServiceError:
            return
        sent.acknowledged = reply.status == 202


class Device(Actor):
    """A device that decides by itself and uploads when it can; it may be killed, and starts again."""

    def __init__(self, world: World, host: Host, name: str) -> None:
        super().__init__(world, host)
        self._name, self._next = name, 0
        self._due: list[tuple[int, str]] = []  # when to reward what
        self.done = False

    def run(self) -> None:
        """Decide, reward and synchronise until there is nothing left to do."""
        while True:
            try:
                self._run()
                return
            except (ServiceError, NoPolicy):
                self.sleep(5, 20)

    def _run(self) -> None:
        with EdgeClient(URL, self.host.folder / "edge", retry=self.retry(), sleep=self.pause) as client:
            while not self.done:
                self.sleep(1, 20)
                self._act(client)
                if self.random.random() < 0.2 or self._next >= self.world.options.device_decisions:
                    self._sync(client)

    def _act(self, client: EdgeClient) -> None:
        if self._next < self.world.options.device_decisions:
            name, self._next = f"{self._name}-{self._next}", self._next + 1
            self.world.oracle.decisions[name]
            decision = client.decide({"returning": self.random.random() < 0.5}, id=name)
            self.world.oracle.answered(name, decision.action, decision.propensity, decision.policy)
            for _ in range(self.random.choice((0, 1, 2))):
                self._due.append((self.scheduler.now + self.random.randint(0, WINDOW) * SECOND, name))
        for due in sorted(self._due):
            if due[0] <= self.scheduler.now:
                self._due.remove(due)
                place = self.world.oracle.reward(due[1])
                client.reward(due[1], value_of(place))
                self.world.oracle.decisions[due[1]].rewards[place].acknowledged = True

    def _sync(self, client: EdgeClient) -> None:
        try:
            client.sync()
        except ServiceError:
            return
        assert not client.refused(), client.refused()
        self.done = self._next >= self.world.options.device_decisions and not self._due and not client.queued


class FlusherActor(Actor):
    """The flusher process of a host."""

    def run(self) -> None:
        """Flush until the end of the world."""
        flusher = WorkspaceFlusher(self.host.workspace())
        while True:
            self.sleep(4, 40)
            flusher.flush()


class Updater(Actor):
    """A process that updates now and then, as ``potstill update --watch`` does."""

    def run(self) -> None:
        """Update until the end of the world."""
        workspace = self.host.workspace()
        while True:
            self.sleep(20, 200)
            try:
                self.update(workspace)
            except ImplausibleClock as error:  # somebody has to set the clock right
                self.scheduler.trace(f"update refused: {error}")

    def update(self, workspace: Workspace, **options: bool) -> update.UpdateReport | None:
        """One update; None if it failed, as it may."""
        try:
            report = update.run_update(workspace, wait=True, **options)
        except ImplausibleClock:
            raise
        except (PotstillError, OSError) as error:
            self.scheduler.trace(f"update failed: {type(error).__name__}: {error}")
            return None
        self.scheduler.trace(f"update {report.outcome} cut {report.cut}")
        return report


class Operator(Actor):
    """Rolls back, pins, unpins and compacts."""

    def run(self) -> None:
        """Act until the end of the world."""
        workspace = self.host.workspace()
        registry = workspace.registry
        acts: list[Callable[[], object]] = [registry.rollback, registry.unpin]
        acts.append(lambda: registry.serve(registry.next_version() - 1))
        if self.world.options.deletions:
            acts += [lambda: repair(registry)] * 3
        if self.world.options.compaction:
            acts += [lambda: compact(workspace.lake)] * 2
        while True:
            self.sleep(60, 300)
            act = self.random.choice(acts)
            try:
                act()
            except (PotstillError, OSError) as error:
                self.scheduler.trace(f"operator failed: {type(error).__name__}")


def repair(registry: Registry) -> None:
    """Restore lost entries of the registry, as ``potstill verify --repair`` does."""
    registry.restore_lost()
    registry.accept_loss()


def start(workspace: Workspace, serving: Policy) -> Start:
    """Takes the place of `potstill.pipeline.resume.start`, without a teacher."""
    still: Any = None
    return Start(still, None, Origin.of(serving).cut, (), None)


def distil(world: World) -> Any:
    """Takes the place of the learning half of an update: publishes a random network that names its observations."""

    def publish(
        workspace: Workspace, resumed: Start, expected: int, so_far: update.UpdateReport, *_: Any
    ) -> update.UpdateReport:
        registry, random = workspace.registry, world.scheduler.random
        version = registry.next_version()
        observed = learnt(workspace, so_far.cut)
        world.scheduler.sleep(random.randint(1, 20_000) * MILLISECOND)  # learning takes a while
        policy = random_policy(workspace, version, so_far.cut, random.getrandbits(32))
        report = msgspec.json.encode({"cut": so_far.cut, "learnt": observed})
        registry.publish(policy, teacher=None, report=report, expected=expected)
        registry.forget_states(3)
        registry.sweep()
        workspace.cuts.sweep()
        return msgspec.structs.replace(so_far, outcome="published", version=version)

    return publish


def random_policy(workspace: Workspace, version: int, cut: int, seed: int) -> Policy:
    """A policy whose decisions differ from those of other versions."""
    problem, rng = workspace.problem, np.random.default_rng(seed)
    layer = Layer(
        (2 * rng.standard_normal((problem.width, 3))).astype(np.float32),
        (2 * rng.standard_normal(3)).astype(np.float32),
    )
    lineage = Lineage(library=hashlib.sha256(str(seed).encode()).hexdigest()[:8], seed=0, origin={"cut": cut})
    return Policy.build(problem, [layer], version=version, floor=0.05, lineage=lineage)
