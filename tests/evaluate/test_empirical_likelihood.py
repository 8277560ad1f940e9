"""Empirical likelihood intervals: against binomial likelihoods, for rare events, and their coverage."""

import math

import numpy as np
import pytest
from evaluate_examples import RICH, rich_log
from hypothesis import given
from hypothesis import strategies as st

import potstill as ps
from potstill.evaluate import ArrayLog, evaluate, likelihood, text
from potstill.evaluate.empirical_likelihood import BINS, UNSEEN_ROWS, Unseen, summarised, unseen_row

LEVEL = 0.95
BANNERS = ps.Problem(
    name="banners",
    context=[ps.Boolean("x")],
    actions=ps.Discrete([f"a{k}" for k in range(34)]),
    reward=ps.Reward(low=0, high=1),
)


def binomial_end(events, rows, critical=3.841459):
    """The larger proportion whose likelihood ratio statistic is `critical`, by bisection."""
    if events == rows:
        return 1.0
    best, low, high = events / rows, events / rows, 1 - 1e-12
    for _ in range(300):
        p = (low + high) / 2
        statistic = 2 * (events * math.log(best / p) + (rows - events) * math.log((1 - best) / (1 - p)))
        low, high = (low, p) if statistic > critical else (p, high)
    return low


@pytest.mark.parametrize(("events", "rows"), [(0, 302), (1, 50), (7, 400), (30, 60), (5_000, 20_000)])
def test_equal_weights_give_the_binomial_likelihood_with_half_a_row_more(events, rows):
    found = likelihood(np.repeat([1.0, 0.0], [events, rows - events]), Unseen(0.0, 1.0), LEVEL)
    assert found.high == pytest.approx(binomial_end(events + UNSEEN_ROWS, rows + UNSEEN_ROWS), rel=1e-6)
    assert 1 - found.low == pytest.approx(binomial_end(rows - events + UNSEEN_ROWS, rows + UNSEEN_ROWS), rel=1e-6)


@pytest.mark.parametrize("rows", [100, 10_000])
def test_without_events_the_interval_has_what_the_rule_of_three_allows(rows):
    found = likelihood(np.zeros(rows), Unseen(0.0, 1.0), LEVEL)
    assert found.low == 0
    assert 3 / rows < found.high < 3.7 / rows


@given(st.integers(0, 2**32), st.floats(0.1, 10), st.floats(-5, 5))
def test_a_change_of_unit_changes_the_ends_alike(seed, scale, shift):
    values = np.random.default_rng(seed).exponential(size=80)
    found = likelihood(values, Unseen(0.0, 9.0), LEVEL)
    moved = likelihood(scale * values + shift, Unseen(shift, 9 * scale + shift), LEVEL)
    turned = likelihood(-values, Unseen(-9.0, 0.0), LEVEL)
    assert moved.ends == pytest.approx([scale * end + shift for end in found.ends], rel=1e-6, abs=1e-9)
    assert turned.ends == pytest.approx([-found.high, -found.low], rel=1e-9)


@pytest.mark.parametrize("events", [3, 400])
def test_bins_of_many_rows_change_nothing_that_matters(events, monkeypatch):
    rng = np.random.default_rng(0)
    values = rng.normal(0, 0.01, 30_000) + 20 * rng.exponential(size=30_000) * (rng.permutation(30_000) < events)
    found = likelihood(values, Unseen(-1.0, 60.0), LEVEL)
    points, counts = summarised(values)
    assert len(points) <= 2 * BINS
    mean = counts @ points / counts.sum()
    assert (counts.sum(), mean) == pytest.approx((30_000, values.mean()), rel=1e-12)
    assert counts @ (points - mean) ** 2 / 30_000 == pytest.approx(values.var(), rel=1e-9)
    monkeypatch.setattr("potstill.evaluate.empirical_likelihood.BINS", 30_000)
    assert found.ends == pytest.approx(likelihood(values, Unseen(-1.0, 60.0), LEVEL).ends, rel=1e-5)


def test_an_unseen_row_is_drawn_as_the_policy_draws():
    weights, rewards = np.array([0.0, 1.0, 3.0]), np.array([1.0, 0.0, 0.0])
    one = unseen_row(weights * rewards, rewards, (weights,), (0.0, 1.0))
    assert one == pytest.approx((0.0, (1 * 1 + 3 * 3) / 4))
    both = unseen_row(weights * rewards - rewards, rewards, (weights, np.ones(3)), (0.0, 1.0))
    # As the first policy draws: (1·0 + 3·2)/4; as the second does: the mean of 0, 0 and 2. Least: of -1, 0 and 0.
    assert both == pytest.approx((-1 / 3, 1.5))
    assert unseen_row(rewards, rewards, (np.zeros(3),), (0.0, 1.0)) is None


def test_too_few_rows_have_no_interval():
    assert likelihood(np.ones(1), Unseen(0.0, 1.0), LEVEL).ends == (-math.inf, math.inf)
    assert likelihood(np.full(9, np.nan), None, LEVEL).note


def clicks(rows, rate, seed, *, none_of=None):
    """Uniform logging of 34 actions, with no click on one of them if it is named."""
    rng = np.random.default_rng(seed)
    actions = rng.integers(0, 34, rows)
    clicked = (rng.random(rows) < rate) & (actions != none_of)
    return ArrayLog(
        BANNERS,
        contexts=np.zeros((rows, 1), np.float32),
        actions=actions,
        rewards=clicked,
        propensities=np.full(rows, 1 / 34),
    )


@pytest.mark.parametrize("estimator", ["replay", "ips", "clipped-ips", "snips", "dr", "sndr", "switch-dr", "dr-os"])
def test_a_target_without_clicks_in_few_rows_is_not_called_worse(estimator):
    log = clicks(10_000, 0.0045, seed=3, none_of=5)
    found = evaluate(log, "a5", against="logged", estimators=[estimator])
    rows = found.target.diagnostics.effective
    assert found.target.diagnostics.events == 0
    interval = found.estimate.intervals["likelihood"]
    assert interval.low <= 0.0045 < 2.9 / rows < interval.high
    assert found.difference[estimator].intervals["likelihood"].high > 0
    assert "worse" not in text.verdict(found)
    assert found.target.trust.grade == "caution"
    assert "none of these with a reward other than 0" in found.target.trust.sentence
    assert found.estimate.anytime.high >= interval.high


def test_a_target_without_clicks_in_many_rows_is_called_worse():
    found = evaluate(clicks(60_000, 0.02, seed=3, none_of=5), "a5", against="logged", estimators=["dr"])
    assert "It would have been worse." in text.verdict(found)


def test_segments_without_events_have_intervals_too():
    found = evaluate(rich_log(300), "high", by="device")
    for segment in found.segments["device"]:
        low, high = segment.target.intervals["likelihood"].ends
        assert RICH.reward.low <= low < segment.target.value < high <= RICH.reward.high
        assert segment.trust.grade != "good"


def test_rewards_that_are_all_the_same_have_an_interval_only_if_a_range_is_known():
    def of(reward, **bounds):
        problem = ps.Problem(
            name="p", context=[ps.Boolean("x")], actions=ps.Discrete(["a", "b"]), reward=ps.Reward(**bounds)
        )
        rows = {
            "contexts": np.zeros((200, 1), np.float32),
            "actions": ["a", "b"] * 100,
            "propensities": np.full(200, 0.5),
        }
        made = evaluate(ArrayLog(problem, rewards=np.full(200, reward), **rows), "a", estimators=["snips"])
        return made.estimate.intervals["likelihood"]

    assert 0.03 < of(0.0).high < 0.04
    assert 0.96 < of(1.0).low < 0.97
    assert of(7.0).ends == (-math.inf, math.inf)
    assert "states no range" in of(7.0).note
    assert of(7.0, low=0.0, high=10.0).low > 6.6


@pytest.mark.parametrize(("rate", "events", "least", "most"), [(0.008, 9, 0, 0), (0.02, 24, 250, 300)])
def test_what_is_called_trustworthy_covers_as_it_says(rate, events, least, most):
    """Clicks in 10,000 rows, and a target with weights from 14 down to 0: too few effective events, and enough.

    At 0.8 %, normal intervals cover 89.3 % and these 95.0 % of 1,500 logs; normal ones cover 263 of these 300. With
    another seed, intervals that cover 95 % would cover fewer than 270 of 300 logs in 1 of 8,000 runs, and all of them
    in 1 of 5 million. At 2 %, the verdict is good in 97 % of logs, and in fewer than 250 of 300 in 1 run of a billion.
    """
    target, trusted, covered = np.power(0.6, np.arange(34)) / np.power(0.6, np.arange(34)).sum(), 0, []

    def no_model(contexts):
        return np.zeros((len(contexts), 34))

    for seed in range(300):
        log = clicks(10_000, rate, seed)
        found = evaluate(log, np.tile(target, (10_000, 1)), estimators=["snips"], model=no_model)
        low, high = found.estimate.intervals["likelihood"].ends
        covered.append(low <= rate <= high)
        trusted += found.target.trust.grade == "good"
    assert 270 <= sum(covered) < 300
    assert least <= trusted <= most
    assert found.target.diagnostics.events == pytest.approx(events, rel=0.6)
