"""Linear-TS on an interval against dense algebra, brute force, and problems whose best action is known."""

import numpy as np
import pytest

from potstill.distill import Still, Student
from potstill.errors import UnsupportedSpace
from potstill.keys import Key
from potstill.problem import Discrete, Numeric, Observations, Problem
from potstill.spaces import Continuous
from potstill.teachers import AutoTS, ContinuousLinearTS, LinearTS
from potstill.teachers.continuous import maximiser
from potstill.teachers.continuous.basis import cosines
from potstill.teachers.continuous.evidence import covariance
from potstill.teachers.continuous.linear_ts import squares

KEY = Key(5)


def problem(columns=2, **options):
    context = [Numeric(f"x{i}", low=0, high=1) for i in range(columns)]
    space = Continuous("dose", **{"low": 10, "high": 30, "bins": 32, **options})
    return Problem(name="dose", context=context, actions=space)


def observations(n, columns=2, noise=0.3, seed=0, of=None):
    """The best dose is 15 + 10·(first column); the reward is minus the squared distance, in units of 5."""
    rng, of = np.random.default_rng(seed), of or problem(columns)
    contexts, actions = rng.random((n, columns)).astype(np.float32), rng.uniform(10, 30, n)
    best = 15 + 10 * (contexts[:, 0] if columns else 0.5)
    rewards = 100 - ((actions - best) / 5) ** 2 + noise * rng.standard_normal(n)
    return Observations(of, contexts, actions, rewards, np.full(n, 0.05, np.float32))


def learnt(teacher, given):
    return teacher.update(teacher.init(given.problem), given, KEY)


def test_the_mean_is_that_of_a_dense_ridge_solve():
    teacher, given = ContinuousLinearTS(size=5), observations(80)
    state = learnt(teacher, given)
    fitted, x = state.regression, given.contexts.astype(np.float64)
    u = (given.actions - 10) / 20
    basis, quadratic = cosines(u, 5), squares(given.contexts, 300)
    centred = np.column_stack([np.ones(80), x - x.mean(axis=0)])
    design = np.column_stack([np.einsum("nk,nj->nkj", centred, basis).reshape(80, -1), quadratic - quadratic.mean(0)])
    y = (given.rewards - given.rewards.mean()) / given.rewards.std()
    ridge = np.diag(1 / fitted.scales.variances(5, quadratic.shape[1]))
    weights = np.linalg.solve(design.T @ design + ridge, design.T @ y)
    np.testing.assert_allclose(fitted.posterior.mean[0], weights, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(covariance(fitted.posterior), np.linalg.inv(design.T @ design + ridge), atol=1e-8)

    some = given.contexts[:3].astype(np.float64)
    at = cosines((given.problem.actions.middles - 10) / 20, 5)
    rows = np.column_stack([np.ones(3), some - x.mean(axis=0)])
    fixed = (squares(given.contexts[:3], 300) - quadratic.mean(0)) @ weights[15:]
    expected = given.rewards.mean() + given.rewards.std() * (rows @ weights[:15].reshape(3, 5) @ at.T + fixed[:, None])
    np.testing.assert_allclose(teacher.mean_rewards(state, given.contexts[:3]), expected, rtol=1e-9)


def test_the_maximisers_are_those_of_draws_of_all_weights_on_a_fine_grid():
    """Shares of two sets of 20,000 draws in a bin differ by over 0.02 with probability below 1e-3, by Hoeffding."""
    teacher, given, draws = ContinuousLinearTS(), observations(25, noise=3.0, of=problem(bins=8)), 20_000
    state = learnt(teacher, given)
    fitted, contexts, size = state.regression, np.array([[0.1, 0.9], [0.8, 0.2]], np.float32), teacher.size
    rng, count = np.random.default_rng(1), 3 * size
    root = np.linalg.cholesky(covariance(fitted.posterior)[:count, :count])
    sampled = teacher.sample_actions(state, contexts, draws, KEY)
    for x, ours in zip(contexts - fitted.centre[:2], sampled, strict=True):
        noise = np.sqrt(fitted.posterior.beta[0] / rng.standard_gamma(fitted.posterior.alpha[0], (draws, 1)))
        weights = fitted.posterior.mean[0, :count] + noise * (rng.standard_normal((draws, count)) @ root.T)
        on_grid = np.einsum("k,skj->sj", [1, *x], weights.reshape(draws, 3, size))
        grid = np.linspace(0, 1, 4000)
        best = np.concatenate([(part @ cosines(grid, size).T).argmax(axis=1) for part in np.split(on_grid, 40)])
        expected = 10 + 20 * grid[best]
        edges = given.problem.actions.edges
        shares = [np.histogram(actions, edges)[0] / draws for actions in (ours, expected)]
        assert np.abs(shares[0] - shares[1]).max() < 0.02
        assert np.abs(np.quantile(ours, [0.1, 0.5, 0.9]) - np.quantile(expected, [0.1, 0.5, 0.9])).max() < 0.7


def test_propensities_are_shares_of_the_sampled_actions():
    teacher, given = ContinuousLinearTS(draws=64), observations(40)
    state, space = learnt(teacher, given), given.problem.actions
    sampled = teacher.sample_actions(state, given.contexts[:5], 64, KEY)
    expected = [np.histogram(row, space.edges)[0] / 64 for row in sampled]
    np.testing.assert_allclose(teacher.propensities(state, given.contexts[:5], KEY), expected, atol=1e-7)


def test_the_top_of_a_parabola_is_found_between_grid_points_and_at_the_ends():
    grid = np.linspace(0, 1, 11)
    for top in (0.0, 0.02, 0.431, 0.55, 0.97, 1.0):
        assert maximiser.tops(-((grid - top) ** 2)[None])[0] == pytest.approx(top, abs=1e-9)
    assert maximiser.tops(np.stack([grid, -grid, grid**2, np.zeros(11)])).tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize("columns", [0, 1, 2, 90])
@pytest.mark.parametrize("n", [0, 1, 5])
def test_few_observations_and_any_number_of_columns(columns, n):
    teacher, given = ContinuousLinearTS(draws=32, squares=50), observations(n, columns)
    state, contexts = learnt(teacher, given), observations(4, columns, seed=1).contexts
    p = teacher.propensities(state, contexts, KEY)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-5)
    assert (p > 0).sum(axis=1).min() > 3, "after 5 observations there is uncertainty left"
    assert np.isfinite(teacher.mean_rewards(state, contexts)).all()


@pytest.mark.parametrize("level", [0.0, -3.0, 1e12])
def test_constant_rewards_leave_it_uncertain(level):
    teacher, given = ContinuousLinearTS(), observations(50)
    given = Observations(given.problem, given.contexts, given.actions, np.full(50, level), given.propensities)
    state = learnt(teacher, given)
    assert (teacher.propensities(state, given.contexts[:3], KEY) > 0).sum(axis=1).min() > 8
    np.testing.assert_allclose(teacher.mean_rewards(state, given.contexts[:3]), level, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("shift", "scale"), [(0, 1), (1e6, 1), (-5, 1e-4), (3, 1e9)])
def test_the_unit_of_rewards_does_not_matter(shift, scale):
    teacher, given = ContinuousLinearTS(), observations(300, noise=0.0)
    given = Observations(
        given.problem, given.contexts, given.actions, shift + scale * given.rewards, given.propensities
    )
    contexts = np.array([[0.2, 0.5], [0.9, 0.5]], np.float32)
    actions = teacher.sample_actions(learnt(teacher, given), contexts, 100, KEY)
    np.testing.assert_allclose(actions.mean(axis=1), [17, 24], atol=0.4)


def test_a_discount_forgets():
    teacher = ContinuousLinearTS(discount=0.05)
    early, late = observations(200), observations(200, seed=1)
    turned = Observations(late.problem, late.contexts, late.actions, 200 - late.rewards, late.propensities)
    state = teacher.update(learnt(teacher, early), turned, KEY)
    actions = teacher.sample_actions(state, np.array([[0.0, 0.5]], np.float32), 200, KEY)
    assert actions.mean() > 28, "the best dose was 15, and is now the farthest from it"


@pytest.mark.parametrize("field", [{"size": 2}, {"draws": 0}, {"squares": -1}, {"discount": 0.0}])
def test_options_out_of_range_are_refused(field):
    with pytest.raises(ValueError, match=f"ContinuousLinearTS: {next(iter(field))} must be"):
        ContinuousLinearTS(**field)


def test_each_kind_of_teacher_names_the_others_for_a_space_it_does_not_support():
    listed = Problem(name="p", context=[], actions=Discrete(["a", "b"]))
    with pytest.raises(UnsupportedSpace, match=r"continuous action, a number from an interval; use .*linear-ts"):
        Still(listed, ContinuousLinearTS())
    with pytest.raises(UnsupportedSpace, match="finite list of actions; use continuous-"):
        Still(problem(), LinearTS())
    assert isinstance(Still(listed).teacher, AutoTS)
    assert isinstance(Still(problem()).teacher, ContinuousLinearTS)


def run(still, reward, contexts, batch):
    """Decide in batches, and update the still after each; the actions of all decisions."""
    taken = []
    for start in range(0, len(contexts), batch):
        rows = contexts[start : start + batch]
        decided = [still.policy.decide(row, id=f"{start}-{i}") for i, row in enumerate(rows)]
        actions = np.array([decision.action for decision in decided])
        taken.append(actions)
        still.update(
            Observations.from_columns(
                still.problem,
                contexts=rows,
                actions=actions,
                rewards=[reward(row, a) for row, a in zip(rows, actions, strict=True)],
                propensities=[decision.propensity for decision in decided],
            )
        )
    return np.concatenate(taken)


@pytest.mark.parametrize("power", [1, 2])
def test_a_convex_cost_in_one_context_converges(power):
    """The problem of VW's issue 2891, on which CATS does not converge: range 0 to 100, one fixed context."""
    fixed = Problem(name="fixed", context=[Numeric("x", low=0, high=1)], actions=Continuous("a", low=0, high=100))
    still = Still(fixed, student=Student(hidden=(), steps=200, contexts=0), seed=3)
    taken = run(still, lambda _, a: -(abs(a - 37) ** power), [{"x": 0.5}] * 500, 50)
    assert abs(taken[-50:].mean() - 37) < 2
    assert abs(taken[-50:] - 37).mean() < 4


def test_the_best_price_is_found_in_each_context():
    """Demand is logistic in price and context; revenue is noisy, since each customer buys or does not."""
    rng, space = np.random.default_rng(2), Continuous("price", low=0.5, high=20, scale="log", bins=64)
    pricing = Problem(name="pricing", context=[Numeric("wealth", low=0, high=1)], actions=space)
    still = Still(pricing, student=Student(hidden=(20,), steps=400), seed=4)

    def demand(wealth, price):
        return 1 / (1 + np.exp(2 * (price - 4 - 6 * wealth)))

    contexts = [{"wealth": float(w)} for w in rng.random(4000)]
    run(still, lambda row, a: a * (rng.random() < demand(row["wealth"], a)), contexts, 1000)
    wealth, grid = np.linspace(0, 1, 21), np.linspace(0.5, 20, 400)
    revenue = grid * demand(wealth[:, None], grid)
    drawn = np.array([[still.policy.decide({"wealth": w}, id=str(i)).action for i in range(200)] for w in wealth])
    gained = (drawn * demand(wealth[:, None], drawn)).mean()
    assert gained > 1.15 * revenue.mean(axis=0).max(), "better than the best constant price"
    assert gained > 0.85 * revenue.max(axis=1).mean(), "not far from the best price of each context"
