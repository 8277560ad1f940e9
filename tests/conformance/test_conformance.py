"""Every runtime reproduces the vectors, by the rules of conformance/README.md."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from conformance.runtimes import RUNTIMES

import potstill as ps
from potstill.errors import UnsupportedSpace
from potstill.policy import UNDERFLOW, why_not_native

VECTORS = Path(__file__).parents[2] / "conformance" / "vectors"
SUITE = json.loads((VECTORS / "vectors.json").read_text(encoding="utf-8"))

#: Runtimes that know nothing of retired actions, and refuse policies with some.
WITHOUT_RETIRED = ("c", "onnx")
NO_CASE = {"floor": None, "eligible": None, "encoded": [], "context": {}}


@pytest.fixture(scope="module", params=RUNTIMES)
def start(request, tmp_path_factory):
    if request.param == "native" and (reason := why_not_native()):
        pytest.skip(reason)

    @cache
    def started(file):
        policy = policy_of(file)
        if request.param in WITHOUT_RETIRED and getattr(policy.problem.actions, "retired", ()):
            with pytest.raises(UnsupportedSpace, match="retired"):
                RUNTIMES[request.param](policy, tmp_path_factory.mktemp("runtime")).probabilities(NO_CASE)
            pytest.skip("exports of policies with retired actions are refused")
        return RUNTIMES[request.param](policy, tmp_path_factory.mktemp("runtime"))

    return started


@pytest.fixture(params=SUITE["policies"], ids=lambda entry: entry["file"])
def entry(request):
    return request.param


def policy_of(file):
    return ps.Policy.load(VECTORS / file)


def log_columns(problem):
    """Columns of log-scaled numbers, where the logarithm may differ in its last bit."""
    logs = [isinstance(f, ps.Numeric) and f.scale == "log" for f in problem.context for _ in f.labels]
    return np.array(logs, bool)


def test_a_runtime_reproduces_every_case(start, entry, record_property):
    problem, runtime, at_an_edge = policy_of(entry["file"]).problem, start(entry["file"]), 0
    for case in entry["cases"]:
        expected, agreement = np.float32(case["probabilities"]), case["agreement"]
        np.testing.assert_allclose(runtime.probabilities(case), expected, rtol=agreement, atol=UNDERFLOW)
        if runtime.encodes:
            encoded, wanted = runtime.encode(case["context"]), np.float32(case["encoded"])
            logs = log_columns(problem)
            np.testing.assert_array_equal(encoded[~logs], wanted[~logs])
            np.testing.assert_array_max_ulp(encoded[logs], wanted[logs], maxulp=1)
        if runtime.draws:
            assert runtime.u(case["id"]) == case["u"]
            action, propensity = runtime.decide(case)
            if action == case["action"]:
                assert propensity == pytest.approx(case["propensity"], rel=agreement, abs=UNDERFLOW)
            else:
                cumulative = np.cumsum(expected, dtype=float)
                assert np.abs(cumulative - case["u"] * cumulative[-1]).min() < agreement
                at_an_edge += 1
    record_property("decisions that differ at an edge", at_an_edge)
    # Such an edge is hit about once in 100,000 draws, and these vectors have 400.
    assert at_an_edge == 0


@pytest.mark.parametrize("entry", SUITE["numbers"], ids=lambda entry: entry["file"])
def test_a_runtime_chooses_the_same_numbers(start, entry):
    """To the last bit: the vectors have no draw near the edge between two bins."""
    policy, runtime = policy_of(entry["file"]), start(entry["file"])
    np.testing.assert_array_equal(policy.problem.actions.edges, entry["edges"])
    if not runtime.draws:
        pytest.skip("this runtime ends before the draw")
    for case in entry["cases"]:
        assert runtime.u(case["id"]) == case["u"]
        action, propensity = runtime.decide(case)
        assert action == case["action"]
        assert propensity == pytest.approx(case["propensity"], rel=case["agreement"])


def test_a_runtime_refuses_invalid_contexts(start, entry):
    runtime = start(entry["file"])
    if not runtime.encodes:
        pytest.skip("this runtime starts after encoding")
    for invalid in entry["invalid"]:
        with pytest.raises(ps.InvalidContext, match=invalid["error"]):
            runtime.encode(invalid["context"])


@pytest.mark.parametrize("refused", SUITE["refused"], ids=lambda refused: refused["file"])
def test_unsound_files_are_refused(refused):
    with pytest.raises(ps.InvalidPolicy, match=refused["reason"]):
        ps.Policy.load(VECTORS / refused["file"])
