"""The command line teaches, answers in JSON when asked, and says what is wrong."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import potstill as ps
from potstill.cli import COMMANDS, TASKS, app
from potstill.cli.extras import EXTRAS, requires

PLAIN = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
SMALL = ["--decisions", "300", "--batch", "200", "--seed", "5"]


def run(*arguments):
    return CliRunner(env=PLAIN).invoke(app, [str(argument) for argument in arguments])


def words(text):
    """Text without the boxes and line breaks that a terminal's width brings."""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())


def test_version():
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout == f"potstill {ps.__version__}\n"


def test_help_says_what_there_is_and_what_for():
    result = run("--help")
    assert result.exit_code == 0
    assert "Thompson sampling, distilled" in words(result.stdout)
    assert re.search(r"demo\s+Demonstrate the full cycle", words(result.stdout))


def test_help_groups_all_commands_by_task():
    text = run("--help").stdout
    places = [text.index(f"─ {task} ─") for task in TASKS]
    assert places == sorted(places)
    listed = re.findall(r"(?m)^│ ([a-z][a-z-]+)  ", text)
    assert listed == list(COMMANDS) == list(dict.fromkeys(listed))


def test_flags_have_no_type():
    for command in ([], *([name] for name in COMMANDS)):
        assert "<bool>" not in run(*command, "--help").stdout


def test_shells_complete_commands():
    asked = {**os.environ, "_POTSTILL_COMPLETE": "complete_bash", "COMP_WORDS": "potstill roll", "COMP_CWORD": "1"}
    command = str(Path(sys.executable).with_name("potstill"))
    done = subprocess.run([command], env=asked, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["rollback"]


def test_no_arguments_show_the_help():
    assert "Demonstrate the full cycle" in words(run().output)


def test_help_of_demo_explains_its_options():
    text = words(run("demo", "--help").stdout)
    for option in ("--decisions", "--batch", "--seed", "--out", "--json", "--open"):
        assert option in text
    assert "three lines of Python that use the policy" in text
    assert "potstill-demo" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["demo", "--decisions", "0"], "Invalid value for '--decisions'"),
        (["demo", "--batch", "-5"], "Invalid value for '--batch'"),
        (["demo", "--seed", "pi"], "Invalid value for '--seed'"),
        (["demo", "--fast"], "No such option: --fast"),
        (["distil"], "No such command 'distil'"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in words(result.stderr)


def test_an_output_directory_that_cannot_be_made_is_refused_before_the_run(tmp_path):
    (tmp_path / "taken").write_text("a file")
    result = run("demo", "--out", tmp_path / "taken")
    assert result.exit_code == 1
    assert f"cannot create the directory {tmp_path / 'taken'}" in result.stderr
    assert "--out" in result.stderr
    assert result.stdout == ""


WITHOUT_ALTAIR = """
import sys
sys.modules["altair"] = None
from potstill.cli import main
sys.argv = ["potstill", "demo", "--out", sys.argv[1]]
main()
"""


def test_a_missing_library_is_named_with_what_to_install(tmp_path):
    command = [sys.executable, "-c", WITHOUT_ALTAIR, str(tmp_path / "out")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "needs 'altair'" in result.stderr
    assert "pip install 'potstill[lab]'" in result.stderr
    assert not (tmp_path / "out").exists()


def test_the_command_starts_without_what_learns_or_draws():
    code = "import sys, potstill.cli; print(*sorted({'jax', 'scipy', 'altair', 'polars'} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout == "\n"


def test_every_command_is_in_the_table_that_main_loads_by():
    click_app = typer.main.get_command(app)
    assert set(click_app.commands) == set(COMMANDS)


@pytest.mark.parametrize("module", sorted(set(COMMANDS.values()) - {"evaluate"}))
def test_a_command_starts_without_what_learns_or_draws(module):
    code = (
        f"import sys; from potstill.cli import load; load({module!r}); "
        "print(*sorted({'jax', 'scipy', 'altair', 'polars'} & set(sys.modules)))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout == "\n"


def missing(module, *extras):
    """What a command says that needs a module which is not installed."""

    @requires(*extras)
    def command():
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    with pytest.raises(typer.Exit) as raised:
        command()
    return raised.value.exit_code


@pytest.mark.parametrize(
    ("module", "extras", "install"),
    [
        ("polars", ("lake", "learn"), "potstill[lake]"),
        ("deltalake.table", ("lake",), "potstill[lake]"),
        ("scipy.special", ("lake", "learn"), "potstill[lake,learn]"),
        ("scipy.special", ("lake",), "potstill[lake]"),
        ("prometheus_client", ("serve",), "potstill[serve]"),
        ("unheard_of", ("lab",), "potstill[lab]"),
    ],
)
def test_the_extra_that_brings_a_missing_module_is_named(capsys, module, extras, install):
    assert missing(module, *extras) == 1
    assert f"needs {module.split('.')[0]!r}" in (said := capsys.readouterr().err)
    assert f"pip install '{install}'" in said


def test_all_extras_that_a_command_lacks_are_named_at_once(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    missing("polars", "lake", "learn")
    assert "pip install 'potstill[lake,learn]'" in capsys.readouterr().err


def test_a_module_of_our_own_that_is_missing_is_a_bug():
    with pytest.raises(ModuleNotFoundError, match="nowhere"), requires("lake"):
        raise ModuleNotFoundError("nowhere", name="potstill.nowhere")


def test_every_module_of_the_table_is_of_an_extra_in_the_project_file():
    stated = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert EXTRAS.keys() <= stated["optional-dependencies"].keys()


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A run whose output is not a terminal."""
    out = tmp_path_factory.mktemp("cli")
    return out, run("demo", *SMALL, "--out", out)


def test_demo_prints_a_line_per_batch_and_no_control_characters(plain):
    out, result = plain
    assert result.exit_code == 0, result.output
    assert re.search(r"^\s+200( +0\.\d{3}){4}", result.stdout, re.M)
    assert re.search(r"^\s+300( +0\.\d{3}){4}", result.stdout, re.M)
    assert "\x1b" not in result.stdout
    assert str(out / "video-upload.policy") in result.stdout
    assert (out / "report.html").stat().st_size > 100_000


def test_the_last_three_lines_are_python_that_works(plain):
    _, result = plain
    lines = "\n".join(result.stdout.rstrip().splitlines()[-3:])
    ran = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("Decision(id='upload-123'")


def test_a_single_decision_is_enough_for_a_run(tmp_path):
    result = run("demo", "--decisions", "1", "--out", tmp_path, "--json")
    assert result.exit_code == 0, result.output
    assert len(json.loads(result.stdout)["rows"]) == 1


def test_json_is_all_that_is_printed_and_agrees_with_itself(plain, tmp_path):
    result = run("demo", *SMALL, "--out", tmp_path, "--json")
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert [row["decisions"] for row in figures["rows"]] == [200, 300]
    assert figures["regret_ratio"] == pytest.approx(figures["regret"]["potstill"] / figures["regret"]["thompson"])
    assert figures["settings"] == {"decisions": 300, "batch": 200, "seed": 5}
    # The same seed gave the same policy to the run before.
    assert ps.Policy.load(figures["policy"]).to_bytes() == (plain[0] / "video-upload.policy").read_bytes()
