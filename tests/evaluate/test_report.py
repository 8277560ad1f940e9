"""The HTML page of an evaluation: text and charts."""

import re

import msgspec
import numpy as np
import pytest

pytest.importorskip("altair", reason="needs the extra lab")

import potstill as ps
from potstill.evaluate import ArrayLog, evaluate
from potstill.evaluate import text as words
from potstill.evaluate.intervals import Interval
from potstill.evaluate.report import page
from potstill.evaluate.targets import target
from potstill.evaluate.weights import EDGES, WeightHistogram
from potstill.pages import png

DAY = 86_400_000_000
PROBLEM = ps.Problem(name="banners", context=[ps.Numeric("age", low=0, high=1)], actions=ps.Discrete(["blau", "rød"]))
SPAN = (0, 6 * DAY)


def log(rows=2_000, better="blau", seed=0):
    """Uniformly random actions; one is worth 0.2 more."""
    rng = np.random.default_rng(seed)
    actions = rng.integers(0, 2, rows)
    rewards = rng.random(rows) + 0.2 * (actions == PROBLEM.actions.index(better))
    return ArrayLog(
        PROBLEM,
        contexts=rng.random((rows, 1)).astype(np.float32),
        actions=actions,
        rewards=rewards,
        propensities=np.full(rows, 0.5),
        times=np.arange(rows) * (7 * DAY // rows),
        groups={"città": rng.choice(["Köln", "大阪"], rows), "a b": rng.random(rows), "a-b": rng.random(rows)},
    )


def text(made):
    cells = [cell for section in made.sections for table in section.tables for row in table.rows for cell in row]
    return "\n".join(
        [made.title, made.subtitle, *map(" ".join, made.headlines), *(s.caption for s in made.sections), *cells]
    )


def test_a_page_has_what_matters_first():
    weighing = WeightHistogram(target(PROBLEM, "blau", "always blau"))
    found = evaluate(log(), weighing, "rød", by=["città", "a b", "a-b"], over="day")
    made = page(found, span=SPAN, notes=words.left_out({"apprentice": 3}), weights=weighing)
    assert made.title == "always blau against rød"
    assert made.subtitle.startswith(
        "Off-policy evaluation on 2,000 logged decisions of banners, from 1970-01-01 to 1970-01-07."
    )
    assert made.subtitle.endswith("It would have been better.")
    assert made.headlines[-1][0] in ("trust it", "caution")
    assert made.headlines[-1][1] == found.target.trust.sentence
    titles = [section.title for section in made.sections]
    assert titles[:3] == ["Can it be trusted?", "What each estimator says", "Weights"]
    assert titles[3:] == ["By città", "By a b", "By a-b", "Over time", "How to read this"]
    assert {"estimates", "differences", "weights", "over-time"} < set(made.figures)
    assert len(made.figures) == 4 + 2 * 3
    shown = text(made)
    assert "大阪" in shown
    assert "3 rows left out (apprentice): your code chose" in shown
    (block,) = log().blocks()
    assert f"{(block.actions == 1).mean():.0%} of the rows have weight 0: always blau never takes" in shown


def test_figures_can_be_drawn():
    weighing = WeightHistogram(target(PROBLEM, "blau"))
    found = evaluate(log(300), weighing, "rød", by=["città"], over=3, estimators=["dr", "ips"])
    for name, chart in page(
        found, span=SPAN, notes=words.left_out({"apprentice": 3}), weights=weighing
    ).figures.items():
        assert png(chart).startswith(b"\x89PNG"), name


def values_in(chart, field):
    """All values of a field in a chart's data."""
    return {row[field] for rows in chart.to_dict()["datasets"].values() for row in rows if field in row}


def test_figures_show_the_numbers_of_the_evaluation():
    found = evaluate(log(), "blau", "rød", by=["città"], over=5)
    figures = page(found, span=SPAN).figures
    both = [*found.target.estimates.values(), *found.against.estimates.values()]
    assert values_in(figures["estimates"], "value") == {one.value for one in both}
    assert values_in(figures["estimates"], "anytime_low") == {one.anytime.low for one in both}
    assert values_in(figures["differences"], "high") == {
        one.intervals["likelihood"].high for one in found.difference.values()
    }
    assert values_in(figures["segment-differences-1"], "value") == {
        one.difference.value for one in found.segments["città"]
    }
    assert {one.target.value for one in found.stretches} < values_in(figures["over-time"], "value")
    assert len(found.stretches) == 5


@pytest.mark.parametrize(("against", "figures"), [(None, {"estimates"}), ("logged", {"estimates", "differences"})])
def test_pages_without_another_policy_or_with_what_was_done(against, figures):
    made = page(evaluate(log(200), "blau", against))
    assert set(made.figures) == figures
    assert "left out" not in text(made)


def test_the_log_itself_can_be_shown():
    made = page(evaluate(log(200), "logged", over="week"), span=SPAN)
    assert "On these 200 decisions, what was done earned" in made.subtitle
    assert made.figures["over-time"].to_dict()


def test_a_log_that_says_nothing_is_said_so():
    only = ArrayLog(
        PROBLEM,
        contexts=np.zeros((30, 1), np.float32),
        actions=np.zeros(30, int),
        rewards=np.ones(30),
        propensities=np.ones(30),
    )
    found = evaluate(only, "rød", "blau", estimators=["ips", "snips"], over=None)
    made = page(found)
    assert made.headlines[-1][0] == "unreliable"
    for chart in made.figures.values():
        assert chart.to_dict()
    snips = page(evaluate(only, "rød", estimators=["snips"]))
    assert "The log says nothing about rød" in snips.subtitle


@pytest.mark.parametrize(
    ("target", "against", "said"),
    [
        ("blau", "rød", r"0\.\d+ more than rød \(95 % interval \+0\.\d+ to \+0\.\d+\)\. It would have been better\."),
        ("rød", "blau", r"0\.\d+ less than blau \(95 % interval −0\.\d+ to −0\.\d+\)\. It would have been worse\."),
        ("blau", "blau", r"earned 0\.\d+ each \(95 % interval 0\.\d+ to 0\.\d+\)\. It is compared with itself: state"),
        ("blau", "logged", r"more than what was done"),
        ("blau", None, r"On these 2,000 decisions, blau would have earned 0\.\d+ each \(95 % interval 0\.\d+ to 0"),
    ],
)
def test_the_verdict_is_one_plain_sentence(target, against, said):
    found = words.verdict(evaluate(log(), target, against))
    assert re.search(said, found), found


@pytest.mark.parametrize(("scale", "decimals"), [(1.0, 3), (1000.0, 0), (1e-4, 7), (30.0, 1)])
def test_numbers_have_as_many_decimals_as_their_interval_deserves(scale, decimals):
    (block,) = log().blocks()
    scaled = ArrayLog(
        PROBLEM,
        contexts=block.contexts,
        actions=block.actions,
        rewards=scale * block.rewards,
        propensities=block.propensities,
    )
    found = evaluate(scaled, "blau", estimators=["ips"])
    assert words.Figures(found).decimals == decimals
    # Two digits of what the interval reaches to each side.
    assert decimals == 0 or 10 <= 2 * found.estimate.standard_error * 10**decimals < 100


def rare_log(rows, events, unusual=1.0):
    """Uniform decisions, of which the first for blau have another reward than 0."""
    actions = np.arange(rows) % 2
    rewards = np.where((actions == 0) & (np.arange(rows) < 2 * events), unusual, 0.0)
    contexts = np.random.default_rng(0).random((rows, 1), np.float32)
    return ArrayLog(PROBLEM, contexts=contexts, actions=actions, rewards=rewards, propensities=np.full(rows, 0.5))


@pytest.mark.parametrize(
    ("rows", "events", "shown"), [(2_000, 3, "0.0030"), (300, 1, "0.0067"), (100_000, 10, "0.00020")]
)
def test_small_rates_keep_their_digits(rows, events, shown):
    found = evaluate(rare_log(rows, events), "blau", estimators=["snips"])
    assert words.Figures(found).number(found.estimate.value) == shown


def test_astronomic_values_have_an_exponent():
    found = evaluate(rare_log(2_000, 1_000, unusual=-1e90), "blau", estimators=["snips"])
    assert words.Figures(found).number(found.estimate.value) == "−1e+90"


def test_a_value_of_all_but_zero_has_few_digits():
    noise = evaluate(rare_log(2_000, 1_000), lambda contexts: np.tile([1e-9, 1 - 1e-9], (len(contexts), 1)))
    assert words.Figures(noise).number(noise.estimate.value) == "0.00000"


def test_weights_are_counted_on_the_way():
    given = log(1_000)
    weighing = WeightHistogram(target(PROBLEM, lambda contexts: np.tile([0.9, 0.1], (len(contexts), 1))))
    evaluate(given, weighing, estimators=["ips"])
    (block,) = given.blocks()
    share = (block.actions == 0).mean()
    low, high = [one for one in weighing.bins if one.rows]
    assert low.low <= 0.2 < low.high
    assert high.low <= 1.8 < high.high
    assert (low.rows, high.rows) == pytest.approx((1 - share, share))
    assert high.weight == pytest.approx(1.8 * share / (1.8 * share + 0.2 * (1 - share)))
    assert weighing.zero == 0
    assert (weighing.bins[0].low, weighing.bins[-1].high) == pytest.approx((0.1, 10.0))


def test_weights_beyond_the_bins_are_in_the_outermost_ones():
    weighing = WeightHistogram(target(PROBLEM, lambda contexts: np.tile([1 - 1e-9, 1e-9], (len(contexts), 1))))
    rare = {"propensities": np.array([1e-9, 1.0]), "rewards": np.ones(2), "actions": np.array([0, 1])}
    evaluate(ArrayLog(PROBLEM, contexts=np.zeros((2, 1), np.float32), **rare), weighing, estimators=["ips"])
    assert (weighing.bins[0].rows, weighing.bins[-1].rows) == (0.5, 0.5)
    assert (weighing.bins[0].low, weighing.bins[-1].high) == (EDGES[0], EDGES[-1])


def test_nothing_is_called_better_that_cannot_be_relied_on():
    few = evaluate(log(40), "blau", "rød")
    assert few.target.trust.grade == "no"
    assert words.verdict(few).endswith(").")
    assert words.trusted(few).startswith("Do not rely on it. The 40 logged rows")


def test_the_policy_that_can_be_trusted_less_is_spoken_of():
    rng = np.random.default_rng(0)
    actions = (rng.random(3_000) < 0.01).astype(int)
    given = ArrayLog(
        PROBLEM,
        contexts=rng.random((3_000, 1)).astype(np.float32),
        actions=actions,
        rewards=rng.random(3_000),
        propensities=np.where(actions == 1, 0.01, 0.99),
    )
    found = evaluate(given, "blau", "rød")
    assert (found.target.trust.grade, found.against.trust.grade) == ("good", "no")
    assert words.trusted(found).startswith("Do not rely on it. Of rød: ")
    assert page(found).headlines[-1] == ("unreliable", f"rød: {found.against.trust.sentence}")


def test_what_a_policy_has_learnt_from_is_beside_the_headline():
    made = page(evaluate(log(4_000), "blau", "logged", learnt={"blau": 4_000}))
    assert made.headlines[-1] == (
        "caution",
        "Of these decisions, blau has learnt from all. A policy looks a little better on what it has learnt from than "
        "it is. --unseen takes later decisions only.",
    )
    seldom = page(evaluate(log(), "blau", "logged", learnt={"blau": 20}))
    assert seldom.headlines[-1][0] == page(evaluate(log(), "blau", "logged")).headlines[-1][0]
    assert "blau has learnt from 20." in seldom.headlines[-1][1]


def test_estimators_with_a_note_have_an_asterisk_in_the_table_and_in_figures():
    made = page(evaluate(log(), "blau", "rød", by="città"))
    section = next(one for one in made.sections if one.title == "What each estimator says")
    names = [row[0] for row in section.tables[0].rows]
    assert "dm *" in names
    assert "replay" in names  # these actions were uniformly random
    assert "\n\n* dm: the intervals leave out" in section.caption
    assert section.caption.startswith("dr is the headline estimator. If the unbiased ones")
    assert values_in(made.figures["estimates"], "what") == values_in(made.figures["differences"], "what") == set(names)
    segments = next(one for one in made.sections if one.title == "By città")
    assert segments.tables[0].header[-1] == "trust"
    assert {row[-1] for row in segments.tables[0].rows} <= {"good", "caution", "unreliable"}


def test_differences_have_digits_of_their_own():
    nearly = lambda contexts: np.tile([0.5001, 0.4999], (len(contexts), 1))  # noqa: E731
    found = evaluate(log(), nearly, "uniform", estimators=["ips"])
    difference = found.difference["ips"]
    shown = words.Figures(found)
    low, high = re.findall(r"[−+]0\.\d+", shown.interval(difference, signed=True))
    assert low != high
    assert shown.number(found.estimate.value) == f"{found.estimate.value:.{shown.decimals}f}"
    assert f"{difference.value:.{shown.of_changes}f} more than uniform" in words.verdict(found)
    same = words.Figures(evaluate(log(), "blau", "blau"))
    assert same.of_changes == same.decimals
    assert same.change(-1e-18) == same.number(0.0)


def test_rows_left_out_are_counted_by_reason():
    assert words.left_out({"unfit": 1}) == [
        "1 row left out (unfit): do not fit the present problem: it has changed since"
    ]
    assert words.left_out({"unfit": 3, "outside": 2}, {"p must be above 0": 2, "r must be a number": 1}) == [
        "2 rows left out: p must be above 0",
        "1 row left out: r must be a number",
        "2 rows left out (outside): outside the requested time",
    ]


def test_a_far_longer_bar_does_not_hide_the_others():
    found = evaluate(log(), "blau", "logged", by=["a b"])
    huge = Interval(-1e6, 1e6, 0.95, "likelihood")
    first, *others = found.segments["a b"]
    wild = msgspec.structs.replace(first.target, intervals={"likelihood": huge}, anytime=huge)
    segments = {"a b": (msgspec.structs.replace(first, target=wild), *others)}
    chart = page(msgspec.structs.replace(found, segments=segments)).figures["segments-1"].to_dict()
    low, high = chart["layer"][0]["encoding"]["x"]["scale"]["domain"]
    assert -2 < low < high < 3
