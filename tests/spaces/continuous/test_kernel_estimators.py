"""Doses: logs whose doses lie evenly on a line, so that means over rows are integrals with known values."""

import math

import numpy as np
import pytest
from scipy import integrate

from potstill.errors import InvalidLog
from potstill.evaluate import continuous, intervals
from potstill.spaces.continuous.kernel_estimators import KERNELS, Doses

#: The kernels' second moments: a reward c·dose² is blurred upwards by c·moment·bandwidth².
MOMENTS = {"epanechnikov": 1 / 5, "gaussian": 1.0}
ROWS = 40_001


def curve(dose):
    return 2.0 + 0.5 * dose + 0.3 * dose**2


def even(target, *, low=-6.0, high=6.0, bounded=False):
    """Every dose from low to high once, as a uniform draw would give them on average."""
    doses = low + (high - low) * (np.arange(ROWS) + 0.5) / ROWS
    targets = np.broadcast_to(np.asarray(target, float), (ROWS, *np.shape(target)))
    bounds = (low, high) if bounded else ()
    return Doses(doses, curve(doses), np.full(ROWS, 1 / (high - low)), targets, *bounds)


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_are_densities(kernel):
    shape = KERNELS[kernel]

    def integral(function, to):
        return integrate.quad(lambda u: float(function(np.array(u))), -9, to, points=[-1, min(1, to)])[0]

    assert integral(shape.density, 9) == pytest.approx(1)
    assert integral(lambda u: u * u * shape.density(u), 9) == pytest.approx(MOMENTS[kernel])
    for point in (-0.9, 0.0, 0.3):
        assert shape.below(np.array(point)) == pytest.approx(integral(shape.density, point))


@pytest.mark.parametrize("bandwidth", [0.1, 0.4])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("estimator", [continuous.ips, continuous.snips])
def test_the_value_is_the_curve_and_a_bias_that_shrinks_with_the_squared_bandwidth(estimator, kernel, bandwidth):
    parts = estimator(even(1.2), bandwidth, kernel)
    assert parts.value == pytest.approx(curve(1.2) + 0.3 * MOMENTS[kernel] * bandwidth**2, abs=1e-5)
    assert parts.parameter == bandwidth


def test_draws_of_a_target_are_averaged():
    parts = continuous.ips(even([-1.0, 0.5, 2.0]), 0.01)
    assert parts.value == pytest.approx(np.mean([curve(-1.0), curve(0.5), curve(2.0)]), abs=1e-3)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("target", [0.0, 0.1, 1.0])
def test_weights_average_one_at_the_ends_too(target, kernel):
    log = even(target, low=0.0, high=1.0, bounded=True)
    assert continuous.weights(log, 0.3, kernel).mean() == pytest.approx(1, abs=1e-4)
    unbounded = even(target, low=0.0, high=1.0)
    assert continuous.weights(unbounded, 0.3, kernel).mean() < 0.7 + 0.3 * (target == 0.1)


def test_uneven_densities_are_undone():
    """Doses from a density that falls from 0.15 to 0.05 between -5 and 5, by its quantiles."""
    u = (np.arange(ROWS) + 0.5) / ROWS
    doses = 10 - np.sqrt(225 - 200 * u)
    log = Doses(doses, curve(doses), (10 - doses) / 100, np.full(ROWS, 2.0))
    assert continuous.ips(log, 0.2).value == pytest.approx(curve(2.0) + 0.3 * 0.2 * 0.04, abs=1e-4)


@pytest.mark.parametrize("self_normalised", [False, True])
def test_doubly_robust_with_a_right_model_is_exact_for_any_densities(self_normalised):
    rng = np.random.default_rng(0)
    doses, targets = rng.normal(0, 2, 500), rng.normal(0, 1, 500)
    log = Doses(doses, curve(doses), rng.uniform(0.01, 3, 500), targets)
    parts = continuous.dr(log, curve(doses), curve(targets), self_normalised=self_normalised)
    assert parts.value == pytest.approx(curve(targets).mean(), rel=1e-12)


@pytest.mark.parametrize("self_normalised", [False, True])
def test_doubly_robust_with_right_densities_forgives_the_model(self_normalised):
    log = even(1.2)
    wrong = continuous.dr(log, 1 + log.doses, np.full(ROWS, 1 + 1.2), 0.05, self_normalised=self_normalised)
    assert wrong.value == pytest.approx(curve(1.2), abs=1e-3)


def test_doubly_robust_by_hand():
    log = Doses(np.array([0.0, 1.0]), np.array([3.0, 5.0]), np.array([0.5, 0.25]), np.array([0.5, 3.0]))
    parts = continuous.dr(log, np.array([2.0, 2.0]), np.array([1.0, 4.0]), 1.0)
    weight = 0.75 * (1 - 0.25) / 0.5  # of the first row; the second is two bandwidths away
    assert parts.numerator.tolist() == pytest.approx([weight * (3 - 2), 0.0])
    assert parts.value == pytest.approx((1 + 4) / 2 + weight / 2)


def test_the_rule_of_thumb():
    doses = np.random.default_rng(1).normal(0, 3, 1000)
    log = Doses(doses, doses, np.ones(1000), doses)
    assert continuous.rule(log) == pytest.approx(2.34 * doses.std(ddof=1) * 1000**-0.2)
    assert continuous.ips(log).parameter == continuous.rule(log)
    assert continuous.ips(log, kernel="gaussian").parameter == pytest.approx(continuous.rule(log) * 1.06 / 2.34)


def noisy(reward, n=4000, seed=2):
    rng = np.random.default_rng(seed)
    doses = rng.normal(0, 1, n)
    densities = np.exp(-0.5 * doses**2) / math.sqrt(2 * math.pi)
    return Doses(doses, reward(doses) + rng.normal(0, 0.3, n), densities, rng.uniform(-0.5, 0.5, n))


def test_slope_widens_where_the_reward_is_flat_and_not_where_it_bends():
    flat = noisy(lambda doses: np.full_like(doses, 1.0))
    bent = noisy(lambda doses: np.cos(4 * doses))
    wide, narrow = continuous.snips(flat, "slope").parameter, continuous.snips(bent, "slope").parameter
    assert narrow < continuous.rule(bent) < wide
    truth = math.sin(2) / 2  # the mean of cos(4·dose) over the target's doses
    off = {bandwidth: abs(continuous.snips(bent, bandwidth).value - truth) for bandwidth in ("slope", "rule")}
    assert off["slope"] < off["rule"]


def test_intervals_cover_the_value():
    truth = 2.0 + 0.3 / 12  # the mean of the curve over the target's doses
    logs = [noisy(curve, n=1000, seed=seed) for seed in range(200)]
    made = [intervals.normal(continuous.snips(log, 0.15), 0.9) for log in logs]
    inside = sum(interval.low <= truth <= interval.high for interval in made)
    assert 163 <= inside <= 194  # binomial(200, 0.9), but for one seed in 5,000


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("densities", 0.0, "row 2: densities must be above 0; .* got 0.0"),
        ("densities", np.nan, "row 2: densities must be a finite number, got nan"),
        ("rewards", np.inf, "row 2: rewards must be a finite number, got inf"),
        ("doses", 3.0, r"row 2: doses must be from 0.0 to 1.0, got 3.0"),
        ("targets", -1.0, r"row 2: targets must be from 0.0 to 1.0, got -1.0"),
    ],
)
def test_bad_rows_are_named(name, value, message):
    arrays = {each: np.full(4, 0.5) for each in ("doses", "rewards", "densities", "targets")}
    arrays[name][2] = value
    with pytest.raises(InvalidLog, match=message):
        Doses(**arrays, low=0.0, high=1.0)


def test_what_else_is_refused():
    ones = np.ones(3)
    with pytest.raises(InvalidLog, match=r"targets must have one entry for each of the 3 doses, got \(2,\)"):
        Doses(ones, ones, ones, np.ones(2))
    with pytest.raises(InvalidLog, match="all 3 doses are the same"):
        continuous.ips(Doses(ones, ones, ones, ones))
    with pytest.raises(ValueError, match="bandwidth must be above 0, got 0"):
        continuous.ips(Doses(ones, ones, ones, ones), 0)
