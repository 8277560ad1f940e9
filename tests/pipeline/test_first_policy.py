"""The first policy of a workspace: that of the teacher's prior, before any observation."""

import numpy as np
import pytest
from service_process import serving
from worlds import LATER, SETTINGS, log, made

from potstill.pipeline.reproduce import reproduce_version
from potstill.pipeline.status import read_status
from potstill.pipeline.update import run_update
from potstill.teachers import from_config
from potstill.workspace import InvalidConfig, NoFirstPolicy, Workspace

PRIOR = (
    SETTINGS
    + b"""
[teacher]
type = "linear-ts"
[teacher.prior.360p]
intercept = { mean = 8.0, precision = 20 }
bandwidth_kbps = { mean = -8.0, precision = 20 }
[teacher.prior.1080p]
"connection=wifi" = { mean = 1.0 }
"""
)
SLOW = {"bandwidth_kbps": 500, "connection": "2g"}


def test_an_update_before_any_observation_publishes_the_priors_policy(tmp_path):
    workspace = made(str(tmp_path), PRIOR)
    report = run_update(workspace, now=LATER)
    assert (report.outcome, report.serving) == ("waiting", 0)
    policy = workspace.start()
    teacher = from_config(workspace.config.teacher)
    contexts = [{"bandwidth_kbps": kbps, "connection": "wifi"} for kbps in (500, 50_000, 99_000)]
    exact = teacher.propensities(teacher.init(workspace.problem), workspace.problem.encode_many(contexts), None)
    assert exact[0, 0] > 0.6
    assert np.abs(policy.probabilities_many(contexts) - exact).max() < 0.1
    assert read_status(workspace, now=LATER).decides == "imitates its teacher's prior: it has learnt nothing yet"
    assert reproduce_version(workspace, 0).identical


def test_the_first_batch_is_decided_by_it_and_learnt_from(tmp_path):
    workspace = made(str(tmp_path), PRIOR)
    run_update(workspace, now=LATER)
    first = workspace.start()
    log(workspace, first, 200)
    report = run_update(workspace, now=LATER)
    assert (report.outcome, report.version, report.why_anew) == ("published", 1, None)
    assert reproduce_version(workspace, 1).identical
    again = run_update(workspace, now=LATER, force=True)
    assert (again.version, again.why_anew) == (2, None)


def test_nothing_uniform_is_served_in_its_place(tmp_path):
    workspace = made(str(tmp_path), PRIOR)
    with pytest.raises(NoFirstPolicy, match=r"Run potstill update, .*potstill\[learn\]; or .*potstill serve --fresh"):
        workspace.start()
    assert workspace.registry.head() is None
    assert read_status(workspace, now=LATER).decides.startswith("nothing yet: the first policy imitates")
    assert workspace.start(fresh=True).version == 0


def test_a_service_distils_it_before_it_starts(tmp_path):
    workspace = made(str(tmp_path / "video"), PRIOR)
    with serving(tmp_path / "out", workspace.url):
        policy = Workspace(workspace.url).registry.policy()
    assert policy.metadata.lineage.origin == {"prior": True}
    assert policy.probabilities(SLOW)[0] > 0.6


def test_a_mistake_in_the_prior_is_named_before_anything_is_joined(tmp_path):
    workspace = made(str(tmp_path), PRIOR.replace(b"bandwidth_kbps", b"bandwith_kbps"))
    with pytest.raises(InvalidConfig, match=r"prior of action '360p': unknown feature 'bandwith_kbps' \(did you mean"):
        run_update(workspace, now=LATER)
    assert workspace.registry.head() is None


def test_a_workspace_without_a_prior_begins_as_before(tmp_path):
    workspace = made(str(tmp_path))
    assert workspace.start().metadata.lineage.teacher is None
