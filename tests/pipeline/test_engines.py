"""One pipeline, two engines: the same results in the same order, whatever becomes of a worker."""

import io
import itertools
import json
import re
import sys
from pathlib import Path

import engine_work
import numpy as np
import polars as pl
import pytest
from finite_imitation import fidelity, imitate_averaged
from rich.console import Console
from rich.progress import Progress
from typer.testing import CliRunner
from worlds import CONFIG, LATER, contexts, log, made

import potstill as ps
from potstill.cli import app
from potstill.cli.update_terminal import Pace, steps
from potstill.events.lake import observation_chunks
from potstill.keys import Key
from potstill.pipeline.engines import EngineFailed, LocalEngine, MissingEngine, open_engine
from potstill.pipeline.labels import LabelStore, StreamedContexts, label_shard
from potstill.pipeline.shards import Table, shards
from potstill.pipeline.update import run_update
from potstill.problem import InvalidContext
from potstill.storage import open_storage
from potstill.teachers import TEACHERS, LinearTS, Rereading, Summarising
from potstill.teachers.conformance import PROBLEM, example_contexts, example_observations, problem_for

STREAMED = CONFIG + b'contexts = "contexts.parquet"\ncontexts_at_most = 5000\ncontexts_in_memory = 200\n'
IN_PARTS = sorted(name for name, teacher in TEACHERS.items() if {"summarise", "reread"} & set(dir(teacher)))
#: Sums are added in the order of the parts; what differs between engines is only how many threads a product has.
ADDITION = 1e-12
#: A policy of one engine against that of another, in nats.
APART = 1e-4


@pytest.fixture(params=["local", "ray"])
def engine(request):
    return LocalEngine() if request.param == "local" else request.getfixturevalue("ray_engine")


def test_results_come_in_the_order_of_the_items(engine):
    found = list(engine.map(engine_work.added, range(20), np.arange(4)))
    assert [value for value, _ in found] == [item + 6 for item in range(20)]
    assert len({pid for _, pid in found}) <= engine.workers
    assert list(engine.map(engine_work.added, [], np.arange(4))) == []


def test_what_a_function_raises_is_raised_as_it_is(engine):
    with pytest.raises(ValueError, match=r"^item 3 is refused$"):
        list(engine.map(engine_work.refused, [3], "item"))


def test_few_items_are_taken_ahead(engine):
    items = itertools.count()
    results = engine.map(engine_work.added, items, np.zeros(1))
    for _ in range(3):
        next(results)
    assert next(items) <= 3 + 2 * engine.workers


def test_an_item_whose_worker_is_killed_is_done_by_another(ray_engine, tmp_path):
    assert list(ray_engine.map(engine_work.killed_once, range(5), str(tmp_path))) == [0, 10, 20, 30, 40]
    assert (tmp_path / "killed").exists()


def test_an_item_that_kills_every_worker_is_given_up(ray_engine, monkeypatch):
    monkeypatch.setattr("potstill.pipeline.engines.ray.RETRIES", 1)
    with pytest.raises(EngineFailed, match="Ray has lost an item 2 times or cannot continue"):
        list(ray_engine.map(engine_work.always_killed, [1]))


class KilledWhileLabelling:
    """An engine whose worker is killed once, when a shard is written and nobody knows of it yet."""

    def __init__(self, engine, folder):
        self.engine, self.folder = engine, folder

    def map(self, function, items, *common):
        assert function is label_shard
        return self.engine.map(engine_work.killed_after_labelling, items, *common, self.folder)


def files(place):
    storage = open_storage(place)
    return {name: storage.read(name) for name in storage.names("")}


def test_labels_survive_the_loss_of_a_worker_to_the_bit(ray_engine, tmp_path):
    n, teacher = 350, LinearTS()
    state = teacher.update(teacher.init(PROBLEM), example_observations(), Key(0))
    rows = {"speed": np.linspace(0, 10, n), "place": ["home"] * n, "new": [True] * n}
    pl.DataFrame(rows).write_parquet(tmp_path / "t.parquet")
    parts = shards(Table.at(str(tmp_path / "t.parquet")), n, n, rows=100)
    engines = {"local": LocalEngine(), "ray": KilledWhileLabelling(ray_engine, str(tmp_path))}
    for name, engine in engines.items():
        streamed = StreamedContexts(PROBLEM, parts, Key(1), engine, LabelStore(str(tmp_path / name), 1))
        assert streamed.label(teacher, state, example_contexts(30), Key(2)).rows == [30, 100, 100, 100, 50]
    assert (tmp_path / "killed").exists()
    assert files(tmp_path / "local") == files(tmp_path / "ray")


@pytest.mark.parametrize("name", IN_PARTS)
def test_teachers_that_learn_in_parts_learn_the_same_on_every_engine(ray_engine, name):
    problem = problem_for(TEACHERS[name]())
    observations = example_observations(400, problem=problem)
    parts = [observations[i : i + 90] for i in range(0, 400, 90)]
    states = []
    for engine in (LocalEngine(), ray_engine):
        still = ps.Still(problem, TEACHERS[name](), student=ps.Student(hidden=(4,), steps=20))
        assert isinstance(still.teacher, (Summarising, Rereading))
        still.update(parts[:3], earlier=[], each=engine.map)
        still.update(parts[3:], earlier=parts[:3], each=engine.map)
        states.append((still.state, still.seen))
    assert_close(*states)


def assert_close(one, other):
    if isinstance(one, tuple):
        for a, b in zip(one, other, strict=True):
            assert_close(a, b)
    else:
        np.testing.assert_allclose(one, other, rtol=ADDITION, atol=ADDITION)


def grown(place, engine, monkeypatch):
    monkeypatch.setattr("potstill.pipeline.shards.SHARD_ROWS", 100)
    monkeypatch.setattr("potstill.events.lake.observations.observation_chunks.__defaults__", (60,))  # rows of a chunk
    workspace = made(place, STREAMED)
    rows = pl.DataFrame(contexts(430, seed=5)).with_row_index()
    bad = rows.with_columns(bandwidth_kbps=pl.when(pl.col("index") % 43 == 3).then(None).otherwise("bandwidth_kbps"))
    bad.write_parquet(buffer := io.BytesIO())
    workspace.storage.replace("contexts.parquet", buffer.getvalue())
    for seed in range(2):
        log(workspace, workspace.start(), 150, seed=seed)
        report = run_update(workspace, now=LATER, engine=engine)
        assert (report.outcome, report.still.contexts) == ("published", 150 * (seed + 1) + 420)
        assert report.contexts_unfit == 10
    return workspace


def test_a_workspace_is_the_same_on_every_engine(ray_engine, s3, tmp_path, monkeypatch):
    """Over two updates, here in a folder and on Ray in an object store, on a table with bad rows."""
    one = grown(str(tmp_path), LocalEngine(), monkeypatch)
    other = grown(s3, ray_engine, monkeypatch)
    origins = [workspace.serving().metadata.lineage.origin for workspace in (one, other)]
    assert origins[0] == origins[1]
    assert len(list(observation_chunks(one.lake, one.problem, 0, 2))) > 2
    rows = contexts(500, seed=8)
    local, ray = (workspace.serving().probabilities_many(rows) for workspace in (one, other))
    assert fidelity(local, ray, 1.0).kl_mean < APART


def test_students_on_other_processors_come_out_as_here(ray_engine, tmp_path):
    """Where they are does not matter, how many there are does."""
    teacher = LinearTS()
    state = teacher.update(teacher.init(PROBLEM), example_observations(), Key(0))
    streamed = StreamedContexts(PROBLEM, [], Key(1), LocalEngine(), LabelStore(str(tmp_path), 1))
    labels = streamed.label(teacher, state, example_contexts(700), Key(2))
    student = ps.Student(hidden=(8,), steps=60, batch=64)
    here, there = (imitate_averaged(labels, student, Key(3), 2, engine.map) for engine in (LocalEngine(), ray_engine))
    for a, b in zip(here.layers, there.layers, strict=True):
        np.testing.assert_allclose(a.weight, b.weight, atol=1e-5)


def test_a_table_none_of_which_fits_is_refused_as_here(ray_engine, tmp_path, monkeypatch):
    workspace = made(str(tmp_path), STREAMED)
    pl.DataFrame(contexts(300)).with_columns(bandwidth_kbps=pl.lit(None, pl.Float64)).write_parquet(
        tmp_path / "contexts.parquet"
    )
    with pytest.raises(InvalidContext, match="none of its 300 rows fits"):
        run_update(workspace, now=LATER, force=True, engine=ray_engine)


def test_without_ray_the_way_out_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "potstill.pipeline.engines.ray", raising=False)
    with pytest.raises(MissingEngine, match=r"pip install 'potstill\[scale\]'"), open_engine("ray"):
        pass


def test_what_is_no_engine_is_named():
    with pytest.raises(ValueError, match="engine must be one of local, ray, got 'spark'"), open_engine("spark"):
        pass
    with pytest.raises(ValueError, match="--address needs --engine ray"), open_engine("local", "auto"):
        pass


def test_the_command_line_takes_an_engine(tmp_path, monkeypatch):
    made(str(tmp_path))
    run = CliRunner().invoke
    wrong = run(app, ["update", str(tmp_path), "--engine", "spark"])
    assert (wrong.exit_code, "engine must be one of local, ray, got 'spark'" in wrong.output) == (1, True)
    right = run(app, ["update", str(tmp_path), "--engine", "local"])
    assert (right.exit_code, "waiting" in right.output) == (0, True)
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "potstill.pipeline.engines.ray", raising=False)
    missing = run(app, ["update", str(tmp_path), "--engine", "ray"])
    assert (missing.exit_code, "pip install 'potstill[scale]'" in missing.output) == (1, True)


def test_a_bar_says_how_many_rows_in_a_second():
    """250 rows every quarter of a second are 1,000 a second; a step whose length is not known says nothing."""
    clock = itertools.count(step=0.25)
    progress = Progress(get_time=lambda: next(clock), disable=True)
    bar = progress.add_task("label", total=None)
    assert str(Pace().render(progress.tasks[0])) == ""
    progress = Progress(get_time=lambda: next(clock), disable=True)
    bar = progress.add_task("label", total=2000)
    for done in (250, 500, 750):
        progress.update(bar, completed=done)
    assert str(Pace().render(progress.tasks[0])) == "750 of 2,000, 1,000/s"


def test_each_step_has_a_bar():
    console = Console(force_terminal=True, width=120, file=io.StringIO())
    with steps(console) as show:
        for step, done, of in [("label", 0, 0), ("label", 500, 2000), ("imitate", 0, 0), ("imitate", 9, 9)]:
            show(step, done, of)
    last = console.file.getvalue()
    assert re.search(r"label.*\n.*imitate", last)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_where_there_is_no_cluster_it_is_said_at_once(address):
    pytest.importorskip("ray", reason="needs Ray: pip install 'potstill[scale]'")
    with pytest.raises(EngineFailed, match=f"no Ray at {address}: "), open_engine("ray", address):
        pass


def test_the_example_of_a_cluster_is_one_that_ray_takes():
    ray = pytest.importorskip("ray", reason="needs Ray: pip install 'potstill[scale]'")
    jsonschema, yaml = pytest.importorskip("jsonschema"), pytest.importorskip("yaml")
    example = Path(__file__).parents[2] / "examples" / "ray-cluster.yaml"
    schema = Path(ray.__file__).parent / "autoscaler" / "ray-schema.json"
    jsonschema.validate(yaml.safe_load(example.read_text()), json.loads(schema.read_text()))
