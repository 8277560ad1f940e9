"""Decisions in an experiment: each request by its arm; and the experiment in `potstill.toml`, reloaded on change."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from potstill.events import microseconds, now
from potstill.experiments import UNIT, Assignment, Control, ExperimentConfig, InvalidExperiment, Rules, unit_of
from potstill.problem import Problem
from potstill.service.decide import Batch, Decider, Decisions, check_own_actions, decide_parts
from potstill.service.metrics import Recorder
from potstill.service.snapshot import Snapshot, SnapshotWatcher
from potstill.service.wire import DecideReply
from potstill.storage import child
from potstill.workspace import CONFIG, InvalidConfig, ServeMode, Workspace, control_of, read_config, rules_of

#: Decides by the policy of a snapshot, or falls back.
Decide = Callable[[Snapshot, Batch], Decisions]
_logger = logging.getLogger(__name__)


class Experiment:
    """One experiment of a problem.

    Args:
        config: What is compared with what, on which units.
        problem: The problem that is decided.
        control: What the control arm does.
    """

    def __init__(self, config: ExperimentConfig, problem: Problem, control: Control) -> None:
        self.config, self._control = config, control
        self._assignment = Assignment(config.name, config.share)
        self._arms = (config.arm("control"), config.arm("treatment"))
        self._start = 0 if config.start is None else microseconds(config.start)
        names = [feature.name for feature in problem.context]
        self._feature = None if config.unit == UNIT else names.index(config.unit)

    def is_running(self, mode: ServeMode) -> bool:
        """Whether requests are in it now: it has started, and the policy decides."""
        return mode == "online" and now() >= self._start

    def state(self, mode: ServeMode) -> str:
        """Whether requests are in it, in words."""
        if self.is_running(mode):
            return "running"
        if now() < self._start:
            return f"not started: it starts at {self.config.starts}"
        return f"paused: the mode is {mode}"

    def decide(self, snapshot: Snapshot, batch: Batch, decide: Decide, decider: Decider) -> Decisions:
        """Decide each request by its arm; replies are in the order of the requests.

        Args:
            snapshot: Its policy is treatment. It also decides requests without a unit, which get no arm.
            batch: The requests.
            decide: Decides by a policy, or falls back.
            decider: Makes decisions of control's actions.
        """
        check_own_actions(snapshot, batch.requests)
        arms = self.arms(batch)
        control = [place for place, arm in enumerate(arms) if arm == self._arms[False]]
        others = [place for place, arm in enumerate(arms) if arm != self._arms[False]]

        def by_control(part: Batch) -> Decisions:
            part.arms = [arms[place] for place in control]
            return self._control_arm(snapshot, part, decide, decider)

        def by_policy(part: Batch) -> Decisions:
            part.arms = [arms[place] for place in others]
            return decide(snapshot, part)

        return decide_parts(batch, [(control, by_control), (others, by_policy)])

    def arms(self, batch: Batch) -> list[str | None]:
        """The arm of each request; None for those without a unit."""
        units = self._units(batch)
        treated = iter(self._assignment.treated([unit for unit in units if unit is not None]).tolist())
        return [None if unit is None else self._arms[next(treated)] for unit in units]

    def count(self, replies: Sequence[DecideReply], recorder: Recorder) -> None:
        """Count decisions by arm; those of the initial design have none."""
        for arm, number in Counter(reply.arm for reply in replies if reply.mode != "design").items():
            recorder.count_arm("none" if arm is None else arm.partition(":")[2], number)

    def _units(self, batch: Batch) -> Sequence[str | None]:
        place = self._feature
        if place is None:
            return [request.unit for request in batch.requests]
        return [unit_of(values[place]) for values in batch.values]

    def _control_arm(self, snapshot: Snapshot, batch: Batch, decide: Decide, decider: Decider) -> Decisions:
        control = self._control
        if not isinstance(control, Rules):
            return decide(replace(snapshot, policy=control), batch)
        eligible = batch.eligible or [None] * len(batch)
        actions = [control.action(*pair) for pair in zip(batch.values, eligible, strict=True)]
        return decider.fixed(snapshot, batch, actions, mode="control")


class ExperimentWatcher:
    """The current experiment of a workspace, and its replacement when `potstill.toml` changes.

    `current` may be read from any thread. `start` and `reload` read files, and are for one thread at a time.

    Args:
        workspace: Workspace whose configuration to follow.
        on_reload: Called with ``swapped``, ``refused`` or ``unavailable`` when a reload finds a change.
    """

    def __init__(self, workspace: Workspace, on_reload: Callable[[str], None] = lambda _: None) -> None:
        self.current: Experiment | None = None
        self._workspace, self._on_reload = workspace, on_reload
        self._loaded: tuple[ExperimentConfig | None, bytes | None] = (None, None)
        self._fault: str | None = None
        self._outcome = ""

    def state(self, mode: ServeMode) -> str | None:
        """State in words: ``running``, ``not started``, or what is wrong; None without an experiment."""
        if self._fault is not None:
            return f"{self._outcome}: {self._fault}"
        return None if self.current is None else self.current.state(mode)

    @property
    def notice(self) -> str | None:
        """What is wrong with `potstill.toml`, or with what it names; None if nothing is."""
        return None if self._fault is None else f"{self._fault}; what was read before stays in force"

    def start(self) -> None:
        """Load the experiment; start without it while storage is unavailable.

        Raises:
            InvalidConfig: The configuration, or what it names, is invalid.
        """
        try:
            self._load(self._config())
        except (InvalidConfig, InvalidExperiment) as error:
            self._load_as_started()
            self._report(error, "refused")
        except OSError as error:
            self._report(error, "unavailable")

    def reload(self) -> None:
        """Load what has changed, if it is valid."""
        try:
            self._load(self._config())
        except (InvalidConfig, InvalidExperiment) as error:
            self._report(error, "refused")
        except OSError as error:
            self._report(error, "unavailable")

    def _load_as_started(self) -> None:
        """Load the experiment of the service's start: a worker that is restarted must not fail on a later mistake."""
        try:
            self._load(self._workspace.config.experiment)
        except InvalidExperiment as error:
            raise InvalidConfig(f"{self._workspace.url}: {error}") from error

    def _load(self, config: ExperimentConfig | None) -> None:
        rules = None if config is None else rules_of(self._workspace, config)
        if (config, rules) != self._loaded:
            self._swap(None if config is None else self._experiment(config, rules))
            self._loaded = (config, rules)
        self._fault = None

    def _config(self) -> ExperimentConfig | None:
        try:
            text = self._workspace.storage.read(CONFIG)
        except FileNotFoundError:
            return None
        return read_config(text, child(self._workspace.url, CONFIG)).experiment

    def _experiment(self, config: ExperimentConfig, rules: bytes | None) -> Experiment:
        return Experiment(config, self._workspace.problem, control_of(self._workspace, config, rules))

    def _swap(self, found: Experiment | None) -> None:
        self.current = found
        change = "the experiment has ended" if found is None else f"experiment {found.config.name} is loaded"
        _logger.info("%s: %s", self._workspace.problem.name, change)
        self._on_reload("swapped")

    def _report(self, error: Exception, outcome: str) -> None:
        """Keep the current experiment, and log the fault once for as long as it stays the same."""
        if str(error) != self._fault:
            self._fault, self._outcome = str(error), outcome
            _logger.warning("%s: the current experiment is kept: %s", self._workspace.problem.name, error)
            self._on_reload(outcome)


def check_experiment(workspace: Workspace) -> None:
    """Refuse an invalid experiment before any process is started; `InvalidConfig`."""
    if workspace.config.experiment is not None:
        SnapshotWatcher(workspace).start()  # publishes the first version, which may be control
        ExperimentWatcher(workspace).start()
