"""Defining a problem: what is accepted, what is refused and how, TOML, the hash."""

import re

import msgspec
import pytest

import potstill as ps

ACTIONS = ps.Discrete(["a", "b"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ps.Numeric("x", low=1, high=1), "feature 'x': low must be below high, got low=1.0, high=1.0"),
        (lambda: ps.Numeric("x", low=2, high=1), "low must be below high"),
        (
            lambda: ps.Numeric("x", low=float("nan"), high=1),
            "feature 'x': low must be a finite number, got nan (float)",
        ),
        (lambda: ps.Numeric("x", low=0, high=float("inf")), "high must be a finite number"),
        (lambda: ps.Numeric("x", low=-1e308, high=1e308), "the range from -1e+308 to 1e+308 is too large"),
        (lambda: ps.Numeric("x", low="0", high=1), "low must be a finite number, got '0' (str)"),
        (lambda: ps.Numeric("x", low=0, high=1, scale="log"), "a log scale needs low > 0"),
        (lambda: ps.Numeric("x", low=3.0, high=3.0000000000000004, scale="log"), "too close for a log scale"),
        (
            lambda: ps.Numeric("x", low=0, high=1, scale="cubic"),
            "scale must be 'linear', 'log' or 'quantile', got 'cubic'",
        ),
        (lambda: ps.Numeric("x", low=0, high=1, missing="mean"), "missing must be a finite number, got 'mean'"),
        (lambda: ps.Numeric("", low=0, high=1), "a feature's name must be a non-empty string, got ''"),
        (lambda: ps.Numeric("\ud800", low=0, high=1), "must be valid Unicode"),
        (lambda: ps.Categorical("c", []), "feature 'c': values must be a non-empty list of strings, got []"),
        (lambda: ps.Categorical("c", "abc"), "must be a non-empty list of strings, got 'abc'"),
        (lambda: ps.Categorical("c", ["a", "a"]), "feature 'c': value 'a' is named twice"),
        (lambda: ps.Categorical("c", ["a", 1]), "a value must be a non-empty string, got 1 (int)"),
        (lambda: ps.Categorical("c", ["a"], missing="flag"), "missing must be 'unseen' or 'error'"),
        (lambda: ps.Boolean("b", missing=0), "missing must be 'error', 'flag', True or False, got 0 (int)"),
        (lambda: ps.Discrete([]), "actions must be a list of at least two names, got []"),
        (lambda: ps.Discrete(["only"]), "at least two names"),
        (lambda: ps.Discrete("ab"), "at least two names, got 'ab'"),
        (lambda: ps.Discrete(["a", "a"]), "action 'a' is named twice"),
        (lambda: ps.Reward(window="1 hour"), "window must look like '30s', '15m', '1h' or '7d', got '1 hour'"),
        (lambda: ps.Reward(window="0s"), "window must look like"),
        (lambda: ps.Reward(default=float("nan")), "default must be a finite number, got nan"),
        (lambda: ps.Reward(low=1, high=0), "low must be below high"),
        (lambda: ps.Problem(name="", context=[], actions=ACTIONS), "a problem's name must be a non-empty string"),
        (lambda: ps.Problem(name="p", context="x", actions=ACTIONS), "context must be a list of features, got 'x'"),
        (
            lambda: ps.Problem(name="p", context=["x"], actions=ACTIONS),
            "must hold features (Numeric, Categorical",
        ),
        (lambda: ps.Problem(name="p", context=[], actions=["a", "b"]), "such as Discrete([...])"),
        (
            lambda: ps.Problem(name="p", context=[ps.Boolean("x"), ps.Boolean("x")], actions=ACTIONS),
            "feature 'x' is named twice",
        ),
    ],
)
def test_a_bad_definition_is_refused_with_value_and_place(make, message):
    with pytest.raises(ps.InvalidProblem, match=re.escape(message)):
        make()


def test_toml_round_trip(tmp_path):
    problem = ps.Problem(
        name="tromsø ☃",
        context=[
            ps.Numeric("x", low=1, high=10, scale="log", missing=3),
            ps.Numeric("y", low=-1, high=1, missing="flag"),
            ps.Categorical("c", ["ä", "b"], missing="error"),
            ps.Boolean("b", missing=True),
        ],
        actions=ACTIONS,
        reward=ps.Reward(default=-1, window="7d", low=-1, high=1),
    )
    problem.save(tmp_path / "problem.toml")
    assert ps.Problem.load(tmp_path / "problem.toml") == problem


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "missing required field `name`"),
        ("name = 1", "`$.name`"),
        ("name = [", "problem.toml: "),
        (
            'name="p"\n[[context]]\ntype="numeric"\nname="x"\nlow=2\nhigh=1\n[actions]\ntype="discrete"\nnames=["a","b"]',
            "$.context[0]",
        ),
        ('name="p"\n[[context]]\ntype="fancy"\nname="x"\n[actions]\ntype="discrete"\nnames=["a","b"]', "'fancy'"),
    ],
)
def test_a_bad_toml_names_the_file_and_the_place(tmp_path, text, message):
    path = tmp_path / "problem.toml"
    path.write_text(text)
    with pytest.raises(ps.InvalidProblem, match=re.escape(message)) as caught:
        ps.Problem.load(path)
    assert str(path) in str(caught.value)


def test_the_hash_is_stable_between_versions(problem):
    """The number is in policy files and event logs: a change here is a change of format."""
    assert problem.hash == "31819afc27f0554b1aaba311cb56fe28"


def test_the_hash_covers_what_a_policy_depends_on(problem):
    def changed(**fields):
        return msgspec.structs.replace(problem, **fields).hash

    assert changed(name="other") != problem.hash
    assert changed(context=problem.context[:2]) != problem.hash
    assert changed(context=problem.context[::-1]) != problem.hash
    assert changed(actions=ACTIONS) != problem.hash
    assert changed(reward=ps.Reward(window="2h")) == problem.hash
    assert changed(context=[ps.Numeric("bandwidth_kbps", low=0.0, high=1e5), *problem.context[1:]]) == problem.hash


def test_a_window_in_seconds():
    assert [ps.Reward(window=w).window_seconds for w in ("30s", "15m", "2h", "7d")] == [30, 900, 7200, 604800]
