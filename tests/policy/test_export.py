"""Exports: they compile, they run, and they say the same as Python. The conformance suite goes deeper."""

import json
import re
import shutil
import subprocess

import msgspec
import numpy as np
import pytest
from conformance.runtimes import WARNINGS
from examples import random_layers
from native_examples import make_policy

import potstill as ps
from potstill.policy.export import TARGETS, export
from potstill.policy.export.onnx import to_model

onnx = pytest.importorskip("onnx")


@pytest.fixture
def odd():
    """A problem whose names are no identifiers anywhere."""
    problem = ps.Problem(
        name='*/ "quoted" \\ ?? ünï',
        context=[
            ps.Numeric("a b", low=0, high=1),
            ps.Numeric("a-b", low=0, high=1, missing=0.5),
            ps.Categorical("日本", ['"', "\\", "??/", "é"]),
            ps.Boolean("int", missing="flag"),
            ps.Numeric("features", low=1, high=9, scale="log"),
        ],
        actions=ps.Discrete(["1", "2", 'say "hi"\n', "*/"]),
    )
    return ps.Policy.build(problem, random_layers(problem), version=2, floor=0.01)


def example(policy):
    return policy.decide({feature.name: feature.example for feature in policy.problem.context}, id="example")


@pytest.mark.parametrize("which", ["policy", "odd"])
@pytest.mark.parametrize("compiler", ["cc", "clang"])
def test_exported_c_compiles_without_a_warning_and_decides_as_python(which, compiler, request, tmp_path):
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler} here")
    policy = request.getfixturevalue(which)
    written = export(policy, "c", tmp_path, "Video 1")
    assert {path.name for path in written} >= {"video_1.h", "video_1.c", "example.c", "potstill.h", "potstill.c"}
    sources = [str(path) for path in written if path.suffix == ".c"]
    subprocess.run([compiler, *WARNINGS, "-O2", *sources, "-lm", "-o", str(tmp_path / "example")], check=True)
    printed = subprocess.run([tmp_path / "example"], capture_output=True, text=True, check=True).stdout
    action, propensity = printed.rstrip("\n").rsplit(" ", 1)
    assert action == example(policy).action
    assert float(propensity) == pytest.approx(example(policy).propensity, abs=1e-6)


@pytest.mark.parametrize("which", ["policy", "odd"])
def test_a_cpp_program_links_the_exported_c(which, request, tmp_path):
    if not shutil.which("c++"):
        pytest.skip("no C++ compiler here")
    policy = request.getfixturevalue(which)
    written = export(policy, "c", tmp_path, "video")
    objects = []
    for path in (tmp_path / "video.c", tmp_path / "potstill.c"):
        objects.append(str(path.with_suffix(".o")))
        subprocess.run(["cc", *WARNINGS, "-O1", "-c", str(path), "-o", objects[-1]], check=True)
    assert {tmp_path / "video.h", tmp_path / "potstill.h"} <= set(written)
    program = tmp_path / "program.cpp"
    program.write_text(
        """
        #include "video.h"
        #include <cstdio>
        #include <vector>
        int main() {
            std::vector<potstill_value> values(VIDEO_FEATURES);
            potstill_decision decision{};
            const potstill_status status = video_decide(values.data(), "example", &decision);
            std::printf("%s %s", potstill_message(status), video_actions[video_policy.actions - 1]);
        }
        """
    )
    subprocess.run(
        ["c++", "-Wall", "-Wextra", "-Werror", str(program), *objects, "-o", str(tmp_path / "p")], check=True
    )
    printed = subprocess.run([tmp_path / "p"], capture_output=True, text=True, check=True).stdout
    assert printed == f"a value is missing {policy.problem.actions.names[-1]}"


@pytest.mark.parametrize("which", ["policy", "odd"])
def test_exported_javascript_decides_as_python(which, request, tmp_path):
    if not shutil.which("node"):
        pytest.skip("no node here")
    policy = request.getfixturevalue(which)
    written = export(policy, "js", tmp_path, "video")
    assert (tmp_path / "video.js") in written
    script = tmp_path / "as_json.mjs"
    script.write_text(
        (tmp_path / "example.mjs").read_text().replace("console.log(", "const d = (")
        + "\nconsole.log(JSON.stringify(d))"
    )
    printed = subprocess.run(["node", script], capture_output=True, text=True, check=True).stdout
    decision = json.loads(printed)
    assert (decision["action"], decision["policy"]) == (example(policy).action, policy.version)
    assert decision["propensity"] == pytest.approx(example(policy).propensity, abs=1e-6)


def test_exported_onnx_carries_the_metadata(odd, tmp_path):
    written = export(odd, "onnx", tmp_path, "video")
    assert [path.name for path in written] == ["video.onnx", "video.eligible.onnx"]
    model = onnx.load(written[0])
    onnx.checker.check_model(model, full_check=True)
    properties = {p.key: p.value for p in model.metadata_props}
    described = json.loads(properties["potstill"])
    assert msgspec.convert(described["problem"], ps.Problem) == odd.problem
    assert described["floor"] == 0.01


@pytest.mark.parametrize("eligible", [False, True])
def test_onnx_runtime_loads_the_export_without_a_warning(odd, eligible, capfd):
    session = pytest.importorskip("onnxruntime").InferenceSession(to_model(odd, eligible=eligible).SerializeToString())
    assert [one.name for one in session.get_inputs()] == ["context", "eligible"][: 1 + eligible]
    assert capfd.readouterr().err == ""


def test_a_masked_policy_runs_in_onnx_with_one_mask_for_all_contexts_or_one_for_each():
    onnxruntime = pytest.importorskip("onnxruntime")
    policy = make_policy(masked=True)
    session = onnxruntime.InferenceSession(to_model(policy, eligible=True).SerializeToString())
    rng = np.random.default_rng(0)
    contexts = rng.random((20, policy.problem.width)).astype(np.float32)
    eligible = rng.random((20, 5)) < 0.6
    eligible[:, 2] = True
    for mask in (eligible, eligible[:1]):
        found = session.run(None, {"context": contexts, "eligible": mask})[0]
        wanted = policy.probabilities_many(contexts, eligible=np.broadcast_to(mask, (20, 5)))
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-7)
    plain = onnxruntime.InferenceSession(to_model(policy).SerializeToString()).run(None, {"context": contexts})[0]
    np.testing.assert_allclose(plain, policy.probabilities_many(contexts), rtol=1e-4, atol=1e-7)


def test_what_cannot_be_exported_is_said(policy, tmp_path):
    with pytest.raises(ValueError, match=re.escape(f"cannot export to 'cobol'; the targets are {', '.join(TARGETS)}")):
        export(policy, "cobol", tmp_path)
    with pytest.raises(ValueError, match="the name 'potstill' is taken"):
        export(policy, "c", tmp_path, "Potstill")
    with pytest.raises(ValueError, match="the name 'example' is taken"):
        export(policy, "js", tmp_path, "example")
