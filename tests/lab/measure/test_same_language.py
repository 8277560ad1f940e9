"""One language on both sides: what is timed in C and in NumPy decides as the algorithms do."""

import re
from pathlib import Path

import numpy as np
import pytest

import potstill
from potstill.keys import Key
from potstill.lab.measure import c_deciders, same_language
from potstill.lab.measure.deciders import by_policy_in_numpy, decider
from potstill.lab.measure.latency import trained
from potstill.lab.measure.same_language import BOTH, SameLanguage, c_decider
from potstill.lab.report.rows import alike
from potstill.lab.report.tables import same_language_table

CALLS = 4_000

try:
    c_deciders.library()
except c_deciders.NoCompiler as error:  # pragma: no cover
    pytest.skip(f"needs a C compiler: {error}", allow_module_level=True)


@pytest.fixture(scope="module", params=BOTH)
def agent(request):
    return trained("wheel", request.param, "paper")


def test_thompson_sampling_in_c_is_that_in_numpy_draw_for_draw(agent):
    """From one generator both take the same draws; sums are rounded in another order, so a tie may fall otherwise."""
    acting, contexts = agent
    in_c, _ = c_decider(acting, seed=3).run(contexts, CALLS)
    in_numpy = decider(acting, seed=3)
    expected = np.array([int(in_numpy(contexts[i % len(contexts)])) for i in range(CALLS)])
    assert len(set(expected.tolist())) > 1
    assert np.mean(in_c == expected) > 0.999


def within_chance(counts, expected):
    """Pearson's statistic below the value that one seed in 100,000 exceeds with four degrees of freedom."""
    draws = counts.sum()
    common = expected * draws >= 5
    rest = [counts[~common].sum(), expected[~common].sum() * draws]
    observed, wanted = np.append(counts[common], rest[0]), np.append(expected[common] * draws, rest[1])
    used = wanted > 1e-3
    return ((observed - wanted)[used] ** 2 / wanted[used]).sum() < 28.5


def test_thompson_sampling_in_c_chooses_as_the_posterior_says(agent):
    """By the teacher's exact propensities, which are computed another way. False alarms: one in 100,000."""
    acting, contexts = agent
    expected = acting.teacher.propensities(acting.state, contexts[:1], Key(0))[0].astype(float)
    actions, _ = c_decider(acting, seed=1).run(contexts[:1], 20_000)
    assert within_chance(np.bincount(actions, minlength=5), expected)
    other = np.roll(expected, 1)
    assert expected.max() == 1 or not within_chance(np.bincount(actions, minlength=5), other)


def test_more_columns_and_actions_than_a_vector_has():
    """Rows of 16 lanes are padded, and one-hot columns skipped: 20 doses by 17 columns, mushrooms by 139."""
    for problem in ("video", "mushroom"):
        try:
            acting, contexts = trained(problem, "linear-ts", "paper")
        except (OSError, ValueError) as error:  # mushrooms are a file that may be missing
            pytest.skip(str(error))
        in_c, _ = c_decider(acting, seed=3).run(contexts, 1000)
        in_numpy = decider(acting, seed=3)
        expected = [int(in_numpy(contexts[i % len(contexts)])) for i in range(1000)]
        assert np.mean(in_c == expected) > 0.997


@pytest.fixture(scope="module")
def distilled():
    agent, contexts = trained("wheel", "linear-ts-il", "paper")
    return agent, contexts


def test_a_policy_in_c_decides_as_the_policy(distilled):
    acting, contexts = distilled
    actions, taken = c_decider(acting).run(contexts, CALLS)
    rows = contexts[np.arange(CALLS) % len(contexts)]
    expected, _ = acting.policy.decide_many(rows, c_deciders.c_ids(CALLS))
    np.testing.assert_array_equal(actions, expected)
    assert (taken > 0).all()


@pytest.mark.parametrize("floor", [0.0, 0.05])
def test_a_policy_in_numpy_draws_by_its_probabilities(distilled, floor):
    acting, contexts = distilled
    policy = acting.policy.with_floor(floor)
    expected = policy.probabilities(contexts[3]).astype(float)
    decide = by_policy_in_numpy(policy, np.random.default_rng(2))
    drawn = [decide(contexts[3]) for _ in range(20_000)]
    assert within_chance(np.bincount([action for action, _ in drawn], minlength=5), expected)
    assert all(p == pytest.approx(expected[action], rel=1e-4) for action, p in drawn[:200])


def test_flags_are_those_of_the_kernel():
    setup = Path(potstill.__file__).parents[2] / "setup.py"
    if not setup.exists():
        pytest.skip("not a checkout")
    flags = re.findall(r'"(-[^"]+)"', setup.read_text().split("UNIX = [")[1].split("]")[0])
    no_code = ("-W", "-fvisibility", "-g")
    assert [flag for flag in flags if not flag.startswith(no_code)] == list(c_deciders.FLAGS)


def test_without_a_compiler_only_numpy_is_timed(monkeypatch):
    monkeypatch.setattr(c_deciders.sysconfig, "get_config_var", lambda _: "no-such-compiler")
    monkeypatch.setattr(same_language, "library", c_deciders.library.__wrapped__)
    with pytest.raises(c_deciders.NoCompiler, match="no-such-compiler cannot be run"):
        c_deciders.library.__wrapped__()
    assert same_language.languages() == ["numpy"]


def test_both_are_measured_in_each_language():
    said = []
    names = ["linear-ts", "linear-ts-il", "neural-linear-ts", "uniform"]
    found = same_language.measure(["wheel"], names, 20, ["numpy", "c"], on_progress=said.append)
    assert [(one.algorithm, one.language, one.calls) for one in found] == [
        ("linear-ts", "numpy", 20),
        ("linear-ts", "c", 20),
        ("linear-ts-il", "numpy", 20),
        ("linear-ts-il", "c", 20),
    ]
    assert said[1] == "wheel, linear-ts in c"


def one(algorithm, language, median):
    rest = {"problem": "wheel", "calls": 9, "mean_us": median, "two_se_us": 0.1, "p99_us": median}
    return SameLanguage(algorithm=algorithm, language=language, median_us=median, **rest)


def test_the_table_has_a_ratio_for_each_language():
    rows = alike([one("linear-ts", "numpy", 12.0), one("linear-ts-il", "numpy", 8.0), one("linear-ts", "c", 1.0)])
    assert [(row.language, row.speedup) for row in rows] == [("numpy", 1.5)]
    table = same_language_table(rows)
    assert table.header[2:5] == ("NumPy, TS µs", "NumPy, IL µs", "NumPy, TS / IL")
    assert table.rows[0][2:] == ("12", "8", "1.5", "–", "–", "–")
