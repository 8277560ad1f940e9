"""A space that only the tests have goes the whole circle, through the public contract alone."""

import msgspec
import numpy as np
import pytest
from integer_range import IntegerRange
from quadratic_ts import QuadraticTS

import potstill as ps
from potstill.errors import InvalidAction, UnsupportedSpace
from potstill.keys import Key
from potstill.teachers import LinearTS
from potstill.teachers.registry import TEACHERS

LOW, HIGH = 2, 14
PROBLEM = f"""
name = "price"
[[context]]
type = "numeric"
name = "demand"
low = 0
high = 1
[actions]
type = "integer-range"
low = {LOW}
high = {HIGH}
[reward]
window = "1h"
"""


def best(demand):
    """The best price rises with demand, from 4 to 12."""
    return 4 + 8 * demand


def reward(demand, price, rng):
    return 1 - ((price - best(demand)) / 6) ** 2 + 0.1 * rng.standard_normal(np.shape(price))


@pytest.fixture
def problem(tmp_path):
    (tmp_path / "problem.toml").write_text(PROBLEM)
    return ps.Problem.load(tmp_path / "problem.toml")


def observed(policy, n, seed):
    rng = Key(seed).generator()
    demand = rng.random(n)
    actions, propensities = policy.decide_many(
        policy.problem.encode_many({"demand": demand}), [f"{seed}-{i}" for i in range(n)]
    )
    return ps.Observations.from_columns(
        policy.problem,
        contexts={"demand": demand},
        actions=actions,
        rewards=reward(demand, actions, rng),
        propensities=propensities,
    )


def distilled(problem, batches=4):
    still = ps.Still(problem, QuadraticTS(), student=ps.Student(hidden=(16,), steps=400, contexts=512), floor=0.002)
    for seed in range(batches):
        report = still.update(observed(still.policy, 300, seed))
    return still, report


def test_problem_file_and_hash(problem, tmp_path):
    assert problem.actions == IntegerRange(LOW, HIGH)
    problem.save(tmp_path / "again.toml")
    assert ps.Problem.load(tmp_path / "again.toml") == problem
    assert msgspec.json.decode(msgspec.json.encode(problem), type=ps.Problem).hash == problem.hash
    other = ps.Problem(name="price", context=problem.context, actions=IntegerRange(LOW, HIGH + 1))
    assert other.hash != problem.hash


def test_the_uniform_policy_decides(problem):
    policy = ps.Policy.uniform(problem)
    decision = policy.decide({"demand": 0.5}, id="a")
    assert (type(decision.action), decision.propensity) == (int, pytest.approx(1 / 13))
    assert policy.decide({"demand": 0.5}, id="a") == decision
    narrowed = policy.decide({"demand": 0.5}, id="a", eligible=[5, 8], floor=0.05)
    assert 5 <= narrowed.action <= 8
    assert (narrowed.propensity, narrowed.eligible, narrowed.floor) == (pytest.approx(0.25), (5, 8), 0.05)
    with pytest.raises(InvalidAction, match="expected a whole number from 2 to 14, got 99"):
        policy.decide({"demand": 0.5}, eligible=[5, 99])
    with pytest.raises(ValueError, match="floor must be a number from 0 to 1/13"):
        policy.decide({"demand": 0.5}, floor=0.5)


def test_teachers_say_what_they_support(problem):
    with pytest.raises(
        UnsupportedSpace, match=r"LinearTS does not support IntegerRange.*needs a finite list of actions"
    ):
        ps.Still(problem, LinearTS())
    finite = ps.Problem(name="p", context=problem.context, actions=ps.Discrete(["a", "b"]))
    with pytest.raises(UnsupportedSpace, match=r"QuadraticTS does not support Discrete.*use adaptive-ts, bootstrap-ts"):
        ps.Still(finite, QuadraticTS())
    with pytest.raises(UnsupportedSpace, match=r"Policy\.probabilities needs a finite list of actions"):
        ps.Policy.uniform(problem).probabilities({"demand": 0.5})


def test_a_teacher_is_imitated_and_the_policy_file_decides_the_same(problem, tmp_path):
    still, report = distilled(problem)
    assert report.exactness.kind == "sampled"
    assert report.fidelity.kl_mean < 0.15
    assert report.fidelity.smallest_propensity >= 0.002 * (1 - 1e-5)
    for demand in (0.1, 0.5, 0.9):
        taken = [still.policy.decide({"demand": demand}, id=str(i)).action for i in range(200)]
        assert abs(np.mean(taken) - best(demand)) < 1.5
    still.policy.save(tmp_path / "price.policy")
    loaded = ps.Policy.load(tmp_path / "price.policy", problem)
    assert loaded.runtime == "numpy"
    assert loaded.decide({"demand": 0.3}, id="x") == still.policy.decide({"demand": 0.3}, id="x")
    with pytest.raises(RuntimeError, match="the native kernel has no QuadraticHead head"):
        loaded.with_runtime("native")


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setitem(TEACHERS, "quadratic-ts", QuadraticTS)
