"""Every teacher of the registry × every check; and the checks do catch teachers that are broken."""

import re

import numpy as np
import pytest

from potstill.teachers import TEACHERS, LinearTS, Uniform, available, check_teacher, from_config, to_config
from potstill.teachers.conformance import CHECKS


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", TEACHERS)
def test_conformance(name, check):
    check(TEACHERS[name]())


@pytest.mark.parametrize("name", TEACHERS)
def test_a_configuration_makes_an_equal_teacher(name):
    teacher = TEACHERS[name]()
    assert from_config(to_config(teacher)) == teacher
    assert name in available()


def test_a_configuration_that_is_wrong_says_where():
    assert from_config({"type": "linear-ts", "discount": 0.9}) == LinearTS(discount=0.9)
    with pytest.raises(ValueError, match=re.escape("unknown teacher 'magic'; must be one of: ")):
        from_config({"type": "magic"})
    with pytest.raises(ValueError, match=re.escape("teacher 'linear-ts': Expected `float`, got `str` - at `$.alpha`")):
        from_config({"type": "linear-ts", "alpha": "six"})


class Unnormalised(Uniform, frozen=True):
    def propensities(self, state, contexts, key):
        return super().propensities(state, contexts, key) * np.float32(0.5)


class Careless(LinearTS, frozen=True):
    def update(self, state, observations, key):
        state.sums.gram[:] += 1
        return super().update(state, observations, key)


class Biased(LinearTS, frozen=True):
    def sample_actions(self, state, contexts, n, key):
        return np.zeros((len(contexts), n), np.int64)


class Moody(LinearTS, frozen=True):
    def propensities(self, state, contexts, key):
        return np.random.default_rng().dirichlet(np.ones(3), len(contexts)).astype(np.float32)


@pytest.mark.parametrize("broken", [Unnormalised, Careless, Biased, Moody])
def test_a_broken_teacher_is_caught(broken):
    with pytest.raises(AssertionError):
        check_teacher(broken())


class HalfSharded(LinearTS, frozen=True):
    def update(self, state, observations, key):
        return self._state(state.sums + self.summarise(observations).scaled(0.5))


def test_shards_that_do_not_add_up_are_caught():
    with pytest.raises(AssertionError, match="shards must add up"):
        check_teacher(HalfSharded())
