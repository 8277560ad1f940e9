"""Off-policy evaluation on a catalogue: the reward model learns of an item from others like it."""

import numpy as np

import potstill as ps
from potstill.evaluate import ArrayLog, evaluate
from potstill.spaces import off_policy
from potstill.spaces.ope import GeneralOffPolicy
from potstill.spaces.ridge import FOLDS

ITEMS = 40
RNG = np.random.default_rng(3)
FEATURES = RNG.random((ITEMS, 2))
SPACE = ps.Catalog(
    features=[ps.Numeric("x", low=0, high=1), ps.Numeric("y", low=0, high=1)],
    items=[{"id": f"i{i}", "x": x, "y": y} for i, (x, y) in enumerate(FEATURES.tolist())],
)
PROBLEM = ps.Problem(name="p", context=[ps.Numeric("z", low=0, high=1)], actions=SPACE)


def means(z):
    return 0.2 + z[:, None] * FEATURES[:, 0] - 0.5 * FEATURES[:, 1]


def logged(n, seen):
    """A uniform log over the first `seen` items."""
    rng = np.random.default_rng(0)
    contexts, actions = rng.random((n, 1)).astype(np.float32), rng.integers(seen, size=n)
    rewards = means(contexts[:, 0])[np.arange(n), actions] + 0.1 * rng.standard_normal(n)
    return ArrayLog(PROBLEM, contexts=contexts, actions=actions, rewards=rewards, propensities=np.full(n, 1 / seen))


def test_one_model_serves_all_items_also_those_never_logged():
    log = logged(4000, seen=30)
    space, blocks = off_policy(SPACE), list(log.blocks())
    rows = [(0, block) for block in blocks[:1]]
    model, general = space.fit(rows, (0.1, 10.0), 1.0), GeneralOffPolicy(SPACE).fit(rows, (0.1, 10.0), 1.0)
    contexts = np.linspace(0, 1, 9, dtype=np.float32)[:, None]
    for fold in range(FOLDS):
        every = model.predict(contexts, fold)
        assert np.abs(every - means(contexts[:, 0])).max() < 0.05
        for item in (0, 17, 39):
            one = general.predict(contexts, np.full(9, item), fold)
            np.testing.assert_allclose(every[:, item], one, atol=1e-9)


def test_doubly_robust_estimates_cover_the_truth():
    def target(contexts):
        p = np.exp(4 * means(contexts[:, 0]))
        return p / p.sum(axis=1, keepdims=True)

    contexts = np.random.default_rng(9).random((20_000, 1)).astype(np.float32)
    truth = float((target(contexts) * means(contexts[:, 0])).sum(axis=1).mean())
    found = evaluate(logged(4000, seen=ITEMS), target).target.estimates["dr"]
    interval = found.intervals["likelihood"]
    assert interval.low < truth < interval.high
    assert interval.high - interval.low < 0.1
