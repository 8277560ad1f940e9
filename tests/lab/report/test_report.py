"""The report on a small folder of made-up trials: all figures are there, and its numbers are those of the trials."""

import json
import os
import re
import struct
import tarfile

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from potstill.cli import app
from potstill.lab.measure.complexity import Growth
from potstill.lab.measure.latency import Latency
from potstill.lab.measure.measurements import Machine, Measurements, _measured, take_measurements
from potstill.lab.report import summary, tables
from potstill.lab.report.page import identifier
from potstill.lab.report.report import markdown_text, write_report
from potstill.lab.report.runs import LATENCY_MS, Runs, deviations
from potstill.lab.runs import results
from potstill.lab.runs.comparison import Estimate
from potstill.lab.runs.results import Seconds, Trial
from potstill.pages import Table

SIZES = [100, 100, 50]
FACTORS = {"uniform": 1.0, "linear-ts": 0.3, "linear-ts-il": 0.31, "gp-ts": 0.2}


def trial(problem, preset, algorithm, number, factor, **changes):
    """A trial whose regret is the factor's share of a trial's luck, which is common to all algorithms."""
    luck = 1 + np.random.default_rng(number).random(3)
    own = 1 + 0.02 * np.random.default_rng([number, len(algorithm), len(preset)]).standard_normal(3)
    regret = factor * luck * own * SIZES
    distilled = algorithm.endswith("-il")
    fields = {
        "seed": number + 7,
        "decisions": SIZES,
        "reward": (np.array(SIZES) - regret).tolist(),
        "regret": None if problem == "video" else regret.tolist(),
        "kl": [0.02, 0.01] if distilled else None,
        "price": [0.2, 0.1] if distilled and problem == "video" else None,
        "cost": [0.002, -0.001] if distilled else None,
    }
    return Trial(problem=problem, preset=preset, algorithm=algorithm, trial=number, **{**fields, **changes})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two problems, two presets and a peer; one algorithm has fewer trials, and one has no pair."""
    out = tmp_path_factory.mktemp("results")
    for problem in ("wheel", "video"):
        for preset in ("paper", "potstill"):
            for name, factor in FACTORS.items():
                for number in range(4 if name == "gp-ts" else 8):
                    results.save(out, trial(problem, preset, name, number, factor), Seconds(total=1.0, stages={}))
        for number in range(6):
            results.save(out, trial(problem, "peers", "vw-bag", number, 0.35), Seconds(total=1.0, stages={}))
            made_by = Seconds(total=1.0, stages={}, commit="abc" if problem == "wheel" else "def")
            results.save(out, trial(problem, "peers", "worse", number, 0.5), made_by)
    (out / "settings.json").write_text('{"seed": 11, "library": "0"}')
    return out


MEASURED = Measurements(
    library="0",
    machine=Machine(processor="Abacus", python="3.11", system="Linux"),
    calls=10,
    problems=["wheel"],
    algorithms=["linear-ts", "linear-ts-il"],
    latency=[
        Latency(
            problem="wheel", algorithm="linear-ts", calls=10, mean_us=13.0, two_se_us=0.1, median_us=12.0, p99_us=20.0
        ),
        Latency(
            problem="wheel", algorithm="linear-ts-il", calls=10, mean_us=1.6, two_se_us=0.01, median_us=1.5, p99_us=2.0
        ),
    ],
    complexity=[
        Growth(
            method="Linear-TS",
            formula="k·d²",
            dimension="d",
            fixed={"k": 4},
            sizes=[2, 64, 128],
            us=[10.0, 14.0, 26.0],
            bytes=[64, 65536, 262144],
            time_slope=1.97,
            time_expected=2.0,
            space_slope=2.0,
            space_expected=2.0,
        )
    ],
)


@pytest.fixture(scope="module")
def written(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("potstill.lab.report.report.take_measurements", lambda *_, **__: MEASURED)
        made = write_report(folder, out, markdown=out / "docs" / "page.md")
    return out, made.summary


def regrets(folder, problem, preset, algorithm):
    """Final regret, or mean reward for video, by trial: read from the files and added up here."""
    found = {}
    for path in sorted((folder / problem / preset / algorithm).glob("[0-9]*.json")):
        if not path.name.endswith(".seconds.json"):
            read = json.loads(path.read_text())
            found[read["trial"]] = sum(read["reward"]) / 250 if problem == "video" else sum(read["regret"])
    return found


FIGURES = {
    *(f"{problem}-{preset}" for problem in ("wheel", "video") for preset in ("paper", "potstill", "peers")),
    *("il-against-ts", "il-against-ts-along", "latency", "growth-time", "growth-memory", "imitation-price"),
    *("imitation-error-paper", "imitation-error-potstill"),
}


def test_every_figure_is_in_the_page_and_a_small_picture(written):
    out, _ = written
    page = (out / "report.html").read_text(encoding="utf-8")
    specs = json.loads(page.split("const specs = ", 1)[1].split(";\nconst dark", 1)[0])
    assert specs.keys() == FIGURES
    for name, spec in specs.items():
        assert all(len(rows) for rows in spec["datasets"].values()), name
    pictures = {path.stem: path.read_bytes() for path in out.glob("*.png")}
    assert pictures.keys() == FIGURES
    assert max(map(len, pictures.values())) < 100_000
    assert all(struct.unpack(">I", picture[16:20])[0] > 400 for picture in pictures.values())


def test_the_markdown_page_links_to_pictures_that_are_there(written):
    out, summary = written
    page = (out / "docs" / "page.md").read_text(encoding="utf-8")
    linked = re.findall(r"\]\(([^)]+)\)", page)
    assert {link.removeprefix("page/").removesuffix(".png") for link in linked} == FIGURES
    assert all((out / "docs" / link).read_bytes().startswith(b"\x89PNG") for link in linked)
    assert all(command in page for command in summary.commands)
    assert "simulated upload service" in page
    assert "5,528 patients" not in page  # they were not run
    assert any("5,528 patients" in said for said in deviations(["wheel", "warfarin-50"]))
    assert deviations(["flowers.csv"]) == []


def test_it_says_which_commits_ran_the_trials(written, folder):
    out, summary = written
    assert summary.commits == {"abc": 6, "def": 6}
    page = (out / "docs" / "page.md").read_text(encoding="utf-8")
    assert "Trials were run by commit: 6 by abc; 6 by def. Commands" in page


def test_the_trials_come_with_the_markdown_page(written, folder, tmp_path):
    """Unpacked, they are a folder that says the same, and packing is repeatable."""
    out, _ = written
    packed = out / "docs" / "page" / "trials.tar.xz"
    assert packed.read_bytes() == results.archive(folder)
    with tarfile.open(packed) as tar:
        tar.extractall(tmp_path, filter="data")
    unpacked = tmp_path / folder.name
    assert list(results.load(unpacked)) == list(results.load(folder))
    assert (unpacked / "settings.json").read_bytes() == (folder / "settings.json").read_bytes()


def test_the_summary_is_what_was_returned(written):
    out, summary = written
    assert msgspec.json.decode((out / "summary.json").read_bytes(), type=type(summary)) == summary


def test_final_figures_are_those_of_the_trials(written, folder):
    _, summary = written
    assert len(summary.finals) == 2 * (2 * 4 + 2)
    for row in summary.finals:
        values = list(regrets(folder, row.problem, row.preset, row.algorithm).values())
        assert row.final.trials == len(values)
        assert row.final.mean == pytest.approx(np.mean(values))
        assert row.final.two_se == pytest.approx(2 * np.std(values, ddof=1) / len(values) ** 0.5)
    assert {row.algorithm for row in summary.finals if row.best_peer} == {"vw-bag"}


def test_pairs_are_compared_on_the_trials_that_both_have(written, folder):
    _, summary = written
    # GP-TS has no distilled policy, and peers imitate nothing.
    assert [(row.problem, row.preset, row.algorithm) for row in summary.comparisons] == [
        (problem, preset, "linear-ts-il") for problem in ("wheel", "video") for preset in ("paper", "potstill")
    ]
    for row in summary.comparisons:
        one = regrets(folder, row.problem, row.preset, "linear-ts-il")
        other = regrets(folder, row.problem, row.preset, "linear-ts")
        difference = [one[number] - other[number] for number in one]
        assert row.comparison.difference.mean == pytest.approx(np.mean(difference))
        assert row.comparison.ratio == pytest.approx(np.mean(list(one.values())) / np.mean(list(other.values())))
        assert row.measure == ("reward" if row.problem == "video" else "regret")
        assert "costs" in row.comparison.verdict  # 0.31 against 0.3, with noise of 1 % over eight trials


def test_peers_are_compared_on_common_trials_only(written, folder):
    _, summary = written
    gp = next(row for row in summary.finals if (row.problem, row.preset, row.algorithm) == ("wheel", "paper", "gp-ts"))
    assert gp.against_best_peer.difference.trials == 4
    peer, own = regrets(folder, "wheel", "peers", "vw-bag"), regrets(folder, "wheel", "paper", "gp-ts")
    assert gp.against_best_peer.difference.mean == pytest.approx(np.mean([own[n] - peer[n] for n in own]))


def test_the_price_is_added_up_over_the_decisions_that_it_was_paid_for(written):
    _, summary = written
    for row in summary.imitation:
        assert row.algorithm == "linear-ts-il"
        # 0.2 for each of the second batch's 100 decisions and 0.1 for each of the third's 50; the wheel has no range.
        assert row.price is None if row.problem == "wheel" else row.price.mean == pytest.approx(25.0)
        assert row.given_up.mean == pytest.approx(0.15)
        assert row.kl == pytest.approx([0.02, 0.01])
    paired = {(row.problem, row.preset): row.comparison.difference.mean for row in summary.comparisons}
    for row in summary.imitation:
        # Mean reward per decision is lost, regret is paid: both count as cost over the trial's 250 decisions.
        expected = paired[row.problem, row.preset] * (-250 if row.problem == "video" else 1)
        assert row.cost.mean == pytest.approx(expected)
        assert row.cost.mean > 0


def test_latency_stands_beside_the_paper_s(written):
    _, summary = written
    distilled = next(row for row in summary.latency if row.algorithm == "linear-ts-il")
    assert distilled.speedup == pytest.approx(8.0)
    assert (distilled.paper_us, distilled.paper_speedup) == (pytest.approx(178), pytest.approx(1.142 / 0.178))
    assert next(row for row in summary.latency if row.algorithm == "linear-ts").speedup is None
    assert LATENCY_MS["warfarin-20", "neural-linear-ts"] == 4.814


def test_commands_make_such_a_folder(folder):
    commands = summary.commands(Runs.read(folder), folder)
    assert commands[0] == (
        "potstill lab run --problem wheel --decisions 250 --batch 100 "
        f"--algorithms uniform,linear-ts,linear-ts-il --trials 8 --seed 11 --out {folder.name}"
    )
    assert len(commands) == 6  # two problems, of which each has three numbers of trials


def test_commands_ask_for_no_more_than_was_run(tmp_path):
    """GP-TS of one preset only: one command for both presets would run it under the other as well."""
    for preset, algorithm in (("paper", "linear-ts"), ("potstill", "linear-ts"), ("potstill", "gp-ts")):
        results.save(tmp_path, trial("wheel", preset, algorithm, 0, 0.3), Seconds(total=1.0, stages={}))
    commands = summary.commands(Runs.read(tmp_path), tmp_path)
    assert [re.search(r"--algorithms .* --trials", command)[0] for command in commands] == [
        "--algorithms linear-ts --preset paper --trials",
        "--algorithms linear-ts,gp-ts --preset potstill --trials",
    ]


def test_names_in_other_alphabets_have_figures(tmp_path):
    for name in ("да.csv", "нет.csv"):
        results.save(tmp_path, trial(name, "potstill", "linear-ts", 0, 0.3), Seconds(total=1.0, stages={}))
    write_report(tmp_path, tmp_path / "out", calls=0)
    assert {path.stem for path in (tmp_path / "out").glob("*.png")} == {"да-csv-potstill", "нет-csv-potstill"}


def test_a_trial_with_too_few_batches_is_refused(tmp_path):
    results.save(tmp_path, trial("wheel", "paper", "linear-ts", 0, 0.3), Seconds(total=1.0, stages={}))
    path = tmp_path / "wheel" / "paper" / "linear-ts" / "0000.json"
    kept = json.loads(path.read_text())
    path.write_text(json.dumps({**kept, "regret": kept["regret"][:-1]}))
    with pytest.raises(ValueError, match=r"0000\.json is not a finished trial: .* batches of decisions, and"):
        Runs.read(tmp_path)


def test_trials_of_different_lengths_are_refused(folder):
    trials = [
        trial("wheel", "paper", "linear-ts", 0, 0.3),
        trial("wheel", "paper", "gp-ts", 1, 0.3, decisions=[5, 5, 5]),
    ]
    with pytest.raises(ValueError, match=r"wheel: trial 1 of paper/gp-ts has 15 decisions in 3 batches.*250 decisions"):
        Runs(trials)


def test_trials_of_other_seeds_are_no_pairs():
    one, other = (Runs([trial("wheel", "paper", "linear-ts", 0, 0.3, seed=seed)]).runs[0] for seed in (1, 2))
    assert one.against(other) is None
    assert one.against(one).difference.mean == 0


@pytest.mark.parametrize("trials", [1, 2])
def test_a_single_algorithm_with_few_trials_is_enough_for_a_page(tmp_path, trials):
    for number in range(trials):
        results.save(tmp_path, trial("own.table", "paper", "mine", number, 0.3), Seconds(total=1.0, stages={}))
    made = write_report(tmp_path, tmp_path / "out", calls=0)
    assert made.summary.comparisons == made.summary.latency == made.summary.imitation == []
    assert made.summary.measurements is None
    assert {path.stem for path in (tmp_path / "out").glob("*.png")} == {"own-table-paper"}


def test_without_trials_the_command_says_what_to_do(tmp_path):
    for place, words in ((tmp_path / "none", "there is no folder"), (tmp_path, "holds no finished trials")):
        ran = CliRunner().invoke(app, ["lab", "report", str(place)])
        assert ran.exit_code == 1
        assert words in ran.output
        assert "potstill lab run" in ran.output


def test_a_page_needs_a_name_that_leaves_one_for_its_folder(folder, tmp_path):
    with pytest.raises(ValueError, match=r"something\.md"):
        write_report(folder, tmp_path, calls=0, markdown=tmp_path / "page")


def test_a_broken_trial_is_named(tmp_path):
    results.save(tmp_path, trial("wheel", "paper", "linear-ts", 0, 0.3), Seconds(total=1.0, stages={}))
    path = tmp_path / "wheel" / "paper" / "linear-ts" / "0001.json"
    path.write_text('{"problem": "wheel"')
    ran = CliRunner().invoke(app, ["lab", "report", str(tmp_path), "--calls", "0"])
    assert ran.exit_code == 1
    assert "0001.json" in ran.output.replace("\n", "")


def test_the_command_prints_the_summary(tmp_path):
    for number in range(2):
        results.save(tmp_path, trial("wheel", "paper", "linear-ts", number, 0.3), Seconds(total=1.0, stages={}))
    notes = tmp_path / "notes.txt"
    notes.write_text("A remark, and why.")
    ran = CliRunner().invoke(app, ["lab", "report", str(tmp_path), "--calls", "0", "--json", "--notes", str(notes)])
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["trials"] == 2
    assert "A remark, and why." in (tmp_path / "report" / "report.html").read_text(encoding="utf-8")


def test_measurements_are_kept_until_something_else_is_asked_for(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "potstill.lab.measure.measurements._measured", lambda wanted, say: asked.append(wanted) or wanted
    )

    def measure(calls, again=False):
        return take_measurements(tmp_path / "kept.json", ["wheel"], ["uniform"], calls, again=again, say=print)

    assert measure(10) == measure(10)
    assert len(asked) == 1
    measure(20)
    measure(20, again=True)
    assert len(asked) == 3
    (tmp_path / "kept.json").write_text("not a file of measurements")
    measure(20)
    assert len(asked) == 4


@pytest.mark.parametrize(
    ("estimate", "shown"),
    [
        (Estimate(12345.6, 78.9, 3), "12,346 ± 79"),
        (Estimate(-0.123456, 0.0234, 3), "−0.123 ± 0.023"),
        (Estimate(5.0, None, 1), "5"),
        (Estimate(3.0, 0.0, 2), "3.0 ± 0.0"),
    ],
)
def test_estimates_have_as_many_digits_as_their_error_leaves(estimate, shown):
    assert tables.estimate(estimate) == shown


def test_markdown_keeps_cells_apart():
    from potstill.pages import Page, Section

    page = Page("T", "s", [("1", "one")], [Section("S", "c", tables=[Table(("a", "b"), [("x|y", "2")])])])
    assert "| x&#124;y | 2 |" in markdown_text(page, "figures")
    assert "| --- | ---: |" in markdown_text(page, "figures")
    assert identifier("wheel-0.5", "paper") == "wheel-0-5-paper"


def test_measuring_happens_in_a_process_of_its_own(monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    said = []
    measured = _measured(
        msgspec.structs.replace(MEASURED, calls=1, problems=[], latency=[], complexity=[]), said.append
    )
    assert [(one.method, one.dimension) for one in measured.complexity][:2] == [
        ("Neural-Greedy", "d"),
        ("Neural-Greedy", "k"),
    ]
    assert said[0] == "Neural-Greedy, growing d"
    assert os.environ["OPENBLAS_NUM_THREADS"] == "2"


def test_a_process_that_dies_is_noticed():
    with pytest.raises(RuntimeError, match="measuring process ended early"):
        _measured(msgspec.structs.replace(MEASURED, algorithms=["nobody"]), print)
