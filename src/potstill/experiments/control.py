"""What control does: a fixed action or rules, without chance; or an older policy, which draws as it did."""

from __future__ import annotations

from collections.abc import Callable

from potstill.experiments.config import ExperimentConfig, InvalidExperiment
from potstill.experiments.rules import Rules, read_rules
from potstill.policy import Policy
from potstill.problem import Problem

Control = Rules | Policy


def load_control(
    config: ExperimentConfig, problem: Problem, *, rules: bytes | None, policy: Callable[[int], Policy]
) -> Control:
    """The control of an experiment, checked against the problem.

    Args:
        config: the experiment.
        problem: that is decided.
        rules: the text of the file of rules, if there is one.
        policy: gives a policy by its version; its errors pass through.

    Raises:
        InvalidExperiment: it does not fit the problem, or there is no such file.
    """
    config.check(problem)
    stated = config.control
    if stated.action is not None:
        return Rules(stated.action)
    if stated.rules is not None:
        return _rules(stated.rules, rules, problem)
    assert stated.policy is not None  # one of the three is
    return _policy(stated.policy, problem, policy)


def _rules(name: str, text: bytes | None, problem: Problem) -> Rules:
    if text is None:
        raise InvalidExperiment(
            f"experiment.control: there is no file {name!r} in the workspace; put it beside potstill.toml"
        )
    return read_rules(text, problem, name)


def _policy(version: int, problem: Problem, load: Callable[[int], Policy]) -> Policy:
    policy = load(version)
    if policy.problem.hash != problem.hash:
        raise InvalidExperiment(
            f"experiment.control: version {version} decides an earlier problem ({policy.problem.hash}), and "
            f"problem.toml now says {problem.name!r} ({problem.hash}); name a version for this one: potstill versions"
        )
    return policy
