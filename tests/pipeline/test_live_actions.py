"""An update after the actions have changed: what was learnt is kept, retired actions teach, versions are reproduced."""

import numpy as np
import pytest
from worlds import CONFIG, LATER, NOON, SETTINGS, contexts, log, made

import potstill as ps
from potstill.evaluate import LakeLog
from potstill.keys import Key
from potstill.pipeline import reproduce_version, run_audit, run_update
from potstill.pipeline.origin import Origin
from potstill.pipeline.resume import start
from potstill.problem import Observations
from potstill.teachers import TEACHERS, LinearTS, PerAction, from_config
from potstill.teachers.among import propensities_among
from potstill.workspace import PER_ACTION, Workspace, add_action, remove_action, retire_action

AUTO = b'[teacher]\ntype = "auto-ts"\ncandidates = ["linear", "forest"]\n' + SETTINGS
ROWS = contexts(100, seed=5)


@pytest.fixture(autouse=True)
def _lenient(monkeypatch):
    """A new action is explored, which costs something where it is worse: the gates must not decide these tests."""
    monkeypatch.setattr("potstill.pipeline.update.objections", lambda *_: [])


def learnt(place: str, config: bytes = CONFIG) -> Workspace:
    """A workspace whose version 1 has learnt from 300 decisions."""
    workspace = made(place, config)
    log(workspace, workspace.start(), 300)
    assert run_update(workspace, now=LATER).outcome == "published"
    return Workspace(place)


def more(place: str, seed: int, n: int = 200) -> Workspace:
    """Decisions of the present version, an hour after the last ones."""
    workspace = Workspace(place)
    log(workspace, workspace.start(), n, seed=seed, at=NOON + 10_000_000 * seed)
    return workspace


def posterior(workspace: Workspace):
    return start(workspace, workspace.serving()).still.state.posterior


def test_the_posterior_of_the_others_is_kept_to_the_bit(tmp_path):
    place = str(tmp_path / "video")
    before = posterior(learnt(place))
    add_action(place, "4k")
    remove_action(place, "720p")
    report = run_update(Workspace(place), now=LATER)  # due, although nothing was observed
    assert (report.outcome, report.observations, report.why_anew) == ("published", 0, None)
    workspace = Workspace(place)
    after = posterior(workspace)
    for was, now in zip(before, after, strict=True):
        assert np.array_equal(was[[0, 2]], now[:2])
    prior = LinearTS().init(workspace.problem).posterior
    for fresh, now in zip(prior, after, strict=True):
        assert np.array_equal(fresh[2], now[2])
    assert Origin.of(workspace.serving()).base == 1
    assert reproduce_version(workspace, report.version).identical


def test_every_version_is_reproduced_and_audited_across_changes(tmp_path):
    place = str(tmp_path / "video")
    learnt(place)
    add_action(place, "4k", like="1080p", share=0.2)
    for seed, change in ((1, retire_action), (2, add_action), (3, remove_action)):
        assert run_update(more(place, seed), now=LATER).outcome == "published"
        change(place, "360p")
    last = run_update(more(place, 4), now=LATER)
    assert last.outcome == "published"
    workspace = Workspace(place)
    assert run_audit(workspace).clean
    versions = [one.version for one in workspace.registry.versions() if one.version]
    assert versions == [*range(1, last.version + 1)]
    for version in versions:
        found = reproduce_version(workspace, version)
        assert found.identical, found
    hashes = {workspace.registry.policy(version).problem.hash for version in versions}
    assert len(hashes) == 4  # three lists of names, and one with a retired action


def test_a_new_action_like_another_begins_as_it_and_wider(tmp_path):
    place = str(tmp_path / "video")
    before = learnt(place)
    known = start(before, before.serving()).still
    add_action(place, "4k", like="1080p")
    run_update(Workspace(place), now=LATER)
    workspace = Workspace(place)
    still = start(workspace, workspace.serving()).still
    encoded = workspace.problem.encode_many(ROWS)
    location, scale, _ = still.teacher.marginals(still.state, encoded)
    like, spread, _ = known.teacher.marginals(known.state, encoded)
    assert (scale[:, 3] > 1.5 * spread[:, 2]).all()
    # A tenth of the weight: XᵀX and Xᵀy are those of 1080p times 0.1, and the prior precision is the same.
    sums, other = still.state.sums, known.state.sums
    expected = np.linalg.solve(0.1 * other.gram[2] + 0.25 * np.eye(len(other.gram[2])), 0.1 * other.moment[2])
    np.testing.assert_allclose(location[:, 3], np.c_[encoded, np.ones(len(encoded))] @ expected, rtol=1e-9)
    np.testing.assert_allclose(sums.n[3], 0.1 * other.n[2])
    assert abs(location[:, 3] - like[:, 2]).mean() < abs(like[:, 2]).mean()


def test_a_teacher_that_rereads_learns_from_all_observations_again(tmp_path):
    place = str(tmp_path / "video")
    learnt(place, AUTO)
    add_action(place, "4k")
    report = run_update(more(place, 1, 100), now=LATER)
    assert (report.outcome, report.observations) == ("published", 400)
    assert report.why_anew == "the actions have changed, and auto-ts does not keep what it learns of them apart"
    assert reproduce_version(Workspace(place), report.version).identical


def test_an_action_that_comes_back_has_its_observations_again(tmp_path):
    place = str(tmp_path / "video")
    taken = posterior(learnt(place)).alpha
    remove_action(place, "720p")
    run_update(Workspace(place), now=LATER)
    add_action(place, "720p")
    report = run_update(Workspace(place), now=LATER)
    assert report.why_anew == "observations from before of '720p' fit the problem again"
    assert (report.outcome, report.observations) == ("published", 300)
    workspace = Workspace(place)
    assert workspace.problem.actions.names == ("360p", "1080p", "720p")
    np.testing.assert_allclose(posterior(workspace).alpha, taken[[0, 2, 1]])


@pytest.mark.parametrize("config", [CONFIG, AUTO], ids=["linear-ts", "auto-ts"])
def test_a_retired_action_is_never_chosen_and_still_teaches(tmp_path, config):
    place = str(tmp_path / "video")
    learnt(place, config)
    retire_action(place, "360p")
    workspace = more(place, 1)
    assert "360p" not in set(workspace.lake.scan("decisions").collect()["action"][300:])
    report = run_update(workspace, now=LATER)
    assert report.outcome == "published"
    serving = Workspace(place).serving()
    p = serving.probabilities_many(ROWS)
    assert (p[:, 0] == 0).all()
    still = start(Workspace(place), serving).still
    encoded = workspace.problem.encode_many(ROWS)
    chosen = np.array([False, True, True])
    exact = propensities_among(still.teacher, still.state, encoded, Key(0), chosen)
    assert abs(p - exact).sum(axis=1).mean() / 2 < 0.1  # it imitates the best of those that are left
    assert still.seen.observations == 500  # those of the retired action among them
    assert (workspace.lake.scan("observations").collect()["action"] == "360p").sum() > 20
    assert reproduce_version(workspace, report.version).identical


def test_evaluation_knows_what_was_chosen_from(tmp_path):
    """While 360p was retired it had no chance: a policy is not blamed for actions that the log could not take."""
    place = str(tmp_path / "video")
    learnt(place)
    retire_action(place, "360p")
    run_update(more(place, 1), now=LATER)
    add_action(place, "360p", share=0.3)
    workspace = Workspace(place)
    blocks = list(LakeLog(workspace).blocks())
    eligible = np.concatenate([block.eligible for block in blocks])
    actions = np.concatenate([block.actions for block in blocks])
    assert eligible[np.arange(len(actions)), actions].all()
    assert eligible[:, 1:].all()
    retired = ~eligible[:, 0]
    assert retired.sum() == 200
    assert (actions[retired] != 0).all()


@pytest.mark.parametrize("kind", sorted(TEACHERS))
def test_which_teachers_keep_actions_apart(kind):
    made_of = TEACHERS[kind]
    assert hasattr(made_of, "with_actions") == (kind in PER_ACTION)


def two(names: list[str]) -> ps.Problem:
    return ps.Problem(name="p", context=[ps.Numeric("x", low=0, high=1)], actions=ps.Discrete(names))


#: A catalogue's teacher keeps what a removed item told of the others: see tests/teachers/catalog.
APART = [kind for kind in PER_ACTION if TEACHERS[kind]().supports(ps.Discrete(["a", "b"])) is None]


@pytest.mark.parametrize("options", [{"type": kind} for kind in APART], ids=APART)
def test_removing_an_action_is_as_if_it_had_never_been(options):
    """The state without an action is that of a teacher that has only seen the others' observations."""
    teacher, rng = from_config(options), np.random.default_rng(0)
    assert isinstance(teacher, PerAction)
    full, fewer = two(["a", "b", "c"]), two(["c", "a"])
    rows = [
        {"context": {"x": float(x)}, "action": "abc"[i % 3], "reward": float(x * (i % 3)), "propensity": 0.5}
        for i, x in enumerate(rng.random(90))
    ]
    state = teacher.update(teacher.init(full), Observations.from_records(full, rows), Key(0))
    kept = teacher.with_actions(state, full, fewer, {})
    alone = [row for row in rows if row["action"] != "b"]
    again = teacher.update(teacher.init(fewer), Observations.from_records(fewer, alone), Key(0))
    for one, other in zip(kept.posterior, again.posterior, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_weighted_statistics_are_refused():
    teacher, problem = LinearTS(weighting="inverse-propensity"), two(["a", "b"])
    with pytest.raises(ValueError, match="normalised over all observations"):
        teacher.with_actions(teacher.init(problem), problem, two(["a", "b", "c"]), {})
