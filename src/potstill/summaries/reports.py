"""Reports that an update computes from rows and stores, so that views need not: apprentice, features and health."""

from __future__ import annotations

import contextlib
from typing import Literal, TypeVar

import msgspec

from potstill.policy import Policy
from potstill.storage import Storage
from potstill.summaries.store import FOLDER
from potstill.summaries.sums import Estimate

Ready = Literal["yes", "not yet", "no", "no data"]


class AgreementSegment(msgspec.Struct, frozen=True, kw_only=True):
    """Agreement in one segment.

    Attributes:
        feature: Name of the feature.
        value: Its value, or range of values.
        rows: Number of decisions.
        agreement: Share in which the policy would have done the same.
        reward: Mean reward of the caller's own choices.
        agreed_reward: Mean reward where the policy would have done the same; None if it never would.
    """

    feature: str
    value: str
    rows: int
    agreement: float
    reward: float
    agreed_reward: float | None = None


class ApprenticeReport(msgspec.Struct, frozen=True, kw_only=True):
    """How close the policy is to the caller's own logic, over the last joined decisions of mode apprentice.

    Attributes:
        made: When it was made, in microseconds since 1970, UTC.
        rows: Number of decisions; those that state what the policy would have done.
        agreement: Share in which the policy would have done the same, with its interval.
        expected: Mean propensity of the caller's choices under the policy: the agreement without the noise of draws;
            None for a number.
        reward: Mean reward of the caller's choices.
        agreed_reward: Mean reward of those that the policy would have made too.
        achieved: Share of the caller's total reward that comes from those; None if rewards are not all positive.
        stated: Share of decisions for which the caller stated its own propensity.
        policy: Off-policy estimate of the policy; None without stated propensities.
        gain: That minus the caller's mean reward on the same rows.
        segments: Agreement by segment, largest segments first.
        ready: Whether the policy is ready to go live.
        words: Why, in words.
        then: What to do.
    """

    made: int
    rows: int = 0
    agreement: Estimate = Estimate()
    expected: float | None = None
    reward: Estimate = Estimate()
    agreed_reward: Estimate = Estimate()
    achieved: float | None = None
    stated: float = 0.0
    policy: Estimate | None = None
    gain: Estimate | None = None
    segments: list[AgreementSegment] = []
    ready: Ready = "no data"
    words: str = ""
    then: str = ""


class FeatureRow(msgspec.Struct, frozen=True, kw_only=True):
    """One feature of the last observations.

    Attributes:
        name: Its name.
        kind: Its type.
        policy: How far the policy's distribution moves on average if this feature's values are shuffled between rows:
            total variation, from 0 to 1.
        reward: How much of the variance of rewards a model cannot predict any more if they are shuffled, from 0 to 1.
        reward_error: Standard error of that.
        worth: Reward per decision that the policy would lose if it did not know the feature, by doubly robust
            estimation with its interval; None if the log cannot tell, or the action is a number.
        missing: Share of rows without a value.
        distinct: Number of distinct values.
        common: Share of the most common value.
        unseen: Share of rows with a category that the problem does not list, or a number outside its bounds.
        drift: Population stability index between the older and the newer half of the rows; above 0.25 is a shift.
        warnings: What is wrong, in words.
    """

    name: str
    kind: str
    policy: float | None = None
    reward: float | None = None
    reward_error: float | None = None
    worth: Estimate | None = None
    missing: float = 0.0
    distinct: int = 0
    common: float = 0.0
    unseen: float = 0.0
    drift: float | None = None
    warnings: list[str] = []


class FeatureReport(msgspec.Struct, frozen=True, kw_only=True):
    """Which features matter to the policy and to the reward, and what is wrong with them.

    Attributes:
        made: When it was made, in microseconds since 1970, UTC.
        version: Version of the policy.
        rows: Number of observations, the latest.
        explained: Share of the variance of rewards that the model predicts on held-out rows.
        features: The features, most important to the policy first.
    """

    made: int
    version: int
    rows: int = 0
    explained: float | None = None
    features: list[FeatureRow] = []


class ActionRatio(msgspec.Struct, frozen=True, kw_only=True):
    """How often a version took an action, beside the sum of its propensities.

    Attributes:
        action: Label of the action.
        taken: Number of decisions with it.
        expected: Sum of its propensities over the decisions.
        z: Difference in standard deviations.
    """

    action: str
    taken: int
    expected: float
    z: float


class VersionHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Sample ratio and entropy of a version.

    Attributes:
        version: The version.
        rows: Number of its decisions that were looked at.
        entropy: Mean entropy of its distributions, relative to the uniform one: 0 is certain, 1 is uniform.
        actions: Actions taken and expected.
        p: Smallest p-value of the actions, corrected for their number.
        broken: Whether the logged actions are not those that the propensities say.
    """

    version: int
    rows: int
    entropy: float | None
    actions: list[ActionRatio] = []
    p: float = 1.0
    broken: bool = False


#: The way out where policies renormalise, and what to know where there is none.
_TRAIN_ON_MASKS = "Set masked = true in [student] of potstill.toml; the next update then trains on masks."
_NO_MASKS = "Students of a catalogue take no masks, so that this cannot be trained for."


class HealthReport(msgspec.Struct, frozen=True, kw_only=True):
    """Propensity audit and sample ratios of the latest decisions.

    Attributes:
        made: When it was made, in microseconds since 1970, UTC.
        decisions: Number of decisions that were looked at, the latest.
        checked: Number whose propensity and action were recomputed.
        propensities: Number of propensities that differ.
        actions: Number of actions that are not those of the draw.
        missing: Number whose version cannot be read.
        unfit: Number whose context or action does not fit.
        decided: Number of the latest decisions that a policy made, without those of other modes.
        renormalised: Number of these whose request stated `eligible`, and whose version was not trained on masks.
        versions: By version, newest first.
        towers: Whether the serving version has an item tower, so that it cannot be trained on masks.
    """

    made: int
    decisions: int = 0
    checked: int = 0
    propensities: int = 0
    actions: int = 0
    missing: int = 0
    unfit: int = 0
    decided: int = 0
    renormalised: int = 0
    versions: list[VersionHealth] = []
    towers: bool = False

    @property
    def way_out(self) -> str:
        """What to do about requests with `eligible`."""
        return _NO_MASKS if self.towers else _TRAIN_ON_MASKS

    @property
    def renormalised_words(self) -> str | None:
        """What to say of requests with `eligible` that a policy without masks answered; None if there are none."""
        if not self.renormalised:
            return None
        return (
            f"{self.renormalised / self.decided:.1%} of the last {self.decided:,} decisions state eligible, and their "
            "policy was not trained for it: it renormalises, which is not Thompson sampling on the eligible actions"
        )

    @property
    def clean(self) -> bool:
        """Whether every decision agrees with its policy."""
        return not (self.propensities or self.actions or self.missing or self.unfit)


Report = ApprenticeReport | FeatureReport | HealthReport
R = TypeVar("R", ApprenticeReport, FeatureReport, HealthReport)
_NAMES: dict[type[Report], str] = {
    ApprenticeReport: "apprentice",
    FeatureReport: "features",
    HealthReport: "health",
}


def read_report(storage: Storage, kind: type[R]) -> R | None:
    """The last report of a kind; None if no update has made one, or it cannot be read."""
    with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
        return msgspec.json.decode(storage.within(FOLDER).read(_file(kind)), type=kind)
    return None


def write_report(storage: Storage, report: Report) -> None:
    """Store a report in place of the one before."""
    storage.within(FOLDER).replace(_file(type(report)), msgspec.json.encode(report))


def _file(kind: type[Report]) -> str:
    return f"reports/{_NAMES[kind]}.json"


def mask_notices(storage: Storage, serving: Policy) -> list[str]:
    """That requests state `eligible`, if the serving version was not trained for it; as the last update found."""
    found = read_report(storage, HealthReport)
    if found is None or found.renormalised_words is None or serving.masked:
        return []
    return [f"{found.renormalised_words}{_off_by(serving)}. {found.way_out}"]


def _off_by(serving: Policy) -> str:
    measured = (serving.metadata.fidelity or {}).get("eligible")
    if not measured:
        return ""
    some = measured[-1]
    return f" (total variation {some['tv_mean']:.2g} among {some['actions']} actions, at most {some['tv_max']:.2g})"
