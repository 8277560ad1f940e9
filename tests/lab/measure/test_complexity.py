"""Complexity: exponents of functions that are known, and memory that is counted."""

import numpy as np
import pytest

from potstill.lab.measure import complexity
from potstill.lab.measure.complexity import METHODS, Sizes, slope

GROWING = [2, 16, 32, 64, 128, 256]


@pytest.mark.parametrize("exponent", [1, 2, 3])
def test_the_exponent_of_a_power_above_a_floor(exponent):
    """The floor flattens the line, and has to be taken off."""
    formula = [float(n) ** exponent for n in GROWING]
    values = [0.2 * formula[-1] + value for value in formula]
    assert np.polyfit(np.log(GROWING), np.log(values), 1)[0] < 0.5 * exponent
    assert slope(GROWING, values, formula) == pytest.approx(exponent, abs=0.05)


def test_what_does_not_grow_has_exponent_zero():
    assert slope(GROWING, [7.0] * 6, [1.0] * 6) == pytest.approx(0.0, abs=1e-12)
    assert slope(GROWING, [float(n) for n in GROWING], [1.0] * 6) == pytest.approx(1.0)


def test_sizes_that_tell_nothing_are_left_out():
    values = [10.0, 10.0, 10.0, 64.0**2, 128.0**2, 1e9]
    formula = [float(n) ** 2 for n in GROWING]
    used = [False, False, False, True, True, False]
    assert slope(GROWING, values, formula, used) == pytest.approx(2.0, abs=0.01)
    assert slope(GROWING, values, formula, [False] * 5 + [True]) is None


def test_a_synthetic_quadratic_method_is_found_out(monkeypatch):
    """A method that counts its products on a clock of its own: floor 5 µs, one nanosecond per product."""

    def build(sizes):
        return complexity.Built(lambda _: 5_000 + sizes.d**2, 4 * sizes.d**2)

    monkeypatch.setattr(complexity, "timed", lambda decide, contexts, calls, seconds: [decide(contexts[0])] * 3)
    method = complexity.Method(
        "square", "d²", lambda n: n.d**2, lambda n: n.d**2, build, {"d": ((1, 32, 64, 128, 256), {"k": 3})}
    )
    monkeypatch.setattr(complexity, "METHODS", (method,))
    (grown,) = complexity.measure(calls=10)
    assert grown.us == pytest.approx([5.001, 6.024, 9.096, 21.384, 70.536])
    assert grown.time_slope == pytest.approx(2.0, abs=0.01)
    assert grown.time_expected == pytest.approx(2.0, abs=0.01)
    assert grown.space_slope == pytest.approx(2.0, abs=0.01)
    assert (grown.fixed, grown.bytes[1]) == ({"k": 3}, 4 * 32**2)


def test_sizes_within_the_overhead_of_a_call_or_beyond_the_cache_do_not_count():
    us, held, products = [10.0, 11.0, 12.0, 20.0], [1, 1, 1, complexity.CACHE + 1], [1, 2, 3, 4]
    assert complexity._telling(us, held, products) == [False, False, True, False]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.title)
def test_methods_decide_and_their_memory_is_as_the_paper_says(method):
    """Four bytes for each number of the formula, and what the formula leaves out: biases, means, a file's head."""
    sizes = Sizes(d=40, k=6, h=48, b=3)
    built = method.build(sizes)
    decided = built.decide(np.random.default_rng(0).random(40, np.float32))
    assert decided in range(6) or decided.action in {f"a{i}" for i in range(6)}
    assert 1.0 <= built.bytes / (4 * method.numbers(sizes)) < 1.45


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.title)
def test_memory_grows_as_the_paper_says(method):
    for dimension, (values, fixed) in method.grow.items():
        points = [Sizes(**{**fixed, dimension: value}) for value in values[:4]]
        held = [method.build(point).bytes for point in points]
        numbers = [method.numbers(point) for point in points]
        assert slope(values[:4], held, numbers) == pytest.approx(slope(values[:4], numbers, numbers), abs=0.1)
