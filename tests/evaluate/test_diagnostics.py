"""Diagnostics by hand, and the sentence that each kind of log gets."""

import msgspec
import numpy as np
import pytest

from potstill.evaluate import diagnostics
from potstill.evaluate.diagnostics import Diagnostics, diagnose, trust


class Terms:
    def __init__(self, weight, missing=0.0, reward=None):
        self.weight = np.asarray(weight, float)
        self.reward = np.arange(len(self.weight), dtype=float) if reward is None else np.asarray(reward, float)
        self.missing = np.broadcast_to(np.asarray(missing, float), self.weight.shape)


def drawn(logging, target, n=20_000, *, stated=None, seed=0):
    """Weights of a log whose actions are drawn by `logging`, with propensities `stated`."""
    logging, target = np.array(logging), np.array(target)
    stated = logging if stated is None else np.array(stated)
    actions = np.random.default_rng(seed).choice(len(logging), n, p=logging)
    return Terms(target[actions] / stated[actions], missing=target[logging == 0].sum())


def test_by_hand():
    found = diagnose(Terms([0.0, 2.0, 1.0, 1.0], missing=[0.0, 0.2, 0.2, 0.0]))
    assert found == Diagnostics(
        rows=4,
        effective=16 / 6,
        effective_share=4 / 6,
        largest=2.0,
        largest_share=0.5,
        top_share=0.5,
        unsupported=0.1,
        mean_weight=1.0,
        mean_weight_error=pytest.approx(np.sqrt(2 / 3) / 2),
        usual=None,
        events=16 / 6,
        expected_events=16 / 6,
    )


def test_the_top_is_of_the_weights_above_zero():
    weights = np.concatenate([np.zeros(9_800), np.full(198, 0.5), [50.0, 51.0]])
    assert diagnose(Terms(weights)).top_share == pytest.approx(101 / 200)
    equal = np.concatenate([np.zeros(9_800), np.full(200, 3.0)])
    assert diagnose(Terms(equal)).top_share == pytest.approx(0.01)


def test_a_log_without_rows():
    empty = diagnose(Terms([]))
    assert set(msgspec.structs.astuple(empty)) == {0, None}
    assert trust(empty).grade == "no"


def test_json():
    found = diagnose(Terms([1.0, 2.0]))
    assert msgspec.json.decode(msgspec.json.encode(found), type=Diagnostics) == found


def test_good():
    verdict = trust(diagnose(drawn([0.5, 0.3, 0.2], [0.2, 0.3, 0.5])))
    assert verdict.grade == "good"
    assert verdict.sentence.startswith("The 20,000 logged rows say as much about this policy as 12,")
    assert verdict.advice == ""


def test_no_overlap_at_all():
    verdict = trust(diagnose(Terms(np.zeros(50), missing=1.0)))
    assert verdict.grade == "no"
    assert verdict.sentence == "In none of the 50 logged rows was an action taken that the policy takes."


@pytest.mark.parametrize(("share", "grade"), [(0.005, "good"), (0.04, "caution"), (0.3, "no")])
def test_actions_that_were_never_logged(share, grade):
    verdict = trust(diagnose(drawn([0.5, 0.5, 0.0], [0.5, 0.5 - share, share])))
    assert verdict.grade == grade
    if grade != "good":
        assert verdict.sentence.startswith(f"{100 * share:.0f} % of what the policy would do was never logged")
        assert "floor" in verdict.advice


def test_wrong_propensities():
    verdict = trust(diagnose(drawn([0.5, 0.3, 0.2], [0.2, 0.3, 0.5], stated=[0.6, 0.3, 0.1])))
    assert verdict.grade == "no"
    assert verdict.sentence.startswith(
        "Weights should average 1.00 but average 1.47: the logged probabilities are wrong, or rows were left out by"
    )
    assert "probability with which its action was drawn" in verdict.advice


def test_rare_rows_that_are_absent_from_the_log():
    """Weights look even, as the one row in 5,000 that would count 1,500 times did not happen to be logged."""
    found = diagnose(drawn([0.9998, 0.0002], [0.7, 0.3], n=500, seed=1))
    assert found.effective == pytest.approx(500)
    assert trust(found).grade == "no"
    assert trust(found).sentence.endswith("or actions that the policy takes are all but absent from the log.")


def test_right_propensities_are_not_called_wrong():
    verdicts = [diagnose(drawn([0.6, 0.3, 0.1], [0.2, 0.3, 0.5], n=300, seed=seed)) for seed in range(200)]
    assert not any(verdict.mean_weight_is_off for verdict in verdicts)


@pytest.mark.parametrize(("n", "grade"), [(100, "no"), (1000, "caution"), (20_000, "good")])
def test_more_rows_are_better(n, grade):
    verdict = trust(diagnose(drawn([0.8, 0.2], [0.2, 0.8], n=n)))
    assert verdict.grade == grade
    assert ("more rows" in verdict.advice) == (grade != "good")


def test_few_rows_that_decide():
    weights = np.concatenate([np.full(99_000, 0.1), np.full(1_000, 90.1)])
    verdict = trust(diagnose(Terms(weights)))
    assert verdict.grade == "caution"
    assert verdict.sentence == "1 % of the rows that count decide 90 % of the estimate."


def test_the_gravest_reason_speaks():
    """A little support is missing, which is a caution; a tiny effective sample size is worse."""
    verdict = trust(diagnose(Terms(np.full(30, 0.98), missing=0.02)))
    assert verdict.grade == "no"
    assert verdict.sentence.endswith("as 30 rows of its own would, which is too few.")


def test_thresholds_are_in_order():
    assert diagnostics.FEW < diagnostics.ENOUGH
    assert diagnostics.UNSUPPORTED_CAUTION < diagnostics.UNSUPPORTED_NO


def of_events(*, rows, seen, elsewhere):
    """Rows of weight 2 and as many of weight 0, each with a number of events."""
    rewards = np.concatenate([np.arange(rows) < seen, np.arange(rows) < elsewhere])
    return Terms(np.repeat([2.0, 0.0], rows), reward=rewards)


def test_events_by_hand():
    found = diagnose(Terms([1.0, 2.0, 3.0, 1.0, 1.0, 4.0], reward=[5.0, 7.0, 9.0, 5.0, 5.0, 5.0]))
    assert found.usual == 5.0
    assert found.events == pytest.approx((2 * 2 + 3 * 4) ** 2 / ((2 * 2) ** 2 + (3 * 4) ** 2))
    others = np.array([3, 2, 1, 3, 3, 0])
    assert found.expected_events == pytest.approx(found.effective * (2 + 1) / others.sum())
    even = diagnose(Terms(np.ones(4), reward=[0.0, 0.0, 0.0, 1.0]))
    assert (even.events, even.expected_events) == (1, 1)


def test_the_usual_reward_is_the_one_with_more_than_half_of_the_weight():
    assert diagnostics.usual_reward(np.array([0.0, 0.0, 1.0]), np.array([1.0, 1.0, 3.0])) == 1.0
    assert diagnostics.usual_reward(np.array([0.0, 2.0, 2.0, 5.0]), np.array([1.0, 2.0, 2.0, 1.0])) == 2.0
    assert diagnostics.usual_reward(np.array([0.0, 1.0]), np.ones(2)) is None
    assert diagnostics.usual_reward(np.arange(9.0), np.ones(9)) is None


@pytest.mark.parametrize(
    ("seen", "elsewhere", "grade", "said"),
    [
        (30, 19, "caution", "but only about 19 of these to be expected with a reward other than 0, so the interval"),
        (9, 30, "caution", "but only about 9 of these with a reward other than 0, so the interval is rough."),
        (0, 30, "caution", "but none of these with a reward other than 0, so the interval is rough."),
        (10, 20, "good", "as 5,000 rows of its own would, about 10 of them with a reward other than 0."),
        (80, 5, "good", "about 80 of them"),
    ],
)
def test_few_events_are_taken_with_caution(seen, elsewhere, grade, said):
    found = diagnose(of_events(rows=5_000, seen=seen, elsewhere=elsewhere))
    assert (found.effective, found.events, found.expected_events) == pytest.approx((5_000, seen, elsewhere))
    assert trust(found).grade == grade
    assert said in trust(found).sentence
    assert bool(trust(found).advice) == (grade == "caution")
