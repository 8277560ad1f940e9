"""Mushrooms earn what the paper says."""

import numpy as np
import pytest
from real_data import needs

from potstill.lab.problems import data
from potstill.lab.problems.environment import regrets
from potstill.lab.problems.mushroom import COLUMNS, mushroom, read

EDIBLE, POISONOUS = 4208, 3916
ABSTAIN, EAT = 0, 1


@pytest.fixture
def two(tmp_path):
    """An edible mushroom and a poisonous one."""
    path = tmp_path / "two.data"
    path.write_text("e" + ",x" * 22 + "\np" + ",y" * 22 + "\n")
    return read(path)


def test_what_the_two_kinds_earn(two):
    assert two.problem.actions.names == ("abstain", "eat")
    np.testing.assert_array_equal(two.means({"row": np.array([0, 1])}), [[0, 5], [0, -15]])


def test_a_poisonous_one_harms_every_second_time(two):
    n, rng = 10_000, np.random.default_rng(0)
    earned = two.rewards({"row": np.ones(n, int)}, np.full(n, EAT), rng)
    assert set(earned) == {5, -35}
    # Five standard deviations of a binomial: a right program fails with probability 6e-7, over all seeds.
    assert abs((earned == 5).sum() - n / 2) < 5 * np.sqrt(n / 4)


def test_an_edible_one_never_harms_and_abstaining_is_safe(two):
    rows = np.arange(1000) % 2
    earned = two.rewards({"row": rows}, np.where(rows == 0, EAT, ABSTAIN), np.random.default_rng(1))
    np.testing.assert_array_equal(earned, np.where(rows == 0, 5, 0))


@needs(data.MUSHROOM)
def test_117_values_and_a_column_for_unseen_ones_in_each_feature():
    problem = mushroom().problem
    assert tuple(feature.name for feature in problem.context) == COLUMNS[1:]
    assert sum(len(feature.values) for feature in problem.context) == 117
    assert problem.width == 117 + 22
    encoded = mushroom().encode({"row": np.arange(mushroom().rows)})
    np.testing.assert_array_equal(encoded.sum(axis=1), 22)
    unseen = [label.endswith("<unseen>") for label in problem.labels]
    assert not encoded[:, unseen].any()
    assert encoded[:, problem.labels.index("stalk-root=?")].sum() == 2480


@needs(data.MUSHROOM)
def test_always_eating_and_the_perfect_policy_earn_what_the_counts_say():
    rows = {"row": np.arange(EDIBLE + POISONOUS)}
    assert mushroom().rows == EDIBLE + POISONOUS
    means = mushroom().means(rows)
    assert means[:, EAT].sum() == 5 * EDIBLE - 15 * POISONOUS
    assert means.max(axis=1).sum() == 5 * EDIBLE
    assert regrets(means, means.argmax(axis=1)).max() == 0
    assert regrets(means, np.full(len(means), EAT)).sum() == 15 * POISONOUS
    assert regrets(means, np.full(len(means), ABSTAIN)).sum() == 5 * EDIBLE


@needs(data.MUSHROOM)
def test_drawn_rewards_average_to_the_means():
    n, rng = 50_000, np.random.default_rng(2)
    contexts = mushroom().contexts(n, rng)
    earned = mushroom().rewards(contexts, np.full(n, EAT), rng)
    expected = (5 * EDIBLE - 15 * POISONOUS) / (EDIBLE + POISONOUS)
    # Five standard errors: a right program fails with probability 6e-7, over all seeds.
    assert abs(earned.mean() - expected) < 5 * earned.std() / np.sqrt(n)
