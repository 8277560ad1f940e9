"""The experiment of a workspace: its control, and its status."""

from __future__ import annotations

from typing import Literal

import msgspec

from potstill.events import microseconds
from potstill.experiments import Control, ExperimentConfig, InvalidExperiment, load_control
from potstill.policy import Policy
from potstill.registry import CorruptVersion, UnknownVersion
from potstill.workspace.workspace import Workspace

State = Literal["not started", "running", "refused"]


class ExperimentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Status of the experiment in `potstill.toml`.

    Attributes:
        name: Name of the experiment.
        state: ``not started``, ``running``, or ``refused`` if it does not fit the problem or what it names is missing.
        why: Why it is refused, or when it starts; empty otherwise.
    """

    name: str
    state: State
    why: str = ""

    @property
    def in_words(self) -> str:
        """State and reason, such as ``refused: experiment.control: unknown action '4k'``."""
        return f"{self.state}: {self.why}" if self.why else self.state


def experiment_status(workspace: Workspace, now: int) -> ExperimentStatus | None:
    """Status of the experiment at a time, in microseconds since 1970; None if there is no experiment."""
    config = workspace.config.experiment
    if config is None:
        return None
    try:
        control_of(workspace, config, rules_of(workspace, config))
    except InvalidExperiment as error:
        return ExperimentStatus(name=config.name, state="refused", why=str(error))
    if config.start is not None and microseconds(config.start) > now:
        return ExperimentStatus(name=config.name, state="not started", why=f"it starts at {config.starts}")
    return ExperimentStatus(name=config.name, state="running")


def rules_of(workspace: Workspace, config: ExperimentConfig) -> bytes | None:
    """The text of control's file of rules; None if control has no rules, or the file is missing."""
    try:
        return None if config.control.rules is None else workspace.storage.read(config.control.rules)
    except FileNotFoundError:
        return None


def control_of(workspace: Workspace, config: ExperimentConfig, rules: bytes | None) -> Control:
    """What the control arm does; `InvalidExperiment` if it does not fit the problem.

    Args:
        workspace: The workspace.
        config: The experiment.
        rules: The text of its rules, from `rules_of`.
    """

    def policy(version: int) -> Policy:
        try:
            return _policy(workspace, version)
        except (UnknownVersion, CorruptVersion) as error:
            raise InvalidExperiment(f"experiment.control: {error}") from error

    return load_control(config, workspace.problem, rules=rules, policy=policy)


def _policy(workspace: Workspace, version: int) -> Policy:
    """A version; also the first, uniform one of a workspace, which is published only when a service starts."""
    if workspace.registry.head() is None and (first := workspace.serving()).version == version:
        return first
    return workspace.registry.policy(version)
