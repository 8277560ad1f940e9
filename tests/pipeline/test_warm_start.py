"""Historical logs as observations: with or without propensities, once, and never in part."""

import msgspec
import numpy as np
import polars as pl
import pytest
import tomli_w
from worlds import LATER, contexts, made, rate, reward

import potstill as ps
from potstill.events.lake import read_observations
from potstill.keys import Key
from potstill.pipeline.update import run_update
from potstill.pipeline.warm_start import import_history
from potstill.problem import InvalidObservation
from potstill.tables import Columns
from potstill.workspace import Workspace


def history(n=300, **columns):
    rng = Key(1).generator()
    rows = contexts(n, seed=4)
    actions = [str(a) for a in rng.choice(["360p", "720p", "1080p"], n, p=[0.5, 0.25, 0.25])]
    rewards = [reward(row, action) for row, action in zip(rows, actions, strict=True)]
    frame = pl.DataFrame(rows).with_columns(action=pl.Series(actions), reward=pl.Series(rewards))
    return frame.with_columns(**columns)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_policy_starts_from_what_others_did(tmp_path, place, ending):
    workspace = made(place if "://" in place else f"{place}/w")
    log = str(tmp_path / f"log.{ending}")
    frame = history(p=pl.lit(1 / 3)).rename({"action": "quality"})
    frame.write_csv(log) if ending == "csv" else frame.write_parquet(log)
    found = import_history(workspace, log, Columns(action="quality", propensity="p"))
    assert (found.rows, found.observations, found.skipped, found.estimated) == (300, 300, 0, False)
    [observations] = read_observations(workspace.lake, workspace.problem, 0, found.cut)
    assert observations.rewards.tolist() == frame["reward"].to_list()
    assert (observations.contexts == workspace.problem.encode_many(contexts(300, seed=4))).all()
    report = run_update(workspace, now=LATER)
    assert (report.outcome, report.observations) == ("published", 300)
    assert rate(workspace.serving()) > 0.7


def test_without_propensities_shares_stand_in_for_them(tmp_path):
    workspace = made(str(tmp_path / "w"))
    frame = history()
    frame.write_csv(tmp_path / "log.csv")
    found = import_history(workspace, str(tmp_path / "log.csv"), Columns(propensity=None))
    assert found.estimated
    shares = {action: n / 300 for action, n in frame.group_by("action").len().rows()}
    stored = workspace.lake.scan("observations").collect()
    assert dict(stored.select("action", "propensity").unique().rows()) == shares
    assert set(stored["source"]) == {"import-estimated"}
    assert all(stored[name].null_count() == 300 for name in ("arm", "unit", "eligible", "metrics"))


def test_a_constant_propensity_that_cannot_be_is_refused(tmp_path):
    workspace = made(str(tmp_path / "w"))
    history(1_000).write_csv(tmp_path / "log.csv")
    with pytest.raises(
        InvalidObservation, match=r"'360p' was taken in .* % of 1,000 rows. If the propensity was 0.333 in"
    ):
        import_history(workspace, str(tmp_path / "log.csv"), Columns(propensity=0.333))
    assert import_history(workspace, str(tmp_path / "log.csv"), Columns(propensity=0.5)).observations == 1_000


def test_the_same_log_is_imported_once(tmp_path):
    workspace = made(str(tmp_path / "w"))
    history().write_csv(tmp_path / "log.csv")
    import_history(workspace, str(tmp_path / "log.csv"), Columns(propensity=None))
    with pytest.raises(ValueError, match="was imported before, as cut 1"):
        import_history(workspace, str(tmp_path / "log.csv"), Columns(propensity=None))
    assert len(workspace.lake.scan("observations").collect()) == 300


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"action": pl.lit("8k")}, "row 0: action must be one of 360p, 720p, 1080p, got 8k"),
        ({"reward": pl.lit(None, pl.Float64)}, "row 0: reward must be a number from -1e+100 to 1e+100, got null"),
        ({"reward": pl.lit(float("nan"))}, "row 0: reward must be a number"),
        (
            {"bandwidth_kbps": pl.lit("fast")},
            "row 0: bandwidth_kbps must be a finite number, got fast",
        ),
        ({"propensity": pl.lit(0.0)}, "row 0: propensity must be a probability above 0 and at most 1, got 0.0"),
        (
            {"time": pl.lit("yesterday")},
            "row 0: time must be a time from 1970 to 2199, as ISO",
        ),
    ],
)
def test_rows_that_do_not_fit_are_named_and_nothing_is_added(tmp_path, columns, said):
    workspace = made(str(tmp_path / "w"))
    history(**columns).write_csv(tmp_path / "log.csv")
    named = {name: name for name in ("propensity", "time") if name in columns}
    with pytest.raises(InvalidObservation, match=r"and 295 more rows\. .* Nothing was added") as refused:
        import_history(workspace, str(tmp_path / "log.csv"), Columns(**{"propensity": None} | named))
    assert said in str(refused.value)
    assert workspace.lake.version("observations") is None
    assert not (tmp_path / "w" / "events" / "cuts").exists()


def test_rows_that_do_not_fit_can_be_left_out(tmp_path):
    workspace = made(str(tmp_path / "w"))
    odd = pl.int_range(pl.len()) % 3 == 0
    history(action=pl.when(odd).then(pl.lit("8k")).otherwise("action")).write_csv(tmp_path / "log.csv")
    found = import_history(workspace, str(tmp_path / "log.csv"), Columns(propensity=None), skip=True)
    assert (found.rows, found.observations, found.skipped) == (300, 200, 100)
    assert len(workspace.lake.scan("observations").collect()) == 200


def test_a_missing_column_is_named_with_the_way_out(tmp_path):
    workspace = made(str(tmp_path / "w"))
    history().drop("bandwidth_kbps").write_csv(tmp_path / "log.csv")
    with pytest.raises(InvalidObservation, match=r"there is no column 'bandwidth_kbps'; .* --feature bandwidth_kbps="):
        import_history(workspace, str(tmp_path / "log.csv"), Columns(propensity=None))
    with pytest.raises(InvalidObservation, match="there is no column 'quality'; name the right one with --action"):
        import_history(workspace, str(tmp_path / "log.csv"), Columns(action="quality", propensity=None))


def test_times_keep_their_order_and_may_be_seconds_or_iso(tmp_path):
    for i, moments in enumerate((pl.int_range(1_700_000_300, 1_700_000_000, -1), pl.lit("2023-11-14T22:13:20Z"))):
        workspace = made(str(tmp_path / f"w{i}"))
        history(time=moments).write_csv(tmp_path / f"log{i}.csv")
        import_history(workspace, str(tmp_path / f"log{i}.csv"), Columns(time="time", propensity=None))
        stored = workspace.lake.scan("observations").collect()
        assert stored["day"].unique().to_list() == [stored["time"][0].date()]
        assert stored["time"].dt.year().unique().to_list() == [2023]


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_without_densities_a_histogram_of_the_numbers_stands_in_for_them(tmp_path, scale):
    """Prices are uniform on the lower half of the scale: the density is twice the uniform one there, about."""
    number = ps.Continuous("price", 1, 16, scale)
    problem = ps.Problem(name="p", context=[], actions=number)
    text = tomli_w.dumps(msgspec.to_builtins(problem)).encode()
    workspace = Workspace.create(str(tmp_path / "w"), text, b"")
    prices = number.from_unit(Key(2).generator().random(4000) / 2)
    pl.DataFrame({"price": prices, "reward": 1.0}).write_parquet(tmp_path / "log.parquet")
    found = import_history(workspace, str(tmp_path / "log.parquet"), Columns(action="price", propensity=None))
    assert found.estimated
    stored = workspace.lake.scan("observations").collect()
    assert set(stored["source"]) == {"import-estimated"}
    truth = 2 * number.stretch(stored["action"].to_numpy())
    error = np.abs(stored["propensity"].to_numpy() / truth - 1)
    assert error.max() < 0.3  # a bin of 500 prices is off by 5 %, and a log scale bends the density within it by 9 %
