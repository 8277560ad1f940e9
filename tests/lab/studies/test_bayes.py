"""Bayes regret: the decomposition adds up, has no mean where the theory says so, and its bound holds."""

import json

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from potstill.cli import app
from potstill.errors import LabError
from potstill.lab.studies import bayes_charts
from potstill.lab.studies.bayes import METHODS, BatchTerms, Bayes, Estimate, Findings, Trial, decomposed, study
from potstill.teachers import LinearTS

SMALL = Bayes(prior="linear", trials=3, batches=3, batch=20, width=2, actions=3, seed=4)


@pytest.fixture(scope="module", params=["linear", "gp"])
def found(request):
    settings = msgspec.structs.replace(SMALL, prior=request.param)
    return study(settings, lambda function, tasks: [function(task) for task in tasks])


def test_terms_by_hand():
    """Two actions of rewards 1 and 0, bounds 2 and 1.5, sampled 0.6 to 0.4, decided 0.5 to 0.5."""
    found = decomposed(*(np.array([row], float) for row in ((1, 0), (2, 1.5), (0.6, 0.4), (0.5, 0.5))))
    assert found.regret == pytest.approx(0.5)
    assert found.optimism == pytest.approx(1 - 2)
    assert found.width == pytest.approx(0.6 * 1 + 0.4 * 1.5)
    assert found.matching == pytest.approx(2 - (0.6 * 2 + 0.4 * 1.5))
    assert found.gap == pytest.approx(0.6 - 0.5)
    assert found.calibration == pytest.approx(0.6 - (0.6**2 + 0.4**2))
    assert found.kl == pytest.approx(0.6 * np.log(1.2) + 0.4 * np.log(0.8))
    assert found.squared_range == 1


def test_terms_add_up_to_the_regret_in_every_batch(found):
    for trial in found.trials:
        for method in ("ts", "ts-il"):
            for batch in trial[method]:
                total = batch.optimism + batch.width + batch.matching + batch.gap
                assert batch.regret == pytest.approx(total, abs=1e-9)
                assert batch.gap <= 20 * np.sqrt(batch.squared_range * batch.kl / 2) + 1e-9


def test_thompson_sampling_has_no_gap_and_the_first_batch_is_the_same_for_all(found):
    for trial in found.trials:
        assert all(batch.gap == 0 and batch.kl == 0 for batch in trial["ts"])
        first = [trial[method][0].regret for method in METHODS]
        # Shares of sampled draws differ from equal shares by chance.
        assert first == pytest.approx([first[0]] * len(METHODS), rel=0.05)


def test_thompson_sampling_learns_and_its_policy_follows(found):
    assert found.regret["ts"].mean < 0.7 * found.regret["uniform"].mean
    assert found.regret["ts-il"].mean < 0.7 * found.regret["uniform"].mean
    assert found.bound > found.terms["ts-il"]["gap"].mean


def calibration(teacher, trials=60):
    """The calibration of Thompson sampling with this prior on problems of the default prior, in standard errors."""
    found = []
    for number in range(trials):
        trial = Trial(SMALL, number)
        drawn = trial.environment.parameters
        trial.environment = msgspec.structs.replace(trial.environment, teacher=teacher)
        trial.environment.__dict__["parameters"] = drawn
        found.append(sum(batch.calibration for batch in trial.play("ts")))
    return np.mean(found) / (np.std(found, ddof=1) / np.sqrt(trials))


def test_labels_are_calibrated_over_the_prior_and_those_of_another_prior_are_not():
    """Four standard errors, which one seed in 15,000 exceeds."""
    assert abs(calibration(LinearTS())) < 4
    assert calibration(LinearTS(alpha=60.0, beta=600.0)) > 8  # ten times the noise: not sure enough


def test_estimates_are_over_trials():
    def batch(regret):
        return BatchTerms(regret=regret, kl=0.02, squared_range=4.0)

    trials = [{method: [batch(r), batch(r)] for method in METHODS} for r in (1.0, 2.0, 3.0)]
    found = Findings.of(msgspec.structs.replace(SMALL, batches=2), trials)
    assert found.regret["ucb"].mean == pytest.approx(4.0)
    assert found.regret["ucb"].error == pytest.approx(2 / np.sqrt(3))
    assert (found.against_ts["ucb"].mean, found.against_ts["ucb"].error) == (0, 0)
    assert found.range == 2
    assert found.bound == pytest.approx(2 * 20 * 2 * np.sqrt(0.01))


def test_the_page_has_the_tables_and_a_curve(found):
    page = bayes_charts.page(found)
    text = page.html()
    assert "the decomposition" in text.lower()
    assert list(page.figures) == ["regret"]
    rows = dict(zip(METHODS, bayes_charts.regret_table(found).rows, strict=True))
    assert rows["ts"][3] == "–"
    later = [sum(batch.regret for batch in trial["ts"][1:]) for trial in found.trials]
    assert rows["ts"][2] == bayes_charts.amount(Estimate.of(later))
    assert rows["ts-il"][1] == bayes_charts.amount(found.regret["ts-il"])


def test_settings_that_do_not_fit_are_named():
    with pytest.raises(LabError, match="trials must be 2 or more, got 1"):
        Bayes(trials=1)
    result = CliRunner().invoke(app, ["lab", "bayes", "--prior", "cauchy"])
    assert result.exit_code != 0
    assert "--prior must be one of linear, gp; got 'cauchy'" in result.stderr


def test_the_command_prints_json(tmp_path):
    options = ["--trials", "2", "--batches", "1", "--batch", "10", "--jobs", "1", "--out", str(tmp_path), "--json"]
    result = CliRunner().invoke(app, ["lab", "bayes", *options])
    assert result.exit_code == 0, result.output
    assert set(json.loads(result.stdout)["regret"]) == set(METHODS)
    assert (tmp_path / "bayes-linear.html").exists()
