"""The configuration in `potstill.toml`. Every option has a default."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

import msgspec

from potstill.decode import from_toml
from potstill.errors import PotstillError
from potstill.experiments import ExperimentConfig, in_words
from potstill.problem import Reward, seconds
from potstill.spaces import ActionSpace, Catalog, Continuous

Aggregate = Literal["first", "last", "sum", "max", "mean"]
ServeMode = Literal["online", "apprentice", "log-only"]
Share = Annotated[float, msgspec.Meta(ge=0, lt=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[float, msgspec.Meta(gt=0)]


class InvalidConfig(PotstillError, ValueError):
    """`potstill.toml` is invalid; the message says where."""


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class PolicyConfig(_Section, frozen=True):
    """Options of distilled policies.

    Attributes:
        seed: Seed of everything random.
        floor: The smallest propensity of an action. A change takes effect with the next version.
        new_action_share: Share of decisions that are drawn uniformly from all actions after an action was added to the
            problem, until the next update: the new action then has this share divided by the number of actions.
    """

    seed: int = 0
    floor: Share = 0.0
    new_action_share: Share = 0.1


class JoinConfig(_Section, frozen=True):
    """How rewards become observations.

    Attributes:
        aggregate: How several rewards of one decision are combined.
        settle: Time to wait after a decision's window has closed for rewards that are still in the log.
    """

    aggregate: Aggregate = "last"
    settle: str = "1m"

    def __post_init__(self) -> None:
        _ = self.settle_seconds

    @property
    def settle_seconds(self) -> int:
        """The same in seconds."""
        return seconds(self.settle, "join.settle", zero=True)

    def check(self, reward: Reward) -> None:
        """Refuse to combine rewards into ones that their kind does not have; `InvalidConfig`.

        Sums of yes/no rewards may be 2, and means of yes/no rewards or counts may be fractions.
        """
        broken = {"yes/no": ("sum", "mean"), "count": ("mean",)}.get(reward.kind or "", ())
        if self.aggregate in broken:
            others = ", ".join(name for name in get_args(Aggregate) if name not in broken)
            raise InvalidConfig(
                f"join.aggregate = {self.aggregate!r} can give rewards that are not of kind {reward.kind!r}, which "
                f"problem.toml states; use one of {others}, or leave out reward.kind"
            )


class UpdateConfig(_Section, frozen=True):
    """When to distil a new policy, on which contexts, and what must hold before it serves.

    Attributes:
        contexts: Table of further contexts to imitate on (CSV, Parquet or Delta Lake), in the workspace or elsewhere.
        contexts_at_most: The most contexts to sample from it.
        contexts_in_memory: Sample size above which contexts are streamed: labelled in shards on disk.
        labels_kept: Number of latest versions whose shards are kept.
        min_observations: Number of new observations below which an update does nothing.
        max_kl: The largest held-out divergence from the teacher, in nats, with which a policy may serve.
        max_loss: The largest loss per decision against the serving policy, by off-policy evaluation; None refuses only
            a policy that is significantly worse.
        states_kept: Number of latest versions whose teacher state is kept.
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
        spool: Local folder for events that are not in the lake yet; events/log if the workspace is a folder.
        rotate_bytes: Size at which a segment is closed and ready for the lake.
        rotate_seconds: Age at which a segment is closed.
        lease: Time after which updates no longer wait for a machine whose log does not report; 0s to wait until it is
            declared gone.
    """

    spool: str | None = None
    rotate_bytes: Annotated[int, msgspec.Meta(ge=1)] = 32 * 1024 * 1024
    rotate_seconds: Positive = 10.0
    lease: str = "1d"

    def __post_init__(self) -> None:
        _ = self.lease_seconds

    @property
    def lease_seconds(self) -> int:
        """The lease in seconds."""
        return seconds(self.lease, "log.lease", zero=True)


class ServeConfig(_Section, frozen=True):
    """How the service answers.

    Attributes:
        mode: ``online``: the policy decides; ``apprentice``: the caller decides, and the policy's propensity is
            logged; ``log-only``: always the fallback action. ``POST admin/mode`` overrides it.
        fallback: Action to answer with on a failure; without one, failures are errors.
        reload_seconds: Seconds between two looks for a new version.
        remember: Time for which the decisions of this machine are kept on disk, for requests that are repeated.
    """

    mode: ServeMode = "online"
    fallback: Any = None
    reload_seconds: Positive = 1.0
    remember: str = "10m"

    def __post_init__(self) -> None:
        _ = self.remember_seconds

    @property
    def remember_seconds(self) -> int:
        """The same in seconds."""
        return seconds(self.remember, "serve.remember", zero=True)


class Config(_Section, frozen=True):
    """A workspace's configuration.

    Attributes:
        teacher: Type and options of the teacher: one of Potstill's, a model file, or a class of a package. Without any,
            a workspace takes the default for its action space.
        student: Options of `potstill.Student`; ``auto`` is a budget or options of `potstill.distill.AutoStudent`.
        policy: Options of distilled policies.
        join: How rewards become observations.
        update: When to distil a new policy.
        log: How events reach the disk.
        serve: How the service answers.
        experiment: Randomised experiment; None if there is none.
    """

    teacher: dict[str, Any] = {}
    student: dict[str, Any] = {}
    policy: PolicyConfig = PolicyConfig()
    join: JoinConfig = JoinConfig()
    update: UpdateConfig = UpdateConfig()
    log: LogConfig = LogConfig()
    serve: ServeConfig = ServeConfig()
    experiment: ExperimentConfig | None = None

    def with_teacher(self, space: ActionSpace) -> Config:
        """The same with the default teacher of an action space, if it states no type; options that it states stay."""
        if "type" in self.teacher:
            return self
        kinds: tuple[tuple[type, str], ...] = ((Continuous, "continuous-linear-ts"), (Catalog, "catalog-linear-ts"))
        kind = next((name for kind, name in kinds if isinstance(space, kind)), "auto-ts")
        return msgspec.structs.replace(self, teacher={"type": kind, **self.teacher})


def read_config(data: bytes, where: str = "potstill.toml") -> Config:
    """A configuration from the text of its file."""
    try:
        return from_toml(data, Config)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{where}: {in_words(str(error))}") from error
