"""Replay is unbiased: exactly, on logs that can be enumerated, and on a simulator whose truth is known."""

from collections import defaultdict
from itertools import product
from math import comb

import numpy as np
import pytest

from potstill.errors import LabError
from potstill.keys import Key
from potstill.lab import VideoUpload
from potstill.lab.problems.replay import LogExhausted, Replay, logged, parts_of, read_part, write_log
from potstill.problem import Boolean, Discrete, Numeric, Observations, Problem

COIN = Problem(name="coin", context=[Boolean("heads")], actions=Discrete(["a", "b"]))
#: What actions earn, by context; distinct, so that a history of rewards tells what was decided on what.
EARNS = np.array([[1.0, 2.0], [3.0, 4.0]])
HEADS = 0.25
#: Of the logs that are enumerated: four kinds of rows make 1,024 logs.
LENGTH = 5


def rows(problem, contexts, actions, rewards):
    count, width = len(actions), problem.width
    return Observations(
        problem,
        np.reshape(contexts, (count, width)).astype(np.float32),
        np.asarray(actions, np.int32),
        np.asarray(rewards, np.float64),
        np.full(count, 1 / len(problem.actions), np.float32),
    )


def coin_log(row_kinds):
    """A log from (heads, action) pairs."""
    contexts, actions = np.array(row_kinds).T
    return rows(COIN, contexts, actions, EARNS[contexts, actions])


class Adaptive:
    """Deterministic, and changed by every batch: plays b on the contexts where the batches so far paid most."""

    def __init__(self):
        self.earned = np.zeros(2)

    def choose(self, contexts):
        actions = np.where(contexts[:, 0].astype(int) == self.earned.argmax(), 1, 0)
        return actions, np.ones(len(actions), np.float32)

    def learn(self, observations):
        np.add.at(self.earned, observations.contexts[:, 0].astype(int), observations.rewards)


def history(batch_of, batches):
    """The rewards that an adaptive algorithm sees in batches."""
    agent, seen = Adaptive(), []
    for size in batches:
        observations = batch_of(size, agent.choose)
        agent.learn(observations)
        seen += observations.rewards.tolist()
    return tuple(seen)


def online(batches):
    """The distribution of histories when the algorithm itself decides: all contexts, with their probabilities."""
    chances = defaultdict(float)
    for heads in product([0, 1], repeat=sum(batches)):
        stream = list(heads)

        def batch_of(size, choose, stream=stream):
            contexts = np.array([stream.pop(0) for _ in range(size)])
            actions, _ = choose(contexts[:, None].astype(np.float32))
            return rows(COIN, contexts, actions, EARNS[contexts, actions])

        chances[history(batch_of, batches)] += np.prod([HEADS if h else 1 - HEADS for h in heads])
    return chances


def replayed(batches):
    """The distribution of histories over all logs of a length, and the probability that a log is long enough."""
    chances, enough = defaultdict(float), 0.0
    for log in product(product([0, 1], [0, 1]), repeat=LENGTH):
        chance = np.prod([(HEADS if heads else 1 - HEADS) / 2 for heads, _ in log])
        # In two parts, so that blocks and batches end inside of parts and across them.
        replay = Replay(COIN, [coin_log(log[:2]), coin_log(log[2:])])
        try:
            seen = history(lambda size, choose, replay=replay: replay.batch(size, choose).observations, batches)
        except LogExhausted:
            continue
        chances[seen] += chance
        enough += chance
    return chances, enough


@pytest.mark.parametrize("batches", [(1, 1), (2, 1), (2, 2), (1, 3)], ids=str)
def test_histories_are_distributed_as_online_over_all_logs(batches):
    chances, enough = replayed(batches)
    # Every row matches with probability 1/2, whatever the algorithm does.
    assert enough == pytest.approx(sum(comb(LENGTH, k) for k in range(sum(batches), LENGTH + 1)) / 2**LENGTH, abs=1e-12)
    expected = online(batches)
    assert {seen for seen, chance in expected.items() if chance} == set(chances)
    for seen, chance in chances.items():
        assert chance / enough == pytest.approx(expected[seen], abs=1e-12)


def test_rows_after_the_last_match_are_left_for_the_next_batch():
    contexts = np.arange(6) / 10
    problem = Problem(name="six", context=[Numeric("x", low=0, high=1)], actions=Discrete(["a", "b"]))
    log = rows(problem, contexts, [0, 1, 0, 1, 1, 0], contexts)
    replay = Replay(problem, [log[:1], log[1:4], log[4:]])
    seen = []

    def always(action):
        def choose(contexts):
            seen.append([round(float(x), 1) for x in contexts[:, 0]])
            return np.full(len(contexts), action), np.full(len(contexts), 0.75, np.float32)

        return choose

    first = replay.batch(2, always(0)).observations
    np.testing.assert_allclose(first.rewards, [0.0, 0.2])
    second = replay.batch(2, always(1)).observations
    np.testing.assert_allclose(second.rewards, [0.3, 0.4])
    assert seen == [[0.0, 0.1], [0.2, 0.3], [0.3, 0.4]]
    # What an algorithm learns from is its own probability, not the log's.
    np.testing.assert_array_equal(second.propensities, np.full(2, 0.75, np.float32))
    assert replay.batch(1, always(0)).regret is None


def test_a_log_that_runs_out_says_how_far_it_came_and_what_is_missing():
    replay = Replay(COIN, [coin_log([(0, 0), (0, 1), (1, 0)])])

    def choose(contexts):
        return np.zeros(len(contexts), int), np.ones(len(contexts), np.float32)

    replay.batch(1, choose)
    with pytest.raises(LogExhausted, match=r"2 of its 3 rows counted, and 4 more were wanted .* about 8 more rows"):
        replay.batch(5, choose)


def test_replay_agrees_with_the_simulator(tmp_path):
    upload, n = VideoUpload(), 4_000
    write_log(tmp_path, upload, 40_000, seed=1, chunk=8_000)
    bandwidth = upload.problem.labels.index("up_kbps")

    def choose(contexts):
        actions = np.minimum((contexts[:, bandwidth] * 8).astype(int), 6)
        return actions, np.ones(len(actions), np.float32)

    replay = Replay(upload.problem, parts_of(tmp_path, upload.problem, Key(2)))
    earned = np.concatenate([replay.batch(1_000, choose).observations.rewards for _ in range(n // 1_000)])
    contexts = upload.contexts(100_000, np.random.default_rng(3))
    actions, _ = choose(upload.encode(contexts))
    truth = np.take_along_axis(upload.means(contexts), actions[:, None], axis=1)[:, 0]
    # Five standard errors of both: a right program fails with probability 6e-7, over all seeds.
    error = np.hypot(earned.std() / np.sqrt(n), truth.std() / np.sqrt(len(truth)))
    assert abs(earned.mean() - truth.mean()) < 5 * error
    # The bound has teeth: what uniformly random decisions earn lies far outside of it.
    assert abs(earned.mean() - upload.means(contexts).mean()) > 10 * error


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    folder = tmp_path_factory.mktemp("log")
    write_log(folder, VideoUpload(), 2_500, seed=5, chunk=1_000)
    return folder


def parts(log, seed):
    return list(parts_of(log, VideoUpload().problem, Key(seed)))


def test_each_trial_has_an_order_of_its_own_and_equal_keys_the_same(log):
    def stream(seed):
        return np.concatenate([part.contexts for part in parts(log, seed)])

    np.testing.assert_array_equal(stream(1), stream(1))
    assert not np.array_equal(stream(1), stream(2))
    # The same rows all the same.
    in_order = [np.unique(stream(seed), axis=0) for seed in (1, 2)]
    np.testing.assert_array_equal(*in_order)
    assert len(in_order[0]) == 2_500


def test_a_log_keeps_what_was_decided(log):
    upload = VideoUpload()
    part = read_part(log / "part-00000.parquet", upload.problem)
    key = Key(5).child("log", 0)
    contexts = upload.contexts(1_000, key.generator())
    np.testing.assert_allclose(part.contexts, upload.encode(contexts), atol=1e-6)
    table = logged(upload, 1_000, key)
    assert [upload.problem.actions.names[a] for a in part.actions] == table["action"].to_list()
    np.testing.assert_array_equal(part.rewards, table["reward"].to_numpy())
    np.testing.assert_allclose(part.propensities, 1 / 7)


def test_logged_actions_are_uniform_whatever_the_context():
    n = 35_000
    table = logged(VideoUpload(), n, Key(6))
    for kinds in (table, table.filter(table["connection"] == "wifi")):
        counts = kinds["action"].value_counts()["count"].to_numpy()
        # Five standard deviations of a binomial, for fourteen counts: a right program fails with probability 1e-5.
        assert abs(counts - len(kinds) / 7).max() < 5 * np.sqrt(len(kinds) * 6 / 49)


def test_an_interrupted_log_is_taken_up_and_ends_with_the_same_bytes(log, tmp_path):
    class Stopped(Exception):
        pass

    def stop(done, rows):
        if done == 2_000:
            raise Stopped

    with pytest.raises(Stopped):
        write_log(tmp_path, VideoUpload(), 2_500, seed=5, chunk=1_000, progress=stop)
    written = tmp_path / "part-00000.parquet"
    before = written.stat().st_mtime_ns
    reached = []
    write_log(tmp_path, VideoUpload(), 2_500, 5, 1_000, progress=lambda done, rows: reached.append((done, rows)))
    assert reached == [(1_000, 2_500), (2_000, 2_500), (2_500, 2_500)]
    assert written.stat().st_mtime_ns == before
    names = sorted(path.name for path in log.iterdir())
    assert names == sorted(path.name for path in tmp_path.iterdir())
    assert all((log / name).read_bytes() == (tmp_path / name).read_bytes() for name in names)


def test_a_folder_with_another_log_is_left_alone(log):
    with pytest.raises(ValueError, match=r"holds another log, .*seed=5.*, not .*seed=6"):
        write_log(log, VideoUpload(), 2_500, seed=6, chunk=1_000)


def test_a_log_of_chosen_decisions_cannot_be_replayed(tmp_path):
    table = logged(VideoUpload(), 10, Key(0))
    table.with_columns(propensity=0.5).write_parquet(tmp_path / "part-00000.parquet")
    with pytest.raises(ValueError, match=r"part-00000\.parquet: replay needs a log of uniformly random decisions"):
        parts(tmp_path, 0)
    table.drop("battery").write_parquet(tmp_path / "part-00000.parquet")
    with pytest.raises(ValueError, match="the log has no column 'battery'"):
        parts(tmp_path, 0)
    table.with_columns(action=table["action"].cast(str).str.replace("240p", "144p")).write_parquet(
        tmp_path / "part-00000.parquet"
    )
    with pytest.raises(ValueError, match="unknown action '144p@400k'"):
        parts(tmp_path, 0)


def test_a_folder_without_a_log_is_named(tmp_path):
    with pytest.raises(LabError, match=r"has no part-\*\.parquet"):
        parts(tmp_path, 0)
