"""What a known mechanism is worth: revenue lost by Thompson sampling of a price, by number of sales learnt from.

    python benchmarks/pricing_program.py            # about a minute

A sale follows a logistic curve in the price, which moves with the customer's wealth. `ContinuousProgramTS` knows that
form and learns three parameters; the other teachers know nothing of it. Prices are drawn uniformly; lost is the share
of the best price's revenue, over 21 customers, of 200 Thompson-sampled prices each: mean of the trials and two standard
errors.
"""

import argparse

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist

import potstill as ps

PROBLEM = ps.Problem(
    name="pricing",
    context=[ps.Numeric("wealth", low=0, high=1)],
    actions=ps.Continuous("price", low=1, high=15),
    reward=ps.Reward(objective="price * sold"),
)


def demand(contexts, actions, rewards=None):
    """Whether it is sold at a price: a logistic curve with an unknown place, shift and steepness."""
    taste = numpyro.sample("taste", dist.Normal(8, 4))
    wealth = numpyro.sample("wealth", dist.Normal(0, 4))
    steep = numpyro.sample("steep", dist.LogNormal(0, 1))
    p = jax.nn.sigmoid(steep * (taste + wealth * contexts[:, 0] - actions))
    numpyro.sample("sold", dist.Bernoulli(p), obs=rewards)
    return p


TEACHERS = (
    ps.teachers.ContinuousProgramTS(demand, draws=200, sets=1, warmup=200),
    ps.teachers.ContinuousLinearTS(),
    ps.teachers.ContinuousGaussianProcessTS(fit_limit=200, inducing=60),
)


def chance(wealth, price):
    return 1 / (1 + np.exp(price - 5 - 4 * wealth))


def sales(n, seed):
    rng = np.random.default_rng(seed)
    wealth, prices = rng.random(n).astype(np.float32), rng.uniform(1, 15, n)
    sold = (rng.random(n) < chance(wealth, prices)).astype(float)
    return ps.Observations(PROBLEM, wealth[:, None], prices, sold, np.full(n, 1 / 14, np.float32))


def lost(teacher, observations, seed):
    state = teacher.update(teacher.init(PROBLEM), observations, ps.Key(seed))
    customers, prices = np.linspace(0, 1, 21, dtype=np.float32)[:, None], np.linspace(1, 15, 2801)
    best = (prices * chance(customers, prices)).max(axis=1)
    drawn = teacher.sample_actions(state, customers, 200, ps.Key(seed + 1))
    return 1 - ((drawn * chance(customers, drawn)).mean(axis=1) / best).mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10)
    trials = parser.parse_args().trials
    for n in (30, 100, 300, 1000):
        for teacher in TEACHERS:
            found = np.array([lost(teacher, sales(n, seed), seed) for seed in range(trials)])
            error = 2 * found.std(ddof=1) / trials**0.5
            print(f"{n:5,} sales, {type(teacher).__name__:28} {100 * found.mean():5.1f} % ± {100 * error:.1f} %")


if __name__ == "__main__":
    main()
