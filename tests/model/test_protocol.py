"""Every order of steps of the model: what holds now, and what each rule is for."""

import pytest
from model.protocol import Rules, check


def test_no_order_of_steps_loses_a_timely_reward() -> None:
    states, trace = check(Rules(end=2))
    assert trace is None
    assert states > 10_000


@pytest.mark.parametrize("without", ["watermarks", "register_first", "marks_first"])
def test_each_rule_is_needed(without: str) -> None:
    """Without it the search finds a trace in which an acknowledged reward is not learnt."""
    _, trace = check(Rules(end=2, **{without: False}))
    assert trace is not None
    assert "commits its cut" in trace[-1]
