"""What control does, and that a configuration which does not fit the problem is refused."""

import msgspec
import pytest

import potstill as ps
from potstill.experiments.config import ControlConfig, ExperimentConfig, InvalidExperiment
from potstill.experiments.rules import Rules, load_control


def never(_):
    raise AssertionError("nothing was to be read")


def experiment(unit: str = "unit", **control: object) -> ExperimentConfig:
    return ExperimentConfig(name="hd", control=ControlConfig(**control), unit=unit)


def values(problem: ps.Problem, context: dict[str, object]) -> tuple[object, ...]:
    return tuple(context.get(feature.name) for feature in problem.context)


def test_a_fixed_action(problem, context):
    control = load_control(experiment(action="480p"), problem, rules=None, policy=never)
    assert isinstance(control, Rules)
    assert control.action(values(problem, context)) == "480p"


def test_rules_are_read_from_the_workspace(problem, context):
    text = b'default = "360p"\n[[rule]]\nwhen = { connection = "4g" }\naction = "720p"'
    control = load_control(experiment(rules="rules.toml"), problem, rules=text, policy=never)
    assert isinstance(control, Rules)
    assert control.action(values(problem, context)) == "720p"
    assert control.action(values(problem, {**context, "connection": "2g"})) == "360p"


def test_rules_that_are_not_there_are_asked_for(problem):
    with pytest.raises(InvalidExperiment, match=r"no file 'rules.toml' in the workspace; put it beside potstill.toml"):
        load_control(experiment(rules="rules.toml"), problem, rules=None, policy=never)


def test_an_older_policy_must_be_of_this_problem(problem):
    policies = {3: ps.Policy.uniform(problem, version=3)}
    assert load_control(experiment(policy=3), problem, rules=None, policy=policies.__getitem__) is policies[3]
    other = msgspec.structs.replace(problem, name="other")
    with pytest.raises(InvalidExperiment, match=r"version 3 decides an earlier problem \(.*\); name a version"):
        load_control(experiment(policy=3), other, rules=None, policy=policies.__getitem__)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        (experiment(action="4k"), r"experiment.control: unknown action '4k' \(str\); the actions are 360p, 480p"),
        (
            experiment(unit="user", action="360p"),
            "experiment.unit: 'user' is not a feature .* write 'unit' for",
        ),
        (experiment(unit="hd_screen", action="360p"), "experiment.unit: 'hd_screen' is true or false"),
    ],
)
def test_what_the_problem_does_not_have_is_refused(problem, stated, message):
    with pytest.raises(InvalidExperiment, match=message):
        load_control(stated, problem, rules=None, policy=never)


def test_a_feature_may_be_the_unit(problem):
    experiment(unit="connection", action="360p").check(problem)
    experiment(unit="bandwidth_kbps", action="360p").check(problem)


def test_an_arm_is_named_after_its_experiment():
    assert (experiment(action="a").arm("control"), experiment(action="a").arm("treatment")) == (
        "hd:control",
        "hd:treatment",
    )
