"""`potstill evaluate`, as a newcomer types it."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import worlds
from typer.testing import CliRunner

import potstill as ps
from potstill.cli import app
from potstill.events import now
from potstill.events.join import join
from potstill.policy.artifact import Lineage
from potstill.policy.network import Layer
from potstill.workspace import Workspace

DAY = 24 * worlds.HOUR


def run(*arguments):
    runner = CliRunner(env={"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"})
    return runner.invoke(app, [str(argument) for argument in arguments])


def done(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def figures(*arguments):
    return json.loads(done(*arguments, "--json"))


def tilted(workspace, version, towards):
    """A policy that mostly does one thing."""
    bias = np.zeros(3, np.float32)
    bias[towards] = 1.5
    layers = [Layer(np.zeros((workspace.problem.width, 3), np.float32), bias)]
    lineage = Lineage(library="0", origin={"cut": 1}) if version == 1 else None
    return ps.Policy.build(workspace.problem, layers, version=version, parent=version - 1, lineage=lineage)


def joined(workspace):
    from potstill.events.lake import Flusher
    from potstill.events.wal import Spool

    Flusher(Spool(workspace.spool), workspace.lake).flush()
    join(workspace.lake, workspace.cuts, workspace.problem, aggregate="last", settle=0, now=now())


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    """Version 0 decided on two days, uniformly. 1 serves, prefers 720p, and knows the first; 2 prefers 360p."""
    workspace = worlds.made(str(tmp_path_factory.mktemp("evaluate") / "video"))
    start = workspace.start()
    for day in range(2):
        worlds.log(workspace, start, 600, seed=day, at=worlds.NOON + day * DAY)
        joined(workspace)
    for version, towards in ((1, 1), (2, 0)):
        head = workspace.registry.head()
        policy = tilted(workspace, version, towards)
        workspace.registry.publish(policy, teacher=None, report=b"{}", serve=version == 1, expected=head.number)
    return workspace.url


@pytest.fixture
def empty(tmp_path):
    return worlds.made(str(tmp_path / "empty")).url


@pytest.fixture
def clicks(tmp_path):
    """A log of random banners; blue is clicked most by the young."""
    rng = np.random.default_rng(0)
    n = 2_000
    banner, age = rng.choice(["blue", "grün", "red"], n), rng.integers(18, 80, n)
    clicked = rng.random(n) < 0.2 + 0.5 * (banner == "blue") * (age < 40)
    frame = pl.DataFrame(
        {
            "banner": banner,
            "clicked": clicked.astype(int),
            "p": np.full(n, 1 / 3),
            "age": age,
            "city": rng.choice(["Köln", "Paris"], n),
            "new": np.where(age < 40, "blue", "red"),
            "new_blue": np.where(age < 40, 0.75, 0.0),
            "new_red": np.where(age < 40, 0.25, 1.0),
            "at": [f"2026-11-{1 + i % 14:02} 08:00:00" for i in range(n)],
        }
    )
    frame.write_csv(tmp_path / "clicks.csv")
    frame.write_parquet(tmp_path / "clicks.parquet")
    return str(tmp_path / "clicks.csv")


CLICKS = ("--action", "banner", "--reward", "clicked", "--propensity", "p")


# Workspaces


def test_a_version_is_compared_with_the_serving_one(video):
    found = figures("evaluate", video, "--policy", 2, "--against", "current")
    assert (found["target"]["name"], found["against"]["name"], found["rows"]) == ("policy 2", "policy 1", 1200)
    workspace = Workspace(video)
    p = workspace.registry.policy(2).probabilities_many([{"bandwidth_kbps": 1.0, "connection": "2g"}])[0]
    observed = workspace.lake.scan("observations").select("action", "reward").collect()
    weights = observed["action"].replace_strict(["360p", "720p", "1080p"], (3 * p).tolist(), return_dtype=pl.Float64)
    assert found["target"]["estimates"]["ips"]["value"] == pytest.approx((weights * observed["reward"]).mean())
    dr = found["difference"]["dr"]
    assert dr["intervals"]["likelihood"]["low"] < dr["value"] < dr["intervals"]["likelihood"]["high"]


def test_the_terminal_shows_a_table_and_a_sentence(video):
    printed = done("evaluate", video, "--policy", 2)
    assert printed.startswith(
        "policy 2 against policy 1, on 1,200 decisions from 2024-10-04 to 2024-10-05; 95 % intervals"
    )
    assert re.search(r"^dr +0\.\d+ +0\.\d+ +[−+]0\.\d+ +[−+]0\.\d+ to [−+]0\.\d+", printed, re.M)
    assert re.search(
        r"^On these 1,200 decisions, policy 2 would have earned 0\.\d+ each, 0\.\d+ less than policy 1", printed, re.M
    )
    assert "It would have been worse." in printed
    assert max(map(len, printed.split("\n\n")[0].splitlines())) <= 100


def test_what_serves_is_compared_with_what_was_done_unless_something_is_said(video):
    assert figures("evaluate", video)["against"]["name"] == "logged"
    assert figures("evaluate", video, "--policy", "current")["against"]["name"] == "logged"
    assert figures("evaluate", video, "--policy", 1)["against"]["name"] == "logged"
    assert figures("evaluate", video, "--policy", "uniform")["against"]["name"] == "policy 1"
    assert "more than what was done" in done("evaluate", video)


def test_fixed_actions_and_files_can_be_evaluated(video, tmp_path):
    Workspace(video).registry.policy(2).save(tmp_path / "mine.policy")
    found = figures("evaluate", video, "--policy", tmp_path / "mine.policy", "--against", "action:360p")
    assert (found["target"]["name"], found["against"]["name"]) == ("mine.policy", "always 360p")
    assert found["target"]["estimates"] == figures("evaluate", video, "--policy", 2)["target"]["estimates"]


def test_segments_and_stretches_of_time(video):
    found = figures("evaluate", video, "--policy", 2, "--by", "connection", "--by", "bandwidth_kbps", "--over", "day")
    assert {one["name"] for one in found["segments"]["connection"]} == {"2g", "4g", "wifi", "satellite"}
    assert sum(one["rows"] for one in found["segments"]["bandwidth_kbps"]) == 1200
    assert [(one["name"], one["rows"]) for one in found["stretches"]] == [("2024-10-04", 600), ("2024-10-05", 600)]
    printed = done("evaluate", video, "--policy", 2, "--by", "connection,bandwidth_kbps", "--over", 3)
    assert "by connection" in printed
    assert "by bandwidth_kbps" in printed
    assert printed.count("2024-10-0") == 2 + 3


def test_times_can_be_stated(video):
    assert figures("evaluate", video, "--since", "2024-10-05")["rows"] == 600
    assert figures("evaluate", video, "--until", "2024-10-05T12:00:00Z")["rows"] == 600
    assert figures("evaluate", video, "--until", "2024-10-05T14:00:00+02:00")["rows"] == 600


def test_what_a_policy_has_learnt_from_is_told_and_can_be_left_out(video):
    told = "Of these decisions, policy 1 has learnt from 600. A policy looks a little better on what it has learnt from"
    assert told in done("evaluate", video, "--policy", 2)
    assert figures("evaluate", video, "--policy", 2)["against"]["learnt"] == 600
    first = done("evaluate", video, "--until", "2024-10-05")
    assert "It can be trusted" not in first
    assert "policy 1 has learnt from all" in first
    later = figures("evaluate", video, "--policy", 2, "--unseen")
    assert (later["rows"], later["notes"], later["against"]["learnt"]) == (600, [], 0)
    assert "learnt" not in done("evaluate", video, "--policy", 2, "--unseen")
    assert (
        figures("evaluate", video, "--since", "2024-10-05")["target"]
        == figures("evaluate", video, "--unseen")["target"]
    )
    assert figures("evaluate", video, "--policy", 2, "--against", "logged", "--unseen")["rows"] == 1200


def test_a_policy_file_has_learnt_from_what_its_version_has(video, tmp_path):
    file = tmp_path / "one.policy"
    Workspace(video).registry.policy(1).save(file)
    found = figures("evaluate", video, "--policy", file, "--against", "logged")
    assert (found["target"]["name"], found["target"]["learnt"]) == ("one.policy", 600)
    assert "It can be trusted" not in done("evaluate", video, "--policy", file, "--against", "logged")
    assert figures("evaluate", video, "--policy", file, "--against", "logged", "--unseen")["rows"] == 600
    assert figures("evaluate", video, "--policy", file, "--held-out")["target"]["learnt"] == 600


def test_where_a_policy_of_another_workspace_was_trained_must_be_stated(video, tmp_path):
    file = tmp_path / "other.policy"
    layers = [Layer(np.ones((Workspace(video).problem.width, 3), np.float32), np.zeros(3, np.float32))]
    for version in (1, 50):
        lineage = Lineage(library="0", observations=9, origin={"cut": 1})
        ps.Policy.build(Workspace(video).problem, layers, version=version, lineage=lineage).save(file)
        assert figures("evaluate", video, "--policy", file)["target"]["learnt"] is None
        assert "was trained on these decisions is not known" in done("evaluate", video, "--policy", file)
        assert figures("evaluate", video, "--policy", file, "--held-out")["target"]["learnt"] == 0


def test_estimators_intervals_and_levels_can_be_chosen(video):
    found = figures("evaluate", video, "--estimators", "snips,ips", "--interval", "bootstrap,normal", "--level", 0.9)
    assert list(found["target"]["estimates"]) == ["snips", "ips"]
    assert found["headline"] == "snips"
    assert list(found["target"]["estimates"]["ips"]["intervals"]) == ["bootstrap", "normal"]
    assert "90 % interval" in done("evaluate", video, "--level", 0.9)
    unbounded = done("evaluate", video, "--interval", "bernstein")
    assert "There is no interval: the problem states no bounds of the reward." in unbounded


def test_a_page_is_written_where_it_is_wanted(video, tmp_path):
    out = tmp_path / "pages" / "evaluation.html"
    assert f"page written to {out}" in done("evaluate", video, "--policy", 2, "--by", "connection", "--out", out)
    assert "policy 2 against policy 1" in out.read_text(encoding="utf-8")


def test_rows_without_exact_propensities_are_told(video, tmp_path):
    place = tmp_path / "mixed"
    workspace = worlds.made(str(place))
    worlds.log(workspace, workspace.start(), 50)
    joined(workspace)
    (tmp_path / "old.csv").write_text("bandwidth_kbps,connection,action,reward\n" + "900,4g,360p,1\n" * 30)
    done("warm-start", place, tmp_path / "old.csv")
    printed = done("evaluate", place, "--policy", "action:360p")
    assert "on 50 decisions" in printed
    assert "30 rows left out (import-estimated): imported without propensities" in printed
    assert figures("evaluate", place, "--policy", "uniform")["left_out"] == {"import-estimated": 30}
    estimated = worlds.made(str(tmp_path / "estimated")).url
    done("warm-start", estimated, tmp_path / "old.csv")
    result = run("evaluate", estimated, "--policy", "uniform")
    assert "no observation of" in result.stderr
    assert "(30 import-estimated: imported without propensities" in result.stderr


def test_a_column_of_propensities_is_imported_without_being_named(tmp_path):
    workspace = worlds.made(str(tmp_path / "video"))
    rows = "".join(f"900,4g,{action},1,0.3333\n" for action in ("360p", "720p", "1080p") * 10)
    (tmp_path / "old.csv").write_text("bandwidth_kbps,connection,action,reward,propensity\n" + rows)
    assert "estimated" not in done("warm-start", workspace.url, tmp_path / "old.csv")
    assert figures("evaluate", workspace.url, "--policy", "uniform")["rows"] == 30


def test_one_decision_is_said_to_be_too_few(tmp_path):
    workspace = worlds.made(str(tmp_path / "one"))
    worlds.log(workspace, workspace.start(), 1)
    joined(workspace)
    printed = done("evaluate", workspace.url, "--policy", "uniform", "--by", "connection", "--over", "day")
    assert "On this one decision, uniform would have earned" in printed
    assert "Do not rely on it." in printed


# Tables


def test_someone_elses_log(clicks):
    found = figures("evaluate", clicks, *CLICKS, "--policy", "action:blue")
    frame = pl.read_csv(clicks)
    expected = frame.filter(banner="blue")["clicked"].mean()
    assert found["target"]["estimates"]["snips"]["value"] == pytest.approx(expected)
    assert (found["target"]["name"], found["against"]["name"], found["rows"]) == ("always blue", "logged", 2000)
    parquet = clicks.replace(".csv", ".parquet")
    assert figures("evaluate", parquet, *CLICKS, "--policy", "action:blue")["target"] == found["target"]


def test_a_column_that_names_the_action_and_columns_of_probabilities(clicks):
    named = figures("evaluate", clicks, *CLICKS, "--policy", "column:new", "--against", "columns:new_")
    frame = pl.read_csv(clicks)
    taken = frame.filter(pl.col("banner") == pl.col("new"))["clicked"]
    assert named["target"]["estimates"]["ips"]["value"] == pytest.approx(3 * taken.sum() / 2000)
    assert (named["target"]["name"], named["against"]["name"]) == ("column new", "columns new_…")
    probability = pl.when(banner="blue").then("new_blue").when(banner="red").then("new_red").otherwise(0)
    ips = frame.select((3 * probability * pl.col("clicked")).mean()).item()
    assert named["against"]["estimates"]["ips"]["value"] == pytest.approx(ips)


def test_contexts_make_intervals_narrower_and_columns_make_segments(clicks):
    plain = figures("evaluate", clicks, *CLICKS, "--policy", "column:new")
    known = figures("evaluate", clicks, *CLICKS, "--policy", "column:new", "--context", "age,city", "--by", "city")
    error = [one["target"]["estimates"]["dr"]["standard_error"] for one in (plain, known)]
    assert error[1] < error[0]
    assert {one["name"] for one in known["segments"]["city"]} == {"Köln", "Paris"}


def test_a_policy_file_can_be_evaluated_on_a_table(clicks, tmp_path):
    problem = ps.Problem(
        name="banners", context=[ps.Numeric("age", low=0, high=100)], actions=ps.Discrete(["red", "grün", "blue"])
    )
    ps.Policy.uniform(problem).save(tmp_path / "start.policy")
    found = figures("evaluate", clicks, *CLICKS, "--policy", tmp_path / "start.policy", "--against", "logged")
    assert found["difference"]["ips"]["value"] == pytest.approx(0, abs=1e-6)
    assert found["problem"] == "banners"


def test_a_table_does_not_know_what_a_policy_was_trained_on(clicks, tmp_path):
    problem = ps.Problem(
        name="banners", context=[ps.Numeric("age", low=0, high=100)], actions=ps.Discrete(["red", "grün", "blue"])
    )
    layers = [Layer(np.zeros((1, 3), np.float32), np.zeros(3, np.float32))]
    lineage = Lineage(library="0", observations=500, origin={"cut": 3})
    ps.Policy.build(problem, layers, version=1, lineage=lineage).save(tmp_path / "trained.policy")
    command = ("evaluate", clicks, *CLICKS, "--policy", tmp_path / "trained.policy")
    said = done(*command)
    assert "Take it with caution. Whether trained.policy was trained on these decisions is not known." in said
    assert "It can be trusted." in done(*command, "--held-out")


def test_an_array_file_of_probabilities(clicks, tmp_path):
    frame = pl.read_csv(clicks)
    p = frame.select("new_blue", pl.lit(0.0).alias("new_grün"), "new_red").to_numpy()
    np.save(tmp_path / "new.npy", p)
    found, columns = (
        figures("evaluate", clicks, *CLICKS, "--policy", policy, "--time", "at", "--since", "2026-11-02")
        for policy in (tmp_path / "new.npy", "columns:new_")
    )
    assert found["target"]["name"] == "new.npy"
    assert found["left_out"] == {"outside": 143}  # whose rows of the array are not used
    assert found["target"]["estimates"] == columns["target"]["estimates"]


def test_an_array_file_has_a_slice_for_each_position(clicks, tmp_path):
    frame = pl.read_csv(clicks).with_columns(slot=pl.int_range(pl.len()) % 2 + 9, banner=pl.col("age") % 3)
    frame.write_csv(clicks)
    p = np.zeros((2_000, 4, 2))
    p[:, 2, 0], p[:, 0, 1] = 1.0, 1.0  # action 2 in slot 9, action 0 in slot 10; action 3 never happens
    np.save(tmp_path / "slots.npy", p)
    command = ("evaluate", clicks, *CLICKS, "--policy", tmp_path / "slots.npy")
    found = figures(*command, "--position", "slot")
    taken = frame.filter(pl.col("banner") == pl.when(slot=9).then(2).otherwise(0))["clicked"]
    assert found["target"]["estimates"]["ips"]["value"] == pytest.approx(3 * taken.sum() / 2000)
    assert [one["name"] for one in found["segments"]["slot"]] == ["9", "10"]
    assert "2 positions, but --position has 0: name its column" in run(*command).stderr


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.full((1_999, 3), 1 / 3), "bad.npy has 1,999 rows, but"),
        (np.full((2_000, 3), 0.4), "bad.npy, row 0: probabilities must add up to 1"),
        (np.full((2_000, 3), np.nan), "bad.npy, row 0: probabilities must be at least 0"),
        (np.full((2_000, 2), 0.5), "the array has 2 actions, but column 'banner' has 3: blue, grün, red"),
        (np.zeros((2_000, 3), int), "there must be probabilities float[rows, actions]"),
        (np.zeros((2_000,)), "there must be probabilities float[rows, actions]"),
        (np.array([{}]), "it is no array of NumPy that can be read"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(clicks, tmp_path, array, message):
    np.save(tmp_path / "bad.npy", array, allow_pickle=True)
    result = run("evaluate", clicks, *CLICKS, "--policy", tmp_path / "bad.npy")
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_constant_propensity_that_cannot_be_is_refused(clicks):
    columns = ("--action", "banner", "--reward", "clicked", "--policy", "uniform", "--propensity")
    result = run("evaluate", clicks, *columns, 0.25)
    assert "% of 2,000 rows. If the propensity was 0.25 in all rows, no action can be taken in more than 25 %" in (
        result.stderr
    )
    assert done("evaluate", clicks, *columns, 0.3333)
    assert done("evaluate", clicks, *columns, 0.5)  # two of three actions may have been eligible in each row


def test_tables_with_times_ranges_and_one_propensity(clicks):
    columns = ("--action", "banner", "--reward", "clicked", "--propensity", 1 / 3, "--time", "at")
    found = figures("evaluate", clicks, *columns, "--policy", "action:red", "--over", "week", "--since", "2026-11-02")
    assert [one["name"] for one in found["stretches"]] == ["2026-11-02", "2026-11-09"]
    assert found["left_out"] == {"outside": 143}
    bounded = figures(
        "evaluate", clicks, *CLICKS, "--policy", "action:red", "--interval", "bernstein", "--reward-range", "0,1"
    )
    interval = bounded["target"]["estimates"]["ips"]["intervals"]["bernstein"]
    assert 0 <= interval["low"] < interval["high"] <= 3


def test_bad_rows_are_named_or_left_out(clicks):
    lines = Path(clicks).read_text(encoding="utf-8").splitlines()
    lines[3] = lines[3].replace("0.333", "1.333")
    Path(clicks).write_text("\n".join(lines), encoding="utf-8")
    result = run("evaluate", clicks, *CLICKS, "--policy", "uniform")
    assert "row 2: p must be a probability above 0 and at most 1, got 1.333" in result.stderr
    printed = done("evaluate", clicks, *CLICKS, "--policy", "uniform", "--skip-unfit")
    assert "1 row left out: p must be a probability above 0 and at most 1\n" in printed


def test_actions_without_a_column_of_probabilities_are_named(clicks):
    told = "columns new_… have none for grün: their probability is taken as 0"
    assert told in done("evaluate", clicks, *CLICKS, "--policy", "columns:new_")
    pl.read_csv(clicks).with_columns(pl.col("new_red") / 2).write_csv(clicks)
    result = run("evaluate", clicks, *CLICKS, "--policy", "columns:new_")
    assert "new_blue, new_red must add up to 1 (there is no column for grün), got" in result.stderr


def test_a_biased_headline_is_not_trusted(tmp_path):
    rng = np.random.default_rng(0)
    action = np.where(rng.random(4_000) < 0.8, "a", "b")
    reward = (action == "a") * 0.5 + rng.random(4_000)
    frame = pl.DataFrame({"action": action, "reward": reward, "propensity": np.where(action == "a", 0.8, 0.2)})
    frame.write_csv(tmp_path / "log.csv")
    printed = done("evaluate", tmp_path / "log.csv", "--policy", "action:a", "--estimators", "replay")
    assert "replay *" in printed
    assert "It would have been better" not in printed
    assert "Do not rely on it. The log's actions were not uniformly random, so replay is biased." in printed
    assert "It can be trusted." in done("evaluate", tmp_path / "log.csv", "--policy", "action:a")


# Before launch


def test_a_plan_says_what_a_log_will_be_good_for(video):
    found = figures("evaluate", "plan", video)
    assert (found["logging"], found["contexts"]) == ("policy 1", 1200)
    assert [one["target"] for one in found["current"]["targets"]] == ["uniform", "360p", "720p", "1080p"]
    assert found["sd_is_worst"] is False
    printed = done("evaluate", "plan", video, "--policy", 2, "--floor", 0.2, "--rows", 5000)
    assert printed.startswith("5,000 decisions by policy 2, predicted from 1,200 contexts")
    assert re.search(r"Hardest to evaluate is always (720p|1080p): 5,000 decisions will say as much", printed)
    floor = r"A floor of 0\.2 would make that [\d,]+ and an interval of ± 0\.\d+, and cost −?[\d.e-]+ per decision"
    assert re.search(floor, printed)


def test_a_plan_for_machines_is_for_the_rows_that_were_asked_for(video):
    found = figures("evaluate", "plan", video, "--rows", 2500)
    assert found["rows"] == 2500
    floored = [found["current"], *found["floors"]]
    widths = [(one["half_width"], one["half_width_at_rows"]) for each in floored for one in each["targets"]]
    assert len(widths) == 4 * len(floored)
    assert all(at_rows == pytest.approx(single / 50) for single, at_rows in widths)


@pytest.mark.parametrize(
    ("own", "actions", "next_up"),
    [(0.0, 3, 0.01), (0.01, 3, 0.02), (0.03, 3, 0.05), (0.1, 3, 0.1), (0.0, 150, 0.005), (0.0, 5_000, 0.0)],
)
def test_a_plan_considers_the_next_floor_up(own, actions, next_up):
    from potstill.cli.evaluate_plan import _floor

    assert _floor(None, own, actions) == next_up
    assert _floor(0.0001, own, actions) == 0.0001


def test_a_plan_for_a_policy_that_has_a_floor_looks_above_it(tmp_path, video):
    policy = Workspace(video).registry.policy(2)
    ps.Policy.build(policy.problem, policy.layers, version=7, floor=0.03).save(tmp_path / "floor.policy")
    printed = done("evaluate", "plan", video, "--policy", tmp_path / "floor.policy")
    assert "with floor 0.05" in printed
    assert "A floor of 0.05 would" in printed


def test_an_interval_wider_than_all_rewards_is_said_to_be(video):
    printed = done("evaluate", "plan", video, "--rows", 2)
    assert "> range" in printed
    assert re.search(r"an interval wider than the range of rewards, [\d.]+\.", printed)
    assert "> range" not in done("evaluate", "plan", video, "--rows", 100_000)
    huge = done("evaluate", "plan", video, "--sd", 1e6)
    assert "e+" not in huge.split("\n", 1)[1]


def test_a_plan_on_a_table_before_anything_was_logged(empty, tmp_path):
    rows = worlds.contexts(40)
    pl.DataFrame(rows).write_csv(tmp_path / "requests.csv")
    printed = done("evaluate", "plan", empty, "--contexts", tmp_path / "requests.csv", "--sd", 0.4)
    assert "predicted from 40 contexts; rewards with a standard deviation of 0.4" in printed
    assert "A floor of 0.01 would not change that." in printed


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["VIDEO", "--policy", "9"], "has no version 9; potstill versions lists those it has"),
        (
            ["VIDEO", "--policy", "best"],
            "there is no policy 'best'; name a version of potstill versions, current, action:",
        ),
        (["VIDEO", "--policy", "action:4k"], "action:4k: unknown action '4k' (str); the actions are 360p, 720p, 1080p"),
        (["VIDEO", "--policy", "column:x"], "there is no policy 'column:x'"),
        (
            ["VIDEO", "--by", "spede"],
            "there is no feature 'spede' to segment by; the features are bandwidth_kbps, connection",
        ),
        (["VIDEO", "--over", "month"], "over must be 'day', 'week' or a number"),
        (["VIDEO", "--since", "yesterday"], "--since must be a day or a time, such as 2026-11-16, got 'yesterday'"),
        (["VIDEO", "--since", "2030-01-01"], "has no observations between --since and --until"),
        (["VIDEO", "--estimators", "drr"], "unknown estimator 'drr'; there are replay, ips"),
        (["VIDEO", "--interval", "wide"], "unknown interval 'wide'; there are likelihood, normal, bootstrap"),
        (["VIDEO", "--out", "."], "--out must be a file, such as evaluation.html; . is a folder"),
        (["VIDEO", "--level", "95"], "level must be between 0 and 1"),
        (["VIDEO", "--action", "x"], "--action is for tables such as log.csv"),
        (
            ["VIDEO", "--unseen", "--until", "2024-10-05"],
            "has no observations yet that these policies were not trained on",
        ),
        (["CLICKS", *CLICKS, "--policy", "uniform", "--unseen"], "--unseen needs a workspace"),
        (["EMPTY"], "no version serves yet; potstill update makes the first; until then, name another with --policy"),
        (["EMPTY", "--policy", "uniform"], "has no observations yet: potstill update turns decisions into"),
        (["nowhere"], "nowhere is not a workspace"),
        (["VIDEO", "--policy", "new.npy"], "new.npy: an array has a row for each row of a table such as log.csv"),
        (["VIDEO", "--position", "slot"], "--position is for tables such as log.csv"),
        (["CLICKS", *CLICKS, "--policy", "uniform", "--position", "x"], "name the right one with --position"),
        (["CLICKS"], "name the policy to evaluate with --policy: column:NAME"),
        (["nowhere.csv", "--policy", "uniform"], "nowhere.csv: there is no such file"),
        (["CLICKS", "--policy", "uniform"], "there is no column 'action'; name the right one with --action"),
        (["CLICKS", *CLICKS, "--policy", "x"], "there is no policy 'x'; name column:NAME"),
        (["CLICKS", *CLICKS, "--policy", "CLICKS"], "clicks.csv: "),
        (["CLICKS", *CLICKS, "--policy", "column:x"], "there is no column 'x'; the columns are banner, clicked"),
        (
            ["CLICKS", *CLICKS, "--policy", "uniform", "--by", "x"],
            "there is no column 'x'; name the right one with --by",
        ),
        (["CLICKS", *CLICKS, "--policy", "uniform", "--over", "day"], "--over needs the time of each row"),
        (["CLICKS", *CLICKS, "--policy", "uniform", "--reward-range", "1"], "--reward-range must be two numbers"),
        (
            ["CLICKS", *CLICKS, "--policy", "uniform", "--context", "age,clicked"],
            "column 'clicked' is --reward already",
        ),
        (["CLICKS", *CLICKS[:4], "--policy", "uniform", "--propensity", "1.5"], "--propensity must be a column, or a"),
        (["CLICKS", *CLICKS[:4], "--policy", "uniform", "--propensity", "nan"], "at most 1 if it was always the same"),
        (["plan", "EMPTY"], "has no observations to take contexts from; state a table of contexts with --contexts"),
        (["plan", "VIDEO", "--floor", "0.4"], "--floor must be at most 1/3"),
        (["plan", "VIDEO", "--policy", "x"], "there is no policy 'x'; name a version of potstill versions"),
    ],
)
def test_mistakes_are_named_in_one_line(video, empty, clicks, arguments, message):
    places = {"VIDEO": video, "EMPTY": empty, "CLICKS": clicks}
    result = run("evaluate", *(places.get(argument, argument) for argument in arguments))
    assert result.exit_code == 1, result.output
    assert message in result.stderr
    assert result.stderr.startswith("potstill: ")
    assert result.stderr.count("\n") == 1


def test_help_is_that_of_the_command_one_wants():
    assert "potstill evaluate video --policy 12" in done("evaluate", "--help")
    assert "potstill evaluate plan video --floor 0.02" in done("evaluate", "plan", "--help")
    assert run("evaluate").stdout == done("evaluate", "--help").rstrip("\n") + "\n"


def test_usage_names_the_other_command_and_not_the_one_that_is_left_out():
    for name in ("evaluate", "experiment"):
        assert f"Usage: potstill {name} [plan] [OPTIONS] " in done(name, "--help")
    assert "Try 'potstill evaluate --help'" in run("evaluate", "--no-such-option").stderr


def test_help_names_every_interval():
    from potstill.evaluate.estimates import INTERVALS

    shown = re.sub(r"[\s│]+", " ", done("evaluate", "--help"))
    assert ", ".join(INTERVALS) in shown
    docs = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text(encoding="utf-8")
    assert ", ".join(f"`{name}`" for name in INTERVALS) in docs


# Documentation


def commands():
    """What the how-to types, line by line."""
    text = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text(encoding="utf-8")
    return [shlex.split(line, comments=True)[2:] for line in re.findall(r"^\$ potstill evaluate .*$", text, re.M)]


def test_the_commands_of_the_documentation_run(video, clicks, monkeypatch, tmp_path):
    (tmp_path / "video").symlink_to(video)
    pl.read_csv(clicks).with_columns(slot=pl.int_range(pl.len()) % 3).write_csv(clicks)
    np.save(tmp_path / "new.npy", np.full((2_000, 3), 1 / 3))
    rng = np.random.default_rng(0)
    doses = pl.DataFrame({"age": rng.uniform(20, 90, 500), "dose": rng.uniform(5, 60, 500), "f": 1 / 55})
    doses.with_columns(
        reward=-(pl.col("dose") - pl.col("age") / 2).abs(), target_dose=(pl.col("age") / 2).clip(5, 60)
    ).write_csv(tmp_path / "doses.csv")
    monkeypatch.chdir(tmp_path)
    assert len(commands()) >= 10
    for command in commands():
        done(*command)
    assert (tmp_path / "evaluation.html").exists()
