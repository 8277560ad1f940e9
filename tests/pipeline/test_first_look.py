"""A first look: the value of a policy on rows that it has not seen, against a simulation whose truth is known."""

import numpy as np
import polars as pl
import pytest

import potstill as ps
from potstill.errors import InvalidLog
from potstill.pipeline import run_first_look
from potstill.tables import Columns, read_history
from potstill.teachers import LinearTS

ROWS = 4_000


def decisions(seed=0, rows=ROWS):
    """The better action is 'b' where x > 0.5, else 'a'; each is worth 1 there and 0 elsewhere, with noise."""
    rng = np.random.default_rng(seed)
    x, p = rng.random(rows), rng.uniform(0.2, 0.8, rows)
    b = rng.random(rows) < p
    reward = ((x > 0.5) == b) + 0.5 * rng.normal(size=rows)
    at = np.arange(rows) * 60
    return pl.DataFrame(
        {"x": x, "y": rng.random(rows), "action": np.where(b, "b", "a"), "reward": reward, "at": at}
    ).with_columns(propensity=pl.Series(np.where(b, p, 1 - p)))


def looked(tmp_path, frame, propensity="propensity", time="at", **options):
    frame.write_csv(tmp_path / "t.csv")
    columns = Columns(propensity=propensity, time=time)
    without = () if propensity == "propensity" else ("propensity",)
    history = read_history(str(tmp_path / "t.csv"), columns, "look", without=without)
    return run_first_look(history, LinearTS(), **options).look


def test_the_value_on_later_rows_is_that_of_the_simulation(tmp_path):
    look = looked(tmp_path, decisions())
    assert (look.rows, look.learnt_from, look.by_time) == (ROWS, 3_200, True)
    # The best policy earns 1 and the log ½; a linear one misses little beside x = 0.5. Two standard errors are 0.1.
    assert look.evaluation.rows == 800
    assert look.evaluation.estimate.value == pytest.approx(0.95, abs=0.12)
    interval = look.evaluation.difference["dr"].intervals["likelihood"]
    assert 0.2 < interval.low < 0.45 < interval.high < 0.7
    assert look.evaluation.target.learnt == 0


def test_later_means_later_in_time_not_in_the_table(tmp_path):
    frame = decisions()
    backwards = frame.with_columns(reward=pl.when(pl.col("at") >= 3_200 * 60).then(-1.0).otherwise(pl.col("reward")))
    for order in (backwards, backwards.reverse(), backwards.sample(fraction=1, shuffle=True, seed=0)):
        look = looked(tmp_path, order)
        assert look.evaluation.logged.value == pytest.approx(-1)  # the last fifth, and nothing else


def test_without_propensities_they_are_estimated_and_the_answer_is_a_caution(tmp_path):
    look = looked(tmp_path, decisions(), propensity=None)
    assert look.propensities.model in ("shares", "logistic", "trees")
    assert look.evaluation.target.trust.grade != "good"
    assert look.evaluation.estimate.value == pytest.approx(0.95, abs=0.15)


def test_rows_that_do_not_fit_are_named_or_counted(tmp_path):
    frame = decisions().with_columns(propensity=pl.when(pl.col("at") == 60).then(1.5).otherwise(pl.col("propensity")))
    with pytest.raises(InvalidLog, match=r"row 1: propensity must be .*, got 1\.5"):
        looked(tmp_path, frame)
    look = looked(tmp_path, frame, skip=True)
    assert (look.rows, look.unfit) == (ROWS - 1, 1)


def test_a_handful_of_rows_is_refused(tmp_path):
    with pytest.raises(InvalidLog, match="30 rows fit, and at least 50 are needed"):
        looked(tmp_path, decisions(rows=30))


def test_numbers_without_densities_are_learnt_but_not_evaluated(tmp_path):
    frame = decisions().with_columns(action=pl.col("x") + pl.col("y"))
    frame.write_csv(tmp_path / "t.csv")
    history = read_history(str(tmp_path / "t.csv"), Columns(propensity=None), "look", without=["propensity"])
    assert isinstance(history.problem.actions, ps.Continuous)
    look = run_first_look(history).look
    assert look.evaluation is None
    assert "--density" in look.why_not
