"""The study of cadence: a queue worked out by hand, both ends of the scale, equal results for any number of jobs."""

import json
from functools import partial

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from potstill.cli import app
from potstill.keys import Key
from potstill.lab import Wheel
from potstill.lab.problems.environment import Simulation
from potstill.lab.runs.algorithms import ALGORITHMS
from potstill.lab.runs.trial import UpdateResult, play
from potstill.lab.studies import cadence_charts
from potstill.lab.studies.cadence import (
    Cadence,
    Cell,
    Delayed,
    Estimate,
    Findings,
    Outcome,
    cells,
    cost,
    outcome,
    study,
    turns_of,
)
from potstill.lab.studies.cadence_charts import Units
from potstill.parallel import parallel_map
from potstill.problem import Observations

PROBLEM = Wheel().problem
QUICK = Cadence(
    problem="wheel", decisions=600, batches=(100, 250), delays=(0, 150), trials=2, algorithm="linear-ts", seed=2
)


def _observations(first, count):
    """Observations whose rewards are the numbers of their decisions."""
    rewards = np.arange(first, first + count, dtype=float)
    return Observations(
        PROBLEM,
        np.zeros((count, 2), np.float32),
        np.zeros(count, np.int32),
        rewards,
        np.ones(count, np.float32),
    )


class _Diary:
    """An agent that writes down the rewards it is told of."""

    def __init__(self):
        self.told = []

    def choose(self, contexts):
        return np.full(len(contexts), 4), np.ones(len(contexts), np.float32)

    def learn(self, observations):
        self.told.append(observations.rewards.tolist())
        return UpdateResult(kl=1.0)


@pytest.mark.parametrize(
    ("delay", "told"),
    [
        (0, [[0, 1, 2], [3, 4, 5], [6]]),
        (1, [[0, 1], [2, 3, 4], [5]]),
        # After six decisions, 0 to 5, those up to 5 - 4 = 1 are known; after seven, those up to 2.
        (4, [[0, 1], [2]]),
        (6, [[0]]),
        (7, []),
    ],
)
def test_each_reward_is_known_so_many_decisions_later(delay, told):
    diary = _Diary()
    agent = Delayed(diary, PROBLEM, delay, seed=0)
    for first, count in ((0, 3), (3, 3), (6, 1)):
        agent.learn(_observations(first, count))
    assert diary.told == told


def test_decisions_are_uniform_until_something_is_known():
    agent = Delayed(_Diary(), PROBLEM, 2, seed=0)
    contexts = np.zeros((5000, 2), np.float32)
    assert agent.learn(_observations(0, 2)) == UpdateResult()
    actions, propensities = agent.choose(contexts)
    np.testing.assert_allclose(propensities, 0.2, rtol=1e-6)
    # Five counts of Binomial(5000, 0.2); five standard deviations are missed with probability 3e-6. The seed is fixed.
    assert (np.abs(np.bincount(actions, minlength=5) - 1000) < 5 * np.sqrt(800)).all()
    assert agent.learn(_observations(2, 1)).kl == 1.0
    assert set(agent.choose(contexts)[0]) == {4}


def _plain(cadence, algorithm, batch, trial):
    """Regret of a trial without any queue."""
    seed = Key(cadence.seed).child(cadence.problem, trial).integer()
    agent = ALGORITHMS[algorithm].make(PROBLEM, Key(seed).child("agent").integer(), cadence.preset)
    world = Simulation(Wheel(), cadence.decisions, Key(seed).child("world"))
    return sum(turn.regret for turn in play(world, agent, cadence.sizes(batch), seed))


@pytest.mark.parametrize("algorithm", ["linear-ts", "linear-ts-il"])
def test_without_delay_it_is_a_plain_trial(algorithm):
    cadence = msgspec.structs.replace(QUICK, algorithm=algorithm)
    found = outcome(Cell(cadence, Wheel, 250, 0, 1))
    assert found.regret == pytest.approx(_plain(cadence, algorithm, 250, 1), rel=1e-12)
    assert found.regret != pytest.approx(found.uniform)


@pytest.mark.parametrize("algorithm", ["linear-ts", "linear-ts-il"])
@pytest.mark.parametrize(("batch", "delay"), [(100, 600), (100, 10**9), (600, 0), (5000, 0)])
def test_what_is_never_learnt_from_is_uniform_choice(algorithm, batch, delay):
    cadence = msgspec.structs.replace(QUICK, algorithm=algorithm)
    found = outcome(Cell(cadence, Wheel, batch, delay, 0))
    assert found.regret == found.uniform == pytest.approx(_plain(cadence, "uniform", batch, 0), rel=1e-12)
    assert found.seconds == 0


def test_one_reward_in_time_for_the_last_batch_is_learnt():
    """Of 600 decisions in batches of 100, the last update comes after 500: a delay of 499 lets it know one reward."""
    turns = turns_of(Cell(QUICK, Wheel, 100, 499, 0), "linear-ts")
    assert [bool(turn.learned.seconds) for turn in turns] == [False, False, False, False, True, False]
    assert not any(turn.learned.seconds for turn in turns_of(Cell(QUICK, Wheel, 100, 500, 0), "linear-ts"))


def _found(outcomes):
    return [msgspec.structs.replace(one, seconds=0.0) for one in outcomes]


def test_results_are_equal_for_any_number_of_jobs():
    tasks = cells(QUICK, Wheel)
    steps = []
    two = parallel_map(outcome, tasks, jobs=2, steps=QUICK.steps, on_progress=steps.append)
    one = parallel_map(outcome, tasks, jobs=1, steps=QUICK.steps)
    assert _found(one) == _found(two)
    assert steps == sorted(steps)
    assert steps[-1] == QUICK.steps == (6 + 3) * 2 * 2
    assert [(o.batch, o.delay, o.trial) for o in one] == [(t.batch, t.delay, t.trial) for t in tasks]


def test_a_task_that_fails_says_so():
    with pytest.raises(ValueError, match="delta must be from 0 to below 1, got 2"):
        parallel_map(outcome, [Cell(QUICK, partial(Wheel, 2), 100, 0, 0)], jobs=1, steps=1)


def test_a_cost_is_paired_by_trial():
    base, more = [100.0, 300.0], [110.0, 330.0]
    assert cost(more, base) == pytest.approx((0.1, 0.0))  # each trial by the same tenth: no doubt at all
    share, two_se = cost([110.0, 310.0], base)
    assert share == pytest.approx(0.05)
    # Residuals 10 - 0.05·100 = 5 and 10 - 0.05·300 = -5: s = 7.07, over √2 and 200, twice.
    assert two_se == pytest.approx(2 * 5 / 200)
    assert cost([120.0], [100.0]) == (pytest.approx(0.2), None)


def _made_up(regrets, trials=3):
    """Findings with given regrets by (batch, delay), which no trial differs in."""
    batches, delays = (sorted({cell[i] for cell in regrets}) for i in (0, 1))
    cadence = msgspec.structs.replace(QUICK, batches=tuple(batches), delays=tuple(delays), trials=trials)
    return Findings.of(
        cadence,
        [
            Outcome(batch=batch, delay=delay, trial=trial, regret=regret, uniform=500.0, seconds=2.0)
            for (batch, delay), regret in regrets.items()
            for trial in range(trials)
        ],
    )


def test_advice_is_the_longest_period_that_costs_little():
    found = _made_up(
        {(50, 0): 100.0, (100, 0): 104.0, (200, 0): 130.0, (50, 9): 200.0, (100, 9): 220.0, (200, 9): 230.0}
    )
    assert found.advised(0).batch == 100
    assert found.advised(9).batch == 50
    first, second = cadence_charts.advice(found, Units())
    assert "updating every 100 decisions costs 4.0 ± 0.0 % more regret than every 50 decisions, for 50 %" in first
    assert (
        "With rewards delayed by 9 decisions, update every 50 decisions: every 100 decisions costs 10.0 ± 0.0 %"
        in second
    )
    assert [row.cost.mean for row in found.with_delay(9)] == pytest.approx([1.0, 1.2, 1.3])


def test_where_chance_could_be_behind_it_advice_says_so():
    found = _made_up({(50, 0): 100.0, (100, 0): 104.0})
    doubtful = [msgspec.structs.replace(row, cost_of_batch=Estimate(0.04, 0.03)) for row in found.rows]
    found = msgspec.structs.replace(found, rows=[found.rows[0], doubtful[1]])
    assert (
        "the trials are inconclusive: every 100 decisions costs 4.0 ± 3.0 % more"
        in cadence_charts.advice(found, Units())[0]
    )


def test_one_trial_gives_no_advice():
    assert (
        "one trial gives no standard error"
        in cadence_charts.advice(_made_up({(50, 0): 100.0, (100, 0): 100.0}, 1), Units())[0]
    )


@pytest.mark.parametrize(
    ("decisions", "text"), [(0, "0"), (1000, "1,000 (29 min)"), (20, "20 (35 s)"), (25_000, "25,000 (12.0 h)")]
)
def test_decisions_are_told_as_time(decisions, text):
    assert Units(50_000).span(decisions) == text
    assert Units().span(decisions) == f"{decisions:,}"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batches": (1,)}, "batches of 1 mean 20,000 updates in each trial, .* give batches of 20 or more"),
        ({"batches": (0,)}, "batches must be integers of 1 or more in ascending order"),
        ({"delays": (-1,)}, "delays must be integers of 0 or more in ascending order"),
        ({"trials": 0}, "trials must be 1 or more, got 0"),
        ({"algorithm": "oracle"}, "unknown algorithm 'oracle' in preset potstill; there are uniform, "),
        ({"preset": "best"}, "unknown preset 'best'; the presets are paper, paper-fresh, potstill"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Cadence(**wrong)


def test_single_decisions_may_be_batches_of_short_trials():
    assert Cadence(batches=(1,), decisions=300).sizes(1) == [1] * 300


def test_the_command_writes_what_it_found(tmp_path):
    options = "--problem wheel --algorithm linear-ts --decisions 400 --batches 100,1000 --delays 0,9000 --trials 2"
    command = ["lab", "cadence", *options.split(), "--jobs", "1", "--per-day", "2000", "--out", str(tmp_path), "--json"]
    ran = CliRunner().invoke(app, command)
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    by_cell = {(row["batch"], row["delay"]): row["regret"][0] for row in found["rows"]}
    assert by_cell[1000, 0] == by_cell[1000, 9000]
    assert "no reward arrives in time to learn within 400 decisions (4.8 h)" in found["advice"][1]
    assert {path.name for path in tmp_path.iterdir()} == {
        "cadence.html", "cadence.json", "cadence-grid.png", "cadence-trade.png",
    }  # fmt: skip
    again = msgspec.json.decode((tmp_path / "cadence.json").read_bytes(), type=Findings)
    assert again == msgspec.convert({k: v for k, v in found.items() if k != "advice"}, Findings)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--problem", "wheel", "--label", "x"], "are for a table of your own, not for wheel"),
        (["--batches", "a"], "--batches must be integers separated by commas, such as 100,1000; got 'a'"),
        (["--problem", "wheels"], "unknown problem 'wheels'"),
        (["--batches", "1"], "batches of 1 mean 20,000 updates"),
    ],
)
def test_the_command_refuses_in_one_line(options, message, tmp_path):
    ran = CliRunner().invoke(app, ["lab", "cadence", *options, "--out", str(tmp_path)])
    assert ran.exit_code == 1
    assert message in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1


def test_a_study_in_this_process_is_the_same():
    here = study(QUICK, Wheel, map)
    assert here.rows[0].cost == (0, 0)
    assert here.rows[0].regret.mean < here.uniform.mean
