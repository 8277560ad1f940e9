"""Numbers in words."""

from potstill.experiments.analysis import text
from potstill.experiments.analysis.effects import Interval


def test_shares():
    assert [text.percent(share) for share in (0.0313, 0.001, 0.0005, 0.00002, 0.0, 1.0)] == [
        "3.1 %",
        "0.1 %",
        "0.05 %",
        "0.002 %",
        "0.0 %",
        "100.0 %",
    ]
    assert [text.percent(share, sign=True) for share in (0.0313, -0.0313)] == ["+3.1 %", "−3.1 %"]


def test_numbers_and_intervals():
    assert text.number(-1234.5678) == "−1,235"
    assert text.number(0.012345, sign=True) == "+0.01235"
    assert text.ends(Interval(-0.01, 0.02), relative=True) == "−1.0 % to 2.0 %"
    assert text.ends(Interval(-0.01, 0.02), relative=False) == "−0.01 to 0.02"
    assert (text.counted(1, "unit"), text.counted(1200, "unit")) == ("1 unit", "1,200 units")
    assert (text.probability(0.0123), text.probability(1e-20)) == ("p = 0.012", "p < 1e-10")
