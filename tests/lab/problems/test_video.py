"""The upload service behaves as its description says."""

import numpy as np
import pytest

from potstill.lab import VideoUpload
from potstill.lab.problems.video import BITRATES

WORLD = VideoUpload()
N = 20_000


@pytest.fixture(scope="module")
def contexts():
    return WORLD.contexts(N, np.random.default_rng(1))


def rows(contexts, at):
    return {name: column[at] for name, column in contexts.items()}


def test_contexts_have_38_columns_and_every_one_of_them_varies(contexts):
    encoded = WORLD.problem.encode_many(contexts)
    assert encoded.shape == (N, 38)
    assert encoded.std(axis=0).min() > 0, "a column that never varies, such as one for unseen values, teaches nothing"


def test_few_numbers_fall_outside_the_range_of_their_feature(contexts):
    bounds = {feature.name: feature for feature in WORLD.problem.context if hasattr(feature, "low")}
    for name, feature in bounds.items():
        assert np.mean((contexts[name] < feature.low) | (contexts[name] > feature.high)) < 0.03, name


def test_actions_are_ordered_by_bitrate():
    assert WORLD.problem.actions.names == tuple(BITRATES)
    assert list(BITRATES.values()) == sorted(BITRATES.values())
    assert len(BITRATES) == 7


def test_every_action_is_best_for_a_good_share_of_requests(contexts):
    best = WORLD.means(contexts).argmax(axis=1)
    assert (np.bincount(best, minlength=7) / N).min() > 0.04


def test_the_best_action_rises_with_bandwidth_and_falls_with_duration(contexts):
    best = WORLD.means(contexts).argmax(axis=1)
    faster = WORLD.means({**contexts, "up_kbps": 2 * contexts["up_kbps"]}).argmax(axis=1)
    longer = WORLD.means({**contexts, "duration_s": 4 * contexts["duration_s"]}).argmax(axis=1)
    assert (faster >= best).all()
    assert (longer <= best).all()
    assert np.mean(faster > best) > 0.2
    assert np.mean(longer < best) > 0.2


def test_success_falls_with_bitrate_over_bandwidth(contexts):
    success = WORLD.success(contexts)
    assert (np.diff(success, axis=1) < 0).all()
    assert ((success > 0) & (success < 1)).all()
    # Only the ratio counts: 20 times the bandwidth carries 20 times the bits, as 8,000 is of 400, as well.
    faster = WORLD.success({**contexts, "up_kbps": 20 * contexts["up_kbps"]})
    np.testing.assert_allclose(faster[:, _at(8000)], success[:, _at(400)], rtol=1e-12)


def _at(kbps):
    return list(BITRATES.values()).index(kbps)


def test_success_at_the_limit_of_patience():
    """Transfer time = patience gives half of 0.98: worked out by hand."""
    context = {
        "duration_s": 32.0,  # patience 12 · 32^0.6 = 96 s
        "up_kbps": 1200 * 32 / 96,  # 1,200 kbit/s take 96 s
        "loss": 0.0,
        "hour": 8.0,  # nobody else is online: a crowd of 1e-7
        "charging": False,
        "battery": 0.9,
        "foreground": True,
        "retries": 0,
        "raw_kbps": 9000.0,
    }
    columns = {name: np.array([value]) for name, value in context.items()}
    assert WORLD.success(columns)[0, _at(1200)] == pytest.approx(0.49, abs=1e-6)
    assert WORLD.means(columns)[0, _at(1200)] == pytest.approx(0.49 * np.log(5) / np.log(1 + 80 / 3), abs=1e-6)


def test_bits_beyond_those_filmed_add_cost_but_no_quality(contexts):
    filmed = {**contexts, "raw_kbps": np.full(N, 1500.0)}
    means = WORLD.means(filmed)
    assert (means[:, _at(2000)] > means[:, _at(3200)]).all()
    assert (means.argmax(axis=1) <= _at(2000)).all()


def test_means_are_what_rewards_average_to(contexts):
    few, repeats = rows(contexts, slice(0, 40)), 4_000
    many = {name: np.repeat(column, repeats) for name, column in few.items()}
    rng = np.random.default_rng(2)
    for action in range(7):
        rewards = WORLD.rewards(many, np.full(40 * repeats, action), rng).reshape(40, repeats)
        p, quality = WORLD.success(few)[:, action], WORLD.means(few)[:, action] / WORLD.success(few)[:, action]
        error = quality * np.sqrt(p * (1 - p) / repeats)
        # 280 averages, each within five standard errors (and one unit of a count, where failures are very rare).
        assert (abs(rewards.mean(axis=1) - WORLD.means(few)[:, action]) <= 5 * error + quality / repeats).all()


def test_a_reward_is_0_or_the_quality_that_arrived(contexts):
    actions = np.random.default_rng(3).integers(7, size=N)
    rewards = WORLD.rewards(contexts, actions, np.random.default_rng(4))
    at = np.arange(N), actions
    quality = WORLD.means(contexts)[at] / WORLD.success(contexts)[at]
    arrived = rewards > 0
    np.testing.assert_allclose(rewards[arrived], quality[arrived])
    assert 0.3 < arrived.mean() < 0.95
    assert rewards.max() <= 1


def test_equal_generators_give_equal_luck_whatever_the_action(contexts):
    """An upload that arrives at one quality arrives at every lower one under the same luck."""
    low = WORLD.rewards(contexts, np.full(N, 0), np.random.default_rng(5)) > 0
    high = WORLD.rewards(contexts, np.full(N, 5), np.random.default_rng(5)) > 0
    assert (low >= high).all()
    assert low.sum() > high.sum()


def test_many_at_once_equal_one_at_a_time(contexts):
    means = WORLD.means(rows(contexts, slice(0, 50)))
    singly = np.concatenate([WORLD.means(rows(contexts, slice(i, i + 1))) for i in range(50)])
    np.testing.assert_array_equal(means, singly)
    encoded = WORLD.problem.encode_many(rows(contexts, slice(0, 50)))
    by_mapping = [WORLD.problem.encode({k: c[i].item() for k, c in contexts.items()}) for i in range(50)]
    np.testing.assert_array_equal(encoded, by_mapping)


def test_connections_and_countries_drive_bandwidth(contexts):
    log_up = np.log(contexts["up_kbps"])
    medians = [np.median(log_up[contexts["connection"] == c]) for c in ("2g", "3g", "4g", "5g")]
    assert medians == sorted(medians)
    wifi = contexts["connection"] == "wifi"
    assert np.median(log_up[wifi & (contexts["country"] == "JP")]) > np.median(
        log_up[wifi & (contexts["country"] == "IN")]
    )
    assert np.corrcoef(log_up, np.log(contexts["down_kbps"]))[0, 1] > 0.8


def test_there_is_something_to_learn(contexts):
    """Uniform, the best fixed action, a linear reading of the context, and the best possible are clearly apart."""
    means = WORLD.means(contexts)
    features = np.column_stack([WORLD.problem.encode_many(contexts), np.ones(N)])
    half = N // 2
    weights = np.linalg.lstsq(features[:half], means[:half], rcond=None)[0]
    linear = means[half:][np.arange(half), (features[half:] @ weights).argmax(axis=1)].mean()
    uniform, fixed, best = means.mean(), means.mean(axis=0).max(), means.max(axis=1).mean()
    assert uniform + 0.05 < fixed
    assert fixed + 0.05 < linear
    assert linear + 0.01 < best


def test_equal_seeds_give_equal_requests(contexts):
    again = WORLD.contexts(N, np.random.default_rng(1))
    assert again.keys() == contexts.keys()
    for name in contexts:
        np.testing.assert_array_equal(again[name], contexts[name])
