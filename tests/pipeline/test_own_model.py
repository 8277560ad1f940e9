"""A workspace's own model: a NumPyro program in a file, or the class of a package."""

import hashlib
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from worlds import LATER, NOON, SETTINGS, log, made

import potstill as ps
from potstill import LoggedDecision, LoggedReward
from potstill.errors import InvalidOption
from potstill.pipeline.candidates import make_candidates
from potstill.pipeline.check import check_learning
from potstill.pipeline.first_policy import publish_first
from potstill.pipeline.reproduce import NotReproducible, reproduce_version
from potstill.pipeline.status import read_status
from potstill.pipeline.tune import run_tuning
from potstill.pipeline.update import run_update
from potstill.workspace import InvalidConfig, Workspace, back_up, restore

MODEL = b'''
from __future__ import annotations
from dataclasses import dataclass

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist


@dataclass
class Scale:  # needs its module in sys.modules
    width: float = 2.0


def uploads(contexts, actions, rewards=None):
    """The best quality grows with the bandwidth; its slope is to be learnt."""
    slope = numpyro.sample("slope", dist.Normal(0, 3))
    noise = numpyro.sample("noise", dist.HalfNormal(1))
    mean = 1 - 0.5 * jnp.abs(actions - slope * contexts[:, 0] * Scale().width)
    numpyro.sample("reward", dist.Normal(mean, noise), obs=rewards)
    return mean


NUMBER = 3
'''
OPTIONS = b"draws = 50\nwarmup = 50\nthin = 1\n"
PROGRAM = b'[teacher]\ntype = "program"\nmodel = "models.py:uploads"\n' + OPTIONS
SHA256 = hashlib.sha256(MODEL).hexdigest()


def section(config: bytes) -> bytes:
    return SETTINGS + config


def with_model(place, text=MODEL, config=PROGRAM, path="models.py") -> Workspace:
    workspace = made(str(place), section(config))
    workspace.storage.replace(path, text)
    return workspace


def grown(workspace, versions=1):
    publish_first(workspace)
    for seed in range(versions):
        log(workspace, workspace.start(), 100, seed=seed)
        run_update(workspace, now=LATER)
    return workspace


def changed(workspace, config: bytes) -> Workspace:
    workspace.storage.replace("potstill.toml", section(config))
    return Workspace(workspace.url)


def test_a_program_is_learnt_served_reproduced_and_tuned(tmp_path):
    workspace = grown(with_model(tmp_path), 2)
    policy = workspace.serving()
    assert policy.version == 2
    teacher = policy.metadata.lineage.teacher
    assert (teacher["type"], teacher["model"], teacher["draws"]) == ("program", "models.py:uploads", 50)
    assert teacher["source"] == {"sha256": SHA256}
    contexts = [{"bandwidth_kbps": kbps, "connection": "4g"} for kbps in (1_000, 99_000)]
    slow, fast = policy.probabilities_many(contexts)
    assert slow[0] > 0.6
    assert fast[2] > 0.6
    for version in (1, 2):
        found = reproduce_version(workspace, version)
        assert (found.identical, found.differs) == (True, [])
    resumed = read_status(workspace, now=LATER)
    assert resumed.next.observations == 0
    tried = make_candidates(workspace, ["linear-ts", "program"], [])
    assert [one.name for one in tried] == ["present", "linear-ts"]  # the program is the present one
    result = run_tuning(workspace, tried[:1], parts=3, jobs=1) if _many(workspace) else None
    assert result is None or result.tried[0].candidate.teacher["model"] == "models.py:uploads"


def _many(workspace) -> bool:
    """Log enough decisions for three parts."""
    log(workspace, workspace.serving(), 200, seed=9, at=NOON + 60_000_000)
    return run_update(workspace, now=LATER + 60_000_000).observations == 200


PRICES = b"""
name = "pricing"
[[context]]
type = "numeric"
name = "wealth"
low = 0
high = 1
[actions]
type = "continuous"
name = "price"
low = 1
high = 15
bins = 32
[reward]
window = "1h"
objective = "price * sold"
"""
DEMAND = b"""
import jax
import numpyro
import numpyro.distributions as dist


def demand(contexts, actions, rewards=None):
    taste = numpyro.sample("taste", dist.Normal(8, 4))
    p = jax.nn.sigmoid(taste + 4 * contexts[:, 0] - actions)
    numpyro.sample("sold", dist.Bernoulli(p), obs=rewards)
    return p
"""


def test_a_program_of_a_price_is_learnt_and_reproduced(tmp_path):
    settings = SETTINGS.replace(b"[16]", b"[32, 32]").replace(b"200", b"800")  # a price is sharper than a list
    config = settings + b'[teacher]\ntype = "program"\nmodel = "models.py:demand"\n' + OPTIONS
    workspace = Workspace.create(str(tmp_path / "shop"), PRICES, config)
    workspace.storage.replace("models.py", DEMAND)
    publish_first(workspace)
    policy, events, rng = workspace.start(), [], np.random.default_rng(0)
    for i in range(200):
        wealth = float(rng.random())
        decision = policy.decide({"wealth": wealth}, id=f"sale-{i}")
        sold = float(rng.random() < 1 / (1 + np.exp(decision.action - 5 - 4 * wealth)))
        events.append(LoggedDecision.of(decision, {"wealth": wealth}, time=NOON + i * 1000))
        events.append(LoggedReward(id=decision.id, reward=sold, time=NOON + i * 1000 + 60_000_000))
    with workspace.event_log() as opened:
        opened.append(*events)
    report = run_update(workspace, now=LATER)
    assert (report.outcome, report.reasons) == ("published", [])
    mean = np.mean([workspace.serving().decide({"wealth": 0.5}, id=str(i)).action for i in range(100)])
    assert abs(mean - 5.44) < 1  # 5.44 maximises price / (1 + exp(price - 7))
    assert workspace.serving().metadata.lineage.teacher["type"] == "program"
    found = reproduce_version(workspace, 1)
    assert (found.identical, found.differs) == (True, [])


def test_a_changed_model_is_refused_by_reproduce_and_learnt_anew_by_an_update(tmp_path):
    workspace = grown(with_model(tmp_path))
    other = MODEL.replace(b"0.5 *", b"0.25 *")
    workspace.storage.replace("models.py", other)
    with pytest.raises(NotReproducible) as error:
        reproduce_version(workspace, 1)
    assert SHA256 in str(error.value)
    assert hashlib.sha256(other).hexdigest() in str(error.value)
    assert read_status(workspace, now=LATER).next.observations == 100  # known without running the model
    log(workspace, workspace.serving(), 100, seed=5)
    report = run_update(workspace, now=LATER)
    assert report.observations == 200
    assert "source.sha256" in report.why_anew


def test_code_is_never_loaded_from_a_lineage(tmp_path, monkeypatch):
    workspace = grown(with_model(tmp_path))
    changed(workspace, b'[teacher]\ntype = "linear-ts"\n')
    workspace.storage.replace("models.py", b"raise SystemExit('was run')")
    with pytest.raises(NotReproducible, match=r"'program', model 'models.py:uploads', and potstill.toml has .*linear"):
        reproduce_version(Workspace(workspace.url), 1)
    log(workspace, workspace.serving(), 100, seed=5)
    assert run_update(Workspace(workspace.url), now=LATER).outcome == "published"
    with pytest.raises(InvalidOption, match="unknown teacher 'program'"):
        ps.teachers.from_config({"type": "program", "model": "models.py:uploads"})
    with pytest.raises(InvalidOption, match="unknown teacher 'os:PathLike'"):
        ps.teachers.from_config({"type": "os:PathLike"})


@pytest.mark.parametrize(
    ("model", "why"),
    [
        ("../models.py:uploads", "inside the workspace"),
        ("/etc/models.py:uploads", "inside the workspace"),
        ("s3://bucket/models.py:uploads", "inside the workspace"),
        ("models.py", "a file and a function"),
        ("models:uploads", "a file and a function"),
        ("models.py:a b", "a file and a function"),
        ("missing.py:uploads", "no file .*missing.py"),
        ("models.py:upload", "unknown function of models.py 'upload' .did you mean 'uploads'"),
        (3, "must be a text"),
    ],
)
def test_a_reference_that_names_no_model_is_refused_before_anything_is_joined(tmp_path, model, why):
    config = PROGRAM.replace(b'"models.py:uploads"', str(model).encode() if model == 3 else f'"{model}"'.encode())
    workspace = with_model(tmp_path, config=config)
    for check in (check_learning, run_update):
        with pytest.raises(InvalidConfig, match=f"potstill.toml: .*{why}"):
            check(workspace)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"def uploads(contexts:\n", "models.py, line 1 is not valid Python"),
        (b"import nowhere_at_all\ndef uploads(c, a, r=None): ...", "ModuleNotFoundError in line 1.*in one file"),
        (b"def uploads(c, a, r=None): ...\n1 / 0", "models.py cannot be loaded: ZeroDivisionError in line 2"),
        (b"uploads = 3", r"models.py:uploads must be a function .*got 3 \(int\)"),
    ],
)
def test_a_file_that_cannot_be_run_is_refused(tmp_path, text, why):
    with pytest.raises(InvalidConfig, match=f"potstill.toml: .*{why}"):
        run_update(with_model(tmp_path, text))


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (b"dist.Normal(0, 3))", b"dist.Normal(0, 3).expand([2]))[actions]", "does not fit the 3 actions.*size 2"),
        (b"    return mean", b"    return mean @ actions[:1]", "models.py:uploads: it raised TypeError in line 21"),
        (b"    return mean", b"    return mean[0]", "must return the mean rewards"),
    ],
)
def test_a_program_that_does_not_fit_is_refused(tmp_path, before, after, why):
    with pytest.raises(InvalidOption, match=why):
        run_update(with_model(tmp_path, MODEL.replace(before, after)))


def test_options_of_a_program_are_checked(tmp_path):
    workspace = with_model(tmp_path, config=PROGRAM + b"drawz = 3\n")
    with pytest.raises(InvalidConfig, match=r"unknown key 'drawz' .did you mean 'draws'"):
        run_update(workspace)
    with pytest.raises(InvalidConfig, match=r"teacher\.model is missing"):
        run_update(changed(workspace, b'[teacher]\ntype = "program"\n'))


def test_status_runs_no_code(tmp_path):
    workspace = with_model(tmp_path, b"raise RuntimeError('was run')\ndef uploads(c, a, r=None): ...")
    check_learning(workspace)
    assert read_status(workspace).serving == 0
    package = changed(workspace, b'[teacher]\ntype = "not_installed_here:Teacher"\n')
    check_learning(package)
    assert read_status(package).serving == 0


def test_a_backup_has_the_model(tmp_path):
    config = PROGRAM.replace(b"models.py", b"models/video/uploads.py")
    workspace = grown(with_model(tmp_path / "w", config=config, path="models/video/uploads.py"))
    back_up(workspace, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "again")
    assert reproduce_version(Workspace(tmp_path / "again"), 1).identical


def test_a_workspace_in_an_object_store_has_its_model_there(place):
    assert reproduce_version(grown(with_model(place)), 1).identical


def test_workers_of_an_engine_run_the_text_that_they_are_sent(ray_engine, tmp_path):
    files = {}
    table = tmp_path / "contexts.parquet"
    pl.DataFrame({"bandwidth_kbps": [500.0 * i for i in range(200)], "connection": ["4g"] * 200}).write_parquet(table)
    extra = f'contexts = "{table}"\ncontexts_in_memory = 0\n'.encode()
    for name, engine in (("local", None), ("ray", ray_engine)):
        workspace = with_model(tmp_path / name, config=extra + PROGRAM)
        publish_first(workspace)
        log(workspace, workspace.start(), 100)
        run_update(workspace, now=LATER, engine=engine)
        files[name] = [layer for pair in workspace.serving().layers for layer in pair]
    for one, other in zip(files["local"], files["ray"], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)  # workers have one thread each


TEACHER = '''
import numpy as np
from msgspec import Struct
from potstill.keys import Key
from potstill.teachers import EXACT, NeedsFiniteActions


class Mean(NeedsFiniteActions, Struct, frozen=True):
    """Prefers the action of the largest mean reward."""

    prior: float = 1.0
    exactness = EXACT

    def init(self, problem):
        k = self.count(problem.actions)
        return np.zeros(k), np.full(k, self.prior)

    def update(self, state, observations, key):
        total, count = (np.array(part) for part in state)
        np.add.at(total, observations.actions, observations.rewards)
        np.add.at(count, observations.actions, 1.0)
        return total, count

    def propensities(self, state, contexts, key):
        best = (state[0] / state[1]) == (state[0] / state[1]).max()
        return np.tile((best / best.sum()).astype(np.float32), (len(contexts), 1))

    def sample_actions(self, state, contexts, n, key):
        return np.full((len(contexts), n), np.argmax(state[0] / state[1]))


class Nothing:
    pass


def function():
    pass
'''


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed distribution ``still-means`` 1.2 with a class and an entry point."""
    folder = tmp_path / "site"
    inside, info = folder / "still_means", folder / "still_means-1.2.dist-info"
    inside.mkdir(parents=True)
    info.mkdir()
    (inside / "__init__.py").write_text("from still_means.teacher import Mean, Nothing, function\n")
    (inside / "teacher.py").write_text(TEACHER)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: still-means\nVersion: 1.2\n")
    (info / "top_level.txt").write_text("still_means\n")
    (info / "entry_points.txt").write_text("[potstill.teachers]\nmean-ts = still_means.teacher:Mean\n")
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "still_means"]:
        del sys.modules[name]


@pytest.mark.parametrize("kind", ["mean-ts", "still_means:Mean", "still_means.teacher:Mean"])
def test_a_teacher_of_a_package(tmp_path, package, kind):
    config = f'[teacher]\ntype = "{kind}"\nprior = 2.0\n'.encode()
    workspace = grown(made(str(tmp_path / "w"), section(config)), 2)
    teacher = workspace.serving().metadata.lineage.teacher
    sha256 = hashlib.sha256(TEACHER.encode()).hexdigest()
    assert teacher == {
        "type": "still_means.teacher:Mean",
        "prior": 2.0,
        "source": {"sha256": sha256, "distribution": "still-means", "version": "1.2"},
    }
    assert all(reproduce_version(workspace, version).identical for version in (1, 2))
    assert read_status(workspace, now=LATER).next.observations == 0  # its state is resumed
    log(workspace, workspace.serving(), 60, seed=7)
    assert run_update(workspace, now=LATER).why_anew is None


def test_a_changed_package_is_refused_by_reproduce(tmp_path, package):
    workspace = grown(made(str(tmp_path / "w"), section(b'[teacher]\ntype = "mean-ts"\n')))
    (package / "still_means" / "teacher.py").write_text(TEACHER + "\nCHANGED = True\n")
    (package / "still_means-1.2.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: still-means\nVersion: 1.3\n"
    )
    code = "import sys; from potstill.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "reproduce", workspace.url, "1"],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(package), "PATH": ""},
        timeout=120,
    )
    sha256 = hashlib.sha256(TEACHER.encode()).hexdigest()
    assert done.returncode == 1
    text = " ".join(done.stderr.split())
    assert f"still-means 1.2, SHA-256 {sha256}" in text
    assert "still-means 1.3, SHA-256" in text


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("still_means:Meen", "unknown name 'Meen' .did you mean 'Mean'"),
        ("still_means:function", "must be a class"),
        ("still_means:Nothing", "is not a teacher: it has no supports, exactness, init"),
        ("not_installed_here:Mean", "no module 'not_installed_here'; install its package"),
        ("mean-t", "unknown teacher 'mean-t'.* program, mean-ts, yourpackage:YourTeacher"),
    ],
)
def test_a_class_that_is_no_teacher_is_refused(tmp_path, package, kind, why):
    workspace = made(str(tmp_path / "w"), section(f'[teacher]\ntype = "{kind}"\n'.encode()))
    with pytest.raises(InvalidConfig, match=f"potstill.toml: .*{why}"):
        run_update(workspace)


def test_a_name_that_two_packages_offer_is_refused_only_where_it_is_used(tmp_path, package):
    info = package / "other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[potstill.teachers]\nmean-ts = other:Mean\n")
    workspace = made(str(tmp_path / "w"), section(b'[teacher]\ntype = "mean-ts"\n'))
    with pytest.raises(InvalidConfig, match=r"state one of other:Mean, still_means\.teacher:Mean as the type"):
        run_update(workspace)
    check_learning(changed(workspace, b'[teacher]\ntype = "linear-ts"\n'))


def test_options_of_a_class_are_checked(tmp_path, package):
    workspace = made(str(tmp_path / "w"), section(b'[teacher]\ntype = "mean-ts"\npriors = 1.0\n'))
    with pytest.raises(InvalidConfig, match=r"unknown key 'priors' .did you mean 'prior'"):
        run_update(workspace)


def test_a_state_from_before_code_was_named_is_read(package):
    import msgspec
    from safetensors.numpy import load, save
    from still_means import Mean

    from potstill.teachers.conformance import PROBLEM as CONFORMANCE
    from potstill.teachers.states import pack, unpack

    state = Mean().init(CONFORMANCE)
    new = pack(state, Mean(), CONFORMANCE)
    metadata = {"problem": CONFORMANCE.hash, "teacher": msgspec.json.encode({"prior": 1.0}).decode()}
    old = save(load(new), metadata)
    for one, other in zip(unpack(old, state, Mean(), CONFORMANCE), state, strict=True):
        np.testing.assert_array_equal(one, other)
