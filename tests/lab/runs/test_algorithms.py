"""The registry: every algorithm plays, and the presets are what they say."""

import msgspec
import numpy as np
import pytest

from potstill.distill import Student
from potstill.errors import LabError
from potstill.lab.problems import mushroom, warfarin
from potstill.lab.problems.data import MissingData
from potstill.lab.problems.scenarios import scenario
from potstill.lab.runs.algorithms import ALGORITHMS, GP_DECISIONS, named
from potstill.lab.runs.presets import PRESETS
from potstill.lab.runs.run_spec import OwnTable, RunSpec
from potstill.lab.runs.trial import Distilled, Fixed, Undistilled
from potstill.lab.runs.workers import Task, turns_of
from potstill.teachers import GaussianProcessTS

OWN = [name for name, algorithm in ALGORITHMS.items() if algorithm.presets != ("peers",)]
PAPERS = {name for name in OWN if "paper" in ALGORITHMS[name].presets}
SMALL = msgspec.structs.replace(scenario("wheel"), decisions=120, batch=60)
NUMBER = msgspec.structs.replace(scenario("pricing"), decisions=120, batch=60)


@pytest.fixture(scope="module")
def yes_no(tmp_path_factory):
    """A table, whose rewards are 0 and 1."""
    path = tmp_path_factory.mktemp("table") / "leaves.csv"
    path.write_text("width,kind\n" + "\n".join(f"{i % 7},{'oak' if i % 7 > 3 else 'elm'}" for i in range(140)))
    (one,) = RunSpec.of(problems=[str(path)], algorithms=["uniform"], own=OwnTable(label="kind")).scenarios
    return msgspec.structs.replace(one, decisions=120, batch=60)


def decided_by(algorithm, yes_no):
    """A problem that an algorithm supports."""
    if algorithm.refuses(SMALL.problem.reward):
        return yes_no
    return NUMBER if algorithm.supports(SMALL.problem.actions) else SMALL


@pytest.mark.parametrize("name", OWN)
def test_every_algorithm_plays_a_trial(name, yes_no):
    if "gp-ts" in name:
        pytest.skip("takes a minute; GP-TS is tested as a teacher, and its agents as the others'")
    problem = decided_by(ALGORITHMS[name], yes_no)
    turns = list(turns_of(Task(problem.name, ALGORITHMS[name].presets[0], name, 0, 1), problem))
    assert [turn.decisions for turn in turns] == [60, 60]
    assert all(turn.regret >= 0 for turn in turns)
    assert (turns[0].learned.kl is not None) == bool(ALGORITHMS[name].imitates)


def test_names_and_imitations_belong_together():
    for name, algorithm in ALGORITHMS.items():
        assert algorithm.name == name
        if algorithm.imitates:
            assert name == f"{algorithm.imitates}-il"
            assert ALGORITHMS[algorithm.imitates].teacher == algorithm.teacher


@pytest.mark.parametrize("preset", PRESETS)
def test_thompson_sampling_acts_on_its_own_samples_and_il_on_its_policy(preset, yes_no):
    for name in [name for name in OWN if preset in ALGORITHMS[name].presets]:
        agent = ALGORITHMS[name].make(decided_by(ALGORITHMS[name], yes_no).problem, 0, preset)
        expected = Distilled if name.endswith("-il") else Fixed if name == "uniform" else Undistilled
        assert type(agent) is expected
        if name not in ("uniform", "neural-greedy"):
            teacher = agent.still.teacher if expected is Distilled else agent.teacher
            assert teacher == PRESETS[preset][name.removesuffix("-il")].teacher


def test_algorithms_that_cannot_decide_a_problem_are_left_out_or_refused_by_name():
    found = RunSpec.of(problems=["pricing"], algorithms=["all", "peers"], preset="potstill")
    names = [algorithm.name for _, algorithm in found.pairs["pricing"]]
    assert {"uniform", "continuous-linear-ts-il", "vw-cats-8", "mabwiser-linucb-levels"} <= set(names)
    assert "linear-ts" not in names
    with pytest.raises(LabError, match="Linear-TS cannot decide Pricing: it needs a finite list of actions"):
        RunSpec.of(problems=["pricing"], algorithms=["linear-ts"], preset="potstill")


def test_algorithms_that_cannot_learn_from_the_rewards_are_left_out_or_refused_by_name(yes_no):
    assert yes_no.problem.reward.kind == "yes/no"
    found = RunSpec.of(problems=["wheel"], algorithms=["all"], preset="potstill")
    names = [algorithm.name for _, algorithm in found.pairs["wheel"]]
    assert "linear-ts" in names
    assert "logistic-ts" not in names
    message = "Logistic-TS cannot decide .*: it needs rewards of kind yes/no, and the problem states none"
    with pytest.raises(LabError, match=message):
        RunSpec.of(problems=["wheel"], algorithms=["logistic-ts"], preset="potstill")


def test_the_paper_preset_is_the_papers_appendix():
    paper = {name: msgspec.to_builtins(choice.teacher) for name, choice in PRESETS["paper"].items()}
    linear, neural = paper["linear-ts"], paper["neural-linear-ts"]
    assert (linear["precision"], linear["alpha"], linear["beta"]) == (0.25, 6, 6)
    assert (neural["precision"], neural["alpha"], neural["beta"]) == (0.25, 3, 3)
    bootstrap = paper["bootstrap-nn-ts"]
    assert (bootstrap["networks"], bootstrap["bootstrap"], bootstrap["prior_scale"]) == (10, False, 0)
    for name in ("neural-greedy", "neural-linear-ts", "bootstrap-nn-ts"):
        recipe = paper[name]["recipe"]
        assert list(paper[name]["hidden"]) == [100, 100]
        assert (recipe["optimiser"], recipe["steps"], recipe["rate"]) == ("rmsprop", 100, 0.01)
        assert (recipe["schedule"], recipe["decay"]) == ("inverse-time", 0.55)
    student = PRESETS["paper"]["linear-ts"].student
    assert student == Student.paper()
    assert (student.hidden, student.activation, student.steps) == ((100, 100), "tanh", 2000)


def test_names_are_resolved_once_each_in_their_order():
    assert [a.name for a in named(["linear-ts", "linear-ts-il", "linear-ts"])] == ["linear-ts", "linear-ts-il"]
    assert [a.name for a in named(["all"])] == OWN
    assert {a.name for a in named(["all", "peers"])} == set(ALGORITHMS)
    with pytest.raises(ValueError, match=r"unknown algorithm 'linear'; there are all, peers, uniform, "):
        named(["linear"])


def test_settings_tell_presets_apart():
    il = ALGORITHMS["linear-ts-il"]
    assert il.settings("paper")["student"] != il.settings("potstill")["student"]
    assert "student" not in ALGORITHMS["linear-ts"].settings("paper")


def test_an_algorithm_that_a_preset_does_not_have_is_refused_with_the_reason():
    with pytest.raises(ValueError, match="Adaptive-TS is not in the preset paper, only in potstill"):
        RunSpec.of(problems=["wheel"], algorithms=["adaptive-ts"], preset="paper")


def test_all_leaves_gaussian_processes_out_of_long_trials_and_says_why():
    both = RunSpec.of(problems=["wheel", "video"], algorithms=["all"], preset="paper")
    assert {a.name for _, a in both.pairs["wheel"]} == PAPERS
    assert {a.name for _, a in both.pairs["video"]} == PAPERS - {"gp-ts", "gp-ts-il"}
    assert set(both.skipped) == {"GP-TS on Video upload, replayed", "GP-TS-IL on Video upload, replayed"}
    assert all(f"{GP_DECISIONS:,} decisions" in reason for reason in both.skipped.values())
    by_name = RunSpec.of(problems=["video"], algorithms=["gp-ts"], preset="paper")
    assert [a.name for _, a in by_name.pairs["video"]] == ["gp-ts"]
    assert isinstance(PRESETS["paper"]["gp-ts"].teacher, GaussianProcessTS)


def test_all_leaves_out_problems_without_their_data_and_a_named_one_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr("potstill.lab.problems.data.places", lambda: {"nowhere": tmp_path})
    for read in [*vars(mushroom).values(), *vars(warfarin).values()]:
        getattr(read, "cache_clear", lambda: None)()
    every = RunSpec.of(problems=["all"], algorithms=["uniform"])
    assert [one.name for one in every.scenarios] == ["wheel", "video"]
    assert "potstill lab data" in every.skipped["Mushroom"]
    with pytest.raises(MissingData, match="agaricus-lepiota"):
        RunSpec.of(problems=["mushroom"], algorithms=["uniform"]).prepare()


def test_peers_are_run_once_whatever_the_presets():
    experiment = RunSpec.of(problems=["wheel"], algorithms=["linear-ts", "mabwiser-lints"])
    assert [(preset, a.name) for preset, a in experiment.pairs["wheel"]] == [
        ("paper", "linear-ts"),
        ("potstill", "linear-ts"),
        ("peers", "mabwiser-lints"),
    ]


def test_quick_is_a_small_scale_of_everything_unless_told_otherwise():
    for name in ("mushroom", "warfarin-20"):
        try:
            scenario(name).prepare()
        except MissingData as error:
            pytest.skip(str(error))
    quick = RunSpec.of(problems=[], algorithms=[], quick=True)
    assert {one.name for one in quick.scenarios} == {"wheel", "mushroom", "warfarin-20", "video"}
    assert all(one.decisions < scenario(one.name).decisions for one in quick.scenarios)
    told = RunSpec.of(problems=["wheel"], algorithms=["uniform"], quick=True, trials=7, decisions=50)
    assert [one.decisions for one in told.scenarios] == [50]
    assert told.trials == 7


def test_quick_is_small_for_every_problem_and_for_a_table_of_your_own(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "own.csv"
    path.write_text("x,y\n" + "".join(f"{x:.3f},{'ab'[int(x > 0)]}\n" for x in rng.standard_normal(5_000)))
    own = OwnTable(label="y")
    found = RunSpec.of(problems=[str(path), "wheel-0.5"], algorithms=["uniform"], own=own, quick=True)
    assert [len(one.sizes) for one in found.scenarios] == [3, 3]
    whole = RunSpec.of(problems=[str(path)], algorithms=["uniform"], own=own)
    assert whole.scenarios[0].decisions == 5_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"problems": []}, "no problem given; name one with --problem"),
        ({"problems": ["wheels"]}, "unknown problem 'wheels'"),
        (
            {"problems": ["wheel"], "preset": "best"},
            "unknown preset 'best'; there are paper, paper-fresh, potstill and both",
        ),
        ({"problems": ["none.csv"]}, r"none\.csv: say what to decide: --label COLUMN"),
        ({"problems": ["none.csv"], "own": OwnTable(label="y")}, r"none\.csv: there is no such file"),
    ],
)
def test_what_cannot_be_run_is_refused_with_the_way_out(arguments, message):
    with pytest.raises(ValueError, match=message):
        RunSpec.of(**{"algorithms": ["uniform"], **arguments})


def test_a_table_of_ones_own(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "flowers.csv"
    lines = [f"{x:.3f},{'short' if x < 0.5 else 'long'},{x * 10:.2f}" for x in rng.random(240)]
    path.write_text("petal,species,dose\n" + "\n".join(lines))
    classes = RunSpec.of(problems=[str(path)], algorithms=["linear-ts"], own=OwnTable(label="species"))
    (one,) = classes.scenarios
    assert (one.name, one.decisions, one.batch) == ("flowers.csv", 240, 100)
    assert one.problem.actions.names == ("long", "short")
    turns = list(turns_of(Task("flowers.csv", "paper", "linear-ts", 0, 1), one))
    # The last 140 decisions of a learner that got 100 at random: far below the half of a random one.
    assert sum(turn.regret for turn in turns[1:]) < 35
    doses = RunSpec.of(
        problems=[str(path)], algorithms=["linear-ts"], own=OwnTable(target="dose", levels=5), decisions=1000
    )
    (one,) = doses.scenarios
    assert len(one.problem.actions) == 5
    assert len(one.world(0).batch(1000, lambda x: (np.zeros(len(x), np.int64), np.ones(len(x), np.float32)))[0]) == 1000


def test_a_table_with_other_content_is_another_problem(tmp_path):
    def hash_of(last):
        path = tmp_path / str(last) / "t.csv"
        path.parent.mkdir()
        path.write_text(f"x,y\n0,a\n1,b\n{last},a\n")
        return RunSpec.of(problems=[str(path)], algorithms=["uniform"], own=OwnTable(label="y")).scenarios[0].problem

    assert hash_of(0.25).hash != hash_of(0.75).hash
