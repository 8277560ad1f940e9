"""The study of rates: fits against known power laws, labels against their limits, and a small run end to end."""

import math

import msgspec
import numpy as np
import polars as pl
import pytest

from potstill.keys import Key
from potstill.lab import ClassificationProblem, VideoUpload, Wheel
from potstill.lab.studies import rates_charts
from potstill.lab.studies.rates import (
    EXACT,
    Findings,
    Point,
    Rates,
    blind,
    learn,
    lessons,
    sampled,
    slope,
    study,
    taught,
)
from potstill.teachers import LinearTS

SMALL = Rates(problem="video", contexts=(128, 512, 2048), labels=(1, 1_000_000), repeats=2, decisions=2000, seed=5)


@pytest.fixture(scope="module")
def findings():
    return study(SMALL, VideoUpload(), map)


def _law(n, na):
    """A made-up truth that the theorem's two terms describe exactly, with a floor."""
    return 30 / n + (2 / math.sqrt(n * na) if na else 0.0)


@pytest.fixture
def made_up():
    rates = Rates(contexts=(1000, 2000, 4000, 8000, 16000), labels=(1, 4, 16), repeats=3)
    rng = np.random.default_rng(0)
    points = [
        Point(contexts=n, labels=na, kl=(_law(n, na) * np.exp(0.01 * rng.standard_normal(3))).tolist())
        for n in rates.contexts
        for na in rates.kinds
    ]
    return Findings.of(rates, points, blind=1.0)


@pytest.mark.parametrize("power", [-1.0, -0.5, 0.3])
def test_a_power_law_without_noise_is_recovered(power):
    x = [10, 100, 1000, 5000]
    fitted = slope(x, [[3 * value**power] * 4 for value in x])
    assert fitted.exponent == pytest.approx(power, abs=1e-12)
    assert fitted.high - fitted.low == pytest.approx(0, abs=1e-9)
    assert fitted.points == 4


def test_intervals_hold_the_exponent_as_often_as_they_say():
    rng = np.random.default_rng(1)
    x = np.array([100, 200, 400, 800, 1600])
    held = 0
    for _ in range(400):
        y = (x**-0.7)[:, None] * np.exp(0.2 * rng.standard_normal((5, 4)))
        fitted = slope(x, y)
        held += fitted.low <= -0.7 <= fitted.high
    # Binomial(400, 0.95) is outside of 362..394 with probability 0.001; the logarithm of a mean is not quite normal.
    assert 360 <= held <= 396


def test_two_points_are_too_few_for_a_slope_and_one_repeat_for_an_interval():
    assert slope([1, 2], [[1.0], [0.5]]).exponent is None
    alone = slope([1, 2, 4], [[1.0], [0.5], [0.25]])
    assert alone.exponent == pytest.approx(-1)
    assert alone.low is alone.high is None


def test_both_terms_of_the_theorem_are_found_where_they_rule(made_up):
    exact = made_up.in_contexts[EXACT]
    assert exact.low <= -1 <= exact.high
    assert made_up.in_labels.exponent == pytest.approx(-0.5, abs=0.02)
    # With one label, 30/n and 2/√n are about equal in the middle: neither −1 nor −½.
    assert -0.85 < made_up.in_contexts[1].exponent < -0.55


def test_points_at_the_floor_and_at_the_ceiling_are_left_out(made_up):
    low, high = 2.5 * made_up.floor, made_up.blind / 3
    fitted = made_up.falling(EXACT)
    assert [point.contexts for point in fitted] == [1000, 2000, 4000]
    assert all(low <= point.mean <= high for point in fitted)
    blinder = Findings.of(made_up.rates, made_up.points, blind=0.06)
    assert [point.contexts for point in blinder.falling(EXACT)] == [2000, 4000]
    assert blinder.in_contexts[EXACT].exponent is None


def test_contexts_that_match_are_read_off_between_the_points(made_up):
    assert made_up.contexts_for(_law(2828, 0), EXACT) == pytest.approx(2828, rel=0.03)
    assert made_up.contexts_for(1e-9, EXACT) is None
    assert made_up.contexts_for(10.0, EXACT) is None


def test_labels_are_as_good_as_exact_once_they_add_little(made_up):
    # 2/√(n·16) is 53 % of 30/n at n = 1,000 and more beyond, so none of these are.
    assert made_up.as_good_as_exact(1000) is None
    plenty = [*made_up.points, *(Point(contexts=n, labels=10**6, kl=[_law(n, 10**6)] * 3) for n in (1000, 2000))]
    assert Findings.of(made_up.rates, plenty, blind=1.0).as_good_as_exact(1000) == 10**6


def test_sampled_labels_are_shares_of_draws_by_the_propensities():
    exact = np.tile(np.array([[0.7, 0.25, 0.05]], np.float32), (4000, 1))
    labels = sampled(exact, 4, Key(0))
    np.testing.assert_array_equal(labels * 4, np.round(labels * 4))
    np.testing.assert_allclose(labels.sum(axis=1), 1, rtol=1e-6)
    # The mean of 16,000 draws; five standard errors are missed with probability 2e-6 in all.
    error = np.sqrt(exact[0] * (1 - exact[0]) / 16_000)
    assert (np.abs(labels.mean(axis=0) - exact[0]) < 5 * error).all()


def test_sampled_labels_are_what_posterior_draws_give():
    """Frequencies of Thompson sampling's own actions and of ours, in one context, by a chi-square test."""
    from scipy.stats import chi2_contingency

    world = VideoUpload()
    state = taught(world, 1000, seed=0)
    context = world.encode(world.contexts(1, np.random.default_rng(0)))
    ours = sampled(LinearTS().propensities(state, context, Key(0)), 20_000, Key(1))[0] * 20_000
    drawn = np.bincount(LinearTS().sample_actions(state, context, 20_000, Key(2))[0], minlength=7)
    seen = (ours + drawn) > 20
    # The seed is fixed; a right program would fail for one seed in a thousand.
    assert chi2_contingency([ours[seen], drawn[seen]]).pvalue > 0.001


def test_more_contexts_leave_less_divergence(findings):
    for kind in SMALL.kinds:
        means = [point.mean for point in findings.curve(kind)]
        assert means == sorted(means, reverse=True), kind
    assert findings.curve(EXACT)[-1].mean < 0.2 * findings.curve(EXACT)[0].mean


def test_exact_labels_beat_one_sampled_label_and_equal_a_million(findings):
    for exact, many, one in zip(findings.curve(EXACT), findings.curve(1_000_000), findings.curve(1), strict=True):
        assert exact.mean < one.mean < findings.blind
        # A millionth of a label's variance moves training by less than the stopping rule does.
        assert many.mean == pytest.approx(exact.mean, rel=0.15)


def test_a_policy_that_ignores_the_context_diverges_by_what_contexts_tell(findings):
    lesson = lessons(SMALL, VideoUpload())[0]
    assert blind(lesson) == findings.blind > 0.3


def test_equal_seeds_give_equal_divergences():
    tiny = Rates(problem="wheel", contexts=(64,), labels=(4,), repeats=1, decisions=1000)
    first, again = study(tiny, Wheel(), map), study(tiny, Wheel(), map)
    assert first == again
    other = study(msgspec.structs.replace(tiny, seed=1), Wheel(), map)
    assert other.points != first.points


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"contexts": (10,)}, "contexts must be integers of 20 or more in ascending order"),
        ({"labels": (4, 1)}, "labels must be integers of 1 or more in ascending order"),
        ({"labels": ()}, "labels must be"),
        ({"repeats": 0}, "repeats must be 1 or more, got 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Rates(**wrong)


def test_the_page_says_what_was_found(findings, made_up):
    for found in (findings, made_up):
        page = rates_charts.page(found)
        assert rates_charts.slopes(found).rows[0][0] == "exact"
        assert len(rates_charts.slopes(found).rows) == len(found.rates.kinds)
        assert rates_charts.exponent(found.in_labels) in page.sections[1].caption
        specs = [chart.to_dict() for chart in page.figures.values()]
        assert all(rows for spec in specs for rows in spec["datasets"].values())


def test_rows_of_a_table_are_imitated_on_or_measured_on(tmp_path):
    rng = np.random.default_rng(0)
    table = pl.DataFrame({"x": rng.random(400), "kind": rng.choice(["a", "b"], 400)})
    few = ClassificationProblem(table, label="kind")
    settings = Rates(problem="few", labels=(1,), repeats=2, decisions=100).fitted(few)
    assert settings.contexts == (25, 50, 100, 200)
    lesson = lessons(settings, few)[0]
    met = {part: set(part.contexts(200, np.random.default_rng(0))["row"].tolist()) for part in lesson[1:3]}
    assert not set.intersection(*met.values())
    assert [len(point.kl) for point in learn(lessons(settings, few)[-1])] == [2, 2]
    with pytest.raises(ValueError, match="few has 400 rows, of which half are held out: give --contexts up to 200"):
        lessons(msgspec.structs.replace(settings, contexts=(250,)), few)


def test_another_teacher_with_exact_labels_is_imitated():
    rates = Rates(problem="wheel", teacher="neural-linear-ts", contexts=(30,), labels=(1,), repeats=1, decisions=60)
    found = study(rates, Wheel(), map)
    assert [point.contexts for point in found.points] == [30, 30]
    assert all(point.mean > 0 for point in found.points)
    assert "NeuralLinear-TS on wheel" in rates_charts.page(found).html()
    with pytest.raises(
        ValueError, match="teacher must be one with exact labels: linear-ts, neural-linear-ts; got 'gp'"
    ):
        Rates(teacher="gp")
