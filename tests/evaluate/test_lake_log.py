"""The log of a workspace: which observations, in which order, with what."""

import datetime as dt
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import potstill as ps
from potstill.errors import InvalidLog
from potstill.evaluate import WHY, lake_log
from potstill.evaluate.lake_log import LakeLog, raw_values
from potstill.events.lake.schema import table_schema
from potstill.policy import Layer
from potstill.tables import TIME
from potstill.workspace import Workspace

PROBLEM = b"""
name = "lake"
[[context]]
type = "numeric"
name = "speed"
low = 0
high = 10
missing = "flag"
[[context]]
type = "categorical"
name = "net"
values = ["4g", "wifi"]
[actions]
type = "discrete"
names = ["l", "m", "r"]
[reward]
low = 0.0
high = 1.0
"""
SECOND = 1_000_000


@pytest.fixture
def workspace(tmp_path):
    return Workspace.create(tmp_path / "w", PROBLEM, b"")


def add(workspace, rows, cut=1):
    """Add observations: mappings of what differs from a plain one, whose time is its place in seconds."""
    plain = {
        "action": "l",
        "propensity": 0.5,
        "reward": 0.25,
        "source": "log",
        "context_speed": 5.0,
        "context_net": "4g",
    }
    filled = [{"id": f"{cut}-{i}", "time": i * SECOND, "cut": cut} | plain | row for i, row in enumerate(rows)]
    schema = {
        k: v for k, v in table_schema("observations", workspace.problem).items() if k in {k for r in filled for k in r}
    }
    frame = pl.DataFrame(filled, schema=schema | {"time": pl.Int64}).with_columns(pl.col("time").cast(TIME))
    workspace.lake.append("observations", frame, writer="cuts", number=cut)


def only(log):
    (block,) = log.blocks()
    return block


def test_blocks_hold_what_was_observed_by_time(workspace):
    add(workspace, [{"time": 9, "action": "r", "reward": 0.75, "propensity": 0.1}, {"time": 4, "context_speed": None}])
    add(workspace, [{"time": 6, "action": "m", "context_net": "satellite"}], cut=2)
    block = only(LakeLog(workspace, by=["net", "speed"]))
    assert block.times.tolist() == [4, 6, 9]
    assert block.actions.tolist() == [0, 1, 2]
    assert block.rewards.tolist() == [0.25, 0.25, 0.75]
    assert block.propensities.tolist() == [0.5, 0.5, 0.1]
    contexts = [{"speed": None, "net": "4g"}, {"speed": 5, "net": "satellite"}, {"speed": 5, "net": "4g"}]
    assert np.array_equal(block.contexts, workspace.problem.encode_many(contexts))
    assert block.groups["net"].tolist() == ["4g", "satellite", "4g"]
    assert np.array_equal(block.groups["speed"], [np.nan, 5.0, 5.0], equal_nan=True)
    assert block.eligible is None


def test_rows_without_exact_propensities_are_left_out_and_counted(workspace):
    sources = ["log", "import", "import-estimated", "apprentice", "log-only", "fallback", "control", "control"]
    add(workspace, [{"source": source} for source in sources] + [{"action": "gone"}])
    log = LakeLog(workspace)
    assert len(log) == len(only(log)) == 2
    assert log.left_out == {
        "control": 2,
        "apprentice": 1,
        "fallback": 1,
        "import-estimated": 1,
        "log-only": 1,
        "unfit": 1,
    }
    assert set(log.left_out) <= set(WHY)


def test_an_apprentice_that_states_its_own_propensity_is_used_with_that_one(workspace):
    stated = {"source": "apprentice", "own_propensity": 0.25, "propensity": 1e-9, "time": 5}
    add(workspace, [stated, {"source": "apprentice"}, {"time": 7}, {**stated, "source": "control"}])
    log = LakeLog(workspace)
    assert only(log).propensities.tolist() == [0.25, 0.5]
    assert log.left_out == {"apprentice": 1, "control": 1}


def test_eligible_actions_become_a_mask(workspace):
    add(workspace, [{"eligible": ["l", "r"]}, {"eligible": None}, {"eligible": ["l"]}])
    assert only(LakeLog(workspace)).eligible.tolist() == [[True, False, True], [True] * 3, [True, False, False]]


def test_ranges_of_cuts_and_times(workspace):
    add(workspace, [{}, {}, {}])
    add(workspace, [{"time": 10 * SECOND}], cut=2)

    def seconds(**options):
        return (only(LakeLog(workspace, **options)).times // SECOND).tolist()

    assert seconds() == [0, 1, 2, 10]
    assert seconds(after=1) == [10]
    assert seconds(to=1) == [0, 1, 2]
    assert seconds(since=1 * SECOND, until=10 * SECOND) == [1, 2]
    assert len(LakeLog(workspace, since=11 * SECOND)) == 0
    assert list(LakeLog(workspace, since=11 * SECOND).blocks()) == []


def test_many_blocks_hold_the_rows_of_one(workspace, monkeypatch):
    rng = np.random.default_rng(0)
    # Many of the same time, over several days and files.
    times = (rng.integers(0, 40, 300) * 7_000 * SECOND).tolist()
    add(workspace, [{"time": time, "reward": float(rng.random())} for time in times[:200]])
    add(workspace, [{"time": time, "reward": float(rng.random())} for time in times[200:]], cut=2)
    whole = only(LakeLog(workspace))
    monkeypatch.setattr(lake_log, "ROWS", 25)
    seen = []
    blocks = list(LakeLog(workspace, on_progress=lambda done, of: seen.append((done, of))).blocks())
    assert len(blocks) > 5
    assert np.array_equal(np.concatenate([block.rewards for block in blocks]), whole.rewards)
    assert np.array_equal(np.concatenate([block.times for block in blocks]), whole.times)
    assert (np.diff(whole.times) >= 0).all()
    assert seen[-1] == (300, 300)


def test_a_log_stays_as_it_was_when_it_was_opened(workspace):
    add(workspace, [{}, {}])
    log = LakeLog(workspace)
    add(workspace, [{"time": 1}], cut=2)
    assert len(only(log)) == 2
    assert len(LakeLog(workspace)) == 3


def test_recent_contexts_are_the_last_ones(workspace):
    add(workspace, [{"context_speed": float(i)} for i in range(6)])
    assert LakeLog(workspace).recent_contexts(2)[:, 0].tolist() == pytest.approx([0.4, 0.5])
    assert LakeLog(workspace, since=99 * SECOND).recent_contexts(2).shape == (0, workspace.problem.width)


def test_rows_that_a_policy_has_learnt_from_are_counted(workspace):
    add(workspace, [{}, {}, {"source": "apprentice"}])
    add(workspace, [{}], cut=2)
    assert [LakeLog(workspace).count_up_to(cut) for cut in (0, 1, 2)] == [0, 2, 3]


def test_an_object_store_holds_a_log_as_well(s3):
    workspace = Workspace.create(s3, PROBLEM, b"")
    add(workspace, [{"time": 9}, {"time": 4}])
    assert only(LakeLog(workspace)).times.tolist() == [4, 9]


def test_an_empty_lake_is_an_empty_log(workspace):
    log = LakeLog(workspace)
    assert (len(log), dict(log.left_out), list(log.blocks())) == (0, {}, [])


def test_an_unknown_feature_is_named(workspace):
    with pytest.raises(InvalidLog, match="no feature 'spede' to segment by; the features are speed, net"):
        LakeLog(workspace, by=["spede"])


def test_raw_values_share_their_objects():
    values = raw_values(pl.Series("x", ["a" * 100, None, "a" * 100, "ü"]))
    assert values.tolist() == ["a" * 100, None, "a" * 100, "ü"]
    assert values[0] is values[2]
    assert raw_values(pl.Series("x", [1, None])).tolist()[0] == 1.0
    assert raw_values(pl.Series("x", [True, None, False])).tolist() == [True, None, False]
    assert raw_values(pl.Series("x", [None, None], dtype=pl.String)).tolist() == [None, None]
    assert raw_values(pl.Series("x", ["b", None, "a"], dtype=pl.Categorical)).tolist() == ["b", None, "a"]


def test_an_older_lake_without_the_new_columns_can_be_read(tmp_path):
    """Tables that were made before observations kept their eligible actions."""
    workspace = Workspace.create(tmp_path / "w", PROBLEM, b"")
    old = [
        "id",
        "time",
        "day",
        "action",
        "propensity",
        "policy",
        "reward",
        "source",
        "cut",
        "context_speed",
        "context_net",
    ]
    frame = pl.DataFrame(
        {
            "id": ["a"],
            "time": [dt.datetime(2026, 11, 16, tzinfo=dt.UTC)],
            "day": [dt.date(2026, 11, 16)],
            "action": ["l"],
            "propensity": [0.5],
            "policy": [1],
            "reward": [1.0],
            "source": ["log"],
            "cut": [1],
            "context_speed": [1.0],
            "context_net": ["wifi"],
        }
    ).select(old)
    frame.write_delta(workspace.lake.url("observations"), delta_write_options={"partition_by": ["day"]})
    block = only(LakeLog(workspace))
    assert (len(block), block.eligible) == (1, None)


def test_a_problem_without_features_can_be_read(tmp_path):
    problem = ps.Problem(name="none", context=[], actions=ps.Discrete(["l", "r"]))
    problem.save(tmp_path / "problem.toml")
    workspace = Workspace(tmp_path)
    frame = pl.DataFrame(
        {"id": ["a"], "time": [1], "cut": [1], "action": ["l"], "propensity": [0.5], "reward": [1.0], "source": ["log"]}
    ).with_columns(pl.col("time").cast(TIME))
    workspace.lake.append("observations", frame, writer="cuts", number=1)
    assert only(LakeLog(workspace)).contexts.shape == (1, 0)


# ---- actions that were removed


def removed_action(workspace, bias=(0, 0, 0)):
    """Log 4,000 decisions of a policy over l, m, r; then take r out of the problem."""
    rng = np.random.default_rng(3)
    layers = [Layer(rng.normal(0, 0.5, (workspace.problem.width, 3)).astype(np.float32), np.float32(bias))]
    policy = ps.Policy.build(workspace.problem, layers, version=1)
    workspace.registry.publish(policy, teacher=None, report=b"{}", expected=0)
    contexts = [
        {"speed": float(s), "net": n}
        for s, n in zip(rng.uniform(0, 10, 4000), rng.choice(["4g", "wifi"], 4000), strict=True)
    ]
    rows = []
    for i, context in enumerate(contexts):
        decision = policy.decide(context, id=f"1-{i}")
        reward = {"l": 0.9, "m": 0.1, "r": 0.5}[decision.action] * context["speed"] / 10
        rows.append({"action": decision.action, "propensity": decision.propensity, "reward": reward, "policy": 1,
                     "context_speed": context["speed"], "context_net": context["net"]})  # fmt: skip
    add(workspace, rows)
    path = Path(workspace.url) / "problem.toml"
    path.write_bytes(path.read_bytes().replace(b'"m", "r"', b'"m"'))
    return Workspace(workspace.url), policy, contexts


def test_propensities_are_those_given_the_actions_that_are_left(workspace):
    """Rows of a removed action are left out; p(a) / (1 - p(removed)) is how often the others occur among the rest."""
    changed, policy, contexts = removed_action(workspace)
    log = LakeLog(changed)
    block = only(log)
    p = policy.probabilities_many(policy.problem.encode_many(contexts)).astype(np.float64)
    kept = [i for i in range(4000) if policy.decide(contexts[i], id=f"1-{i}").action != "r"]
    expected = p[kept, :2] / (1 - p[kept, 2:])
    np.testing.assert_allclose(block.propensities, expected[np.arange(len(kept)), block.actions], rtol=1e-5)
    assert log.left_out == {"unfit": 4000 - len(kept)}
    # Weights add up to the rows for each action; with the stated propensities they add up to more.
    weights = 1 / block.propensities
    for action in (0, 1):
        mine = np.where(block.actions == action, weights, 0.0)
        error = mine.std() / np.sqrt(len(mine))
        assert abs(mine.mean() - 1) < 4 * error  # false alarm rate below 1e-4
    stated = np.where(block.actions == 0, 1 / p[kept, 0], 0.0)
    assert stated.mean() > 1 + 4 * stated.std() / np.sqrt(len(stated))


def test_what_is_nearly_certain_is_no_more_than_certain(workspace):
    """Of l, 1 - 1e-7, and r, 1e-7, the quotient is 1 but for the rounding of float32, which may be above it."""
    changed, _, _ = removed_action(workspace, bias=(20, 0, 4))
    block = only(LakeLog(changed))
    assert block.propensities.max() == 1
    np.testing.assert_allclose(block.propensities, 1, rtol=1e-6)


def test_propensities_that_the_policy_did_not_draw_by_stay(workspace):
    changed, _, _ = removed_action(workspace)
    add(workspace, [{"action": "l", "propensity": 1.0, "policy": 1, "time": 5_000 * SECOND}], cut=2)  # a fallback
    add(
        workspace, [{"action": "m", "propensity": 0.123, "policy": 9, "time": 5_001 * SECOND}], cut=3
    )  # unknown version
    block = only(LakeLog(Workspace(changed.url), after=1))
    np.testing.assert_allclose(block.propensities, [1.0, 0.123], rtol=1e-6)
