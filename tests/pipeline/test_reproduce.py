"""A version is made again from its lineage, to the bit, or it is said why not."""

import numpy as np
import pytest
from worlds import CONFIG, LATER, SETTINGS, log, made

from potstill.events.lake import read_observations
from potstill.events.lake.maintenance import compact
from potstill.pipeline.reproduce import NotReproducible, reproduce_version
from potstill.pipeline.status import read_status
from potstill.pipeline.update import run_update
from potstill.teachers import from_config
from potstill.teachers.states import pack

NEURAL = SETTINGS + b'[teacher]\ntype = "neural-linear-ts"\nhidden = [8]\nrecipe = {steps = 50, batch = 32}\n'


def grown(place, versions, config=CONFIG):
    workspace = made(place, config)
    for seed in range(versions):
        log(workspace, workspace.start(), 100, seed=seed)
        run_update(workspace, now=LATER)
    return workspace


def test_every_version_comes_out_the_same(place):
    workspace = grown(place, 3)
    for version in (1, 2, 3):
        found = reproduce_version(workspace, version)
        assert (found.identical, found.differs, found.replayed) == (True, [], [])


def test_versions_whose_states_are_gone_are_replayed(tmp_path):
    workspace = grown(str(tmp_path), 3, CONFIG + b"states_kept = 1\n")
    found = reproduce_version(workspace, 3)
    assert found.identical
    assert found.replayed == [1, 2]


def test_a_version_that_read_all_observations_again_comes_out_the_same(tmp_path):
    workspace = grown(str(tmp_path), 3, NEURAL.replace(b"[update]", b"[update]\nstates_kept = 1"))
    found = reproduce_version(workspace, 3)
    assert (found.identical, found.replayed) == (True, [1, 2])


def test_versions_of_the_default_teacher_come_out_the_same(tmp_path):
    workspace = grown(str(tmp_path), 2, SETTINGS + b"states_kept = 1\nmax_kl = 5.0\n")
    assert workspace.config.teacher == {"type": "auto-ts"}
    found = reproduce_version(workspace, 2)
    assert (found.identical, found.differs, found.replayed) == (True, [], [1])
    selection = workspace.registry.policy(2).metadata.lineage.selection
    assert set(selection) == {"linear", "neural-linear", "forest"}
    assert read_status(workspace, LATER).selection == selection


def test_a_state_of_another_potstill_is_replayed_and_the_next_update_learns_anew(tmp_path, monkeypatch):
    workspace = grown(str(tmp_path), 2, NEURAL)
    teacher = from_config(workspace.config.teacher)
    older = pack((np.zeros(3),), teacher, workspace.problem)
    monkeypatch.setattr(type(workspace.registry), "teacher", lambda _, __: older)
    found = reproduce_version(workspace, 2)
    assert (found.identical, found.replayed) == (True, [1])
    log(workspace, workspace.serving(), 100, seed=7)
    report = run_update(workspace, now=LATER)
    wrote = "it was written by another version of Potstill and lacks 'state.0.0.0'"
    assert report.why_anew == f"the teacher's state of version 2 does not fit: {wrote}"
    assert (report.outcome, report.observations) == ("published", 300)


def test_compaction_changes_nothing(tmp_path):
    workspace = grown(str(tmp_path), 3)
    compact(workspace.lake)
    assert all(reproduce_version(workspace, version).identical for version in (1, 2, 3))


def test_a_difference_is_found_and_named(tmp_path, monkeypatch):
    workspace = grown(str(tmp_path), 1)
    fewer = [part[:90] for part in read_observations(workspace.lake, workspace.problem, 0, 1)]
    monkeypatch.setattr("potstill.pipeline.reproduce.observation_chunks", lambda *_, **__: iter(fewer))
    found = reproduce_version(workspace, 1)
    assert not found.identical
    assert any("weights differ" in line for line in found.differs)


def test_a_uniform_policy_was_not_distilled(tmp_path):
    with pytest.raises(NotReproducible, match="version 0 was not distilled"):
        reproduce_version(grown(str(tmp_path), 1), 0)


def test_a_changed_table_of_contexts_is_named(tmp_path):
    table = tmp_path / "contexts.csv"
    table.write_text("bandwidth_kbps,connection\n100,4g\n200,wifi\n")
    workspace = grown(str(tmp_path / "w"), 1, CONFIG + f'contexts = "{table}"\n'.encode())
    assert reproduce_version(workspace, 1).identical
    table.write_text("bandwidth_kbps,connection\n100,4g\n300,wifi\n")
    with pytest.raises(NotReproducible, match=r"2 extra contexts of .*contexts\.csv"):
        reproduce_version(workspace, 1)


SEARCHED = b"""
[teacher]
type = "linear-ts"
[student]
hidden = [8]
steps = 100
[student.auto]
budget = "9d"
networks = [[], [8]]
step_counts = [50]
[update]
min_observations = 50
states_kept = 1
"""


def test_a_student_that_was_searched_for_is_not_searched_for_again(tmp_path, monkeypatch):
    """The search depends on the time that it has; the lineage holds its result, and that is trained."""
    workspace = grown(str(tmp_path), 2, SEARCHED)
    choices = [workspace.registry.policy(version).metadata.lineage.choice for version in (1, 2)]
    assert choices[0]["version"] == 1
    assert len(choices[0]["tried"]) == 3

    def search(_):
        raise AssertionError("a reproduction must not search")

    monkeypatch.setattr("potstill.distill.search.Search.run", search)
    for version, replayed in ((1, []), (2, [1])):
        found = reproduce_version(workspace, version)
        assert (found.identical, found.differs, found.replayed) == (True, [], replayed)
