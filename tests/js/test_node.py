"""The JavaScript runtime in Node: its own tests, and the vectors that Python made."""

from __future__ import annotations

import json
import subprocess

from js.vectors import CASES, POLICIES

import potstill as ps


def run(*command: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120, **options)


def test_its_own_tests_pass(program, js):
    # File by file: what `node --test` makes of a folder's name depends on its version.
    files = sorted((js / "test").glob("*.test.js"))
    done = run(program("node"), "--test", "--test-reporter=spec", *files)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(files) >= 8


def test_vectors(program, js, vectors):
    done = run(program("node"), js / "testing/run.js", vectors)
    report = json.loads(done.stdout)
    assert report["failures"] == []
    assert report["cases"] == POLICIES * CASES
    assert report["invalid"] > 200
    assert report["refused"] > 10
    print(f"node: {report}")


def test_a_wrong_vector_is_noticed(program, js, vectors, tmp_path):
    """The checker can fail: each expectation, made wrong, is reported."""
    expected = json.loads((vectors / "vectors.json").read_text())
    entry = expected["policies"][0]
    good = next(case for case in entry["cases"] if 0.01 < case["propensity"] < 0.99)
    other = next(
        name for name, p in zip(names(vectors, entry), good["probabilities"], strict=True) if name != good["action"]
    )
    wrong = [
        good | {"encoded": [x + 1e-6 for x in good["encoded"]]},
        good | {"probabilities": [1.001 * p for p in good["probabilities"]]},
        good | {"u": good["u"] + 2.0**-53},
        good | {"action": other},
        good | {"propensity": good["propensity"] + 3 * good["agreement"]},
    ]
    invalid = [{"context": good["context"], "error": "nothing"}]
    altered = {
        "policies": [{"file": entry["file"], "cases": wrong, "invalid": invalid}],
        "refused": [{"file": entry["file"], "reason": "nothing"}],
    }
    (tmp_path / "vectors.json").write_text(json.dumps(altered))
    (tmp_path / entry["file"]).write_bytes((vectors / entry["file"]).read_bytes())
    done = run(program("node"), js / "testing/run.js", tmp_path)
    assert done.returncode == 1
    failures = " ".join(json.loads(done.stdout)["failures"])
    assert all(f"case {i}:" in failures for i in range(len(wrong)))
    assert "invalid 0: accepted" in failures
    assert f"{entry['file']}: accepted" in failures


def names(vectors, entry):
    return ps.Policy.load(vectors / entry["file"]).problem.actions.names


def test_the_versions_agree(js):
    assert json.loads((js / "package.json").read_text())["version"] == ps.__version__


def test_the_benchmark_runs(program, js, vectors, tmp_path):
    expected = json.loads((vectors / "vectors.json").read_text())["policies"][0]
    (tmp_path / "contexts.json").write_text(json.dumps([case["context"] for case in expected["cases"]]))
    script = js.parent / "benchmarks/decide.js"
    done = run(program("node"), script, vectors / expected["file"], tmp_path / "contexts.json")
    figures = json.loads(done.stdout)
    assert 0 < figures["dict"]["median_us"] <= figures["dict"]["p99_us"]
    assert 0 < figures["encoded"]["median_us"] <= figures["encoded"]["p99_us"]
    wrong = run(program("node"), script)
    assert wrong.returncode == 1
    assert "usage" in wrong.stderr
