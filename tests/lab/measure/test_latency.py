"""Latency: counts and statistics on a clock of our own, and deciders that decide as their algorithms do."""

import numpy as np
import pytest

from potstill.keys import Key
from potstill.lab.measure import latency
from potstill.lab.measure.deciders import by_networks, by_posterior, decider
from potstill.lab.runs.trial import Distilled, Undistilled
from potstill.teachers import BootstrapTS, LinearTS, NeuralLinearTS
from potstill.teachers.neural import network

CONTEXTS = np.arange(6, dtype=np.float32).reshape(3, 2)


class Clock:
    """Time that passes only while something is decided: 10 µs for even contexts, 30 µs for others."""

    def __init__(self):
        self.now, self.decided = 0, []

    def __call__(self):
        return self.now

    def decide(self, context):
        self.decided.append(context[0])
        self.now += 10_000 if context[0] % 4 == 0 else 30_000


def test_calls_go_round_the_contexts_and_are_timed_one_by_one():
    clock = Clock()
    taken = latency.timed(clock.decide, CONTEXTS, calls=200, seconds=1.0, clock=clock)
    assert taken[:4] == [10_000, 30_000, 10_000, 10_000]
    assert len(taken) == 200
    assert len(clock.decided) == 200 + latency.WARM_UP


def test_slow_algorithms_are_stopped_and_say_so():
    clock = Clock()
    taken = latency.timed(clock.decide, CONTEXTS[1:2], calls=1_000_000, seconds=0.003, clock=clock)
    assert len(taken) == 101  # 100 calls fill 3 ms, and the next one notices
    assert latency.summary("wheel", "gp-ts", taken).calls == 101


def test_figures_by_hand():
    figures = latency.summary("wheel", "linear-ts", [1_000] * 99 + [101_000])
    assert (figures.mean_us, figures.median_us, figures.calls) == (2.0, 1.0, 100)
    # One deviation of 99 and 99 of 1: variance (99² + 99)/99 = 100, two standard errors 2·10/10.
    assert figures.two_se_us == pytest.approx(2.0)
    # Between the 99th and the 100th value, one hundredth of the way.
    assert figures.p99_us == pytest.approx(2.0)
    assert latency.summary("wheel", "linear-ts", [5_000]).two_se_us == 0.0


@pytest.fixture(scope="module")
def observed():
    agent, contexts = latency.trained("wheel", "linear-ts", "paper")
    return agent, contexts


def test_what_is_timed_has_learnt_on_one_batch(observed):
    agent, contexts = observed
    assert isinstance(agent, Undistilled)
    assert contexts.shape == (latency.LEARNT, 2)
    assert agent.state.sums.n.sum() == latency.LEARNT


def agrees(decide, context, expected, draws=20_000):
    """Whether the shares of five actions are within 4.5 standard deviations, which one seed in 30,000 fails."""
    counts = np.bincount([int(decide(context)) for _ in range(draws)], minlength=len(expected))
    spread = np.sqrt(expected * (1 - expected) / draws)
    return (abs(counts / draws - expected) < 4.5 * spread + 1e-3).all()


def test_thompson_sampling_by_one_product_chooses_as_the_posterior_says(observed):
    agent, contexts = observed
    for row in (0, 7):
        expected = LinearTS().propensities(agent.state, contexts[row : row + 1], Key(0))[0]
        assert 0.02 < expected.max() < 0.98  # a choice that is certain would show nothing
        assert agrees(decider(agent, seed=row), contexts[row], expected)


def test_features_are_the_network_s_last_hidden_layer():
    agent, contexts = latency.trained("wheel", "neural-linear-ts", "paper")
    assert type(agent.teacher) is NeuralLinearTS
    expected = agent.teacher.propensities(agent.state, contexts[:1], Key(0))[0]
    assert agrees(decider(agent, seed=1), contexts[0], expected)


def test_one_network_at_random_is_the_vote_of_all():
    networks = network.random((2, 8, 8, 5), 4, Key(3))
    context = np.array([0.3, 0.9], np.float32)
    votes = np.bincount(networks.predict(context[None])[:, 0].argmax(axis=1), minlength=5) / 4
    assert 0 < votes.max() < 1
    assert agrees(by_networks(networks, np.random.default_rng(0)), context, votes)


def test_what_has_no_form_of_its_own_is_left_to_the_teacher(observed):
    """A decider that forgot the smoothing would decide otherwise than the algorithm that it stands for."""
    _, contexts = observed
    agent = Undistilled(latency.scenario("wheel").problem, BootstrapTS(networks=2, smoothing=50.0), seed=0)
    decide = decider(agent, seed=1)
    assert agrees(lambda context: decide(context)[0, 0], contexts[0], np.full(5, 0.2), draws=500)


def test_a_distilled_policy_decides_by_its_id():
    agent, contexts = latency.trained("wheel", "linear-ts-il", "paper")
    assert isinstance(agent, Distilled)
    decision = decider(agent, seed=0)(contexts[0])
    assert decision == agent.policy.decide(contexts[0], id=decision.id)


def test_the_scale_of_a_reward_is_that_of_its_marginal(observed):
    """With draws of 1 instead of random ones, the choice is the highest upper bound: location plus scale."""
    agent, contexts = observed
    marginals = LinearTS().marginals(agent.state, contexts[:40])
    expected = (marginals.location + marginals.scale).argmax(axis=1)
    decide = by_posterior(agent.state.posterior, Ones())
    assert [decide(context) for context in contexts[:40]] == expected.tolist()


class Ones:
    """A generator whose luck is always 1."""

    def standard_t(self, dof):
        return np.ones(len(dof))


def test_measuring_covers_every_algorithm_on_every_problem():
    said = []
    measured = latency.measure(["wheel"], ["uniform", "linear-ts", "adaptive-ts"], 30, on_progress=said.append)
    assert [(one.problem, one.algorithm, one.calls) for one in measured] == [
        ("wheel", "uniform", 30),
        ("wheel", "linear-ts", 30),
        ("wheel", "adaptive-ts", 30),  # not in the preset paper, so by its own
    ]
    assert said == ["wheel, uniform", "wheel, linear-ts", "wheel, adaptive-ts"]
    assert all(one.mean_us > 0 for one in measured)
