"""The policy file: the same bytes for the same policy, and no unsound file gets in."""

import os

import msgspec
import numpy as np
import pytest
from examples import random_layers
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

import potstill as ps
from potstill.policy import Layer, artifact


def test_round_trip(policy, context, tmp_path):
    policy = policy.with_floor(0.02).with_fidelity({"kl_mean": 0.001})
    policy.save(tmp_path / "video.policy")
    loaded = ps.Policy.load(tmp_path / "video.policy", policy.problem)
    assert loaded.to_bytes() == policy.to_bytes()
    assert (loaded.version, loaded.floor, loaded.problem) == (3, 0.02, policy.problem)
    assert loaded.metadata.fidelity == {"kl_mean": 0.001}
    assert loaded.decide(context, id="a") == policy.decide(context, id="a")
    np.testing.assert_array_equal(loaded.probabilities(context), policy.probabilities(context))


def test_a_usual_policy_is_a_small_file():
    wide = ps.Problem(
        name="w", context=[ps.Numeric(f"x{i}", low=0, high=1) for i in range(38)], actions=ps.Discrete(list("abcdefg"))
    )
    policy = ps.Policy.build(wide, random_layers(wide, (100, 100)), version=1)
    assert len(policy.to_bytes()) < 70_000


def test_truncated_at_any_length(policy):
    data = policy.to_bytes()
    for length in [*range(0, len(data), 7), len(data) - 1]:
        with pytest.raises(ps.InvalidPolicy):
            ps.Policy.from_bytes(data[:length])
    with pytest.raises(ps.InvalidPolicy):
        ps.Policy.from_bytes(data + b"\0")


def test_any_flipped_bit_is_found(policy):
    data = policy.to_bytes()
    for at in range(len(data)):
        altered = bytearray(data)
        altered[at] ^= 1 << (at % 8)
        with pytest.raises(ps.InvalidPolicy):
            ps.Policy.from_bytes(bytes(altered))


@given(st.binary(max_size=200))
def test_other_bytes_are_no_policy(data):
    with pytest.raises(ps.InvalidPolicy):
        ps.Policy.from_bytes(data)
    with pytest.raises(ps.InvalidPolicy):
        ps.Policy.from_bytes(len(data).to_bytes(8, "little") + data)


def resealed(policy, layers=None, **changes):
    """A file with a right checksum around wrong content, as a faulty writer would make it."""
    return artifact.to_bytes(msgspec.structs.replace(policy.metadata, **changes), layers or policy.layers, policy.mean)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format": 5}, "format version 5; this version of Potstill reads 1 to 4"),
        ({"format": 4}, "format version 4, but its problem is of format 1"),
        ({"format": 3}, "format version 3, but its problem is of format 1"),
        ({"masked": True}, "format version 1, but a masked policy is of format 3"),
        ({"format": 3, "masked": True}, r"layers.0.weight must be float32\[11, 8\], got float32\[7, 8\]"),
        ({"format": 2}, "format version 2, but its problem is of format 1"),
        ({"salt": "00"}, "its salt must be 32 hex digits, got '00'"),
        ({"salt": "zz" * 16}, "its salt must be 32 hex digits"),
        ({"floor": 0.7}, "floor must be a number from 0 to 1/4"),
        ({"problem_hash": "0" * 31 + "1"}, "its problem has the hash"),
        ({"activation": "gelu"}, "gelu"),
    ],
)
def test_metadata_that_does_not_fit(policy, changes, reason):
    with pytest.raises(ps.InvalidPolicy, match=reason):
        ps.Policy.from_bytes(resealed(policy, **changes))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_weights(policy, bad):
    weight = policy.layers[1].weight.copy()
    weight[3, 2] = bad
    layers = [policy.layers[0], Layer(weight, policy.layers[1].bias), policy.layers[2]]
    with pytest.raises(ps.InvalidPolicy, match=r"tensor layers.1.weight holds a number that is not finite"):
        ps.Policy.from_bytes(resealed(policy, layers))


@pytest.mark.parametrize("depth", [100, 900, 100_000])
def test_json_that_nests_too_deep_is_no_policy(policy, depth):
    nested = "[" * depth + "]" * depth
    data = policy.to_bytes()
    size = int.from_bytes(data[:8], "little")
    in_header = data[8 : 8 + size].rstrip()[:-1] + b',"x":' + nested.encode() + b"}"
    with pytest.raises(ps.InvalidPolicy, match=f"its header nests {depth + 1} levels deep"):
        ps.Policy.from_bytes(len(in_header).to_bytes(8, "little") + in_header + data[8 + size :])
    text = f'{{"format": 1, "x": {nested}}}'
    with pytest.raises(ps.InvalidPolicy, match=f"its metadata nests {depth + 1} levels deep"):
        ps.Policy.from_bytes(save({"x": np.zeros(3)}, {"potstill": text}))


def test_brackets_in_names_are_no_nesting(problem):
    named = ps.Problem(name='[{"' * 100, context=problem.context, actions=problem.actions)
    assert ps.Policy.from_bytes(ps.Policy.uniform(named).to_bytes()).problem == named


def test_layers_that_do_not_fit(policy):
    with pytest.raises(ps.InvalidPolicy, match=r"layers.1.weight must be float32\[8, 4\], got float32\[8, 6\]"):
        ps.Policy.from_bytes(resealed(policy, policy.layers[:2]))
    double = [Layer(policy.layers[0].weight.astype(np.float64), policy.layers[0].bias), *policy.layers[1:]]
    with pytest.raises(ps.InvalidPolicy, match=r"must be float32\[7, 8\], got float64\[7, 8\]"):
        ps.Policy.from_bytes(resealed(policy, double))


def test_a_policy_of_another_problem(policy, problem, tmp_path):
    policy.save(tmp_path / "video.policy")
    other = ps.Problem(name="other", context=problem.context, actions=problem.actions)
    with pytest.raises(ps.InvalidPolicy, match=r"video.policy: a policy for problem 'video-upload' .* not for 'other'"):
        ps.Policy.load(tmp_path / "video.policy", other)


def test_a_safetensors_file_of_something_else(tmp_path):
    (tmp_path / "model").write_bytes(save({"x": np.zeros(3)}))
    with pytest.raises(ps.InvalidPolicy, match="model: a safetensors file, but not a policy"):
        ps.Policy.load(tmp_path / "model")


def test_a_save_that_fails_leaves_the_old_file(policy, tmp_path, monkeypatch):
    path = tmp_path / "video.policy"
    policy.save(path)
    before = path.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        policy.with_floor(0.1).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
