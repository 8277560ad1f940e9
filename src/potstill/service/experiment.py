"""Decisions in an experiment: each request by its arm. Nothing here waits or touches a disk."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from potstill.events import microseconds, now
from potstill.experiments.assignment import Assignment, unit_of
from potstill.experiments.config import UNIT, ExperimentConfig, LabError
from potstill.experiments.rules import Control, Rules
from potstill.problem import Problem
from potstill.service.decide import Decider, Outcome, Questions, refuse_misplaced_actions
from potstill.service.metrics import Counting
from potstill.service.snapshot import Serving, Snapshot
from potstill.service.wire import Decided
from potstill.storage import child
from potstill.workspace import Workspace
from potstill.workspace.config import InvalidConfig, ServeMode, read_config
from potstill.workspace.experiment import control_of, rules_of
from potstill.workspace.workspace import CONFIG

#: Decides by the policy of a snapshot, or falls back.
Decide = Callable[[Snapshot, Questions], Outcome]


_logger = logging.getLogger(__name__)


class Experiment:
    """One experiment of a problem.

    Args:
        config: what is compared with what, on whom.
        problem: that is decided.
        control: what control does.
    """

    def __init__(self, config: ExperimentConfig, problem: Problem, control: Control) -> None:
        self.config, self._control = config, control
        self._assignment = Assignment(config.name, config.share)
        self._arms = (config.arm("control"), config.arm("treatment"))
        self._start = 0 if config.start is None else microseconds(config.start)
        names = [feature.name for feature in problem.context]
        self._feature = None if config.unit == UNIT else names.index(config.unit)

    def is_on(self, mode: ServeMode) -> bool:
        """Whether requests are in it now: it has begun, and the policy is to decide."""
        return mode == "online" and now() >= self._start

    def state(self, mode: ServeMode) -> str:
        """Whether requests are in it, in words."""
        if self.is_on(mode):
            return "running"
        if now() < self._start:
            return f"not started: it starts at {self.config.starts}"
        return f"paused: the mode is {mode}"

    def decide(self, snapshot: Snapshot, asked: Questions, decide: Decide, decider: Decider) -> Outcome:
        """Decide each request by its arm; replies are in the order of the requests.

        Args:
            snapshot: its policy is treatment, and decides requests that name no unit, without an arm.
            asked: the requests.
            decide: decides by a policy, or falls back.
            decider: makes decisions of control's actions.
        """
        refuse_misplaced_actions(snapshot, asked.requests)
        arms = self.arms(asked)
        control = [place for place, arm in enumerate(arms) if arm == self._arms[False]]
        others = [place for place, arm in enumerate(arms) if arm != self._arms[False]]
        by_place: dict[int, Decided] = {}
        outcome = Outcome([], [])
        for places in filter(None, (control, others)):
            part = asked if len(places) == len(asked) else asked.at(places)
            part.arms = [arms[place] for place in places]
            taken = self._controlled(snapshot, part, decide, decider) if places is control else decide(snapshot, part)
            by_place.update(zip(places, taken.replies, strict=True))
            outcome.rows.extend(taken.rows)
        outcome.replies.extend(by_place[place] for place in range(len(asked)))
        return outcome

    def arms(self, asked: Questions) -> list[str | None]:
        """The arm of each request; None for those that name no unit."""
        units = self._units(asked)
        treated = iter(self._assignment.treated([unit for unit in units if unit is not None]).tolist())
        return [None if unit is None else self._arms[next(treated)] for unit in units]

    def count(self, replies: Sequence[Decided], counting: Counting) -> None:
        """Count decisions by mode and version, and by arm."""
        for (mode, version), number in Counter((reply.mode, reply.policy) for reply in replies).items():
            counting.decided(mode, version, number)
        for arm, number in Counter(reply.arm for reply in replies).items():
            counting.assigned("none" if arm is None else arm.partition(":")[2], number)

    def _units(self, asked: Questions) -> Sequence[str | None]:
        place = self._feature
        if place is None:
            return [request.unit for request in asked.requests]
        return [unit_of(values[place]) for values in asked.values]

    def _controlled(self, snapshot: Snapshot, asked: Questions, decide: Decide, decider: Decider) -> Outcome:
        control = self._control
        if not isinstance(control, Rules):
            return decide(replace(snapshot, policy=control), asked)
        eligible = asked.eligible or [None] * len(asked)
        actions = [control.action(*of) for of in zip(asked.values, eligible, strict=True)]
        return decider.fixed(snapshot, asked, actions, mode="control")


class Experiments:
    """The present experiment of a workspace, and how the next one is taken up.

    `now` may be read from any thread. `start` and `reload` read files, and are for one thread at a time.

    Args:
        workspace: whose configuration is followed.
        on_reload: told ``swapped``, ``refused`` or ``unavailable`` whenever something else was found.
    """

    def __init__(self, workspace: Workspace, on_reload: Callable[[str], None] = lambda _: None) -> None:
        self.now: Experiment | None = None
        self._workspace, self._on_reload = workspace, on_reload
        self._seen: tuple[ExperimentConfig | None, bytes | None] = (None, None)
        self._fault: str | None = None
        self._outcome = ""

    def state(self, mode: ServeMode) -> str | None:
        """What is to be known of it: ``running``, ``not started``, or what is wrong; None without an experiment."""
        if self._fault is not None:
            return f"{self._outcome}: {self._fault}"
        return None if self.now is None else self.now.state(mode)

    def start(self) -> None:
        """Take up the experiment; without it, for now, if storage is away.

        Raises:
            InvalidConfig: the configuration, or what it names, does not make sense.
        """
        try:
            self._take_up()
        except LabError as error:
            raise InvalidConfig(f"{self._workspace.url}: {error}") from error
        except OSError as error:
            self._keep(error, "unavailable")

    def reload(self) -> None:
        """Take up what has changed, if it makes sense."""
        try:
            self._take_up()
        except (InvalidConfig, LabError) as error:
            self._keep(error, "refused")
        except OSError as error:
            self._keep(error, "unavailable")

    def _take_up(self) -> None:
        config = self._configured()
        rules = None if config is None else rules_of(self._workspace, config)
        if (config, rules) != self._seen:
            self._swap(None if config is None else self._loaded(config, rules))
            self._seen = (config, rules)
        self._fault = None

    def _configured(self) -> ExperimentConfig | None:
        try:
            text = self._workspace.storage.read(CONFIG)
        except FileNotFoundError:
            return None
        return read_config(text, child(self._workspace.url, CONFIG)).experiment

    def _loaded(self, config: ExperimentConfig, rules: bytes | None) -> Experiment:
        return Experiment(config, self._workspace.problem, control_of(self._workspace, config, rules))

    def _swap(self, found: Experiment | None) -> None:
        self.now = found
        said = "the experiment is over" if found is None else f"experiment {found.config.name} is followed"
        _logger.info("%s: %s", self._workspace.problem.name, said)
        self._on_reload("swapped")

    def _keep(self, error: Exception, outcome: str) -> None:
        """Go on as before. The same fault is told once, however often it is met."""
        if str(error) != self._fault:
            self._fault, self._outcome = str(error), outcome
            _logger.warning("%s: the experiment stays as it was: %s", self._workspace.problem.name, error)
            self._on_reload(outcome)


def check_experiment(workspace: Workspace) -> None:
    """Refuse an experiment that does not make sense before anything is started; `InvalidConfig`."""
    if workspace.config.experiment is not None:
        Serving(workspace).start()  # it publishes the first version, which may be control
        Experiments(workspace).start()
