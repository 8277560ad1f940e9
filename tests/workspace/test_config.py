"""The configuration: its defaults, what it refuses, and the text that explains it."""

import re
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
import tomli_w

import potstill as ps
from potstill.distill import student_from_config
from potstill.experiments.config import ControlConfig, ExperimentConfig
from potstill.teachers import from_config
from potstill.workspace import Config, InvalidConfig, Workspace, read_config, template

#: An option at its default, and an example of one that is not set.
OPTION, EXAMPLE = r"^#(\w+ = )", r"^# (\w+ = |\[\w+\]$)"


def uncommented(*patterns: str) -> str:
    text = template.CONFIG
    for pattern in patterns:
        text = re.sub(pattern, r"\1", text, flags=re.M)
    return text


def test_a_new_configuration_is_the_default_and_so_is_every_option_in_it() -> None:
    default = Config().with_teacher(ps.Problem.from_toml(template.PROBLEM.encode(), "problem.toml").actions)
    assert read_config(template.CONFIG.encode()) == Config()
    assert read_config(uncommented(OPTION).encode()) == default


def test_without_a_teacher_a_workspace_takes_that_of_its_action_space(tmp_path: Path) -> None:
    listed, number = ps.Discrete(["a", "b"]), ps.Continuous("price", low=1, high=2)
    for actions, expected in ((listed, ps.teachers.AutoTS()), (number, ps.teachers.ContinuousLinearTS())):
        problem = ps.Problem(name="p", context=[], actions=actions)
        place = tmp_path / type(actions).__name__
        text = tomli_w.dumps(msgspec.to_builtins(problem))
        workspace = Workspace.create(place, text.encode(), b"")
        assert from_config(workspace.config.teacher) == expected
    assert Config(teacher={"type": "uniform"}).with_teacher(number).teacher == {"type": "uniform"}
    assert Config(teacher={"window": 50}).with_teacher(listed).teacher == {"type": "auto-ts", "window": 50}


def test_every_option_is_there_either_at_its_default_or_as_an_example() -> None:
    stated, examples = tomllib.loads(uncommented(OPTION)), tomllib.loads(uncommented(OPTION, EXAMPLE))
    defaults: dict[str, Any] = msgspec.to_builtins(Config())
    assert list(examples) == list(defaults)
    for section in ("policy", "join", "update", "log"):
        assert list(examples[section]) == list(defaults[section])
        unset = {name for name, value in defaults[section].items() if value is None}
        assert set(examples[section]) - set(stated[section]) == unset
    assert "experiment" not in stated
    assert tuple(examples["experiment"]) == ExperimentConfig.__struct_fields__


def test_the_examples_are_accepted() -> None:
    config = read_config(uncommented(OPTION, EXAMPLE).encode())
    assert from_config(config.teacher) == ps.teachers.AutoTS(window=50_000)
    assert student_from_config(config.student) == msgspec.structs.replace(
        ps.Student.auto(budget="30s"), base=ps.Student.masks()
    )
    assert config.experiment is not None
    default = ExperimentConfig(name="hd-first", control=ControlConfig(action="360p"))
    example = msgspec.structs.replace(config.experiment, start=None, metrics=())
    assert example == default
    config.experiment.check(ps.Problem.from_toml(template.PROBLEM.encode(), "problem.toml"))


def test_every_option_has_a_line_of_why_before_it() -> None:
    lines = template.CONFIG.splitlines()
    for before, line in pairwise(lines):
        if re.match(r"^(#|# )?\w+ = ", line):
            assert re.match(r"# \S", before), line
            assert not re.match(EXAMPLE, before), line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[update]\nmax_kl = 0", r"where: Expected `float` > 0.0 - at `\$.update.max_kl`"),
        (
            "[join]\naggregate = 'median'",
            r"unknown value 'median' .*must be one of: first, last.* - at `\$.join.aggregate`",
        ),
        ("[join]\nsettle = 'soon'", r"join.settle must look like '30s', '15m', '1h' or '7d', got 'soon'"),
        ("[policy]\nfloor = 1", r"at `\$.policy.floor`"),
        (
            "[policy]\nflor = 0.1",
            r"unknown key 'flor' \(did you mean 'floor'\?\); must be one of: seed, floor, .* - at `\$.policy`",
        ),
        ("[polcy]", "unknown key 'polcy' \\(did you mean 'policy'"),
        ("[experiment]\nname = 'HD'\ncontrol = {action = 'a'}", "where: experiment.name must be small letters"),
        ("[experiment]\nname = 'x'\ncontrol = {}", r"got none of them - at `\$.experiment.control`"),
        ("[experiment]\nname = 'x'\ncontrol = {action = 'a', policy = 1}", "got action and policy"),
        (
            "[experiment]\nname = 'x'\nshare = 1.0\ncontrol = {action = 'a'}",
            "experiment.share must be a number above 0",
        ),
        (
            "[experiment]\nname = 'x'\ncontrol = {action = 'a'}\nstart = 2026-01-01T00:00:00",
            "such as 2026-11-16T00:00:00Z",
        ),
        ("[experiment]\nname = 'x'\ncontrol = {action = 'a'}\nstart = 2026-01-01", "such as 2026-11-16T00:00:00Z"),
        ("[experiment]\nname = 'x'\ncontrol = {action = 'a'}\nmetrics = ['']", "experiment.metrics must be a list"),
        ("[experiment]\nname = 'x'\ncontrol = {policy = -1}", "experiment.control.policy must be the number of"),
        ("[experiment]\ncontrol = {action = 'a'}", "missing required field `name`"),
        ("floor =", "where: "),
        (b"\xff", "where: "),
    ],
)
def test_mistakes_are_refused_with_their_place(text: str | bytes, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message):
        read_config(text if isinstance(text, bytes) else text.encode(), "where")


def test_the_example_problem_is_that_of_the_readme() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    (definition,) = re.findall(r"^problem = ps\.Problem\(.*?^\)$", readme, re.M | re.S)
    names: dict[str, Any] = {"ps": ps}
    exec(definition, names)
    assert ps.Problem.from_toml(template.PROBLEM.encode(), "template") == names["problem"]


def test_the_options_that_the_problems_template_names_are_those_of_each_feature():
    """A newcomer removes the # of an option: it must be valid, and mean what the text says."""
    options = re.findall(r"^# (missing = .+)$", template.PROBLEM, flags=re.MULTILINE)
    assert len(options) == 3
    whole = ps.Problem.from_toml(re.sub(r"^# (missing = )", r"\1", template.PROBLEM, flags=re.MULTILINE).encode(), "t")
    assert [feature.missing for feature in whole.context] == ["flag", "error", "flag"]
    replaced = template.PROBLEM.replace('# missing = "flag"  # may', "missing = 1_000 # ").replace(
        '# missing = "flag"  # as', "missing = true # "
    )
    assert [one.missing for one in ps.Problem.from_toml(replaced.encode(), "t").context] == [1_000, "unseen", True]
