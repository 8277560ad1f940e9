"""The lab's commands."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from potstill.cli import app
from potstill.cli.lab import _deferred_interrupt
from potstill.lab.measure import Latency, Machine, Measurements, SameLanguage, measurements
from potstill.lab.problems.scenarios import NUMBERS, SCENARIOS
from potstill.lab.runs.algorithms import ALGORITHMS
from potstill.lab.runs.runner import Failure, Progress
from potstill.lab.runs.workers import Task

PLAIN = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}


def run(*arguments):
    return CliRunner(env=PLAIN).invoke(app, ["lab", "run", *map(str, arguments)])


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    out = tmp_path_factory.mktemp("results")
    done = run(*SMALL, "--out", out, "--json")
    assert done.exit_code == 0, done.output
    return out, json.loads(done.stdout)


SMALL = ("--problem", "wheel", "--algorithms", "uniform", "linear-ts", "--preset", "paper", "--decisions", 1500,
         "--trials", 2, "--jobs", 1)  # fmt: skip


def test_json_has_a_row_for_each_algorithm(results):
    out, told = results
    assert [(row["algorithm"], row["preset"], row["final"]["trials"]) for row in told["rows"]] == [
        ("uniform", "paper", 2),
        ("linear-ts", "paper", 2),
    ]
    assert (told["failures"], told["skipped"], told["out"]) == ([], {}, str(out))
    kept = json.loads((out / "wheel/paper/linear-ts/0001.json").read_text())
    assert kept["decisions"] == [1000, 500]


def test_mean_and_standard_errors_are_those_of_the_files(results):
    out, told = results
    totals = [sum(json.loads(path.read_text())["regret"]) for path in sorted(out.glob("wheel/paper/uniform/000?.json"))]
    final = told["rows"][0]["final"]
    assert final["mean"] == pytest.approx(sum(totals) / 2)
    # Of two values the standard error of the mean is half their distance.
    assert final["two_se"] == pytest.approx(abs(totals[0] - totals[1]))


def test_the_same_command_again_shows_a_table_and_runs_nothing(results):
    out, _ = results
    files = {path: path.stat().st_mtime_ns for path in out.rglob("00*.json")}
    done = run(*SMALL, "--out", out)
    assert done.exit_code == 0, done.output
    assert re.search(r"Linear-TS +paper +2 +[\d,]+ ± [\d,]+", done.stdout)
    assert f"potstill lab report {out}" in done.stdout
    assert {path: path.stat().st_mtime_ns for path in out.rglob("00*.json")} == files


def test_other_settings_are_refused_in_one_line(results):
    out, _ = results
    done = run(*SMALL, "--out", out, "--seed", 9)
    assert done.exit_code == 1
    assert done.stderr.startswith(f"potstill: {out} holds results with seed = 0, and this run has 9")
    assert len(done.stderr.splitlines()) == 1


def test_commas_and_repetition_say_the_same(results):
    out, told = results
    rest = [*SMALL[5:], "--out", out, "--json"]
    commas = run("--problem", "wheel", "--algorithms", "uniform,linear-ts", *rest)
    repeated = run("--problem", "wheel", "--algorithms", "uniform", "--algorithms", "linear-ts", *rest)
    assert json.loads(commas.stdout) == json.loads(repeated.stdout) == told


def test_a_failing_trial_ends_in_exit_code_1(results, monkeypatch):
    out, _ = results
    failure = Failure(Task("wheel", "paper", "linear-ts", 1, 0), "MemoryError: out of it")
    ended = Progress(total=4, kept=3, failures=[failure])
    monkeypatch.setattr(sys.modules["potstill.lab.runs.runner"], "run", lambda *_, **__: ended)
    done = run(*SMALL, "--out", out, "--json")
    assert done.exit_code == 1
    assert done.stderr == "potstill: 1 of 4 trials failed; the others are stored\n"
    (told,) = json.loads(done.stdout)["failures"]
    assert told == {"task": "wheel, linear-ts (paper), trial 1", "error": "MemoryError: out of it"}


def test_a_table_of_ones_own(tmp_path):
    table = tmp_path / "few.csv"
    table.write_text("x,y\n" + "\n".join(f"{i},{'ab'[i % 2]}" for i in range(40)))
    arguments = ("--label", "y", "--algorithms", "uniform", "--preset", "paper", "--trials", 1, "--jobs", 1, "--json")
    done = run("--problem", table, *arguments, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert [row["problem"] for row in json.loads(done.stdout)["rows"]] == ["few.csv"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no problem given; name one with --problem, such as --problem wheel; --list shows them"),
        (["--problem", "wheal"], "unknown problem 'wheal'"),
        (["--problem", "wheel", "--algorithms", "linear"], "unknown algorithm 'linear'"),
        (["--problem", "wheel", "--preset", "mine"], "unknown preset 'mine'"),
        (["--problem", "table.csv"], "table.csv: say what to decide: --label COLUMN for a class"),
        (["--problem", "t.csv", "--label", "y", "--target", "z"], "--label y and --target z exclude each other"),
        (["--problem", "wheel", "--label", "y"], "are for a table of your own, not for wheel"),
        (["--problem", "wheel", "--algorithms", ""], "--algorithms is empty; state `all`, `peers`, or names of --list"),
    ],
)
def test_mistakes_are_answered_with_the_way_out(arguments, message, tmp_path):
    done = run(*arguments, "--out", tmp_path)
    assert done.exit_code == 1
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_tables_in_a_command(tmp_path, monkeypatch):
    """Names with commas, files of other kinds, equal names, ids, and rows without a label."""
    monkeypatch.chdir(tmp_path)
    rows = "\n".join(f"user {i},{i},{'ab'[i % 2] if i % 10 else ''}" for i in range(100))
    for name in ("my table, v1.csv", "wheel.csv", "other/wheel.csv", "table.tsv"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(f"id,x,kind\n{rows}\n")
    few = ("--label", "kind", "--algorithms", "uniform", "--preset", "paper", "--trials", 1, "--jobs", 1)

    refused = run("--problem", "my table, v1.csv", *few, "--out", "out")
    assert "column 'id' has 90 different values, more than 64; leave it out with --without COLUMN" in refused.stderr
    done = run("--problem", "my table, v1.csv", *few, "--without", "id", "--out", "out")
    assert done.exit_code == 0, done.output
    assert "left out: 10 of 100 rows of my table, v1.csv: they have no label or target" in done.stdout
    assert "unknown" not in run("--problem", "wheel.csv", *few, "--without", "id", "--out", "out").output
    same = run("--problem", "wheel.csv,other/wheel.csv", *few, "--without", "id", "--out", "other")
    assert "two problems are called wheel.csv; rename a file, or run them separately" in same.stderr
    assert "a table is a file that ends in .csv or .parquet" in run("--problem", "table.tsv", *few).stderr

    made = CliRunner(env=PLAIN).invoke(app, ["lab", "report", "out", "--calls", "0", "--json"])
    assert made.exit_code == 0, made.output
    commands = json.loads(made.stdout)["commands"]
    assert "potstill lab run --problem wheel.csv --label kind --without id --decisions 90 --algorithms" in commands[1]
    again = shlex.split(commands[0])[3:]
    assert run(*again).exit_code == 0  # nothing is left to run, and nothing contradicts what is there
    assert "Trials on my table, v1.csv, wheel.csv" in Path("out/report/report.html").read_text(encoding="utf-8")


def test_list_names_every_problem_and_algorithm():
    done = run("--list")
    assert done.exit_code == 0
    for name in [*SCENARIOS, *NUMBERS, *ALGORITHMS]:
        assert re.search(rf"\b{re.escape(name)}\b", done.stdout)
    listed = json.loads(run("--list", "--json").stdout)
    assert [one["name"] for one in listed["problems"]] == [*SCENARIOS, *NUMBERS]
    assert [one["name"] for one in listed["algorithms"]] == list(ALGORITHMS)


def test_help_explains_how_to_name_several():
    text = " ".join(re.sub(r"[│╭╮╰╯─]", " ", run("--help").stdout).split())
    for option in (
        "--problem",
        "--algorithms",
        "--preset",
        "--trials",
        "--jobs",
        "--seed",
        "--out",
        "--quick",
        "--list",
    ):
        assert option in text
    assert "separate by commas or spaces" in text


def test_ctrl_c_keeps_finished_trials_and_says_how_to_go_on(tmp_path):
    out = tmp_path / "out"
    # Takes the signal also where these tests run in the background of a shell, which has it ignored.
    listening = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [sys.executable, "-c", f"{listening}; from potstill.cli import main; main()", "lab", "run",
               "--problem", "wheel", "--algorithms", "linear-ts", "--preset", "paper", "--trials", "100000",
               "--jobs", "1", "--out", str(out)]  # fmt: skip
    # A session of its own, whose processes all get the signal, as those of a terminal do.
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 120
    while not list(out.glob("wheel/paper/linear-ts/0000.json")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped; finished trials are stored in" in errors
    assert "repeat the command to resume" in errors
    assert "Traceback" not in errors
    assert list(out.glob("wheel/paper/linear-ts/0000.json"))


def test_latency_is_shown_as_served_and_in_one_language(tmp_path, monkeypatch):
    figures = {"problem": "wheel", "calls": 9, "mean_us": 2.0, "two_se_us": 0.1, "p99_us": 3.0}
    names = {"linear-ts": 6.0, "linear-ts-il": 4.0}
    measured = Measurements(
        library="0",
        machine=Machine(processor="", python="", system=""),
        calls=9,
        problems=["wheel"],
        algorithms=list(names),
        latency=[Latency(algorithm=name, median_us=us, **figures) for name, us in names.items()],
        complexity=[],
        languages=["numpy"],
        same_language=[
            SameLanguage(algorithm=name, median_us=us, language="numpy", **figures) for name, us in names.items()
        ],
    )
    asked = []
    monkeypatch.setattr(measurements, "take_measurements", lambda *given, **_: asked.append(given) or measured)
    options = ["--problem", "wheel", "--algorithms", ",".join(names), "--calls", "9", "--out", str(tmp_path)]
    done = CliRunner(env=PLAIN).invoke(app, ["lab", "latency", *options])
    assert done.exit_code == 0, done.output
    assert asked[0][1:] == (["wheel"], list(names), 9)
    (row,) = [line.split() for line in done.stdout.splitlines() if line.startswith("Wheel") and "–" in line]
    assert row[-6:] == ["6", "4", "1.5", "–", "–", "–"]
    assert "There is no C compiler here" in done.stdout
    refused = CliRunner(env=PLAIN).invoke(app, ["lab", "latency", "--algorithms", "cubic-ts"])
    assert "unknown algorithm 'cubic-ts'" in refused.stderr


def test_an_interrupt_is_not_lost_in_a_callback_whose_exceptions_are_ignored():
    """As JAX's callback of the garbage collector, which swallowed Ctrl-C."""

    class Swallowing:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)  # lets a handler that raises do so here, where it is ignored

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background of a shell
    try:
        with _deferred_interrupt() as check:
            check()
            Swallowing()
            with pytest.raises(KeyboardInterrupt):
                check()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
