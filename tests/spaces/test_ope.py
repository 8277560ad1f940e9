"""Off-policy evaluation by the contract of a space alone: against the list's own module, and against definitions."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest
from evaluate_examples import CONTEXTS, LOGGING, MEANS, RICH, SHARES, TARGET, TINY, rich_log
from examples import random_layers

import potstill as ps
from potstill.errors import InvalidAction, InvalidLog, InvalidModel, InvalidTarget, UnsupportedSpace
from potstill.evaluate import ArrayLog, Block, compute_terms, evaluate, fitted, numbered, target
from potstill.evaluate.models import FunctionModel
from potstill.policy import Layer
from potstill.spaces import WireTypes, off_policy, register, registry
from potstill.spaces.ope import GeneralOffPolicy


class StepDistribution:
    """Probabilities of the integers low, low + 1 …; actions are the integers themselves."""

    def __init__(self, p, low):
        self.p, self.low = p, low

    def draw(self, u):
        below = self.p.cumsum(axis=1, dtype=float)
        return (self.low + (below <= u[:, :1] * below[:, -1:]).sum(axis=1)).astype(np.int32)

    def propensity(self, actions):
        return self.p[np.arange(len(self.p)), actions - self.low].astype(np.float64)

    def drawn(self, u, actions, tolerance):
        return self.draw(u) == actions

    def nodes(self):
        for place in range(self.p.shape[1]):
            yield np.full(len(self.p), self.low + place, np.int32), self.p[:, place].astype(np.float64)


class StepHead(msgspec.Struct, frozen=True):
    low: int
    outputs: int
    draws: int = 1
    kernel: str = ""

    def check_floor(self, floor):
        pass

    def distribution(self, outputs, allowed, floor):
        scores = outputs if allowed is None else np.where(allowed, outputs, -np.inf)
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        return StepDistribution(p / p.sum(axis=1, keepdims=True), self.low)


class Steps(msgspec.Struct, frozen=True, tag_field="type", tag="test-steps"):
    """Integers from low to high: a counting measure that is no list of names."""

    low: int
    high: int

    measure: ClassVar = "counting"
    columns: ClassVar[Mapping[str, Any]] = {"action": "integer", "eligible": "integers"}
    wire: ClassVar = WireTypes(int, list[int])

    @property
    def examples(self):
        return [self.low, self.high]

    def parse(self, value):
        if isinstance(value, bool) or not isinstance(value, int) or not self.low <= value <= self.high:
            raise InvalidAction(f"an action must be an integer from {self.low} to {self.high}, got {value!r}")
        return value

    def encode(self, values):
        return np.array([self.parse(value) for value in values], np.int32)

    def decode(self, actions):
        return actions.tolist()

    def valid(self, actions):
        return (actions >= self.low) & (actions <= self.high)

    def embed(self, actions):
        x = (np.asarray(actions, np.float32) - self.low) / (self.high - self.low)
        return np.stack([x, x * x], axis=1)

    def restrict(self, eligible):
        raise NotImplementedError

    def allow(self, eligible: Sequence[Any]):
        if all(each is None for each in eligible):
            return None
        numbers = range(self.low, self.high + 1)
        return np.array([[each is None or number in each for number in numbers] for each in eligible])

    def head(self):
        return StepHead(self.low, self.high - self.low + 1)


class TiltedDistribution:
    """Densities 1 + θ(2a - 1) on [0, 1]."""

    def __init__(self, tilt):
        self.tilt = tilt.astype(np.float64)

    def draw(self, u):
        raise NotImplementedError

    def propensity(self, actions):
        return 1 + self.tilt * (2 * actions[:, 0] - 1)

    def nodes(self):
        points, weights = np.polynomial.legendre.leggauss(5)
        for point, weight in zip((points + 1) / 2, weights / 2, strict=True):
            actions = np.full((len(self.tilt), 1), point)
            yield actions, weight * self.propensity(actions)


class TiltedHead(StepHead, frozen=True):
    def distribution(self, outputs, allowed, floor):
        return TiltedDistribution(np.tanh(outputs[:, 0]))


class Unit(Steps, frozen=True, tag_field="type", tag="test-unit"):
    """Numbers from 0 to 1: a density."""

    measure: ClassVar = "lebesgue"

    def parse(self, value):
        return float(value)

    def encode(self, values):
        return np.array(values, np.float32)[:, None]

    def valid(self, actions):
        return ((actions >= 0) & (actions <= 1)).all(axis=1)

    def embed(self, actions):
        return np.asarray(actions, np.float32)

    def head(self):
        return TiltedHead(0, 1)


register(Steps, learn="potstill.spaces.finite_learning")
register(Unit, learn="potstill.spaces.finite_learning")

STEPS = ps.Problem(name="steps", context=[ps.Boolean("x")], actions=Steps(3, 5))
UNIT = ps.Problem(name="unit", context=[ps.Boolean("x")], actions=Unit(0, 1), reward=ps.Reward(low=-10.0, high=10.0))


@pytest.fixture
def general(monkeypatch):
    """A list of actions, evaluated by its contract alone."""
    monkeypatch.setitem(registry.SPACES, "discrete", registry.SPACES["discrete"]._replace(ope=None))
    assert isinstance(off_policy(TINY.actions), GeneralOffPolicy)


def means(contexts):
    """A reward model for a list of actions."""
    return contexts[:, :1] * [0.1, 0.5, 0.9] + [0.2, 0.0, 0.1]


def mean(contexts, actions):
    """The same model for one action per row."""
    return means(contexts)[np.arange(len(contexts)), actions]


RICH_TARGETS = {
    "policy": ps.Policy.build(RICH, random_layers(RICH), version=7),
    "uniform": "uniform",
    "logged": "logged",
    "fixed": "middle",
    "function": lambda contexts: np.where(contexts[:, 0] > 0.5, 2, 0),
}


@pytest.mark.parametrize("what", RICH_TARGETS)
def test_a_list_by_its_contract_has_the_terms_of_its_own_module(general, monkeypatch, what):
    log = rich_log(500)
    by_contract = compute_terms(log, [target(RICH, RICH_TARGETS[what])], FunctionModel(mean))
    monkeypatch.undo()
    by_module = compute_terms(log, [target(RICH, RICH_TARGETS[what])], FunctionModel(means))
    for name in ("weight", "reward", "predicted", "expected", "probability", "propensity", "matched", "missing"):
        one, other = getattr(by_contract.terms[0], name), getattr(by_module.terms[0], name)
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7, err_msg=name)
    assert by_contract.uniform == by_module.uniform


def test_the_shared_regression_of_a_list_is_close_to_one_for_each_action(general, monkeypatch):
    log = rich_log(4000)
    shared = evaluate(log, RICH_TARGETS["policy"]).target.estimates
    monkeypatch.undo()
    apart = evaluate(log, RICH_TARGETS["policy"]).target.estimates
    for name in ("ips", "snips", "replay"):
        assert shared[name].value == pytest.approx(apart[name].value, rel=1e-6)
    for name in ("dm", "dr"):
        assert abs(shared[name].value - apart[name].value) < 0.2 * apart["dr"].standard_error


def every_row(problem, encode):
    """All rows that can be logged, each once, with its probability."""
    pairs = list(product(range(2), range(3)))
    x, a = np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])
    log = ArrayLog(problem, contexts=CONTEXTS[x], actions=encode(a), rewards=MEANS[x, a], propensities=LOGGING[x, a])
    return log, x, a, SHARES[x] * LOGGING[x, a]


class StepTarget:
    """What the target of the enumerable world does, over the steps 3, 4 and 5."""

    name = "steps"

    def distribution(self, block, first_row):
        return StepDistribution(TARGET[block.contexts[:, 0].astype(int)], 3)


def wrong_model(contexts, actions=None):
    guess = MEANS[contexts[:, 0].astype(int)] * 0.5 + [0.3, -0.2, 0.1]
    return guess if actions is None else guess[np.arange(len(contexts)), actions - 3]


@pytest.mark.parametrize(
    ("problem", "encode", "what"),
    [
        (TINY, lambda a: a, lambda contexts: TARGET[contexts[:, 0].astype(int)]),
        (STEPS, lambda a: 3 + a, StepTarget()),
    ],
    ids=["list", "steps"],
)
def test_terms_of_every_possible_row_are_those_of_the_definition(problem, encode, what):
    log, x, a, probability = every_row(problem, encode)
    terms = compute_terms(log, [target(problem, what)], FunctionModel(wrong_model)).terms[0]
    guess = wrong_model(CONTEXTS[x])
    np.testing.assert_allclose(terms.probability, TARGET[x, a])
    np.testing.assert_allclose(terms.weight, TARGET[x, a] / LOGGING[x, a])
    np.testing.assert_allclose(terms.predicted, guess[np.arange(6), a])
    np.testing.assert_allclose(terms.expected, (TARGET[x] * guess).sum(axis=1))
    assert not terms.missing.any()
    value = float(SHARES @ (TARGET * MEANS).sum(axis=1))
    assert probability @ (terms.weight * terms.reward) == pytest.approx(value)
    doubly_robust = terms.expected + terms.weight * (terms.reward - terms.predicted)
    assert probability @ doubly_robust == pytest.approx(value)


def test_each_row_matches_one_action():
    log, *_ = every_row(STEPS, lambda a: 3 + a)
    (_, rows), matches = next(numbered(log)), np.zeros(6)
    for step in (3, 4, 5):
        moved = ArrayLog(
            STEPS, contexts=rows.contexts, actions=np.full(6, step), rewards=np.zeros(6), propensities=np.ones(6)
        )
        matches += compute_terms(moved, [StepTarget()], FunctionModel(wrong_model)).terms[0].matched
    assert (matches == 1).all()


def steps_log(rows=8000, *, seed=0, **columns):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 2, rows)
    places = (rng.random((rows, 1)) > LOGGING[x].cumsum(axis=1)).sum(axis=1)
    rewards = MEANS[x, places] + rng.normal(0, 0.5, rows)
    return ArrayLog(
        STEPS, contexts=CONTEXTS[x], actions=3 + places, rewards=rewards, propensities=LOGGING[x, places], **columns
    )


def policy_of_steps():
    layer = Layer(np.array([[1.0, -1.0, 0.5]], np.float32), np.array([0.0, 0.5, 0.2], np.float32))
    return ps.Policy.build(STEPS, [layer], version=1)


def value_of(p):
    """What probabilities [2, 3] earn where both contexts are as frequent."""
    return float((np.asarray(p) * MEANS).sum(axis=1).mean())


STEP_TARGETS = {
    "uniform": ("uniform", np.full((2, 3), 1 / 3)),
    "fixed": (4, np.eye(3)[[1, 1]]),
    "actions": (lambda contexts: 3 + 2 * contexts[:, 0].astype(np.int32), np.eye(3)[[0, 2]]),
    "values": (lambda contexts: [4] * len(contexts), np.eye(3)[[1, 1]]),
    "policy": (policy_of_steps(), policy_of_steps().distribution(CONTEXTS).p),
}


@pytest.mark.parametrize("name", STEP_TARGETS)
def test_integers_are_evaluated(name):
    what, p = STEP_TARGETS[name]
    found = evaluate(steps_log(), what, against="logged", intervals=("normal", "bootstrap"))
    for estimator in ("ips", "snips", "dm", "dr"):
        estimate = found.target.estimates[estimator]
        error = max(estimate.standard_error, found.estimate.standard_error)  # that of dm leaves out the model's
        assert abs(estimate.value - value_of(p)) < 4 * error
    assert found.target.trust.grade == "good"


def test_an_array_of_actions_is_a_target():
    log = steps_log(50)
    assert evaluate(log, np.full(50, 4)).estimate.value == evaluate(log, 4).estimate.value
    with pytest.raises(InvalidTarget, match="actions have 49 rows, but the log has 50"):
        evaluate(log, np.full(49, 4))


def test_steps_that_were_never_logged_are_missing():
    log = ArrayLog(STEPS, contexts=CONTEXTS, actions=[3, 4], rewards=[0, 1], propensities=[0.5, 0.5])
    terms = compute_terms(log, [target(STEPS, each) for each in ("uniform", 5)], fitted(None, log)).terms
    np.testing.assert_allclose(terms[0].missing, 1 / 3, rtol=1e-6)
    assert terms[1].missing.tolist() == [1.0, 1.0]


def test_a_fixed_step_that_is_not_allowed_becomes_uniform():
    allowed = STEPS.actions.allow([[3, 4], None])
    block = Block(CONTEXTS, np.array([3, 5], np.int32), np.zeros(2), np.ones(2), allowed)
    distribution = target(STEPS, 5).distribution(block, 0)
    assert distribution.propensity(np.array([3, 5])).tolist() == [0.5, 1.0]
    assert distribution.propensity(np.array([5, 3])).tolist() == [0.0, 0.0]
    assert distribution.draw(np.array([[0.7], [0.7]])).tolist() == [4, 5]
    assert distribution.drawn(np.array([[0.7], [0.7]]), np.array([4, 5]), 0.0).tolist() == [True, True]
    totals = {3: [0.5, 0.0], 4: [0.5, 0.0], 5: [0.0, 1.0]}
    for step, total in totals.items():
        at = sum(np.where(actions == step, weights, 0.0) for actions, weights in distribution.nodes())
        assert at.tolist() == total


def test_rows_that_took_what_was_not_allowed_are_refused():
    allowed = STEPS.actions.allow([[3, 4], None])
    with pytest.raises(InvalidLog, match=r"row 0: action must be eligible.*got 5"):
        ArrayLog(STEPS, contexts=CONTEXTS, actions=[5, 5], rewards=[0, 0], propensities=[1, 1], eligible=allowed)


def test_blocks_without_restrictions_do_not_go_with_others_where_a_space_has_no_array_for_them():
    (rows,) = steps_log(4).blocks()
    allowed = STEPS.actions.allow([[3, 4, 5]] * 2)

    class Mixed:
        problem = STEPS

        def blocks(self):
            yield Block(rows.contexts[:2], rows.actions[:2], rows.rewards[:2], rows.propensities[:2], allowed)
            yield rows[2:]

    with pytest.raises(UnsupportedSpace, match="state `eligible` in all blocks of the log, or in none"):
        list(numbered(Mixed()))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda contexts: np.full(len(contexts), 9), "row 0: 9 is not an action of"),
        (lambda contexts: [3, 4, 9], r"in the rows from 0 on: an action must be an integer from 3 to 5, got 9"),
        (lambda contexts: np.array([3]), "must give an action for each of 3 contexts"),
        (lambda contexts: 4, "must give an action for each of 3 contexts"),
    ],
)
def test_functions_that_do_not_give_actions(given, message):
    with pytest.raises(InvalidTarget, match=message):
        evaluate(steps_log(3), given)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda contexts, actions: np.zeros((len(contexts), 3)), r"must give shape \(4,\), got \(4, 3\)"),
        (lambda contexts, actions: np.full(len(contexts), np.nan), "row 0: the reward model must be finite"),
    ],
)
def test_models_that_do_not_predict_rewards(model, message):
    with pytest.raises(InvalidModel, match=message):
        evaluate(steps_log(20), "uniform", model=model)


def test_densities_are_evaluated():
    rng = np.random.default_rng(0)
    x, u = rng.integers(0, 2, 20_000), rng.random(20_000)
    tilt = np.where(x, 0.5, -0.5)
    # The inverse of the distribution function a + θ(a² - a).
    doses = ((tilt - 1) + np.sqrt((1 - tilt) ** 2 + 4 * tilt * u)) / (2 * tilt)
    propensities = 1 + tilt * (2 * doses - 1)
    rewards = 1 + doses * (1 + x) + rng.normal(0, 0.1, 20_000)
    actions = doses[:, None].astype(np.float32)
    log = ArrayLog(UNIT, contexts=CONTEXTS[x], actions=actions, rewards=rewards, propensities=propensities)
    found = evaluate(log, "uniform", intervals=("normal", "bernstein"))
    for estimator in ("ips", "snips", "dr"):
        estimate = found.target.estimates[estimator]
        assert abs(estimate.value - (1 + 0.5 * 1.5)) < 4 * estimate.standard_error
    assert found.target.estimates["dm"].value == pytest.approx(1.75, abs=0.01)
    assert found.target.estimates["replay"].value is None
    assert "no bound" in found.target.estimates["ips"].intervals["bernstein"].note
    with pytest.raises(UnsupportedSpace, match=r"has no density on .*potstill\.evaluate\.continuous"):
        evaluate(log, 0.5)


def test_targets_with_a_propensity_that_is_no_number_are_refused():
    class Broken(StepTarget):
        def distribution(self, block, first_row):
            return StepDistribution(np.full((len(block), 3), np.nan), 3)

    with pytest.raises(InvalidTarget, match="steps, row 0: the propensity of the logged action must be a finite"):
        evaluate(steps_log(20), Broken())


def test_a_density_must_be_finite():
    with pytest.raises(InvalidLog, match="row 1: propensity must be a density above 0, got inf"):
        ArrayLog(
            UNIT, contexts=CONTEXTS, actions=np.zeros((2, 1), np.float32), rewards=[0, 0], propensities=[7.0, np.inf]
        )
