"""Caveats that weights do not show: biased estimators, and policies that were trained on the log."""

import numpy as np
import pytest
from evaluate_examples import RICH, rich_log

import potstill as ps
from potstill.evaluate import ArrayLog, WeightHistogram, diagnostics, evaluate, target, text
from potstill.evaluate.diagnostics import Trust
from potstill.evaluate.training_overlap import with_training_overlap
from potstill.policy import Layer
from potstill.policy.artifact import Lineage

GOOD, ROUGH, FEW = Trust("good", "enough"), Trust("caution", "rough"), Trust("no", "too few")


def uniform_log(rows):
    """All actions alike, so that every estimate has good weights."""
    rng = np.random.default_rng(0)
    return ArrayLog(
        RICH,
        contexts=RICH.encode_many({"speed": rng.random(rows), "device": ["tv"] * rows, "new": [True] * rows}),
        actions=rng.integers(0, 3, rows),
        rewards=rng.random(rows),
        propensities=np.full(rows, 1 / 3),
        groups={"half": np.arange(rows) % 2},
    )


def test_only_replay_on_uneven_logs_and_the_model_alone_have_notes():
    assert diagnostics.estimator_note("replay", uniform=True) == ""
    assert "replay is biased" in diagnostics.estimator_note("replay", uniform=False)
    assert "how wrong the reward model is" in diagnostics.estimator_note("dm", uniform=True)
    assert diagnostics.estimator_note("dr", uniform=False) == ""


def test_a_biased_headline_is_never_good():
    replay, model = diagnostics.estimator_note("replay", uniform=False), diagnostics.estimator_note("dm", uniform=False)
    assert [diagnostics.with_estimator_note(found, replay).grade for found in (GOOD, ROUGH, FEW)] == ["no"] * 3
    assert diagnostics.with_estimator_note(GOOD, model).grade == "caution"
    assert diagnostics.with_estimator_note(GOOD, model).sentence.startswith("The intervals leave out how wrong")
    assert [diagnostics.with_estimator_note(found, model) for found in (ROUGH, FEW)] == [ROUGH, FEW]
    assert diagnostics.with_estimator_note(GOOD, "") == GOOD


def test_replay_on_an_uneven_log_is_not_called_better():
    found = evaluate(rich_log(20_000), "high", "logged", estimators=["replay"], by="device")
    assert found.target.trust.grade == "no"
    assert {one.trust.grade for one in found.segments["device"]} == {"no"}
    assert "better" not in text.verdict(found)
    assert text.trusted(found).startswith("Do not rely on it. The log's actions were not uniformly random, so replay")
    even = evaluate(uniform_log(5_000), "high", estimators=["replay"])
    assert even.target.trust.grade == "good"
    assert evaluate(uniform_log(5_000), "high", estimators=["dm"]).target.trust.grade == "caution"
    assert evaluate(uniform_log(5_000), "high").target.trust.grade == "good"  # dr speaks


@pytest.mark.parametrize(
    ("learnt", "grade", "said"),
    [
        (0, "good", ""),
        (1, "caution", "Of these decisions, high has learnt from 1. A policy looks a little better"),
        (2_500, "caution", "Of these decisions, high has learnt from 2,500. A policy looks a little better"),
        (5_000, "caution", "Of these decisions, high has learnt from all. A policy looks a little better"),
    ],
)
def test_a_policy_that_has_learnt_from_any_of_the_rows_is_taken_with_caution(learnt, grade, said):
    found = evaluate(uniform_log(5_000), "high", "low", learnt={"high": learnt})
    assert (found.target.learnt, found.against.learnt) == (learnt, 0)
    assert (found.target.trust.grade, found.against.trust.grade) == (grade, "good")
    trusted = text.trusted(found)
    assert said in trusted
    assert ("--unseen" in trusted) == bool(learnt)
    assert trusted.count("A policy looks") == bool(learnt)


def test_graver_doubts_come_first_and_what_was_learnt_is_still_told():
    assert with_training_overlap(FEW, 10, 10) == FEW
    found = evaluate(uniform_log(60), "high", "low", learnt={"high": 60, "low": 7})
    assert found.target.trust.grade == "no"
    assert "which is too few." in text.trusted(found)
    assert "Of these decisions, high has learnt from all and low has learnt from 7." in text.trusted(found)


def trained(observations, origin=None):
    """A policy that states how many observations it was trained on."""
    layers = [Layer(np.zeros((RICH.width, 3), np.float32), np.zeros(3, np.float32))]
    return ps.Policy.build(
        RICH, layers, version=4, lineage=Lineage(library="0", observations=observations, origin=origin)
    )


def test_a_policy_that_was_trained_is_not_trusted_unless_its_rows_are_stated():
    log = uniform_log(5_000)
    found = evaluate(log, trained(100))
    assert (found.target.learnt, found.target.trust.grade) == (None, "caution")
    assert text.trusted(found) == (
        "Take it with caution. Whether policy 4 was trained on these decisions is not known. A policy looks a little "
        "better on what it has learnt from than it is. --held-out states that it was not."
    )
    assert evaluate(log, WeightHistogram(target(RICH, trained(100)))).target.learnt is None
    assert evaluate(log, trained(0)).target.trust.grade == "good"
    assert evaluate(log, trained(100), learnt={"policy 4": 0}).target.trust.grade == "good"


def test_a_log_that_knows_its_cuts_says_how_many_rows_were_trained_on():
    class OfCuts:
        problem = RICH

        def blocks(self):
            return uniform_log(5_000).blocks()

        def training_rows(self, policy):
            return 70 * policy.metadata.lineage.origin["cut"]

    assert evaluate(OfCuts(), trained(100, {"cut": 3})).target.learnt == 210
    assert evaluate(OfCuts(), trained(100, {"cut": 0})).target.trust.grade == "good"


def test_segments_of_a_policy_that_was_trained_on_the_log_are_not_trusted_either():
    log = uniform_log(9_000)
    for learnt, grade in ((0, "good"), (1, "caution")):
        found = evaluate(log, "high", by="half", learnt={"high": learnt})
        assert {one.trust.grade for one in found.segments["half"]} == {grade}
