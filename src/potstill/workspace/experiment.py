"""The experiment of a workspace: what its control is, and whether a service would follow it."""

from __future__ import annotations

from typing import Literal

import msgspec

from potstill.events import microseconds
from potstill.experiments.config import ExperimentConfig, LabError
from potstill.experiments.rules import Control, load_control
from potstill.policy import Policy
from potstill.registry import CorruptVersion, UnknownVersion
from potstill.workspace.workspace import Workspace

State = Literal["not started", "running", "refused"]


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How the experiment in `potstill.toml` stands.

    Attributes:
        name: of the experiment.
        state: ``not started``, ``running``, or ``refused`` if it does not fit the problem or what it names is missing.
        why: it is refused, or when it starts; empty if there is nothing to add.
    """

    name: str
    state: State
    why: str = ""

    @property
    def in_words(self) -> str:
        """Such as ``refused: experiment.control: '4k' is no action of the problem``."""
        return f"{self.state}: {self.why}" if self.why else self.state


def standing(workspace: Workspace, now: int) -> Standing | None:
    """How the experiment of a workspace stands at a time, in microseconds since 1970; None if it has none."""
    config = workspace.config.experiment
    if config is None:
        return None
    try:
        control_of(workspace, config, rules_of(workspace, config))
    except LabError as error:
        return Standing(name=config.name, state="refused", why=str(error))
    if config.start is not None and microseconds(config.start) > now:
        return Standing(name=config.name, state="not started", why=f"it starts at {config.starts}")
    return Standing(name=config.name, state="running")


def rules_of(workspace: Workspace, config: ExperimentConfig) -> bytes | None:
    """The text of the rules that control follows; None if it follows none, or there is no such file."""
    try:
        return None if config.control.rules is None else workspace.storage.read(config.control.rules)
    except FileNotFoundError:
        return None


def control_of(workspace: Workspace, config: ExperimentConfig, rules: bytes | None) -> Control:
    """What control does; `LabError` if that makes no sense.

    Args:
        workspace: whose problem and versions count.
        config: the experiment.
        rules: the text of its rules, as `rules_of` has them.
    """

    def policy(version: int) -> Policy:
        try:
            return _policy(workspace, version)
        except (UnknownVersion, CorruptVersion) as error:
            raise LabError(f"experiment.control: {error}") from error

    return load_control(config, workspace.problem, rules=rules, policy=policy)


def _policy(workspace: Workspace, version: int) -> Policy:
    """A version; also the first one of a workspace that no service has started yet, which will publish it."""
    if workspace.registry.head() is None and (first := workspace.serving()).version == version:
        return first
    return workspace.registry.policy(version)
