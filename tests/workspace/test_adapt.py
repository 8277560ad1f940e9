"""A policy adapted to changed actions: exact shares, nothing forgotten, the same in every runtime."""

import numpy as np
import pytest
from examples import random_layers
from worlds import CONFIG, PROBLEM, contexts, made

import potstill as ps
from potstill.problem import difference
from potstill.registry import OtherProblem
from potstill.workspace import Adaptation, Workspace, in_words, notices
from potstill.workspace.adapt import adapt, adapt_again, can_adapt

ROWS = contexts(200)
ADDED = PROBLEM.replace(b'"1080p"', b'"1080p", "4k"')
REMOVED = PROBLEM.replace(b'"720p", ', b"")
REFEATURED = PROBLEM.replace(b'"wifi"', b'"wifi", "5g"')


def trained(workspace: Workspace) -> ps.Policy:
    """Publish a policy with random weights, and serve it."""
    head, version = workspace.registry.head(), workspace.registry.next_version()
    layers = random_layers(workspace.problem, seed=3)
    policy = ps.Policy.build(workspace.problem, layers, version=version)
    workspace.registry.publish(policy, teacher=None, report=b"{}", expected=head.number if head else 0)
    return policy


def changed(workspace: Workspace, problem: bytes, config: bytes = CONFIG) -> Workspace:
    workspace.storage.replace("problem.toml", problem)
    workspace.storage.replace("potstill.toml", config)
    return Workspace(workspace.url)


@pytest.fixture
def workspace(tmp_path) -> Workspace:
    found = made(str(tmp_path / "video"))
    found.start()
    return found


@pytest.mark.parametrize("runtime", ["numpy", "native"])
def test_a_new_action_gets_exactly_its_share_and_the_others_keep_theirs(workspace, runtime):
    policy = trained(workspace)
    adapted = changed(workspace, ADDED).start().with_runtime(runtime)
    p, before = adapted.probabilities_many(ROWS), policy.probabilities_many(ROWS)
    assert (p[:, 3] == np.float32(0.1 / 4)).all()
    np.testing.assert_allclose(p[:, :3], 0.9 * before + 0.1 / 4, rtol=2e-6)
    eligible = np.array([True, False, False, True])
    some = adapted.probabilities_many(ROWS, eligible=eligible)
    assert (some[:, 3] == np.float32(0.1 / 4)).all()
    assert (adapted.probabilities_many(ROWS, eligible=np.array([False, False, False, True]))[:, 3] == 1).all()


def test_removed_actions_are_dropped_and_the_others_renormalised(workspace):
    policy = trained(workspace)
    adapted = changed(workspace, REMOVED).start()
    before = policy.probabilities_many(ROWS)[:, [0, 2]]
    np.testing.assert_allclose(adapted.probabilities_many(ROWS), before / before.sum(axis=1, keepdims=True), rtol=2e-6)
    assert adapted.floor == 0
    assert "without '720p'" in in_words(adapted)


def test_a_reordered_list_decides_as_before(workspace):
    policy = trained(workspace)
    adapted = changed(workspace, PROBLEM.replace(b'"360p", "720p"', b'"720p", "360p"')).start()
    np.testing.assert_array_equal(adapted.probabilities_many(ROWS)[:, [1, 0, 2]], policy.probabilities_many(ROWS))


def test_the_share_and_the_floor_are_those_of_the_configuration(workspace):
    trained(workspace)
    assert changed(workspace, ADDED, CONFIG + b"[policy]\nnew_action_share = 0.2\n").serving().floor == 0.05
    assert changed(workspace, ADDED, CONFIG + b"[policy]\nfloor = 0.04\n").serving().floor == 0.04


def test_an_action_stays_explored_until_an_update(workspace):
    trained(workspace)
    once = changed(workspace, ADDED).start()
    twice = changed(workspace, ADDED.replace(b'"4k"', b'"4k", "8k"')).start()
    assert (twice.version, twice.metadata.parent) == (once.version + 1, once.version)
    assert Adaptation.of(twice).untrained == ("4k", "8k")
    assert (twice.probabilities_many(ROWS)[:, 3:] == np.float32(0.1 / 5)).all()


def test_it_is_published_once_with_its_lineage_and_a_rollback_returns_to_it(workspace):
    policy = trained(workspace)
    after = changed(workspace, ADDED)
    adapted = after.start()
    entry = after.registry.head()
    assert (entry.serving, entry.parent) == (policy.version + 1, policy.version)
    assert entry.note.startswith("action '4k' was added; adapted from version 1")
    assert "'4k': 2.5 % of decisions each" in entry.note
    assert after.start().to_bytes() == adapted.to_bytes()
    assert after.registry.head() == entry
    assert adapt_again(policy, adapted, Adaptation.of(adapted)).to_bytes() == adapted.to_bytes()
    trained(after)
    after.registry.rollback()
    assert after.serving().to_bytes() == adapted.to_bytes()
    with pytest.raises(OtherProblem, match="version 1 cannot serve: it decides an earlier problem"):
        after.registry.rollback()


def test_a_pin_holds_the_adapted_policy(workspace):
    trained(workspace)
    workspace.registry.pin(by="ann")
    after = changed(workspace, ADDED)
    adapted = after.start()
    trained(after)
    assert after.serving().version == adapted.version
    assert after.registry.head().pinned.by == "ann"


def test_other_changes_are_refused_unless_a_fresh_start_is_asked_for(workspace):
    trained(workspace)
    after = changed(workspace, REFEATURED)
    with pytest.raises(OtherProblem) as caught:
        after.start()
    for said in ("feature 'connection' was changed", "potstill update", "--fresh", "put the old problem.toml back"):
        assert said in str(caught.value)
    assert after.registry.head().serving == 1
    assert in_words(after.start(fresh=True)) == "uniform: it has learnt nothing"
    after.registry.pin(by="ann")
    again = changed(after, PROBLEM)
    [notice] = notices(again, again.serving())
    assert "version 1, which served this problem before, then serves" in notice
    assert again.start().version == 1  # the last one that fits
    assert again.registry.head().pinned.by == "ann"


def test_a_fresh_start_releases_a_pin_and_says_so(workspace):
    trained(workspace)
    workspace.registry.pin(note="holidays", by="ann")
    after = changed(workspace, REFEATURED)
    with pytest.raises(OtherProblem):
        after.start()
    assert workspace.registry.head().pinned.by == "ann"
    after.start(fresh=True)
    head = after.registry.head()
    assert head.pinned is None
    assert "uniform: it has learnt nothing; the pin of version 1 by ann" in head.note
    assert "is released: that version cannot serve any more" in head.note
    assert trained(after).version == after.serving().version  # the next version serves, and not the uniform one


def test_a_staged_version_that_fits_is_the_way_out(workspace):
    trained(workspace)
    after = changed(workspace, REFEATURED)
    policy = ps.Policy.build(after.problem, random_layers(after.problem), version=2)
    head = after.registry.head()
    after.registry.publish(policy, teacher=None, report=b"{}", serve=False, expected=head.number)
    with pytest.raises(OtherProblem, match="Version 2 fits and is staged: serve it with potstill promote"):
        after.start()
    [notice] = notices(after, ps.Policy.uniform(after.problem))  # what an update continues from
    assert "served this problem before" not in notice
    after.registry.serve(2)
    assert after.start().version == 2


def test_what_has_learnt_nothing_is_not_missed(workspace):
    started = changed(workspace, REFEATURED).start()
    assert (started.version, in_words(started)) == (1, "uniform: it has learnt nothing")


def test_differences_are_told_by_name(workspace):
    before = workspace.problem
    for text, words in (
        (ADDED, "action '4k' was added"),
        (REMOVED, "action '720p' was removed"),
        (REFEATURED, "feature 'connection' was changed"),
        (PROBLEM.replace(b'"connection"', b'"net"'), "feature 'net' was added, feature 'connection' was removed"),
        (PROBLEM.replace(b'"1h"', b'"2h"'), "the reward was changed"),
        (PROBLEM.replace(b"video-upload", b"upload"), "the name was changed from 'video-upload' to 'upload'"),
        (PROBLEM.replace(b'"360p", "720p"', b'"720p", "360p"'), "the actions were reordered"),
        (PROBLEM, "nothing was changed"),
    ):
        assert difference(before, changed(workspace, text).problem).in_words == words


def test_only_lists_of_actions_with_equal_features_can_be_adapted(workspace):
    policy = trained(workspace)
    assert can_adapt(policy, workspace.problem)
    assert not can_adapt(policy, changed(workspace, REFEATURED).problem)
    other = changed(workspace, PROBLEM.replace(b'"360p", "720p", "1080p"', b'"a", "b"')).problem
    assert not can_adapt(policy, other)


def test_adapting_keeps_hidden_layers(workspace):
    problem = workspace.problem
    policy = ps.Policy.build(problem, random_layers(problem, hidden=(5,)), version=4)
    after = changed(workspace, ADDED).problem
    adapted = adapt(policy, after, version=5, seed=0, floor=0.0, share=0.1)
    assert (adapted.layers[0].weight == policy.layers[0].weight).all()
    assert (adapted.layers[1].weight[:, :3] == policy.layers[1].weight).all()
