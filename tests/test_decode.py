"""Unknown keys and types in TOML and JSON are refused with the nearest name."""

import msgspec
import pytest

import potstill as ps
from potstill.decode import check_keys, convert, from_toml
from potstill.workspace import Config

PROBLEM = """
name = "p"
[[context]]
type = "numeric"
name = "x"
low = 1
high = 9
[actions]
type = "discrete"
names = ["a", "b"]
[reward]
window = "1h"
"""


def test_a_problem_without_mistakes_is_read():
    assert ps.Problem.from_toml(PROBLEM.encode(), "p").context[0] == ps.Numeric("x", low=1, high=9)


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("high = 9", "high = 9\nscael = 'log'", "unknown key 'scael' (did you mean 'scale'?)"),
        ("high = 9", "high = 9\nmising = 'flag'", "unknown key 'mising' (did you mean 'missing'?)"),
        ("[reward]", "[rewards]", "unknown key 'rewards' (did you mean 'reward'?)"),
        ("window", "windw", "unknown key 'windw' (did you mean 'window'?); must be one of: default, window"),
        ("numeric", "numerc", "unknown type 'numerc' (did you mean 'numeric'?); must be one of: numeric, categorical"),
        ('type = "numeric"', "", "`type` is missing; must be one of: numeric, categorical, boolean"),
        ("discrete", "discreet", "unknown type 'discreet' (did you mean 'discrete'?)"),
        ("names", "name", "unknown key 'name' (did you mean 'names'?); must be one of: names, "),
        ("high = 9", "high = 9\nscale = 'logarithm'", "unknown value 'logarithm'; must be one of: linear, log"),
    ],
)
def test_a_typo_in_a_problem_file_is_refused(right, wrong, said):
    with pytest.raises(ps.InvalidProblem) as refused:
        ps.Problem.from_toml(PROBLEM.replace(right, wrong, 1).encode(), "there/problem.toml")
    assert str(refused.value).startswith("there/problem.toml: ")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[update]\nmin_observation = 3", r"'min_observation' \(did you mean 'min_observations'\?\).* at `\$.update`"),
        (
            "[experiment]\n[experiment.control]\nactoin = 'a'",
            r"'actoin' \(did you mean 'action'.*`\$.experiment.control`",
        ),
        (
            "[serve]\nmode = 'onlin'",
            r"'onlin' \(did you mean 'online'\?\); must be one of: .*log-only",
        ),
        ("[zebra]", r"unknown key 'zebra'; must be one of: teacher, student"),
    ],
)
def test_a_typo_in_a_configuration_is_refused(text, said):
    with pytest.raises(msgspec.ValidationError, match=said):
        from_toml(text.encode(), Config)


class Leaf(msgspec.Struct):
    size: int | None = None


class Tree(msgspec.Struct):
    leaves: dict[str, list[Leaf]] = {}
    free: dict[str, object] = {}


def test_keys_are_checked_at_any_depth_and_free_mappings_are_not():
    assert convert({"leaves": {"a": [{"size": 1}]}, "free": {"anything": {"size": 1}}}, Tree).leaves["a"][0].size == 1
    with pytest.raises(msgspec.ValidationError, match=r"unknown key 'sise'.*at `\$.leaves.a\[1\]`"):
        check_keys({"leaves": {"a": [{}, {"sise": 1}]}}, Tree)
