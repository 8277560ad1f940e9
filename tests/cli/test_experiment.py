"""Experiments on the command line, as the how-to has them."""

import json
import re
from io import StringIO
from pathlib import Path

import polars as pl
import pytest
from experiment_examples import CONFIG, DAY, START, World, log, workspace
from rich.console import Console
from typer.testing import CliRunner

from potstill.cli import app
from potstill.cli.experiment import show_report
from potstill.cli.serve import _workspace_state
from potstill.events import LoggedDecision, LoggedReward, now
from potstill.events.join import join
from potstill.events.lake import Flusher
from potstill.events.wal import Spool
from potstill.experiments.analysis.workspace import Options, report_of
from potstill.workspace import Workspace

HOW_TO = Path(__file__).parents[2] / "docs/experiments.md"


def run(*arguments):
    runner = CliRunner(env={"COLUMNS": "1000", "NO_COLOR": "1", "TERM": "dumb"})
    return runner.invoke(app, ["experiment", *(str(argument) for argument in arguments)])


def done(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A workspace with an experiment that has an effect."""
    made = workspace(tmp_path_factory.mktemp("experiment") / "video", log(World(units=800, effect=0.12, days=5)))
    return made.url


def test_the_verdict_comes_first(place):
    lines = done(place).splitlines()
    assert re.fullmatch(r"Treatment is better: reward per decision \+[\d.]+ % \([\d.]+ % to [\d.]+ %\)\.", lines[0])
    assert lines[1].startswith("It also holds when looking every day")
    assert any(line.startswith("watched per unit") for line in lines)
    assert lines[-1].endswith(", expected 50.0 %: within chance (p = 0.82).")


def test_machines_get_all_of_it(place):
    found = json.loads(done(place, "--json", "--by", "connection"))
    assert found["verdict"]["kind"] == "better"
    assert found["split"]["broken"] is False
    assert [one["outcome"] for one in found["metrics"]] == ["reward", "reward", "watched", "watched", "decisions"]
    assert 0 < found["metrics"][0]["variance_reduction"] < 1
    assert len(found["days"]) == 5
    assert {one["name"] for one in found["segments"]["segments"]} == {"2g", "3g", "4g", "wifi"}


def test_a_split_that_is_not_what_it_should_be_is_said_first(place):
    printed = done(place, "--share", "0.6", "--by", "connection")
    assert printed.startswith("Stop: sample ratio mismatch.")
    assert printed.count("Stop") == 1
    assert "Effects are omitted because they cannot be trusted; --json has them." in printed
    assert "reward per decision" not in printed
    assert "connection" not in printed


def test_another_metric_and_segments_by_a_number(place):
    printed = done(place, "--metric", "watched", "--per", "unit", "--by", "bandwidth_kbps", "--level", "0.9")
    assert printed.startswith("Treatment is higher: watched per unit +")
    assert "bandwidth_kbps" in printed


def test_what_was_logged_through_the_log_and_the_join_is_reported(tmp_path):
    """Arms, units and metrics on their way through the whole of a workspace."""
    made = workspace(tmp_path / "w", config=CONFIG.replace("2026-11-16", "2020-01-01"))
    before = now() - 7_200_000_000
    context = {"bandwidth_kbps": 900, "connection": "4g", "hd_screen": True}
    with made.event_log() as events:
        for i in range(80):
            arm = "treatment" if i % 2 else "control"
            decision = {
                "action": "720p" if i % 2 else "360p",
                "propensity": 1.0,
                "policy": 0,
                "unit": f"u{i // 2 * 2 + i % 2}",
            }
            events.append(
                LoggedDecision(id=f"d{i}", context=context, arm=f"hd-first:{arm}", time=before, **decision),
                LoggedReward(
                    id=f"d{i}", reward=(i % 7) / 7, metrics={"watched": 10.0 + i % 2 + i % 3}, time=before + 1
                ),
            )
    assert "80 of its decisions are in the lake" not in done(made.url)
    Flusher(Spool(made.spool), made.lake).flush()
    waiting = done(made.url)
    assert waiting.startswith("No verdict on hd-first yet: 80 of its decisions are in the lake, and none")
    join(made.lake, made.cuts, made.problem, aggregate="last", settle=60, now=now())
    found = json.loads(done(made.url, "--json"))
    assert (found["split"]["control"], found["split"]["treatment"]) == (40, 40)
    watched = next(one for one in found["metrics"] if one["outcome"] == "watched")
    assert watched["measured"]["difference"] == pytest.approx(1, abs=0.1)
    assert watched["sent"] == {"control": 1.0, "treatment": 1.0}
    assert found["decisions"] == {"control": 40, "treatment": 40}
    assert found["about"]["control"] == "always 360p"


def test_an_experiment_that_has_not_started_is_no_error(tmp_path):
    made = workspace(tmp_path / "w", config=CONFIG.replace("2026-11-16", "2126-11-16"))
    assert done(made.url) == "No verdict on hd-first yet: it starts at 2126-11-16 00:00 UTC.\n"
    assert json.loads(done(made.url, "--json"))["verdict"]["kind"] == "unknown"


def test_an_experiment_without_decisions_says_what_it_needs(tmp_path):
    made = workspace(tmp_path / "w", config=CONFIG.replace("2026-11-16", "2020-01-01"))
    assert "the lake has no decisions of it; send requests with a unit" in done(made.url)
    assert "control has no units" not in done(made.url)


def test_an_experiment_that_is_over_is_found_by_its_name(tmp_path):
    made = workspace(tmp_path / "w", log(World(units=300, effect=0.2)), config="")
    result = run(made.url)
    assert result.exit_code == 1
    assert "there is no [experiment] in potstill.toml, and the log has hd-first: name one with --name" in result.stderr
    printed = done(made.url, "--name", "hd-first")
    assert printed.startswith("Treatment is better")
    assert "The split was not checked, because the share of treatment is unknown; state it with --share." in printed
    assert "within chance" in done(made.url, "--name", "hd-first", "--share", "0.5")


def test_a_feature_can_be_the_unit(tmp_path):
    frame = log(World(units=200)).with_columns(context_connection=pl.col("unit"), unit=pl.lit(None, pl.String))
    made = workspace(tmp_path / "w", frame, config=CONFIG.replace("share =", 'unit = "connection"\nshare ='))
    inside = frame.filter(pl.col("arm").is_not_null())
    found = json.loads(done(made.url, "--json"))["split"]
    assert found["control"] + found["treatment"] == inside["context_connection"].n_unique()


def by_connection(frame):
    """The same decisions, of units that are a feature."""
    return frame.with_columns(context_connection=pl.col("unit"), unit=pl.lit("everyone"))


def test_decisions_in_an_arm_long_before_a_start_that_was_moved_are_known_from_files_of_their_own(tmp_path):
    frame = log(World(units=200, days=7))
    made = workspace(tmp_path / "w", config=CONFIG.replace("2026-11-16", "2026-11-22"))
    days = frame["time"].dt.date()
    for number in range(days.n_unique()):
        part = frame.filter(days == days.unique().sort()[number]).with_columns(problem=pl.lit(made.problem.hash))
        made.lake.append("observations", part, writer="t", number=number + 1)
    early = frame.filter(pl.col("arm").is_not_null(), pl.col("time").dt.epoch("us") < START + 6 * DAY)
    assert f"Excluded because they precede the start: {len(early)} decisions in an arm." in done(
        made.url, "--past", "1"
    )


def test_an_old_experiment_is_read_by_its_own_unit_and_not_by_the_present_one(tmp_path):
    frame = log(World(units=200))
    present = CONFIG.replace("hd-first", "next").replace("share =", 'unit = "connection"\nshare =')
    made = workspace(tmp_path / "present", frame, config=present)
    found = json.loads(done(made.url, "--name", "hd-first", "--json"))
    inside = frame.filter(pl.col("arm").is_not_null())["unit"].n_unique()
    assert (found["split"]["control"] + found["split"]["treatment"], found["about"]["unit"]) == (inside, "unit")
    old = workspace(tmp_path / "old", by_connection(frame), config="")
    assert "another unit was randomised: state it with --unit." in done(old.url, "--name", "hd-first")
    found = json.loads(done(old.url, "--name", "hd-first", "--unit", "connection", "--json"))["split"]
    assert found["control"] + found["treatment"] == inside


@pytest.mark.parametrize("arguments", [[], ["plan", "--effect", "2%"]])
def test_a_unit_that_is_no_feature_is_named_in_one_line(tmp_path, arguments):
    config = CONFIG.replace("share =", 'unit = "kunde"\nshare =')
    made = workspace(tmp_path / "w", log(World(units=50)), config=config)
    result = run(*arguments, made.url)
    assert result.exit_code == 1
    assert "experiment.unit: 'kunde' is not a feature of the problem" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("control", "why"),
    [
        ('{ action = "4k" }', "experiment.control: unknown action '4k'"),
        ('{ rules = "none.toml" }', "experiment.control: there is no file 'none.toml' in the workspace"),
        ("{ policy = 9 }", "experiment.control: "),
    ],
)
def test_an_experiment_that_no_service_follows_says_why(tmp_path, control, why):
    config = CONFIG.replace("2026-11-16", "2020-01-01").replace('{ action = "360p" }', control)
    made = workspace(tmp_path / "w", config=config)
    with made.event_log() as events:
        decision = LoggedDecision(
            id="d", context={"bandwidth_kbps": 900, "connection": "4g", "hd_screen": True}, action="360p",
            propensity=1.0, policy=0, unit="u", arm="old:control", time=now(),
        )  # fmt: skip
        events.append(decision)
    Flusher(Spool(made.spool), made.lake).flush()
    printed = done(made.url)
    assert printed.startswith(f"No verdict on hd-first yet: services refuse it: {why}")
    assert "The lake has decisions of old: select one with --name." in printed


@pytest.mark.parametrize(
    ("control", "said"),
    [
        ('{ action = "360p" }', "not started: it starts at 2126-11-16 00:00 UTC"),
        ('{ action = "4k" }', "refused: experiment.control: unknown action '4k'"),
    ],
)
def test_a_workspace_and_a_service_say_how_its_experiment_stands(tmp_path, control, said):
    config = CONFIG.replace("2026-11-16", "2126-11-16").replace('{ action = "360p" }', control)
    made = workspace(tmp_path / "w", config=config)
    status = CliRunner(env={"COLUMNS": "1000"}).invoke(app, ["status", made.url])
    assert f"\nexperiment hd-first, {said}" in status.stdout
    assert f", experiment hd-first ({said}" in _workspace_state(made)


def test_a_window_of_80_columns_shows_what_matters_in_whole_cells(place):
    report = report_of(Workspace(place), None, Options(), now())
    shown = {}
    for width in (80, 130):
        console = Console(file=StringIO(), width=width)
        show_report(report, console)
        shown[width] = console.file.getvalue().splitlines()
    header = next(line.split() for line in shown[80] if line.startswith("metric"))
    assert header == ["metric", "effect", "looking", "once", "looking", "every", "day"]
    names = [line for line in shown[80] if line.startswith(("reward per", "watched per", "decisions per"))]
    assert len(names) == 5
    assert all(len(line) <= 80 and line.count(" to ") == 2 for line in names)
    assert any("past explains" in line for line in shown[130])
    assert any("adjusted by pre-experiment data" in line for line in shown[130])


def test_the_terminal_says_what_the_arms_are_and_when_it_was(place):
    printed = done(place)
    assert re.search(r"^control +[\d,]+ units, [\d,]+ decisions: always 360p$", printed, re.M)
    assert re.search(r"^treatment +[\d,]+ units, [\d,]+ decisions: the policy that serves$", printed, re.M)
    assert re.search(r"^start +2026-11-16 00:00 UTC$", printed, re.M)
    assert re.search(r"^period +2026-11-16 to 2026-11-20 \(5 days\)$", printed, re.M)


def test_only_metrics_of_the_configuration_are_shown(tmp_path):
    made = workspace(tmp_path / "w", log(World(units=100)), config=CONFIG.replace('"watched"', '"paid"'))
    printed = done(made.url)
    assert "watched per" not in printed
    assert "Metric paid was never sent with a reward." in printed
    assert "watched per" in done(made.url, "--metric", "watched")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere is not a workspace"),
        (
            ["HERE", "--name", "other"],
            "there is no experiment 'other': potstill.toml has hd-first, and the log has hd-first",
        ),
        (["HERE", "--by", "age"], "--by age: there is no such feature; the features are bandwidth_kbps, connection"),
        (
            ["HERE", "--by", "connection", "--by", "hd_screen"],
            "--by can be given once, got connection and hd_screen; run the command once for each",
        ),
        (["HERE", "--unit", "kunde"], "--unit: 'kunde' is not a feature of the problem"),
        (["HERE", "--metric", "clicks"], "there is no metric 'clicks'; the outcomes are reward, watched"),
        (["HERE", "--level", "95"], "level must be between 0 and 1, such as 0.95, got 95.0"),
        (["HERE", "--share", "2"], "share must be between 0 and 1, got 2.0"),
        (["plan", "HERE"], "state the effect to detect"),
        (["plan", "HERE", "--effect", "much"], "--effect must look like 2%"),
        (["plan", "--effect", "2%"], "name a workspace, or state --sd"),
        (["plan", "--effect", "2%", "--sd", "1"], "a relative effect needs a mean above 0, and it is unknown"),
        (["plan", "--effect", "1", "--sd", "0"], "the standard deviation over units must be above 0, got 0"),
        (["plan", "HERE", "--effect", "2%", "--metric", "clicks"], "there is no metric 'clicks' in the log"),
        (["plan", "HERE", "--effect", "2%", "--power", "0.1"], "power must be from 0.5 to below 1, got 0.1"),
    ],
)
def test_mistakes_are_named_in_one_line(place, arguments, message):
    result = run(*(place if argument == "HERE" else argument for argument in arguments))
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_plan_from_numbers():
    printed = done("plan", "--mean", "0.5", "--sd", "1", "--effect", "10%", "--explained", "0.36")
    assert "To detect an effect of 0.05, 10.0 % of the mean, on reward per decision with power 0.8" in printed
    assert "looking once       12,5" in printed
    assert "with CUPED         8,0" in printed
    assert "days" not in printed


def test_a_plan_from_a_log(place):
    printed = done("plan", place, "--effect", "5%")
    assert re.search(r"looking once +[\d,]+ units \([\d,]+ days\)", printed)
    assert re.search(r"looking every day +at most [\d,]+ units \([\d,]+ days\), 1.9 times as many", printed)
    assert "detectable effect" in printed
    made = json.loads(done("plan", place, "--effect", "5%", "--json"))
    assert f"potstill experiment {place} --planned {made['every_day']['units']}" in printed
    line = done("plan", place, "--effect", "5%", "--metric", "watched", "--per", "unit", "--level", "0.9").splitlines()[
        -1
    ]
    assert re.search(r" --metric watched --per unit --level 0.9 --planned \d+$", line)
    assert made["share"] == 0.5
    assert 0 < made["explained"] < 1


def test_a_plan_from_a_short_log_says_no_days(tmp_path):
    made = workspace(tmp_path / "w", log(World(units=200, days=2)))
    printed = done("plan", made.url, "--effect", "5%")
    assert re.search(r"looking once +[\d,]+ units$", printed, re.M)
    assert "The number of days is not estimated: the log has 4 days, and a week is needed" in printed


def test_help_teaches_with_an_example():
    for arguments in ([], ["--help"]):
        assert "potstill experiment video --by connection" in run(*arguments).output
    assert "potstill experiment plan video --effect 2%" in done("plan", "--help")


def test_commands_of_the_how_to_run(tmp_path, monkeypatch):
    """Every `potstill experiment` in the how-to, on a workspace called as there."""
    monkeypatch.chdir(tmp_path)
    workspace("video", log(World(units=400, effect=0.1)))
    commands = re.findall(r"^\$ potstill experiment ([^#\n]*)", HOW_TO.read_text(encoding="utf-8"), re.M)
    assert len(commands) > 4
    for command in commands:
        done(*command.split())
    assert "Experiment hd-first" in Path("experiment.html").read_text(encoding="utf-8")


def test_start_is_where_the_configuration_says():
    """The example's own clock: so that what is before it is the past."""
    assert pl.Series([START]).cast(pl.Datetime("us"))[0].isoformat() == "2026-11-16T00:00:00"
