"""Labels in shards: what the teacher says, written once, used again, and streamed through an update to the bit."""

import io
import itertools

import numpy as np
import polars as pl
import pytest
from worlds import CONFIG, HOUR, LATER, NOON, contexts, log, made

from potstill.keys import Key
from potstill.pipeline import labels
from potstill.pipeline.engines import LocalEngine
from potstill.pipeline.labels import LabelStore, StreamedContexts, forget_labels
from potstill.pipeline.reproduce import NotReproducible, reproduce_version
from potstill.pipeline.shards import Table, shards
from potstill.pipeline.update import run_update
from potstill.problem import InvalidContext, InvalidObservation
from potstill.storage import open_storage
from potstill.teachers import GaussianProcessTS, LinearTS
from potstill.teachers.conformance import PROBLEM, example_contexts, example_observations

KEY = Key(2)
STREAMED = CONFIG + b'contexts = "contexts.parquet"\ncontexts_at_most = 5000\ncontexts_in_memory = 200\n'


@pytest.fixture(autouse=True)
def _small_shards(monkeypatch):
    monkeypatch.setattr("potstill.pipeline.shards.SHARD_ROWS", 100)


def table(path, n):
    rows = pl.DataFrame({"speed": np.linspace(0, 10, n), "place": ["home"] * n, "new": [i % 2 == 0 for i in range(n)]})
    rows.write_parquet(path)
    return Table.at(str(path))


def streamed(tmp_path, place, n=250):
    parts = shards(table(tmp_path / "t.parquet", n), n, n)
    return StreamedContexts(PROBLEM, parts, KEY, LocalEngine(), LabelStore(place, 7))


def learnt(teacher):
    return teacher.update(teacher.init(PROBLEM), example_observations(), KEY)


@pytest.fixture
def labelled(tmp_path, place):
    contexts, teacher = streamed(tmp_path, place), LinearTS()
    return contexts.label(teacher, learnt(teacher), example_contexts(30), KEY)


def test_labels_are_what_the_teacher_says_of_all_contexts(labelled):
    """Observed contexts first, then the table; on a folder and on an object store."""
    assert labelled.rows == [30, 100, 100, 50]
    read = [labelled.read(shard) for shard in range(4)]
    everything = np.concatenate([contexts for contexts, _ in read])
    teacher = LinearTS()
    expected = teacher.propensities(learnt(teacher), everything, KEY)
    np.testing.assert_allclose(np.concatenate([found for _, found in read]), expected, atol=1e-6)
    np.testing.assert_array_equal(read[0][0], example_contexts(30))
    np.testing.assert_allclose(labelled.mean, everything.mean(axis=0), rtol=1e-6)


def test_what_is_there_is_used_and_what_was_made_from_something_else_is_not(tmp_path):
    place, teacher = str(tmp_path / "labels"), LinearTS()
    state = learnt(teacher)

    def reused(**changes):
        given = {"teacher": teacher, "state": state, "key": KEY, "n": 250, **changes}
        contexts = streamed(tmp_path, place, given["n"])
        return contexts.label(given["teacher"], given["state"], example_contexts(30), given["key"]).reused

    assert reused() == 0
    assert reused() == 4
    assert reused(n=251) == 1  # every row of the table is another one
    assert reused() == 1
    assert reused(state=teacher.init(PROBLEM)) == 0
    assert reused(key=Key(9)) == 0


def test_a_shard_that_is_damaged_is_made_again(tmp_path):
    place, teacher = str(tmp_path / "labels"), LinearTS()
    state = learnt(teacher)
    streamed(tmp_path, place).label(teacher, state, example_contexts(0), KEY)
    storage = open_storage(place)
    [first, *_] = storage.names("")
    whole = storage.read(first)
    storage.replace(first, whole[:100])
    assert streamed(tmp_path, place).label(teacher, state, example_contexts(0), KEY).reused == 2
    assert storage.read(first) == whole


def test_a_teacher_that_draws_draws_the_same_again(tmp_path):
    teacher = GaussianProcessTS(draws=64)
    state = learnt(teacher)
    for place in ("one", "two"):
        streamed(tmp_path, str(tmp_path / place)).label(teacher, state, example_contexts(5), KEY)
    one, two = (open_storage(tmp_path / place) for place in ("one", "two"))
    assert [one.read(name) for name in one.names("")] == [two.read(name) for name in two.names("")]


def test_labels_of_old_versions_are_forgotten(place):
    storage = open_storage(place)
    for version, number in itertools.product((1, 2, 3), (0, 1)):
        storage.create(f"labels/{LabelStore(place, version).name(number)}", b"x")
    storage.create("labels/notes.txt", b"x")
    forget_labels(storage, 2)
    assert storage.names("labels") == ["00000003-00000.safetensors", "00000003-00001.safetensors", "notes.txt"]


def workspace_with_contexts(place, n=430, config=STREAMED, seed=5):
    workspace = made(place, config)
    rows = pl.DataFrame(contexts(n, seed=seed))
    rows.write_parquet(buffer := io.BytesIO())
    workspace.storage.replace("contexts.parquet", buffer.getvalue())
    log(workspace, workspace.start(), 100)
    return workspace


def test_an_update_streams_what_does_not_fit_and_can_be_reproduced(place):
    workspace = workspace_with_contexts(place)
    report = run_update(workspace, now=LATER)
    assert (report.outcome, report.still.contexts, report.contexts_unfit) == ("published", 530, 0)
    described = workspace.serving().metadata.lineage.origin["contexts"]
    assert (described["table"], described["rows"], described["shards"]) == ("contexts.parquet", 430, 5)
    assert report.still.fidelity.kl_mean < 0.05
    assert reproduce_version(workspace, 1).identical
    assert workspace.storage.names("labels") == []


def test_the_decisions_of_the_lake_can_be_imitated_on(tmp_path):
    """A table of Delta Lake in parts by day, whose columns are named as the lake does."""
    config = STREAMED.replace(b"contexts.parquet", b"events/decisions")
    workspace = made(str(tmp_path), config)
    for day in range(3):
        log(workspace, workspace.start(), 120, seed=day, at=NOON - day * 24 * HOUR)
    report = run_update(workspace, now=LATER)
    assert (report.observations, report.still.contexts) == (360, 720)
    log(workspace, workspace.start(), 120, seed=3)
    run_update(workspace, now=LATER)
    assert reproduce_version(workspace, 1).identical  # from the table as it was


def test_a_changed_table_is_not_reproduced(tmp_path):
    workspace = workspace_with_contexts(str(tmp_path))
    run_update(workspace, now=LATER)
    pl.DataFrame(contexts(430, seed=6)).write_parquet(tmp_path / "contexts.parquet")
    with pytest.raises(NotReproducible, match=r"430 extra contexts of contexts\.parquet"):
        reproduce_version(workspace, 1)


def test_labels_can_be_kept(tmp_path):
    workspace = workspace_with_contexts(str(tmp_path), config=STREAMED + b"labels_kept = 1\n")
    for version in (1, 2):
        run_update(workspace, now=LATER, force=True)
        assert {name[:8] for name in workspace.storage.names("labels")} == {f"{version:08}"}
    found, made_from = LabelStore(str(tmp_path / "labels"), 2).read(1)
    assert (found.shape, made_from.shape) == ((100, workspace.problem.width), (100, 3))


class Stopped(LocalEngine):
    """Stops after two shards."""

    def map(self, function, items, *common):
        if function is not labels.label_shard:
            return super().map(function, items, *common)
        return itertools.chain(super().map(function, itertools.islice(items, 2), *common), self._stop())

    def _stop(self):
        raise KeyboardInterrupt
        yield


def test_labelling_that_was_stopped_goes_on_where_it_was(tmp_path, monkeypatch):
    whole = workspace_with_contexts(str(tmp_path / "whole"))
    run_update(whole, now=LATER)
    workspace = workspace_with_contexts(str(tmp_path / "stopped"))
    with pytest.raises(KeyboardInterrupt):
        run_update(workspace, now=LATER, engine=Stopped())
    assert len(workspace.storage.names("labels")) == 2
    written, write = [], LabelStore.write
    monkeypatch.setattr(LabelStore, "write", lambda self, n, *rest: (written.append(n), write(self, n, *rest)))
    run_update(workspace, now=LATER)
    assert written == [2, 3, 4, 5]
    assert workspace.serving().to_bytes() == whole.serving().to_bytes()


@pytest.mark.parametrize("in_memory", [200, 10_000])
def test_rows_that_do_not_fit_are_counted_wherever_they_are(tmp_path, in_memory):
    config = STREAMED.replace(b"contexts_in_memory = 200", f"contexts_in_memory = {in_memory}".encode())
    workspace = workspace_with_contexts(str(tmp_path), config=config)
    rows = pl.DataFrame(contexts(430)).with_row_index()
    bad = rows.with_columns(bandwidth_kbps=pl.when(pl.col("index") % 10 == 3).then(None).otherwise("bandwidth_kbps"))
    bad.write_parquet(tmp_path / "contexts.parquet")
    report = run_update(workspace, now=LATER)
    assert (report.contexts_unfit, report.still.contexts) == (43, 100 + 387)
    assert workspace.serving().metadata.lineage.origin["contexts"]["unfit"] == 43
    bad.with_columns(bandwidth_kbps=pl.lit(None, pl.Float64)).write_parquet(tmp_path / "contexts.parquet")
    with pytest.raises(InvalidContext, match="none of its 430 rows fits the features of the problem"):
        run_update(workspace, now=LATER, force=True)


def test_with_an_empty_lake_there_are_the_contexts_and_without_them_nothing(tmp_path):
    workspace = made(str(tmp_path), STREAMED)
    pl.DataFrame(contexts(300)).write_parquet(tmp_path / "contexts.parquet")
    report = run_update(workspace, now=LATER, force=True)
    assert (report.outcome, report.observations, report.still.contexts) == ("published", 0, 300)
    np.testing.assert_allclose(workspace.serving().probabilities_many(contexts(20)), 1 / 3, atol=0.02)
    empty = made(str(tmp_path / "empty"), STREAMED)
    pl.DataFrame(contexts(1)).clear().write_parquet(tmp_path / "empty" / "contexts.parquet")
    with pytest.raises(InvalidObservation, match="nothing to distil on"):
        run_update(empty, now=LATER, force=True)


def test_students_that_are_averaged_are_reproduced_too(tmp_path, monkeypatch):
    monkeypatch.setattr("potstill.pipeline.contexts.FEWEST_WORKERS", 1)
    monkeypatch.setattr("potstill.pipeline.contexts.CONTEXTS_PER_WORKER", 100)
    workspace = workspace_with_contexts(str(tmp_path))
    engine = LocalEngine()
    engine.workers = 3
    run_update(workspace, now=LATER, engine=engine)
    assert workspace.serving().metadata.lineage.origin["contexts"]["students"] == 3
    monkeypatch.undo()
    monkeypatch.setattr("potstill.pipeline.shards.SHARD_ROWS", 100)
    assert reproduce_version(workspace, 1).identical


def test_a_student_searched_for_on_streamed_labels_is_reproduced(tmp_path):
    auto = b'[student]\nauto = {budget = "9d", networks = [[]], step_counts = [50]}\n'
    workspace = workspace_with_contexts(str(tmp_path), config=STREAMED.replace(b"[student]\n", auto))
    report = run_update(workspace, now=LATER)
    assert (report.still.choice.searched, report.still.contexts) == (True, 530)
    assert {one.hidden for one in report.still.choice.tried} == {(16,), ()}
    assert reproduce_version(workspace, 1).identical
