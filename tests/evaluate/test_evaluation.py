"""Evaluations end to end: invariant to the blocks of a log, compared, by segment and over time."""

import math

import msgspec
import numpy as np
import pytest
from evaluate_examples import CONTEXTS, MEANS, RICH, SHARES, TARGET, TINY, VALUE, CutLog, rich_log, table
from hypothesis import given, settings
from hypothesis import strategies as st

import potstill as ps
from potstill.errors import InvalidLog
from potstill.evaluate.estimates import INTERVALS
from potstill.evaluate.estimators import ESTIMATORS, ips
from potstill.evaluate.evaluation import Evaluation, evaluate
from potstill.evaluate.log import ArrayLog
from potstill.evaluate.models import RidgeModel
from potstill.spaces.influence import Parts

EVERYTHING = {"intervals": INTERVALS, "by": ("speed", "device"), "over": "week"}


def whole(log, **options):
    return msgspec.json.encode(evaluate(log, table_of_three, "uniform", **(EVERYTHING | options)))


def table_of_three(contexts):
    p = np.exp(contexts @ np.linspace(-1, 1, 3 * RICH.width).reshape(RICH.width, 3))
    return p / p.sum(axis=1, keepdims=True)


@settings(max_examples=15)
@given(st.lists(st.integers(0, 300), max_size=8).map(sorted))
def test_one_chunk_or_many_give_the_same_bits(ends):
    log = rich_log(300)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("potstill.evaluate.blocks.BLOCK", 64)
        options = {"intervals": ["likelihood", "exact"]}
        assert whole(CutLog(log, ends), **options) == whole(log, **options)


def test_one_chunk_or_many_give_the_same_bits_with_every_interval():
    log = rich_log(300)
    assert whole(CutLog(log, [7, 211])) == whole(log)


def test_one_chunk_or_many_give_the_same_bits_at_full_size():
    log = rich_log(70_000)
    options = {"intervals": ("likelihood",), "by": (), "over": None}
    assert whole(CutLog(log, [1, 20_000, 66_000]), **options) == whole(log, **options)


def test_estimates_come_close_to_the_truth():
    rng = np.random.default_rng(5)
    rows = 20_000
    x = rng.choice(2, rows, p=SHARES)
    logging = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]])
    a = (logging[x].cumsum(axis=1) < rng.uniform(size=(rows, 1))).sum(axis=1)
    log = ArrayLog(
        TINY, contexts=CONTEXTS[x], actions=a, rewards=MEANS[x, a] + rng.normal(size=rows), propensities=logging[x, a]
    )
    made = evaluate(log, table(TARGET))
    assert made.rows == rows
    for name, estimate in made.target.estimates.items():
        if name != "replay":  # which is biased on this log
            assert abs(estimate.value - VALUE) < 4 * max(estimate.standard_error, 0.01), name
            assert estimate.anytime.low < estimate.intervals["likelihood"].low < estimate.value
    assert "biased" in made.target.estimates["replay"].note
    assert made.target.trust.grade == "good"


def by_hand():
    return ArrayLog(
        TINY,
        contexts=CONTEXTS[[0, 1, 0, 1]],
        actions=["a", "b", "a", "c"],
        rewards=[1, 2, 3, 4],
        propensities=[0.5, 0.5, 0.25, 1.0],
    )


def test_ips_of_a_fixed_action_by_hand():
    made = evaluate(by_hand(), "a", estimators=["ips"], intervals=["normal"])
    assert (made.problem, made.rows, made.headline, made.target.name) == ("tiny", 4, "ips", "a")
    terms = np.array([1 / 0.5, 0, 3 / 0.25, 0])
    assert made.estimate.value == terms.mean() == 3.5
    error = terms.std(ddof=1) / 2
    assert made.estimate.standard_error == pytest.approx(error)
    interval = made.estimate.intervals["normal"]
    assert (interval.low, interval.high) == pytest.approx((3.5 - 1.959964 * error, 3.5 + 1.959964 * error), rel=1e-6)
    assert made.logged.value == 2.5
    assert (made.against, made.difference, made.segments, made.stretches) == (None, None, {}, ())


@pytest.mark.parametrize("name", ESTIMATORS)
def test_what_was_done_is_worth_the_mean_of_its_rewards(name):
    made = evaluate(by_hand(), "logged", "a", estimators=[name])
    assert made.estimate.value == 2.5
    assert made.target.name == "logged"
    against = made.against.estimates[name]
    if against.value is not None:
        assert made.difference[name].value == pytest.approx(2.5 - against.value)


def test_a_target_against_itself_makes_no_difference():
    made = evaluate(rich_log(), table_of_three, table_of_three, intervals=("likelihood", "normal", "bootstrap"))
    for estimate in made.difference.values():
        assert estimate.value == estimate.standard_error == 0
        assert estimate.intervals["normal"].ends == estimate.intervals["likelihood"].ends == (0, 0)


def test_differences_are_paired():
    """Two targets that are almost the same differ by little, however uncertain each is."""
    near = table_of_three(np.zeros((1, RICH.width), np.float32))

    def nearly(contexts):
        return 0.99 * table_of_three(contexts) + 0.01 * near

    made = evaluate(rich_log(1000), table_of_three, nearly)
    for name, difference in made.difference.items():
        target, against = made.target.estimates[name], made.against.estimates[name]
        if name not in ("replay", "clipped-ips", "switch-dr", "dr-os"):  # parameters are chosen for each target
            assert difference.value == pytest.approx(target.value - against.value, abs=1e-9)
            assert difference.standard_error < 0.05 * target.standard_error


def test_segments_add_up_to_the_whole():
    made = evaluate(rich_log(), "high", "low", by=["speed", "device"], over=4)
    for segments in (*made.segments.values(), made.stretches):
        assert sum(segment.rows for segment in segments) == made.rows
        assert sum(segment.share for segment in segments) == pytest.approx(1)
        for of_segment, of_all in [
            (lambda s: s.target, made.target.estimates["dr"]),
            (lambda s: s.against, made.against.estimates["dr"]),
            (lambda s: s.difference, made.difference["dr"]),
            (lambda s: s.logged, made.logged),
        ]:
            assert sum(s.share * of_segment(s).value for s in segments) == pytest.approx(of_all.value)
    assert {segment.name for segment in made.segments["device"]} == {"phone", "tv"}
    assert len(made.stretches) == 4
    assert [s.start for s in made.stretches] == sorted(s.start for s in made.stretches)


@pytest.mark.parametrize("name", ["dr", "snips"])
def test_a_segment_is_what_its_rows_alone_would_give(name):
    log = rich_log()
    (rows,) = log.blocks()
    tv = rows.groups["device"] == "tv"
    alone = ArrayLog(
        RICH,
        contexts=rows.contexts[tv],
        actions=rows.actions[tv],
        rewards=rows.rewards[tv],
        propensities=rows.propensities[tv],
        eligible=rows.eligible[tv],
    )
    options = {"estimators": [name], "model": lambda contexts: np.full((len(contexts), 3), 0.4)}
    segments = evaluate(log, "high", "low", by="device", **options).segments["device"]
    (segment,) = [segment for segment in segments if segment.name == "tv"]
    expected = evaluate(alone, "high", "low", **options)
    assert segment.target.value == pytest.approx(expected.estimate.value)
    assert segment.target.standard_error == pytest.approx(expected.estimate.standard_error)
    assert segment.difference.value == pytest.approx(expected.difference[name].value)
    assert segment.difference.standard_error == pytest.approx(expected.difference[name].standard_error)


def test_bernstein_needs_bounds_and_holds_them():
    made = evaluate(rich_log(), table_of_three, "uniform", intervals=("bernstein", "exact"))
    ends = {name: each.intervals["bernstein"] for name, each in made.target.estimates.items()}
    for name in ("ips", "clipped-ips", "dr", "switch-dr", "dr-os"):
        assert -math.inf < ends[name].low < made.target.estimates[name].value < ends[name].high < math.inf
        assert math.isfinite(made.difference[name].intervals["bernstein"].low)
    assert "the error of the reward model" in ends["dm"].note
    for name in ("replay", "snips", "sndr"):
        assert ends[name].note == "there is none for a ratio"
        assert ends[name].low == -math.inf
    assert made.target.estimates["ips"].intervals["exact"].low >= 0
    assert made.target.estimates["dr"].intervals["exact"].note == "only ips has one"
    unbounded = evaluate(by_hand(), "a", intervals=("bernstein", "exact")).target.estimates["ips"]
    for interval in unbounded.intervals.values():
        assert interval.note == "the problem states no bounds of the reward"


def test_the_smallest_propensity_widens_exact_bounds():
    def width(smallest):
        made = evaluate(rich_log(), table_of_three, intervals=["bernstein"], smallest=smallest)
        return made.estimate.intervals["bernstein"].high - made.estimate.intervals["bernstein"].low

    assert width(1e-3) > width(None)
    known, unknown = (
        evaluate(rich_log(), table_of_three, intervals=["bernstein"], smallest=smallest).target.estimates
        for smallest in (1e-3, None)
    )
    assert known["dr"].intervals["bernstein"].note == ""
    assert "no propensity could be smaller" in unknown["dr"].intervals["bernstein"].note
    with pytest.raises(
        ValueError, match=r"smallest must be above 0 and at most 0\.\d+, the smallest in the log, got 0.9"
    ):
        width(0.9)


def test_a_target_that_the_log_says_nothing_of():
    made = evaluate(
        by_hand(), lambda contexts: np.array([1, 0, 1, 0])[: len(contexts)], by=(), estimators=["snips", "dr"]
    )
    assert made.target.estimates["snips"].value is None
    assert "no row of the log" in made.target.estimates["snips"].note
    assert made.target.estimates["dr"].value is not None
    assert made.target.trust.grade == "no"


def test_one_row():
    log = ArrayLog(TINY, contexts=CONTEXTS[:1], actions=["a"], rewards=[1.0], propensities=[0.5])
    made = evaluate(log, "a")
    assert made.target.estimates["ips"].value == 2
    assert made.estimate.standard_error is None
    assert made.estimate.anytime.low == -math.inf


def test_estimators_of_ones_own():
    def half(terms):
        return Parts(base=terms.reward / 2)

    made = evaluate(by_hand(), "a", estimators={"half": half, "ips": ips})
    assert made.headline == "half"
    assert made.estimate.value == 1.25


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimators": ["magic"]}, "unknown estimator 'magic'; there are replay, ips"),
        ({"estimators": []}, "no estimator was requested"),
        ({"intervals": ["magic"]}, "unknown interval 'magic'; there are likelihood, normal"),
        ({"level": 95}, "level must be between 0 and 1"),
        ({"over": "day"}, "the log has no times"),
        ({"by": "city"}, "no values of 'city'"),
    ],
)
def test_wishes_that_cannot_be_met(options, message):
    with pytest.raises(ValueError, match=message):
        evaluate(by_hand(), "a", **options)


def test_bad_rows_are_refused_by_every_evaluation():
    class Bad:
        problem = TINY

        def blocks(self):
            (rows,) = by_hand().blocks()
            yield rows
            rows.propensities[1] = 0
            yield rows

    with pytest.raises(InvalidLog, match=r"row 5: propensity must be a probability above 0 .*, got 0\.0"):
        evaluate(Bad(), "a")


def test_the_seed_moves_only_what_is_drawn():
    one, other = (evaluate(rich_log(), "uniform", intervals=("normal", "bootstrap"), seed=seed) for seed in (0, 1))
    assert one.target.estimates["replay"].value != other.target.estimates["replay"].value
    assert one.estimate.value == other.estimate.value
    assert one.estimate.intervals["normal"] == other.estimate.intervals["normal"]
    assert one.estimate.intervals["bootstrap"] != other.estimate.intervals["bootstrap"]


def test_a_better_model_makes_a_narrower_interval():
    log = rich_log(2000)
    plain = evaluate(log, table_of_three, model=lambda contexts: np.zeros((len(contexts), 3)))
    fitted = evaluate(log, table_of_three, model=RidgeModel())
    assert fitted.estimate.standard_error < 0.9 * plain.estimate.standard_error
    assert plain.estimate.value == pytest.approx(plain.target.estimates["ips"].value)


def test_evaluations_are_json():
    made = evaluate(rich_log(), "high", "logged", **EVERYTHING)
    text = msgspec.json.encode(made)
    assert msgspec.json.encode(msgspec.json.decode(text)) == text
    assert isinstance(made, Evaluation)


def test_policies_and_teachers_are_targets():
    policy = ps.Policy.uniform(RICH)
    made = evaluate(rich_log(), policy, "uniform")
    assert made.target.name == "policy 0"
    assert made.difference["dr"].value == pytest.approx(0, abs=1e-6)
