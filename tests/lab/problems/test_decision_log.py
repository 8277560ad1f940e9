"""Logs of decisions that were not uniformly random, replayed by rejection."""

import json

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from potstill.cli import app
from potstill.errors import LabError
from potstill.keys import Key
from potstill.lab.problems.decision_log import DecisionLog
from potstill.lab.problems.replay import Replay

ACTIONS = np.array(["a", "b", "c"])
#: Propensities of the logging policy, by context, and what actions earn.
P = np.array([[0.6, 0.3, 0.1], [0.2, 0.2, 0.6]])
EARNS = np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])


def logged(rows=3_000, seed=0, heads=0.4):
    rng = np.random.default_rng(seed)
    context = (rng.random(rows) < heads).astype(int)
    action = (rng.random((rows, 1)) > P[context].cumsum(axis=1)).sum(axis=1)
    return pl.DataFrame(
        {
            "heads": context.astype(bool),
            "did": ACTIONS[action],
            "got": EARNS[context, action],
            "p": P[context, action],
        }
    )


def of(table, propensity="p", **more):
    return DecisionLog(table, action="did", reward="got", propensity=propensity, **more)


def test_kept_rows_are_as_if_uniformly_random():
    """Shares of actions by context; 4.5 standard deviations of six shares: a false alarm in 1 of 24,000 runs."""
    log = of(logged(60_000))
    assert log.least == pytest.approx(0.1)
    (kept,) = log.parts(Key(1))
    heads = kept.contexts[:, 0] > 0.5
    for context in (False, True):
        actions = kept.actions[heads == context]
        shares = np.bincount(actions, minlength=3) / len(actions)
        np.testing.assert_allclose(shares, 1 / 3, atol=4.5 * np.sqrt(2 / 9 / len(actions)))
    # Contexts are as often as in the log: each row counts with the same probability.
    assert heads.mean() == pytest.approx(0.4, abs=4.5 * np.sqrt(0.24 / len(kept)))


def test_replay_gives_the_value_of_another_policy():
    """Always "c" earns 2 + 3·heads; replay without propensities would give P(heads | logged c) instead, 0.8."""
    log = of(logged(60_000))
    replay, n = Replay(log.problem, log.parts(Key(2))), 4_000
    earned = 0.0
    for _ in range(4):
        batch = replay.batch(n // 4, lambda x: (np.full(len(x), 2), np.ones(len(x), np.float32)))
        earned += batch.observations.rewards.sum()
    # 3.2 with a standard deviation of 3·√0.24 for each; five standard errors: a false alarm in 1 of 1.7 million runs.
    assert earned / n == pytest.approx(2 + 3 * 0.4, abs=5 * 3 * np.sqrt(0.24 / n))
    plain = logged(60_000).filter(pl.col("did") == "c")["got"].mean()
    assert plain == pytest.approx(4.4, abs=0.1)


def test_equal_keys_keep_equal_rows_and_the_order_is_the_keys():
    log = of(logged())
    (one,), (again,), (other,) = (tuple(log.parts(Key(seed))) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one.rewards, again.rewards)
    assert len(one) != len(other) or not np.array_equal(one.rewards, other.rewards)


def test_a_uniform_log_needs_no_propensities_and_loses_no_row():
    table = pl.DataFrame({"x": np.arange(600.0), "did": ["a", "b"] * 300, "got": [0, 1, 1] * 200})
    log = of(table, propensity=None)
    assert log.least == 0.5
    assert sum(len(part) for part in log.parts(Key(0))) == 600
    assert log.problem.reward.low == 0
    assert [feature.name for feature in log.problem.context] == ["x"]


def test_decisions_that_a_log_cannot_give_are_refused():
    log = of(logged())
    # 3,000 rows that count with probability 0.1: 300 less four standard deviations of √270.
    assert log.most_decisions == 234
    log.check_decisions(300, "log.csv")
    with pytest.raises(LabError, match=r"log.csv: 301 decisions take about 3,010 logged rows, and the log has 3,000"):
        log.check_decisions(301, "log.csv")


def broken(**columns):
    return logged(300).with_columns(**columns)


@pytest.mark.parametrize(
    ("table", "options", "said"),
    [
        (broken(), {"propensity": "q"}, "there is no column 'q'; the columns are heads, did, got, p"),
        (broken(), {"propensity": "got"}, "'got' is named twice"),
        (broken(got=pl.lit(1.0)), {}, "every reward in column 'got' is 1; there is nothing to learn"),
        (broken(got=pl.lit("x")), {}, "column 'got' holds no rewards"),
        (broken(did=pl.lit("a")), {}, "column 'did' names 1 actions; replay needs 2 to 1,000"),
        (broken(p=pl.when(pl.int_range(pl.len()) == 7).then(0.0).otherwise("p")), {}, "row 7: .*got 0"),
        (
            broken(got=pl.when(pl.int_range(pl.len()) == 9).then(None).otherwise("got")),
            {},
            "row 9: got must be a number from 0 to 5, got null",
        ),
        (broken(p=pl.lit(0.5)), {}, "'p' does not hold the probabilities of the logged actions"),
        (logged(), {"propensity": None}, "uniformly random decisions; name the column .* with --propensity"),
        (broken().head(0), {}, "it has no rows"),
    ],
)
def test_bad_logs_are_refused(table, options, said):
    with pytest.raises(ValueError, match=said):
        of(table, **options)


PLAIN = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}


def run(*arguments):
    return CliRunner(env=PLAIN).invoke(app, ["lab", "run", *map(str, arguments)])


def test_a_log_runs_from_the_command_line_and_can_be_reproduced(tmp_path):
    path = tmp_path / "clicks.csv"
    logged().write_csv(path)
    columns = ("--action", "did", "--reward", "got", "--propensity", "p")
    end = ("--algorithms", "uniform,linear-ts", "--preset", "paper", "--trials", 2, "--jobs", 1, "--batch", 60)
    done = run("--log", path, *columns, *end, "--out", tmp_path / "out", "--json")
    assert done.exit_code == 0, done.output
    rows = {row["algorithm"]: row for row in json.loads(done.stdout)["rows"]}
    assert rows["linear-ts"]["measure"] == "reward"
    # The best action of both contexts earns 2 + 3·0.4, and a uniform one 1 less; the first of four batches is uniform.
    assert rows["linear-ts"]["final"]["mean"] > rows["uniform"]["final"]["mean"] + 0.3
    kept = json.loads((tmp_path / "out/clicks.csv/paper/uniform/0001.json").read_text())
    assert kept["decisions"] == [60, 60, 60, 54]
    settings = json.loads((tmp_path / "out" / "settings.json").read_text())
    assert settings["problems"]["clicks.csv"]["options"] == ["--action", "did", "--reward", "got", "--propensity", "p"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--log", "{log}"), "name the columns of the log with --action COLUMN and --reward COLUMN"),
        (("--log", "{log}", "--action", "did"), "name the columns of the log with --action COLUMN and --reward"),
        (
            ("--problem", "{log}", "--action", "did"),
            "a log of decisions needs --action COLUMN and --reward COLUMN; --rew",
        ),
        (("--problem", "{log}", "--label", "did", "--propensity", "p"), "--action is missing"),
        (("--log", "{log}", "--action", "did", "--reward", "got", "--label", "p"), "exclude each other; give one"),
        (("--problem", "wheel", "--propensity", "p"), "are for a table of your own, not for wheel"),
        (("--log", "no.csv", "--action", "did", "--reward", "got"), "no.csv: there is no such file"),
        (("--log", "{log}", "--action", "did", "--reward", "got", "--decisions", 2_000), "--propensity"),
        (
            ("--log", "{log}", "--action", "did", "--reward", "got", "--propensity", "p", "--decisions", 2_000),
            "2,000 decisions take about 20,000 logged rows, and the log has 3,000",
        ),
    ],
)
def test_bad_options_are_refused(tmp_path, options, said):
    path = tmp_path / "log.csv"
    logged().write_csv(path)
    done = run(*(str(word).format(log=path) for word in options), "--out", tmp_path / "out")
    assert done.exit_code == 1
    assert said in " ".join(done.output.split())
