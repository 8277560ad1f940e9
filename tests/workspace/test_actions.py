"""Changes of the actions of a workspace: what is written, what is refused, and what a kill leaves."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from examples import random_layers
from worlds import CONFIG, PROBLEM, contexts, made

import potstill as ps
from potstill.errors import InvalidAction, InvalidProblem, PotstillError
from potstill.policy.export import export
from potstill.registry import Conflict
from potstill.workspace import (
    Adaptation,
    CannotChangeActions,
    DesignPoint,
    InitialDesign,
    Workspace,
    add_action,
    list_actions,
    remove_action,
    retire_action,
    template,
    write_design,
)

ROWS = contexts(100)


def trained(workspace: Workspace) -> ps.Policy:
    """Publish a policy with random weights, and serve it."""
    head, version = workspace.registry.head(), workspace.registry.next_version()
    policy = ps.Policy.build(workspace.problem, random_layers(workspace.problem, seed=3), version=version)
    workspace.registry.publish(policy, teacher=None, report=b"{}", expected=head.number if head else 0)
    return policy


@pytest.fixture
def place(tmp_path) -> str:
    workspace = made(str(tmp_path / "video"))
    workspace.start()
    trained(workspace)
    return workspace.url


def configured(place: str, config: bytes) -> None:
    Workspace(place).storage.replace("potstill.toml", config)


def states(place: str) -> dict[str, str]:
    return {one.action: one.state for one in list_actions(Workspace(place)).actions}


def test_a_change_is_written_published_and_told(place):
    found = add_action(place, "4k", share=0.2, reason="screens", by="ann")
    assert (found.changed, found.serving, found.text) == (True, 2, "'4k' is added")
    entry = Workspace(place).registry.head()
    assert (entry.by, entry.event) == ("ann", "published")
    assert entry.note.startswith("action '4k' was added")
    assert entry.note.endswith(": screens")
    policy = Workspace(place).registry.policy()
    assert (policy.probabilities_many(ROWS)[:, 3] == np.float32(0.05)).all()


def test_a_repeated_command_changes_nothing_and_says_so(place):
    for change, name, text in (
        (add_action, "4k", "'4k' is chosen already; nothing was changed"),
        (retire_action, "360p", "'360p' is retired already; nothing was changed"),
        (remove_action, "4k", "'4k' is not an action any more; nothing was changed"),
    ):
        assert change(place, name).changed
        before = Workspace(place).registry.head()
        again = change(place, name)
        assert (again.changed, again.text) == (False, text)
        assert Workspace(place).registry.head() == before


def test_share_0_waits_for_the_update(place):
    before = Workspace(place).registry.policy().probabilities_many(ROWS)
    add_action(place, "4k", share=0.0)
    p = Workspace(place).registry.policy().probabilities_many(ROWS)
    assert (p[:, 3] == 0).all()
    np.testing.assert_array_equal(p[:, :3], before)


def test_the_share_of_a_new_action_outlives_other_changes(place):
    add_action(place, "4k", share=0.3)
    retire_action(place, "360p")
    p = Workspace(place).registry.policy().probabilities_many(ROWS)
    assert (p[:, 3] == np.float32(0.3 / 3)).all()


def test_what_is_restored_before_an_update_is_as_it_was(place):
    before = Workspace(place).registry.policy().probabilities_many(ROWS)
    retire_action(place, "720p")
    while_retired = Workspace(place).registry.policy().probabilities_many(ROWS)
    kept = before[:, [0, 2]] / before[:, [0, 2]].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(while_retired[:, [0, 2]], kept, rtol=2e-6)
    assert add_action(place, "720p").text == "'720p' is chosen again"
    np.testing.assert_array_equal(Workspace(place).registry.policy().probabilities_many(ROWS), before)


def test_actions_are_retired_in_any_order(place):
    add_action(place, "4k")
    add_action(place, "8k")
    for name in ("4k", "1080p", "360p"):
        assert retire_action(place, name).changed
        assert not retire_action(place, name).changed
    add_action(place, "1080p")
    assert not retire_action(place, "4k").changed
    retire_action(place, "1080p")
    assert [name for name, state in states(place).items() if state == "retired"] == ["360p", "1080p", "4k"]
    assert Workspace(place).registry.policy().problem.hash == Workspace(place).problem.hash


def test_what_was_retired_when_a_version_was_distilled_is_explored_as_a_new_one(place):
    retire_action(place, "720p")
    trained(Workspace(place))
    add_action(place, "720p", share=0.3)
    policy = Workspace(place).registry.policy()
    assert Adaptation.of(policy).untrained == ("720p",)
    assert (policy.probabilities_many(ROWS)[:, 1] == np.float32(0.1)).all()
    assert states(place)["720p"] == "new"


def test_a_pin_holds_what_is_adapted(place):
    Workspace(place).registry.pin(by="ann")
    add_action(place, "4k")
    head = Workspace(place).registry.head()
    assert (head.serving, head.pinned.by) == (2, "ann")


@pytest.mark.parametrize(
    ("change", "name", "options", "said"),
    [
        (retire_action, "36p", {}, "did you mean '360p'?"),
        (remove_action, "4k", {}, "unknown action '4k'"),
        (add_action, "", {}, "an action's name"),
        (add_action, "4k", {"like": "4k"}, "like: unknown action '4k'"),
        (add_action, "360p", {"like": "720p"}, "'360p' is one already"),
        (add_action, "4k", {"share": 1.0}, "share must be at least 0 and below 1, got 1.0"),
    ],
)
def test_what_does_not_fit_is_refused(place, change, name, options, said):
    before = Workspace(place).storage.read("problem.toml")
    with pytest.raises(PotstillError) as caught:
        change(place, name, **options)
    assert said in str(caught.value)
    assert Workspace(place).storage.read("problem.toml") == before


def test_two_actions_are_left(place):
    retire_action(place, "360p")
    for change in (retire_action, remove_action):
        with pytest.raises(CannotChangeActions, match=r"'1080p' cannot be .*only '720p' and '1080p'; add another one"):
            change(place, "1080p")
    assert remove_action(place, "360p").changed  # it is not chosen anyway


@pytest.mark.parametrize(
    ("more", "change", "said"),
    [
        (b'[serve]\nfallback = "720p"\n', retire_action, "it is serve.fallback in potstill.toml"),
        (b'[serve]\nfallback = "720p"\n', remove_action, "it is serve.fallback in potstill.toml"),
        (b'[experiment]\nname = "hd"\ncontrol = { action = "720p" }\n', retire_action, "control of experiment 'hd'"),
        (b'[experiment]\nname = "hd"\ncontrol = { policy = 1 }\n', remove_action, "during experiment 'hd'"),
        (b"[teacher.prior.720p]\nintercept = { mean = 0.5 }\n", remove_action, "teacher.prior in potstill.toml names"),
    ],
)
def test_what_is_in_use_stays(place, more, change, said):
    configured(place, CONFIG + more)
    with pytest.raises(CannotChangeActions, match=said):
        change(place, "720p")
    assert states(place) == {"360p": "chosen", "720p": "chosen", "1080p": "chosen"}


@pytest.mark.parametrize("change", [retire_action, remove_action])
def test_an_action_of_the_rules_of_control_stays(place, change):
    rules = b"default = '360p'\n[[rule]]\nwhen = { connection = 'wifi' }\naction = '720p'\n"
    Workspace(place).storage.replace("rules.toml", rules)
    configured(place, CONFIG + b'[experiment]\nname = "hd"\ncontrol = { rules = "rules.toml" }\n')
    with pytest.raises(CannotChangeActions, match=r"experiment 'hd'.*end the experiment first"):
        change(place, "720p")
    assert change(place, "1080p").changed
    assert add_action(place, "4k").changed


def test_an_initial_design_ends_first(place):
    workspace = Workspace(place)
    points = [DesignPoint("ann", "720p", 1.0)]
    stated = {"problem": workspace.problem.hash, "teacher": {}, "contexts": {}, "information_gain": 1.0}
    write_design(workspace.storage, InitialDesign(id="d", time=1, points=points, **stated), replace=False)
    with pytest.raises(CannotChangeActions, match="potstill design DIR --end first"):
        add_action(place, "4k")


def test_like_needs_a_teacher_that_keeps_actions_apart(place):
    configured(place, b"")
    with pytest.raises(CannotChangeActions, match=r"auto-ts learns from all observations again. Leave it out"):
        add_action(place, "4k", like="1080p")


def test_a_number_has_no_list_of_actions(tmp_path):
    problem = PROBLEM.replace(
        b'type = "discrete"\nnames = ["360p", "720p", "1080p"]',
        b'type = "continuous"\nname = "price"\nlow = 1\nhigh = 9',
    )
    workspace = Workspace.create(str(tmp_path / "price"), problem, b"")
    for change in (lambda: list_actions(workspace), lambda: add_action(workspace.url, "4k")):
        with pytest.raises(CannotChangeActions, match="list"):
            change()


def test_positions_are_changed_by_hand(tmp_path):
    problem = PROBLEM.replace(b'"1080p"]', b'"1080p"]\npositions = [1, 2, 3]')
    place = made(str(tmp_path / "video"), problem=problem).url
    with pytest.raises(CannotChangeActions, match=r"'4k' needs its own: add both to problem.toml"):
        add_action(place, "4k")
    with pytest.raises(CannotChangeActions, match=r"take '360p' and its own out of problem.toml"):
        remove_action(place, "360p")
    assert retire_action(place, "360p").changed


def test_other_changes_of_the_problem_come_first(place):
    Workspace(place).storage.replace("problem.toml", PROBLEM.replace(b'"wifi"', b'"wifi", "5g"'))
    with pytest.raises(CannotChangeActions, match=r"feature 'connection' was changed. Run potstill update first"):
        add_action(place, "4k")


def test_before_the_first_version_only_the_problem_changes(tmp_path):
    workspace = Workspace.create(tmp_path / "video", template.PROBLEM.encode(), template.CONFIG.encode())
    found = add_action(workspace.url, "2160p")
    assert (found.changed, found.serving) == (True, None)
    text = template.PROBLEM.replace('"1080p"]', '"1080p", "2160p"]')
    assert workspace.storage.read("problem.toml").decode() == text
    assert Workspace(workspace.url).start().version == 0


def test_an_object_store_does_as_well(s3):
    workspace = made(f"{s3}/video")
    workspace.start()
    trained(workspace)
    assert add_action(workspace.url, "4k", by="ann").serving == 2
    assert retire_action(workspace.url, "360p").changed
    assert states(workspace.url) == {"360p": "retired", "720p": "chosen", "1080p": "chosen", "4k": "new"}


def test_a_machine_that_was_overtaken_says_what_to_do(place, monkeypatch):
    """Another machine does not see this one's lock: both change problem.toml, and one publishes first."""
    start = Workspace.start

    def overtaken(workspace, **options):
        monkeypatch.setattr(Workspace, "start", start)
        text = workspace.storage.read("problem.toml").replace(b'"4k"', b'"8k"')
        workspace.storage.replace("problem.toml", text)
        Workspace(workspace.url).start()
        return workspace.start(**options)

    monkeypatch.setattr(Workspace, "start", overtaken)
    with pytest.raises(Conflict, match="repeat the command, which changes what is missing"):
        add_action(place, "4k")
    assert states(place)["8k"] == "new"
    assert add_action(place, "4k").changed
    assert {"4k", "8k"} <= set(states(place))


def test_changes_at_once_are_all_made(place):
    names = [f"a{i}" for i in range(6)]
    threads = [threading.Thread(target=add_action, args=(place, name)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(states(place)) == sorted(["360p", "720p", "1080p", *names])
    assert Workspace(place).registry.head().serving == 1 + len(names)


def test_a_kill_at_any_file_operation_leaves_the_old_or_the_new(place, tmp_path):
    (tmp_path / "killed").mkdir()
    script = Path(__file__).parent / "action_kills.py"
    command = [sys.executable, str(script), place, str(tmp_path / "killed")]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    for result in found.values():
        assert result["faults"] == []
        assert 0 < result["made"] < result["kills"]
        assert result["kills"] > 10


def test_retired_actions_must_be_of_the_list():
    with pytest.raises(InvalidProblem, match="did you mean 'b'"):
        ps.Discrete(["a", "b", "c"], retired=["bb"])
    with pytest.raises(InvalidProblem, match="fewer than two"):
        ps.Discrete(["a", "b"], retired=["a"])
    with pytest.raises(InvalidProblem, match="retired"):
        ps.Discrete(["a", "b", "c"], retired="a")
    with pytest.raises(InvalidProblem, match="retired"):
        ps.Discrete(["a", "b", "c"], retired=["a", "a"])


@pytest.mark.parametrize("runtime", ["native", "numpy"])
@pytest.mark.parametrize("floor", [0.0, 0.05])
def test_a_policy_never_chooses_what_is_retired_unless_it_must(runtime, floor):
    """Against the definition: the softmax over what is left of the eligible actions, with its floor."""
    context = [ps.Numeric("x", low=0, high=1)]
    whole = ps.Problem(name="p", context=context, actions=ps.Discrete(["a", "b", "c", "d"]))
    some = ps.Problem(name="p", context=context, actions=ps.Discrete(["a", "b", "c", "d"], retired=["b", "d"]))
    layers = random_layers(whole, seed=1)
    free = ps.Policy.build(whole, layers, version=1, floor=floor).with_runtime(runtime)
    policy = ps.Policy.from_bytes(ps.Policy.build(some, layers, version=1, floor=floor).to_bytes()).with_runtime(
        runtime
    )
    assert policy.metadata.format == 3
    x = {"x": 0.3}
    for asked, left in ((None, ["a", "c"]), (["a", "b"], ["a"]), (["b"], ["b"]), (["b", "d"], ["b", "d"])):
        expected = free.probabilities(x, eligible=left)
        np.testing.assert_array_equal(policy.probabilities(x, eligible=asked), expected)
        for name in map(str, range(20)):
            for decided in (
                policy.decide(x, id=name, eligible=asked),
                policy.decide_row((0.3,), id=name, eligible=asked),
            ):
                assert decided.action in left
                assert decided.propensity == expected[whole.actions.index(decided.action)]
                assert decided.eligible == (None if asked is None else tuple(asked))
        mask = None if asked is None else whole.actions.allow([asked])
        actions, p = policy.decide_many([x], ["7"], eligible=mask)
        assert whole.actions.names[actions[0]] == policy.decide(x, id="7", eligible=asked).action
        assert p[0] == expected[actions[0]]
    with pytest.raises(InvalidAction, match="unknown action 'z'"):
        policy.decide(x, eligible=["z"])
    with pytest.raises(InvalidAction, match="eligible is empty"):
        policy.decide(x, eligible=[])


@pytest.mark.parametrize("target", ["c", "onnx"])
def test_exports_that_know_nothing_of_it_refuse(tmp_path, target):
    actions = ps.Discrete(["a", "b", "c"], retired=["b"])
    policy = ps.Policy.uniform(ps.Problem(name="p", context=[ps.Boolean("x")], actions=actions))
    with pytest.raises(PotstillError, match=r"retired actions \(b\)"):
        export(policy, target, tmp_path)
