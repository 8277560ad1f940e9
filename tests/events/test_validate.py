"""Events as wire bytes: what fits the problem is stored as it was sent, and what does not is refused with a reason."""

import enum
import math
import re
import subprocess
import sys
from types import MappingProxyType

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import potstill as ps
from potstill.events import Event, InvalidEvent, LoggedDecision, LoggedObservation, LoggedReward
from potstill.events.records import DecisionRow, Row
from potstill.events.reward_keys import OBSERVATION, stored_key
from potstill.events.validate import EventValidator
from potstill.problem import InvalidContext, Problem

TIME = 1_700_000_000_000_000
EVERY_KIND = Problem(
    name="every-kind",
    context=[
        ps.Numeric("size", low=0, high=10),
        ps.Numeric("age of user", low=1, high=100, scale="log", missing="flag"),
        ps.Numeric("rate", low=-1, high=1, missing=0.5),
        ps.Categorical("network", ["4g", "wifi"]),
        ps.Categorical("plan", ["free", "paid"], missing="error"),
        ps.Boolean("hd"),
        ps.Boolean("returning", missing="flag"),
    ],
    actions=ps.Discrete(["low", "high"]),
    reward=ps.Reward(low=-1, high=5),
)


def decision(context: object = None, **changes: object) -> LoggedDecision:
    fields = {"id": "a", "action": "480p", "propensity": 0.25, "policy": 3, "time": TIME} | changes
    default = {"bandwidth_kbps": 900, "connection": "4g", "hd_screen": True}
    return LoggedDecision(context=default if context is None else context, **fields)


#: Place of the values of a context in a row.
AT_VALUES = 1 + DecisionRow.__struct_fields__.index("values")


def stored(problem: Problem, event: Event) -> list[object]:
    return msgspec.msgpack.decode(EventValidator(problem).encode(event))


def test_a_decision_is_stored_with_its_values_in_feature_order(problem):
    context = {"hd_screen": True, "bandwidth_kbps": 900, "connection": "4g"}
    row = stored(
        problem,
        decision(
            context,
            eligible=["480p", "720p"],
            floor=0.01,
            unit="user-7",
            mode="apprentice",
            arm="hd:treatment",
            would="720p",
            own_propensity=0.5,
        ),
    )
    head = ["d", "a", TIME, "480p", 0.25, 3, ["480p", "720p"], 0.01, "user-7", "apprentice"]
    assert row == [*head, [900.0, "4g", True], "hd:treatment", "720p", 0.5]
    assert isinstance(row[AT_VALUES][0], float)


def test_a_reward_is_stored(problem):
    reward = LoggedReward(id="a", reward=2, key="click", metrics={"watched": 3}, time=TIME)
    assert stored(problem, reward) == ["r", "a", TIME, 2.0, "click", {"watched": 3.0}]


def test_rewards_without_key_and_time_are_told_apart_also_in_one_microsecond(problem, monkeypatch):
    monkeypatch.setattr("potstill.events.validate.now", lambda: TIME)
    encode = EventValidator(problem).encode
    rows = [msgspec.msgpack.decode(encode(LoggedReward(id="a", reward=1.0))) for _ in range(1000)]
    rows += [stored(problem, LoggedReward(id="a", reward=1.0)) for _ in range(10)]
    assert len({row[4] for row in rows}) == 1010
    assert {row[2] for row in rows} == {TIME}


def test_a_reward_that_states_its_time_needs_no_key(problem):
    assert stored(problem, LoggedReward(id="a", reward=1.0, time=TIME))[4] is None


def test_a_forked_process_generates_keys_of_its_own():
    """In a fresh process: one that has threads, as this one may, must not fork."""
    program = """
import os
from potstill.events.reward_keys import generated_key
ours = [generated_key() for _ in range(3)]
theirs, end = os.pipe()
if os.fork() == 0:
    os.write(end, " ".join(generated_key() for _ in range(3)).encode())
    os._exit(0)
os.wait()
print(len({*ours, *(generated_key() for _ in range(3)), *os.read(theirs, 1000).decode().split()}))
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout == "9\n"


@given(st.text(max_size=12), st.text(max_size=12))
def test_callers_keys_are_stored_apart_from_each_other_and_from_the_lakes_own(one, other):
    for first, second in ((one, other), (one, OBSERVATION), ("\\" + one, other), ("\\" + OBSERVATION, OBSERVATION)):
        assert (stored_key(first) == stored_key(second)) == (first == second)
        assert OBSERVATION not in (stored_key(first), stored_key(second))
    assert stored_key(None) is None


@pytest.mark.parametrize(
    ("metrics", "refusal"),
    [
        ([1.0], "metrics must be a mapping"),
        ({"": 1.0}, "a metric's name must be a non-empty string"),
        ({"watched": "long"}, "metric watched must be a number"),
        ({"watched": float("nan")}, "metric watched must be a finite number"),
    ],
)
def test_metrics_that_are_no_numbers_are_refused(problem, metrics, refusal):
    with pytest.raises(InvalidEvent, match=refusal):
        stored(problem, LoggedReward(id="a", reward=2, metrics=metrics))


def test_rows_from_before_there_were_arms_and_metrics_are_read():
    decision = msgspec.msgpack.decode(
        msgspec.msgpack.encode(["d", "a", TIME, "480p", 0.25, 3, None, None, None, None, [1.0]]), type=Row
    )
    reward = msgspec.msgpack.decode(msgspec.msgpack.encode(["r", "a", TIME, 2.0, None]), type=Row)
    seen = msgspec.msgpack.decode(msgspec.msgpack.encode(["o", decision, 2.0, TIME]), type=Row)
    assert (decision.arm, reward.metrics, seen.metrics) == (None, None, None)


def test_an_observation_is_stored_with_the_decision_in_it(problem):
    seen = LoggedObservation(decision=decision(), reward=1.5, reward_time=TIME + 1, metrics={"watched": 3})
    assert stored(problem, seen) == ["o", stored(problem, decision()), 1.5, TIME + 1, {"watched": 3.0}]


def test_an_observation_without_a_reward_is_of_the_time_of_its_decision(problem):
    row = stored(problem, LoggedObservation(decision=decision()))
    assert row == ["o", stored(problem, decision()), None, TIME, None]


def test_metrics_of_an_observation_come_with_a_reward(problem):
    with pytest.raises(InvalidEvent, match=r"'a' .*: metrics need a reward, and there is none"):
        stored(problem, LoggedObservation(decision=decision(), metrics={"watched": 3}))


def test_an_event_without_a_time_is_of_now(problem, monkeypatch):
    monkeypatch.setattr("potstill.events.validate.now", lambda: TIME + 7)
    assert stored(problem, decision(time=None))[2] == TIME + 7
    assert stored(problem, LoggedReward(id="a", reward=1.0))[2] == TIME + 7


class Connection(str, enum.Enum):  # noqa: UP042 (an old enumeration, whose str() is its name)
    FAST = "4g"


@pytest.mark.parametrize(
    "context",
    [
        {"bandwidth_kbps": np.float32(900), "connection": np.str_("4g"), "hd_screen": np.bool_(True)},
        {"bandwidth_kbps": np.int64(900), "connection": Connection.FAST, "hd_screen": True},
        {np.str_("bandwidth_kbps"): np.longdouble(900), "connection": "4g", "hd_screen": True},
        {"bandwidth_kbps": 900, "connection": Connection.FAST, "hd_screen": True},
        MappingProxyType({"bandwidth_kbps": 900.0, "connection": "4g", "hd_screen": True}),
    ],
)
def test_numpy_scalars_enumerations_and_other_mappings_are_taken(problem, context):
    assert stored(problem, decision(context))[AT_VALUES] == [900.0, "4g", True]


def test_numbers_of_other_types_are_stored_as_plain_ones(problem):
    event = decision(
        propensity=np.float32(0.5), policy=np.int32(3), time=np.int64(TIME), action=np.str_("480p"), floor=0
    )
    assert stored(problem, event)[1:8] == ["a", TIME, "480p", 0.5, 3, None, 0.0]
    assert stored(problem, decision(propensity=1))[4] == 1.0


BAD_DECISIONS = [
    ({"id": ""}, "id must be a non-empty string"),
    ({"id": 17}, "17"),
    ({"id": "ä" * 501}, "at most 1000 bytes in UTF-8, got 1002"),
    ({"id": "\ud800"}, "valid Unicode"),
    ({"action": "4k"}, "unknown action '4k'.*360p, 480p, 720p, 1080p"),
    ({"action": ["480p"]}, "unknown action"),
    ({"propensity": 0.0}, "propensity must be a probability above 0"),
    ({"propensity": 1.0000001}, "1.0000001"),
    ({"propensity": math.nan}, "nan"),
    ({"propensity": True}, "propensity must be a number"),
    ({"propensity": "0.5"}, "propensity must be a number"),
    ({"policy": -1}, "policy must be the version"),
    ({"policy": 2**63}, "policy must be the version"),
    ({"policy": 1.0}, "policy must be a whole number"),
    ({"policy": True}, "policy must be a whole number"),
    ({"eligible": ("480p", "4k")}, "unknown action '4k'"),
    ({"eligible": ("360p",)}, "eligible must contain the action that was taken, '480p'"),
    ({"eligible": ()}, "eligible is empty"),
    ({"eligible": "480p"}, "eligible must be a list"),
    ({"eligible": 5}, "eligible must be a list"),
    ({"floor": 1.0}, "floor must be"),
    ({"floor": -0.1}, "floor must be"),
    ({"unit": ""}, "unit must be"),
    ({"mode": "online"}, "mode must be one of apprentice, log-only, fallback, control, design, or left out"),
    ({"time": -1}, "time must be microseconds since 1970"),
    ({"time": 7_258_118_400_000_000}, "before the year 2200"),
    ({"time": 1.5}, "time must be a whole number"),
]


@pytest.mark.parametrize(("changes", "reason"), BAD_DECISIONS)
def test_a_decision_that_does_not_fit_is_refused(problem, changes, reason):
    with pytest.raises(InvalidEvent, match=reason):
        stored(problem, decision(**changes))


@pytest.mark.parametrize(
    ("reward", "reason"),
    [
        (LoggedReward(id="a", reward=math.nan), "nan"),
        (LoggedReward(id="a", reward=math.inf), "inf"),
        (LoggedReward(id="a", reward=10**400), "reward must be a number from -1 to 5"),
        (LoggedReward(id="a", reward=5.1), "reward must be a number from -1 to 5, got 5.1"),
        (LoggedReward(id="a", reward=-1.1), "-1.1"),
        (LoggedReward(id="a", reward=None), "reward must be a number"),
        (LoggedReward(id="a", reward=True), "reward must be a number"),
        (LoggedReward(id="", reward=1.0), "id"),
        (LoggedReward(id="a", reward=1.0, key=""), "key"),
        (LoggedReward(id="a", reward=1.0, key="k" * 1001), "key"),
        (LoggedReward(id="a", reward=1.0, time=-5), "time"),
        ({"id": "a", "reward": 1.0}, "expected a LoggedDecision"),
    ],
)
def test_a_reward_that_does_not_fit_is_refused(reward, reason):
    with pytest.raises(InvalidEvent, match=reason):
        stored(EVERY_KIND, reward)


def test_rewards_without_stated_bounds_are_bounded_by_what_can_be_squared(problem):
    assert stored(problem, LoggedReward(id="a", reward=1e100, time=TIME))[3] == 1e100
    with pytest.raises(InvalidEvent, match=r"from -1e\+100 to 1e\+100"):
        stored(problem, LoggedReward(id="a", reward=-1.1e100))


@pytest.mark.parametrize(
    ("observation", "reason"),
    [
        (LoggedObservation(decision=decision(time=None)), "needs its time"),
        (LoggedObservation(decision=decision(), reward=math.nan), "reward"),
        (LoggedObservation(decision=decision(), reward=1.0, reward_time=-1), "reward_time"),
        (LoggedObservation(decision=decision(propensity=0)), "propensity"),
        (LoggedObservation(decision=None), "must be a LoggedDecision"),
    ],
)
def test_an_observation_that_does_not_fit_is_refused(problem, observation, reason):
    with pytest.raises(InvalidEvent, match=reason):
        stored(problem, observation)


@pytest.mark.parametrize(
    ("context", "reason"),
    [
        ({"connection": "4g", "hd_screen": True}, "'bandwidth_kbps' is missing"),
        ({"bandwidth_kbps": 1, "hd_screen": True, "size": 1}, "unknown feature 'size'"),
        ({"bandwidth_kbps": math.nan, "hd_screen": True}, "finite number"),
        ({"bandwidth_kbps": "1", "hd_screen": True}, "expected a number"),
        ({"bandwidth_kbps": 1, "hd_screen": 1}, "expected true or false"),
        (np.zeros(6, np.float32), "must be a mapping"),
        ([], "must be a mapping"),
    ],
)
def test_a_context_that_does_not_fit_is_refused_in_the_words_of_the_problem(problem, context, reason):
    with pytest.raises(InvalidContext, match=reason):
        stored(problem, decision(context))


def test_an_event_that_is_too_large_is_refused(problem):
    context = {"bandwidth_kbps": 1, "connection": "x" * 2**20, "hd_screen": True}
    with pytest.raises(InvalidEvent, match="at most 1048576 bytes"):
        stored(problem, decision(context))


def test_text_that_is_no_unicode_is_refused_in_a_context_too(problem):
    with pytest.raises(InvalidEvent, match="valid Unicode"):
        stored(problem, decision({"bandwidth_kbps": 1, "connection": "\udfff", "hd_screen": True}))


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([10**400, -(10**400), 2**1023, 2**53 + 1]),
    st.floats(),
    st.floats(width=32).map(np.float32),
    st.floats().map(np.float64),
    st.booleans().map(np.bool_),
    st.text(st.characters(codec="utf-8"), max_size=5),
    st.sampled_from(["4g", "wifi", "free", "paid"]),
    st.sampled_from(["4g", "paid"]).map(np.str_),
    st.just([1]),
)
FITTING = st.fixed_dictionaries(
    {"size": st.floats(0, 20) | st.integers(-5, 5), "plan": st.sampled_from(["free", "x"]), "hd": st.booleans()}
)
CHANGES = st.dictionaries(
    st.sampled_from([*(feature.name for feature in EVERY_KIND.context), "other"]), VALUES, max_size=3
)


@given(FITTING, CHANGES)
def test_a_context_is_taken_if_and_only_if_the_problem_can_encode_it(fitting, changes):
    context = fitting | changes
    try:
        expected = EVERY_KIND.encode(context)
    except InvalidContext as error:
        with pytest.raises(InvalidContext, match=re.escape(str(error))):
            stored(EVERY_KIND, decision(context, action="low"))
    else:
        values = stored(EVERY_KIND, decision(context, action="low"))[AT_VALUES]
        names = [feature.name for feature in EVERY_KIND.context]
        np.testing.assert_array_equal(EVERY_KIND.encode(dict(zip(names, values, strict=True))), expected)


@pytest.mark.parametrize("name", ['height "in"', "a\\b", "a\nb", "a\0b"])
def test_features_that_cannot_be_fields_are_refused_by_name(name):
    problem = ps.Problem(name="p", context=[ps.Boolean(name)], actions=ps.Discrete(["a", "b"]))
    with pytest.raises(ps.InvalidProblem, match=r"cannot be logged or asked for: .* rename it in the problem"):
        EventValidator(problem)
