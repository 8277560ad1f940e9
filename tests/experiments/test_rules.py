"""Rules as control: the first that matches counts, and a file that does not fit the problem is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import potstill as ps
from potstill.experiments.config import InvalidExperiment
from potstill.experiments.rules import Rules, read_rules

PROBLEM = ps.Problem(
    name="video",
    context=[
        ps.Numeric("bandwidth", low=0, high=10),
        ps.Categorical("connection", ["3g", "wifi", "4g"]),
        ps.Boolean("hd", missing="flag"),
        ps.Numeric("age", low=0, high=100, missing=50),
    ],
    actions=ps.Discrete(["360p", "480p", "720p"]),
)
TEXT = """
default = "360p"

[[rule]]
when = { connection = "wifi", bandwidth = { at_least = 5, below = 9 } }
action = "720p"

[[rule]]
when = { connection = ["wifi", "4g"], hd = true }
action = "480p"

[[rule]]
when = { age = { above = 49, at_most = 50 }, bandwidth = 1 }
action = "720p"
"""


def rules(text: str) -> Rules:
    return read_rules(text.encode(), PROBLEM, "rules.toml")


def by_hand(bandwidth, connection, hd, age) -> str:
    """What the text says, in Python."""
    if connection == "wifi" and 5 <= bandwidth < 9:
        return "720p"
    if connection in ("wifi", "4g") and hd is True:
        return "480p"
    if 49 < (50 if age is None else age) <= 50 and bandwidth == 1:
        return "720p"
    return "360p"


@given(
    st.tuples(
        st.sampled_from([0.0, 1.0, 4.999, 5.0, 8.999, 9.0]),
        st.sampled_from(["wifi", "4g", "3g", "new"]),
        st.sampled_from([True, False, None]),
        st.sampled_from([None, 49.0, 49.5, 50.0, 50.5]),
    )
)
def test_the_first_rule_that_matches_names_the_action(values):
    assert rules(TEXT).action(values) == by_hand(*values)


def test_an_action_that_is_not_eligible_gives_way_to_the_first_that_is():
    wifi = (5.0, "wifi", True, None)
    assert rules(TEXT).action(wifi, ("480p", "720p")) == "720p"
    assert rules(TEXT).action(wifi, ("480p", "360p")) == "480p"
    assert Rules(PROBLEM.actions, "720p").action(wifi, ("360p",)) == "360p"


def test_without_rules_it_is_a_fixed_action():
    assert rules('default = "480p"').action((0.0, "3g", None, None)) == "480p"


def rule(when: str, action: str = "480p") -> str:
    """A file whose second rule is this one."""
    first = 'default = "360p"\n[[rule]]\nwhen = { hd = true }\naction = "480p"'
    return f'{first}\n[[rule]]\nwhen = {when}\naction = "{action}"'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"rules.toml: .*missing required field `default`"),
        ('default = "4k"', r"rules.toml: default: unknown action '4k' \(str\); the actions are 360p, 480p, 720p"),
        ('default = "360p"\nrules = []', "unknown key 'rules' \\(did you mean 'rule'"),
        ('default = "360p"\n[[rule]]\naction = "480p"', "rule 1: .*missing required field `when`"),
        ("default =", "rules.toml: "),
        (
            rule("{ hd = false }", "4k"),
            r"rules.toml: rule 2: action: unknown action '4k' \(str\); the actions are 360p",
        ),
        (rule("{}"), "rule 2: `when` is empty and would always match; use `default`"),
        (
            rule("{ colour = 1 }"),
            "rule 2: 'colour' is not a feature of the problem; its features are bandwidth, connection",
        ),
        (
            rule('{ connection = "5g" }'),
            r"rule 2: connection: '5g' \(str\) is not a value .* are 3g, wifi, 4g. .*problem.toml",
        ),
        (rule('{ connection = ["wifi", 4] }'), r"rule 2: connection: 4 \(int\) is not a value"),
        (rule("{ connection = [] }"), "rule 2: connection: the list is empty"),
        (rule("{ hd = 1 }"), r"rule 2: hd: expected true or false, got 1 \(int\)"),
        (rule('{ bandwidth = "fast" }'), r"rule 2: bandwidth: expected a finite number, got 'fast' \(str\)"),
        (rule("{ bandwidth = true }"), "rule 2: bandwidth: expected a finite number, got True"),
        (rule("{ bandwidth = nan }"), "rule 2: bandwidth: expected a finite number, got nan"),
        (rule("{ bandwidth = {} }"), "rule 2: bandwidth: no bound is stated; the bounds are at_least, above"),
        (rule("{ bandwidth = { least = 1 } }"), "rule 2: bandwidth: 'least' is not a bound; the bounds are at_least"),
        (rule("{ bandwidth = { below = 'x' } }"), "rule 2: bandwidth: below: expected a finite number, got 'x'"),
        (
            rule("{ bandwidth = { at_least = 5, below = 5 } }"),
            "rule 2: bandwidth: .* holds for no number; widen a bound",
        ),
    ],
)
def test_mistakes_are_refused_with_rule_field_value_and_way_out(text, message):
    with pytest.raises(InvalidExperiment, match=message):
        rules(text)


@pytest.mark.parametrize("bounds", ["at_least = 5, at_most = 5", "above = 5", "below = 5", "above = 4, below = 5"])
def test_bounds_that_some_number_is_within_are_taken(bounds):
    rules(rule(f"{{ bandwidth = {{ {bounds} }} }}"))


def test_of_the_later_feature_types_rules_test_strings_and_numbers_but_not_lists_and_spelt_times():
    context = [ps.Text("title", 8), ps.Timestamp("at"), ps.Timestamp("ms", unit="ms"), ps.Vector("v", size=2)]
    problem = ps.Problem(name="p", context=context, actions=ps.Discrete(["a", "b"]))

    def read(condition):
        text = f'default = "a"\n[[rule]]\nwhen = {{ {condition} }}\naction = "b"'
        return read_rules(text.encode(), problem, "rules.toml")

    assert read('title = "Red"').action(("Red", "", 0, ())) == "b"
    assert read("ms = { at_least = 1e12 }").action(("", "", 1e12, ())) == "b"
    with pytest.raises(InvalidExperiment, match="rule 1: at: a rule cannot test a time that is a string, since one"):
        read('at = "2026-01-31"')
    with pytest.raises(InvalidExperiment, match="rule 1: v: a rule cannot test a list of numbers"):
        read("v = [1, 2]")
