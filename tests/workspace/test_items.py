"""Changes of a catalogue's items: what is written, published and refused, and what updates make of it."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from catalog_examples import CONFIG, HOUR, NOON, PROBLEM, item, log, rate, shop, stated

from potstill.errors import InvalidAction, InvalidProblem
from potstill.pipeline.audit import run_audit
from potstill.pipeline.reproduce import reproduce_version
from potstill.pipeline.status import read_status
from potstill.pipeline.update import run_update
from potstill.policy import Policy
from potstill.workspace import (
    Adaptation,
    CannotChangeActions,
    Workspace,
    back_up,
    items_text,
    open_registry,
    remove_items,
    restore,
    sync_items,
)

LIKES = [{"likes": genre} for genre in ("rock", "jazz", "folk")]


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    """A workspace after its first update."""
    place = str(tmp_path_factory.mktemp("learnt") / "shop")
    workspace = shop(place)
    log(workspace, 400)
    assert run_update(workspace, now=NOON + 3 * HOUR).outcome == "published"
    return place


@pytest.fixture
def place(learnt, tmp_path):
    """A copy of it."""
    store = str(tmp_path / "store")
    back_up(Workspace(learnt), store)
    restore(store, str(tmp_path / "shop"))
    return str(tmp_path / "shop")


def items(*numbers, **changes):
    return [item(number, **changes) for number in numbers]


def test_a_workspace_states_its_items_in_a_file_of_their_own(tmp_path):
    workspace = shop(str(tmp_path / "shop"), count=3)
    assert (Path(workspace.url) / "items.json").read_text() == (
        '[\n{"id":"i0","price":0.0,"genre":"rock"},\n{"id":"i1","price":1.0,"genre":"jazz"},\n'
        '{"id":"i2","price":2.0,"genre":"folk"}\n]\n'
    )
    assert Workspace(workspace.url).problem.actions.names == ("i0", "i1", "i2")
    assert open_registry(workspace.url).registry.problem == workspace.problem


def test_an_update_learns_which_items_are_liked(learnt):
    policy = Workspace(learnt).serving()
    assert policy.tower is not None
    assert rate(policy) > rate(Policy.uniform(policy.problem)) + 0.4


def test_a_sync_is_written_published_and_told(place):
    before = Workspace(place).serving()
    wanted = [*items(*range(2, 20)), item(3, id="new"), item(5, id="other", price=0.5)]
    wanted[0] = {**wanted[0], "price": 1.0}
    found = sync_items(place, wanted[::-1], reason="season", by="ann")
    assert (found.added, found.changed, found.removed) == (("other", "new"), ("i2",), ("i0", "i1"))
    assert found.text == "20 items: 2 added, 1 changed, 2 removed"
    workspace = Workspace(place)
    policy = workspace.serving()
    assert policy.version == found.serving == before.version + 1
    assert policy.problem.actions.names == (*before.problem.actions.names[2:], "other", "new")
    entry = workspace.registry.head()
    assert entry.by == "ann"
    assert entry.note.endswith(": season")
    assert "'new' was added" in entry.note
    # Items that stay keep their scores among each other; new ones are explored by their features, by no floor.
    p, q = before.probabilities_many(LIKES)[:, 3:], policy.probabilities_many(LIKES)[:, 1:18]
    np.testing.assert_allclose(q / q.sum(axis=1, keepdims=True), p / p.sum(axis=1, keepdims=True), rtol=1e-4, atol=1e-7)
    liked = policy.probabilities({"likes": "folk"})
    assert liked[policy.problem.actions.index("other")] > 0.02
    assert liked[policy.problem.actions.index("new")] < liked[policy.problem.actions.index("other")]
    assert Adaptation.of(policy).untrained == ()
    again = sync_items(place, wanted)
    assert (again.published, again.text) == (False, "20 items are as stated; nothing was changed")


def test_items_are_changed_one_by_one(place):
    found = sync_items(place, items(30), whole=False, remove=["i4"])
    assert (found.added, found.removed, found.items) == (("i30",), ("i4",), 20)
    found = remove_items(place, ["i30", "i5"])
    assert (found.removed, found.items) == (("i5", "i30"), 18)
    assert not remove_items(place, ["i5"]).published
    with pytest.raises(InvalidAction, match="unknown item 'i99'"):
        remove_items(place, ["i99"])


def test_learning_goes_on_across_changes_and_is_reproduced(place):
    workspace = Workspace(place)
    sync_items(place, [*items(*range(3, 20)), item(6, id="new", price=0.0)])
    workspace = Workspace(place)
    log(workspace, 300, seed=1, at=NOON + 4 * HOUR, restricted=True)
    report = run_update(workspace, now=NOON + 8 * HOUR)
    assert (report.outcome, report.why_anew) == ("published", None)
    workspace = Workspace(place)
    policy = workspace.serving()
    assert policy.metadata.lineage.observations == 700
    assert policy.metadata.lineage.origin["base"] == 1
    assert policy.probabilities({"likes": "rock"})[policy.problem.actions.index("new")] > 0.2
    told = [notice for notice in read_status(workspace).notices if "state eligible" in notice]
    assert len(told) == 1
    assert told[0].endswith("Students of a catalogue take no masks, so that this cannot be trained for.")
    for version in (1, 2, 3):
        assert reproduce_version(workspace, version).identical, version
    found = run_audit(workspace)
    assert found.clean
    assert found.decisions == 700


def test_a_policy_that_has_learnt_nothing_stays_uniform(tmp_path):
    workspace = shop(str(tmp_path / "shop"))
    workspace.start()
    sync_items(workspace.url, items(*range(25)))
    policy = Workspace(workspace.url).serving()
    np.testing.assert_allclose(policy.probabilities_many(LIKES), 1 / 25, rtol=1e-6)


def test_before_a_version_is_published_only_the_file_changes(tmp_path):
    workspace = shop(str(tmp_path / "shop"))
    found = sync_items(workspace.url, items(*range(5)))
    assert (found.serving, found.published, found.items) == (None, False, 5)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ([*items(0, 1), {"id": "x", "price": None, "genre": "rock"}], "item 'x': feature 'price' is missing"),
        ([*items(0, 1), item(1)], "item 'i1' is named twice"),
        ([*items(0, 1), {"price": 1.0}], r"items\[2\] has no 'id'"),
        (items(0, 1, colour="red"), "item 'i0': unknown feature 'colour'"),
    ],
)
def test_bad_items_are_refused_and_nothing_is_written(place, wanted, message):
    before = stated(Workspace(place))
    with pytest.raises(InvalidProblem, match=message):
        sync_items(place, wanted)
    with pytest.raises(InvalidProblem, match=message):
        sync_items(place, wanted, whole=False)
    assert stated(Workspace(place)) == before


def test_what_the_workspace_forbids_is_refused(place):
    storage = Workspace(place).storage
    with pytest.raises(CannotChangeActions, match="two items must be left"):
        remove_items(place, [f"i{number}" for number in range(19)])
    storage.replace("potstill.toml", CONFIG + b'[serve]\nfallback = "i3"\n')
    with pytest.raises(CannotChangeActions, match=r"'i3': it is serve.fallback"):
        remove_items(place, ["i3", "i4"])
    storage.replace("potstill.toml", CONFIG)
    storage.replace("problem.toml", PROBLEM.replace(b'type = "catalog"', b'type = "catalog"\nretired = ["i4"]'))
    with pytest.raises(CannotChangeActions, match=r"'i4' cannot be removed while it is in actions.retired"):
        remove_items(place, ["i4"])


def test_other_features_need_an_update_first(place):
    storage = Workspace(place).storage
    storage.replace("problem.toml", PROBLEM.replace(b"high = 20", b"high = 40"))
    with pytest.raises(CannotChangeActions, match=r"the features of items were changed. Run potstill update first"):
        sync_items(place, items(*range(5)))


def test_items_in_problem_toml_are_moved_by_hand(tmp_path):
    text = PROBLEM.replace(b"[reward]", b'[[actions.items]]\nid = "a"\nprice = 1\ngenre = "rock"\n[reward]')
    text = text.replace(b"[reward]", b'[[actions.items]]\nid = "b"\nprice = 2\ngenre = "jazz"\n[reward]')
    workspace = Workspace.create(str(tmp_path / "shop"), text, CONFIG)
    assert workspace.problem.actions.names == ("a", "b")
    with pytest.raises(CannotChangeActions, match=r"the items are in problem.toml; move them"):
        sync_items(workspace.url, items(0, 1, 2))
    workspace.storage.replace("items.json", items_text(items(0, 1)))
    with pytest.raises(InvalidProblem, match=r"items are stated here and in items.json"):
        Workspace(workspace.url)


def test_a_broken_file_of_items_is_named(tmp_path):
    workspace = shop(str(tmp_path / "shop"))
    for text, message in ((b"[", "items.json: Input data was truncated"), (b"[]", "at least two items")):
        workspace.storage.replace("items.json", text)
        with pytest.raises(InvalidProblem, match=message):
            Workspace(workspace.url)


def test_changes_at_once_are_all_made(place):
    threads = [
        threading.Thread(target=sync_items, args=(place, items(number)), kwargs={"whole": False})
        for number in range(30, 35)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {f"i{number}" for number in range(30, 35)} <= set(Workspace(place).serving().problem.actions.names)


def test_a_kill_at_any_file_operation_leaves_the_old_or_the_new(place, tmp_path):
    (tmp_path / "killed").mkdir()
    script = Path(__file__).parent / "item_kills.py"
    paths = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(script), place, str(tmp_path / "killed")]
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    found = json.loads(done.stdout)
    assert found["faults"] == []
    assert 0 < found["made"] < found["kills"]
    assert found["kills"] > 10
