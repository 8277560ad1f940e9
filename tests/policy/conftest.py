import pytest
from examples import random_layers

import potstill as ps


@pytest.fixture
def policy(problem):
    return ps.Policy.build(problem, random_layers(problem), version=3, seed=1)
