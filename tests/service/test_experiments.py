"""How an experiment begins, changes and ends while a workspace is served, and what is refused."""

import asyncio
import logging

import pytest
import worlds
from service_examples import Asker, experiment, opened

from potstill.experiments.assignment import arm_of
from potstill.service.experiment import ExperimentWatcher, check_experiment
from potstill.workspace import CONFIG, InvalidConfig, Workspace

BAD_RULES = b'default = "1080p"\n[[rule]]\nwhen = { bandwidth_kbps = { below = 1000 } }\naction = "4k"\n'


def made(tmp_path, text: bytes = b"") -> Workspace:
    return worlds.made(str(tmp_path / "video"), worlds.CONFIG + text)


@pytest.fixture
def outcomes() -> list[str]:
    return []


def following(workspace, outcomes) -> ExperimentWatcher:
    experiments = ExperimentWatcher(workspace, outcomes.append)
    experiments.start()
    return experiments


def write(workspace, text: bytes) -> None:
    workspace.storage.replace(CONFIG, worlds.CONFIG + text)


def test_an_experiment_begins_changes_and_ends_without_a_restart(tmp_path, outcomes):
    workspace = made(tmp_path)
    experiments = following(workspace, outcomes)
    assert (experiments.current, outcomes) == (None, [])
    write(workspace, experiment())
    experiments.reload()
    first = experiments.current
    experiments.reload()
    assert experiments.current is first
    write(workspace, experiment(share="0.9") + b"[join]\nsettle = '2m'\n")
    experiments.reload()
    assert experiments.current.config.share == 0.9
    write(workspace, b"")
    experiments.reload()
    assert (experiments.current, outcomes) == (None, ["swapped"] * 3)


def test_rules_are_followed(tmp_path, outcomes):
    workspace = made(tmp_path, experiment('{ rules = "rules.toml" }'))
    workspace.storage.create("rules.toml", b'default = "360p"')
    experiments = following(workspace, outcomes)
    first = experiments.current
    workspace.storage.replace("rules.toml", b'default = "720p"')
    experiments.reload()
    assert experiments.current is not first
    assert outcomes == ["swapped", "swapped"]


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (b"[experiment", "potstill.toml"),
        (experiment('{ action = "4k" }'), "experiment.control: unknown action '4k'"),
        (experiment("{ policy = 9 }"), "experiment.control: .*has no version 9"),
        (experiment('{ rules = "none.toml" }'), "no file 'none.toml' in the workspace"),
        (experiment('{ rules = "rules.toml" }'), "rules.toml: rule 1: action: unknown action '4k'"),
    ],
)
def test_what_makes_no_sense_leaves_it_as_it_was_and_does_not_start(tmp_path, outcomes, caplog, broken, message):
    workspace = made(tmp_path, experiment())
    workspace.start()
    workspace.storage.create("rules.toml", BAD_RULES)
    experiments = following(workspace, outcomes)
    first = experiments.current
    write(workspace, broken)
    with caplog.at_level(logging.WARNING):
        experiments.reload()
        experiments.reload()
    assert experiments.current is first
    assert outcomes == ["swapped", "refused"]
    assert len(caplog.records) == 1
    with pytest.raises(InvalidConfig, match=message):  # a service does not start with it
        ExperimentWatcher(Workspace(workspace.url)).start()
    restarted = following(workspace, outcomes)  # a worker that is restarted has the configuration of the start
    assert restarted.current.config == first.config
    assert restarted.state("online").startswith("refused: ")
    write(workspace, experiment(share="0.2"))
    experiments.reload()
    assert experiments.current.config.share == 0.2


def test_storage_that_is_away_leaves_it_as_it_was_and_starts_without(tmp_path, outcomes, monkeypatch):
    workspace = made(tmp_path, experiment())
    experiments = following(workspace, outcomes)
    first = experiments.current

    def away(*_):
        raise OSError("away")

    with monkeypatch.context() as storage:
        storage.setattr(type(workspace.storage), "read", away)
        experiments.reload()
        started = following(workspace, outcomes)
        assert (experiments.current, started.current) == (first, None)
    started.reload()
    assert started.current is not None
    assert outcomes == ["swapped", "unavailable", "unavailable", "swapped"]


def test_a_service_follows_it(tmp_path):
    workspace = made(tmp_path)
    request = {"context": {"bandwidth_kbps": 900.0, "connection": "4g"}, "unit": "user-7"}

    async def arm_and_status(asker: Asker) -> tuple[str | None, str | None]:
        await asker.app._problems[0].reload()
        told = (await asker.post("decide", request)).json
        return told.get("arm"), (await asker.get("status")).json["experiment"]

    async def work() -> None:
        async with opened(workspace) as asker:
            assert await arm_and_status(asker) == (None, None)
            write(workspace, experiment())
            assert await arm_and_status(asker) == (f"hd:{arm_of('hd', 'user-7', 0.5)}", "hd")
            write(workspace, b"")
            assert await arm_and_status(asker) == (None, None)

    asyncio.run(work())


def test_the_status_says_whether_it_is_followed_and_why_not(tmp_path):
    workspace = made(tmp_path)
    states = []

    async def work() -> None:
        async with opened(workspace) as asker:
            for text in (
                b"",
                experiment(),
                experiment('{ action = "4k" }'),
                experiment() + b"start = 2126-11-16T00:00:00Z\n",
            ):
                write(workspace, text)
                await asker.app._problems[0].reload()
                found = (await asker.get("status")).json
                states.append((found["experiment"], found["experiment_state"]))

    asyncio.run(work())
    assert states[:2] == [(None, None), ("hd", "running")]
    assert states[2][0] == "hd"  # as it was
    assert states[2][1].startswith("refused: experiment.control: unknown action '4k'")
    assert states[3] == ("hd", "not started: it starts at 2126-11-16 00:00 UTC")


def test_a_configuration_that_becomes_invalid_is_in_the_notices(tmp_path):
    workspace, found = made(tmp_path), []

    async def work() -> None:
        async with opened(workspace) as asker:
            for text in (b"[update]\nmin_observation = 3\n", b"not TOML", b""):
                workspace.storage.replace(CONFIG, text)
                await asker.app._problems[0].reload()
                found.append((await asker.get("status")).json["notices"])

    asyncio.run(work())
    assert [len(notices) for notices in found] == [1, 1, 0]
    assert "potstill.toml" in found[0][0]
    assert "did you mean 'min_observations'" in found[0][0]
    assert all(notices[0].endswith("what was read before stays in force") for notices in found[:2])


def test_a_mode_in_which_the_policy_does_not_decide_pauses_it(tmp_path, outcomes):
    experiments = following(made(tmp_path, experiment()), outcomes)
    assert experiments.state("online") == "running"
    assert experiments.state("log-only") == "paused: the mode is log-only"


def test_a_service_does_not_start_on_an_experiment_that_makes_no_sense(tmp_path):
    workspace = made(tmp_path, experiment('{ action = "4k" }'))

    async def work() -> None:
        async with opened(workspace):
            raise AssertionError("it started")

    with pytest.raises(InvalidConfig, match=r"video: experiment.control: unknown action '4k' .* the actions are 360p"):
        asyncio.run(work())


def test_the_first_version_may_be_control(tmp_path):
    workspace = made(tmp_path, experiment("{ policy = 0 }"))
    check_experiment(workspace)
    assert workspace.registry.head().serving == 0
