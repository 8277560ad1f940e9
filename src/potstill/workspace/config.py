"""What `potstill.toml` says: how a workspace learns, joins, logs and experiments. Every line has a default."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from potstill.errors import PotstillError
from potstill.experiments.config import ExperimentConfig, in_words
from potstill.problem import seconds

Aggregate = Literal["first", "last", "sum", "max", "mean"]
ServeMode = Literal["online", "apprentice", "log-only"]
Share = Annotated[float, msgspec.Meta(ge=0, lt=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[float, msgspec.Meta(gt=0)]


class InvalidConfig(PotstillError, ValueError):
    """`potstill.toml` does not make sense; the message says where."""


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class PolicyConfig(_Section, frozen=True):
    """Of the policies that are made.

    Attributes:
        seed: of everything random.
        floor: the smallest propensity of an action.
    """

    seed: int = 0
    floor: Share = 0.0


class JoinConfig(_Section, frozen=True):
    """How rewards become observations.

    Attributes:
        aggregate: what several rewards of one decision come to.
        settle: how long after a decision's window has closed to wait for rewards that are still on their way.
    """

    aggregate: Aggregate = "last"
    settle: str = "1m"

    def __post_init__(self) -> None:
        _ = self.settle_seconds

    @property
    def settle_seconds(self) -> int:
        """The wait in seconds."""
        return seconds(self.settle, "join.settle", zero=True)


class UpdateConfig(_Section, frozen=True):
    """When to distil a new policy, on what, and what must hold before it serves.

    Attributes:
        contexts: a table of further contexts to imitate on (CSV, Parquet or Delta Lake), in the workspace or anywhere.
        contexts_at_most: how many of them to draw.
        contexts_in_memory: if more than these are drawn, they are streamed: labelled in shards on disk.
        labels_kept: of how many of the latest versions to keep these shards.
        min_observations: new observations below which an update does nothing.
        max_kl: the largest held-out divergence from the teacher, in nats, with which a policy may serve.
        max_loss: how much less per decision than the serving policy a new one may earn, at most, as far as the log can
            tell; None refuses only one that is clearly worse.
        states_kept: of how many of the latest versions to keep the teacher's state.
    """

    contexts: str | None = None
    contexts_at_most: Count = 100_000
    contexts_in_memory: Count = 500_000
    labels_kept: Count = 0
    min_observations: Count = 100
    max_kl: Positive = 0.5
    max_loss: Annotated[float, msgspec.Meta(ge=0)] | None = None
    states_kept: Annotated[int, msgspec.Meta(ge=1)] = 3


class LogConfig(_Section, frozen=True):
    """How events reach the disk.

    Attributes:
        spool: the local folder for events that are not in the lake yet; events/log of a workspace in a folder.
        rotate_bytes: size at which a segment is closed and ready for the lake.
        rotate_seconds: age at which it is.
    """

    spool: str | None = None
    rotate_bytes: Annotated[int, msgspec.Meta(ge=1)] = 32 * 1024 * 1024
    rotate_seconds: Positive = 10.0


class ServeConfig(_Section, frozen=True):
    """How the service answers.

    Attributes:
        mode: ``online``, the policy decides; ``apprentice``, the caller does, and the policy is only asked;
            ``log-only``, always the fallback. Used until the service is told another one.
        fallback: the action to answer with when something is wrong; without one, that is an error.
        reload_seconds: time between two looks for a new version.
    """

    mode: ServeMode = "online"
    fallback: str | None = None
    reload_seconds: Positive = 1.0


class Config(_Section, frozen=True):
    """A workspace's configuration.

    Attributes:
        teacher: name and options of the teacher, as `potstill.teachers.from_config` takes them.
        student: options of `potstill.Student`.
        experiment: the policy that serves against something else; None if there is none.
    """

    teacher: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "linear-ts"})
    student: dict[str, Any] = {}
    policy: PolicyConfig = PolicyConfig()
    join: JoinConfig = JoinConfig()
    update: UpdateConfig = UpdateConfig()
    log: LogConfig = LogConfig()
    serve: ServeConfig = ServeConfig()
    experiment: ExperimentConfig | None = None


def read_config(data: bytes, where: str = "potstill.toml") -> Config:
    """A configuration from the text of its file."""
    try:
        return msgspec.toml.decode(data, type=Config)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{where}: {in_words(str(error))}") from error
