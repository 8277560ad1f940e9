"""Which runtime decides: the one that was named, the one that the environment names, or the best there is."""

import copy
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from native_examples import GOOD, make_policy, needs_native

import potstill as ps
from potstill.policy import native_runtime, runtime

HERE = Path(__file__).parent


@needs_native
def test_the_kernel_decides_where_it_is_there(monkeypatch, problem):
    monkeypatch.delenv(runtime.VARIABLE, raising=False)
    assert ps.Policy.uniform(problem).runtime == "native"


@pytest.mark.parametrize("name", ["numpy", pytest.param("native", marks=needs_native)])
def test_the_environment_chooses(monkeypatch, problem, name):
    monkeypatch.setenv(runtime.VARIABLE, name)
    assert ps.Policy.uniform(problem).runtime == name


def test_an_unknown_runtime_is_refused(monkeypatch, problem):
    policy = ps.Policy.uniform(problem)
    with pytest.raises(RuntimeError, match="'native' or 'numpy', got 'cuda'"):
        policy.with_runtime("cuda")
    monkeypatch.setenv(runtime.VARIABLE, "cuda")
    with pytest.raises(RuntimeError, match="got 'cuda'"):  # and not that the file is invalid
        ps.Policy.from_bytes(policy.to_bytes())


def test_without_the_kernel_numpy_decides_and_says_why(monkeypatch, problem, context):
    monkeypatch.delenv(runtime.VARIABLE, raising=False)
    monkeypatch.setattr(native_runtime, "WHY_NOT", "it was not built")
    policy = ps.Policy.uniform(problem)
    assert policy.runtime == "numpy"
    assert runtime.why_not_native() == "it was not built"
    assert policy.decide(context, id="x").propensity == 0.25
    with pytest.raises(RuntimeError, match="requested, but it was not built"):
        policy.with_runtime("native")


def test_a_file_decides_alike_on_both(tmp_path):
    make_policy().save(tmp_path / "a.policy")
    policy = ps.Policy.load(tmp_path / "a.policy")
    decided = {policy.with_runtime(name).decide(GOOD, id="x").action for name in ("numpy", policy.runtime)}
    assert len(decided) == 1


@pytest.mark.parametrize("name", ["numpy", pytest.param("native", marks=needs_native)])
def test_copies_decide_alike_and_keep_the_runtime_that_was_named(name):
    policy = make_policy().with_runtime(name)
    for again in (pickle.loads(pickle.dumps(policy)), copy.deepcopy(policy), policy.with_floor(0.0)):
        assert again.runtime == name
        assert again.decide(GOOD, id="x") == policy.decide(GOOD, id="x")
        assert again.to_bytes() == policy.to_bytes()


def test_everything_about_policies_holds_on_numpy():
    """The tests of policies once more, in a process that has no kernel to fall back on."""
    tests = [HERE / "test_policy.py", HERE / "test_artifact.py", HERE / "test_explain.py"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, tests)],
        cwd=HERE.parents[1],
        env=os.environ | {runtime.VARIABLE: "numpy"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
