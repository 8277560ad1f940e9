"""Problems whose action is a number: known best actions, equal noise for all, and tables as doses."""

import numpy as np
import polars as pl
import pytest

from potstill.errors import LabError
from potstill.keys import Key
from potstill.lab.problems import NUMBERS, Bidding, OwnTable, Pricing, Simulation, TableDose, find_scenario
from potstill.policy import Policy


@pytest.mark.parametrize("environment", [Pricing(), Bidding()], ids=["pricing", "bidding"])
def test_regrets_are_of_the_expected_reward(environment):
    """The mean of 4,000 rewards is within five standard errors of the expectation behind the regret (false alarm 6e-7),
    and no number of a grid is better than the best."""
    rng = np.random.default_rng(0)
    space = environment.problem.actions
    one = {name: np.repeat(column, 4000, axis=0) for name, column in environment.contexts(1, rng).items()}
    numbers = space.from_unit(np.linspace(0, 1, 4000))
    regrets = environment.regrets(one, numbers)
    assert regrets.min() >= 0
    assert regrets.min() < 1e-3 * regrets.max()
    best, worst = np.full(4000, numbers[regrets.argmin()]), np.full(4000, numbers[regrets.argmax()])
    rewards = [environment.rewards(one, each, np.random.default_rng(1)) for each in (best, worst)]
    difference = rewards[0] - rewards[1]
    gap = regrets.max() - regrets.min()
    assert abs(difference.mean() - gap) < 5 * difference.std() / np.sqrt(4000)


@pytest.mark.parametrize("environment", [Pricing(), Bidding()], ids=["pricing", "bidding"])
def test_the_best_number_depends_on_the_context(environment):
    contexts = environment.contexts(50, np.random.default_rng(2))
    space = environment.problem.actions
    grid = space.from_unit(np.linspace(0, 1, 200))
    best = grid[np.argmin([environment.regrets(contexts, np.full(50, a)) for a in grid], axis=0)]
    assert best.max() > 2 * best.min()


def test_a_trial_of_uniform_numbers_has_the_regret_of_its_rows():
    environment = Pricing()
    world = Simulation(environment, 300, Key(0))
    uniform = Policy.uniform(environment.problem)
    batch = world.batch(300, lambda x: uniform.decide_many(x, [str(i) for i in range(300)]))
    assert batch.observations.actions.dtype == np.float64
    assert batch.regret > 0
    again = Simulation(environment, 300, Key(0)).batch(
        300, lambda x: uniform.decide_many(x, [str(i) for i in range(300)])
    )
    np.testing.assert_array_equal(again.observations.rewards, batch.observations.rewards)


def test_a_column_of_a_table_is_a_dose(tmp_path):
    rng = np.random.default_rng(3)
    x = rng.random(60)
    pl.DataFrame({"x": x, "amount": 10 + 5 * x}).write_csv(tmp_path / "t.csv")
    found = find_scenario(str(tmp_path / "t.csv"), OwnTable(dose="amount"))
    environment = found.environment()
    assert isinstance(environment, TableDose)
    contexts = environment.contexts(60, rng)
    right = 10 + 5 * x[contexts["row"]]
    np.testing.assert_allclose(environment.regrets(contexts, right), 0, atol=1e-9)
    np.testing.assert_allclose(environment.rewards(contexts, right, rng), 1, atol=1e-9)
    assert found.options == ("--dose", "amount")
    with pytest.raises(LabError, match="--target amount and --dose amount exclude each other"):
        find_scenario(str(tmp_path / "t.csv"), OwnTable(dose="amount", target="amount"))
    with pytest.raises(LabError, match="--dose COLUMN for the amount as a number"):
        find_scenario(str(tmp_path / "t.csv"), OwnTable())


def test_the_problems_are_listed():
    assert list(NUMBERS) == ["warfarin-dose", "pricing", "bidding"]
