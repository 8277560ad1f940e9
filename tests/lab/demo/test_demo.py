"""A short run of the demo: what it finds, what it writes, and that it finds the same again."""

import json
import subprocess
import sys
from html.parser import HTMLParser

import msgspec
import numpy as np
import pytest

import potstill as ps
from potstill.lab import VideoUpload
from potstill.lab.demo import report as demo_report
from potstill.lab.demo.charts import calibration_bins
from potstill.lab.demo.demo import ALGORITHMS, EXAMPLE, Demo, usage
from potstill.lab.demo.results import Results

SETTINGS = Demo(decisions=1_400, batch=600, seed=3)


@pytest.fixture(scope="module")
def batches():
    return list(SETTINGS.run())


@pytest.fixture(scope="module")
def results(batches):
    return Results.of(SETTINGS, batches)


@pytest.fixture(scope="module")
def saved(batches, results, tmp_path_factory):
    """The policy and report of the run."""
    out = tmp_path_factory.mktemp("demo")
    policy, report = out / "video-upload.policy", out / "report.html"
    batches[-1].policy.save(policy)
    demo_report.write(report, results, batches, policy)
    return policy, report


def test_batches_add_up_to_the_decisions(batches):
    assert [batch.decisions for batch in batches] == [600, 1200, 1400]
    for batch, size in zip(batches, (600, 600, 200), strict=True):
        assert {len(outcome.rewards) for outcome in batch.outcomes.values()} == {size}
        assert batch.outcomes.keys() == ALGORITHMS.keys()


def test_each_batch_is_decided_by_the_policy_distilled_before_it(batches):
    assert [batch.decided_by.version for batch in batches] == [0, 1, 2]
    assert [batch.policy.version for batch in batches] == [1, 2, 3]
    np.testing.assert_allclose(batches[0].decided_by.probabilities_many(batches[0].contexts), 1 / 7, rtol=1e-6)


def test_decisions_can_be_repeated_from_their_ids(batches):
    second = batches[1]
    context = {name: column[5].item() for name, column in second.contexts.items()}
    decision = second.decided_by.decide(context, id="upload-000605")
    assert decision.action == VideoUpload().problem.actions.names[second.outcomes["potstill"].actions[5]]


def test_what_was_learnt_beats_uniform_and_not_the_best(batches, results):
    last = {name: batches[-1].outcomes[name].regrets.mean() for name in ALGORITHMS}
    # Over five seeds, two updates leave a third to a half of the regret of uniform choice.
    assert last["potstill"] < 0.6 * last["uniform"]
    assert last["thompson"] < 0.6 * last["uniform"]
    assert last["best"] == 0 < min(last["potstill"], last["thompson"])
    assert results.regret["potstill"] < results.regret["uniform"]
    assert 0 < results.gap_closed < 1


def test_equal_seeds_give_equal_figures_and_policies(batches, results):
    again = list(SETTINGS.run())
    assert again[-1].policy.to_bytes() == batches[-1].policy.to_bytes()
    for ours, theirs in zip(_without_timings(results), _without_timings(Results.of(SETTINGS, again)), strict=True):
        assert ours == theirs


def _without_timings(results):
    rows = [{k: v for k, v in row.items() if k != "timing"} for row in msgspec.to_builtins(results.rows)]
    return [results.reward, results.late_reward, results.regret, *rows]


def test_other_seeds_give_other_requests(batches):
    other = next(msgspec.structs.replace(SETTINGS, seed=4).run())
    assert not np.array_equal(other.contexts["up_kbps"], batches[0].contexts["up_kbps"])


@pytest.mark.parametrize("field", ["decisions", "batch"])
def test_settings_that_make_no_sense_are_refused(field):
    with pytest.raises(ValueError, match=f"{field} must be at least 1, got 0"):
        Demo(**{field: 0})


def test_a_batch_may_be_larger_than_the_run():
    assert Demo(decisions=300, batch=1_000).sizes == [300]
    assert Demo(decisions=2_000, batch=1_000).sizes == [1_000, 1_000]


def test_the_saved_policy_decides(saved, batches):
    policy = ps.Policy.load(saved[0], VideoUpload().problem)
    assert policy.version == 3
    probabilities = policy.probabilities(EXAMPLE)
    np.testing.assert_array_equal(probabilities, batches[-1].policy.probabilities(EXAMPLE))


def test_the_printed_lines_run_as_they_are(saved):
    lines = usage(saved[0])
    assert len(lines.splitlines()) == 3
    ran = subprocess.run([sys.executable, "-W", "error", "-c", lines], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("Decision(id='upload-123', action='")
    assert ran.stdout.rstrip().endswith("policy=3)")


class _Page(HTMLParser):
    """What a page asks a browser to fetch, its text, and the ids in it."""

    def __init__(self):
        super().__init__()
        self.fetched, self.text, self.ids = [], [], set()

    def handle_starttag(self, tag, attributes):
        self.fetched += [value for name, value in attributes if name in ("src", "href", "srcset", "data")]
        self.ids |= {value for name, value in attributes if name == "id"}
        assert tag not in ("link", "iframe", "img", "base"), tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def page(saved):
    parsed = _Page()
    parsed.feed(saved[1].read_text(encoding="utf-8"))
    return parsed


def test_the_report_fetches_nothing(page):
    assert page.fetched == []
    own = [text for text in page.text if len(text) < 500_000]  # all but the bundled library
    assert not any("@import" in text or "url(" in text for text in own)


def test_the_report_has_its_charts_with_their_data_in_it(page):
    script = next(text for text in page.text if "const specs = " in text)
    specs = json.loads(script.split("const specs = ", 1)[1].split(";\nconst dark", 1)[0])
    assert specs.keys() == page.ids
    for name, spec in specs.items():
        assert spec["datasets"], name
        assert all(len(rows) > 0 for rows in spec["datasets"].values()), name
        assert '"url"' not in json.dumps(spec), name


def test_the_report_states_the_figures(page, results):
    text = " ".join(page.text)
    assert f"{results.regret_ratio:.2f}×" in text
    assert f"{results.late_share['potstill']:.0%}" in text
    assert "1,400 decisions in 3 batches, seed 3" in text


def test_calibration_counts_pairs_of_decision_and_action():
    p = np.array([[0.05, 0.95], [0.05, 0.95], [0.62, 0.38]], np.float32)
    bins = calibration_bins(p, np.array([1, 0, 0])).to_dicts()
    assert [(b["count"], b["frequency"]) for b in bins] == [(2, 0.5), (1, 0.0), (1, 1.0), (2, 0.5)]
    assert [b["propensity"] for b in bins] == pytest.approx([0.05, 0.38, 0.62, 0.95], abs=1e-6)
    # Wilson's interval for one of two, by hand: centre ½, half-width 1.96/(1 + 1.96²/2) · √(1/8 + 1.96²/16).
    assert bins[0]["low"] == pytest.approx(0.0945, abs=1e-4)
    assert bins[0]["high"] == pytest.approx(0.9055, abs=1e-4)


def test_calibration_finds_the_policy_true_to_its_word(batches):
    p = np.concatenate([b.decided_by.probabilities_many(b.contexts) for b in batches])
    actions = np.concatenate([b.outcomes["potstill"].actions for b in batches])
    bins = calibration_bins(p, actions)
    error = (bins["frequency"] - bins["propensity"]).to_numpy()
    spread = np.sqrt(bins["propensity"] * (1 - bins["propensity"]) / bins["count"]).to_numpy()
    # Ten bins, 4.5 standard deviations: a right program fails for one seed in 15,000.
    assert (abs(error) < 4.5 * spread + 1e-3).all()
