"""Comparisons along the curve: costs by hand, and the p-value by another implementation."""

from itertools import product

import numpy as np
import pytest

from potstill.lab.report.along import along
from potstill.lab.report.runs import Run
from potstill.lab.runs.results import Trial


def run(algorithm, regrets, **more):
    return Run(
        [
            Trial(
                problem="wheel",
                preset="paper",
                algorithm=algorithm,
                trial=number,
                seed=number,
                decisions=[10] * len(row),
                **{"reward": [5.0] * len(row), "regret": list(map(float, row)), **more},
            )
            for number, row in enumerate(regrets)
        ]
    )


def test_the_cost_so_far_is_a_share_of_the_final_regret():
    taught_by = run("linear-ts", [[4, 3, 3]] * 6)
    policy = run("linear-ts-il", [[4, 4 + i, 1] for i in (0, 1, 0, 1, 0, 1)])
    found = along(policy, taught_by)
    # After two batches 1 or 2 of 10 were lost more; after three 2 less of that.
    assert found.decisions == [10, 20, 30]
    np.testing.assert_allclose(found.cost, [0, 0.15, -0.05])
    assert found.two_se[0] == 0
    np.testing.assert_allclose(found.two_se[1], 2 * np.std([0.1, 0.2] * 3, ddof=1) / np.sqrt(6))
    assert (found.at, found.worst) == (20, pytest.approx(0.15))


def test_a_cost_that_is_gone_at_the_end_is_found():
    rng = np.random.default_rng(0)
    late = rng.normal(0, 1, (10, 1))
    taught_by = run("linear-ts", np.full((10, 3), 10.0))
    policy = run("linear-ts-il", np.hstack([np.full((10, 1), 10.0), 14 + 0.1 * late, 6 + late]))
    found = along(policy, taught_by)
    assert found.at == 20
    assert found.p == 2 / 2**10  # the trials as they were, and all signs turned


def test_p_is_the_share_of_sign_flips_with_a_distance_as_large():
    rng = np.random.default_rng(1)
    differences = rng.normal(0.1, 1, (6, 4)).cumsum(axis=1)
    taught_by, policy = (
        run("linear-ts", np.full((6, 4), 50.0)),
        run("linear-ts-il", 50 + np.diff(differences, prepend=0)),
    )
    distances = []
    for signs in product((1, -1), repeat=6):
        flipped = differences * np.array(signs)[:, None]
        distances.append(np.max(np.abs(flipped.mean(axis=0)) / (flipped.std(axis=0, ddof=1) / np.sqrt(6))))
    assert along(policy, taught_by).p == pytest.approx(np.mean(np.array(distances) >= distances[0] - 1e-9))


def test_p_is_uniform_if_nothing_differs():
    """Of 200 comparisons without a difference about 5 % have p ≤ 0.05; more than 22 has a probability below 1e-4."""
    rng, small = np.random.default_rng(2), 0
    for _ in range(200):
        curves = rng.normal(0, 1, (7, 5))
        small += along(run("linear-ts-il", 10 + curves), run("linear-ts", np.full((7, 5), 10.0))).p <= 0.05
    assert small <= 22


def test_mean_rewards_cost_when_they_are_lower():
    taught_by = run("linear-ts", [[0, 0]] * 5, regret=None, reward=[5.0, 5.0])
    policy = run("linear-ts-il", [[0, 0]] * 5, regret=None, reward=[5.0, 4.0])
    np.testing.assert_allclose(along(policy, taught_by).cost, [0, 0.1])


def test_too_few_trials_are_not_compared():
    assert along(run("linear-ts-il", [[1, 2]] * 4), run("linear-ts", [[1, 2]] * 4)) is None
