"""`potstill update` and `potstill status`: what they print, and what they refuse."""

import json
import re

import pytest
import worlds
from typer.testing import CliRunner
from worlds import NOON, PROBLEM, SETTINGS

from potstill.cli import app
from potstill.events import LoggedDecision, LoggedReward, now, read_totals
from potstill.events.join import totals
from potstill.pipeline import UpdateReport, run_update
from potstill.registry import Conflict
from potstill.service.status import unused_rewards
from potstill.workspace import Workspace

DAY = 86_400_000_000


def run(*arguments):
    runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    return runner.invoke(app, [str(argument) for argument in arguments])


def done(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def workspace(tmp_path) -> Workspace:
    """A hundred decisions that are final."""
    found = worlds.made(str(tmp_path / "video"))
    worlds.log(found, found.start(), 100, at=now() - DAY)
    return found


def test_a_dry_run_does_not_say_that_it_published(workspace):
    run_update(workspace, now=NOON)  # flushes only
    printed = done("update", workspace.url, "--dry-run")
    assert "published" not in printed
    assert "due: an update would learn from 100 new observations" in printed
    assert workspace.registry.head().latest == 0


def test_a_dry_run_is_not_watched(workspace):
    assert "leave out --watch" in run("update", workspace.url, "--dry-run", "--watch").stderr


def test_decisions_that_were_left_out_as_ambiguous_are_shown(workspace):
    context = {feature.name: feature.example for feature in workspace.problem.context}
    with workspace.event_log() as log:
        for i, action in enumerate(("360p", "720p")):
            stated = {"id": "retried", "propensity": 0.5, "policy": i, "time": now() - DAY + i}
            log.append(LoggedDecision(context=context, action=action, **stated))
    said = "ambiguous +1 decision left out: logged with different actions or by different versions under one id"
    run_update(workspace, now=NOON)  # flushes only
    assert re.search(said, done("status", workspace.url))
    assert re.search(said, done("update", workspace.url))


def test_rewards_that_were_not_used_are_shown(workspace):
    with workspace.event_log() as log:
        log.append(LoggedReward(id="upload-0-1", reward=1.0, time=now() - DAY // 2))
        log.append(LoggedReward(id="nobody", reward=1.0, time=now() - DAY // 2))
        log.append(LoggedReward(id="no one", reward=1.0, time=now() - DAY // 2))
    printed = done("update", workspace.url)
    said = "1 reward after their window, 2 rewards of no known decision"
    assert f"not used      {said}" in printed
    assert re.search(rf"rewards +\d+ used so far; not used: {said}", done("status", workspace.url))
    assert json.loads(done("status", workspace.url, "--json"))["rewards"]["orphans"] == 2


def test_totals_are_over_all_joins_and_each_counts_once(workspace):
    for seed in (1, 2):
        with workspace.event_log() as log:
            log.append(LoggedReward(id=f"nobody-{seed}", reward=1.0, time=now() - DAY // 2))
        done("update", workspace.url)
        done("update", workspace.url)
        worlds.log(workspace, workspace.serving(), 60, seed=seed, at=now() - DAY // 4)
    done("update", workspace.url)

    class Service:
        pass

    service = Service()
    service.workspace = workspace
    assert unused_rewards(service) == {"late": 0, "too_late": 0, "orphan": 2}


@pytest.mark.parametrize("more", [False, True])
def test_totals_catch_up_with_a_join_whose_update_was_killed(workspace, more, monkeypatch):
    with workspace.event_log() as log:
        log.append(LoggedReward(id="nobody", reward=1.0, time=now() - DAY // 2))
    done("update", workspace.url)
    counted = read_totals(workspace.cuts)
    assert (counted.orphans, counted.cut) == (1, 1)
    workspace.cuts.delete("totals.json")  # as it is where the update was killed before it wrote the file
    if more:
        worlds.log(workspace, workspace.serving(), 60, seed=1, at=now() - DAY // 4)
    done("update", workspace.url)
    found = read_totals(workspace.cuts)
    if not more:
        assert found == counted
    assert (found.orphans, found.cut, found.uncounted) == (1, 2 if more else 1, 0)
    assert found.matched > counted.matched if more else found.matched == counted.matched
    workspace.cuts.delete("totals.json")
    monkeypatch.setattr(totals, "AT_MOST", 0)
    done("update", workspace.url)
    assert read_totals(workspace.cuts).uncounted == found.cut
    assert re.search(r"not counted +rewards of \d earlier joins", done("status", workspace.url))


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (b'[serve]\nfallback = "4k"\n', "serve.fallback must be an action: unknown action '4k'"),
        (b'[serve]\nmode = "log-only"\n', "mode log-only needs an action to answer with"),
        (b"[policy]\nfloor = 0.5\n", "policy.floor must be a number from 0 to 1/3"),
        (b'[teacher]\ntype = "linear"\n', "unknown teacher 'linear'"),
    ],
)
@pytest.mark.parametrize("command", [["status"], ["update"], ["update", "--dry-run"]])
def test_options_that_do_not_fit_are_refused_by_every_command(workspace, command, option, said):
    workspace.storage.replace("potstill.toml", SETTINGS + option)
    result = run(*command, workspace.url)
    assert result.exit_code == 1
    assert said in result.stderr
    assert "potstill.toml" in result.stderr
    assert workspace.registry.head().latest == 0


def test_every_line_of_a_watch_has_its_time(workspace, monkeypatch):
    def stop(_: float) -> None:
        raise OSError("stopped")

    monkeypatch.setattr("potstill.cli.update.time.sleep", stop)
    result = run("update", workspace.url, "--watch")
    lines = [line for line in (result.stdout + result.stderr).splitlines() if line.strip()]
    assert any("published: version 1 now serves" in line for line in lines)
    assert any("stopped" in line for line in lines)
    assert [line for line in lines if not re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC ", line)] == []


def test_a_watch_outlives_a_change_of_the_registry_by_somebody_else(workspace, monkeypatch):
    """A rollback while an update learns is a conflict, and ended the updater."""
    rounds = []

    def conflicted(*_: object, **__: object) -> UpdateReport:
        rounds.append(1)
        if len(rounds) == 2:
            raise OSError("enough")
        raise Conflict("the registry was changed by somebody else: try again")

    monkeypatch.setattr("potstill.pipeline.update.run_update", conflicted)
    monkeypatch.setattr("potstill.cli.update.time.sleep", lambda _: None)
    result = run("update", workspace.url, "--watch")
    assert "changed by somebody else: try again at the next update" in result.stderr
    assert len(rounds) == 2


def test_what_a_change_of_the_problem_leaves_out_is_said(workspace):
    done("update", workspace.url)
    workspace.storage.replace("problem.toml", PROBLEM.replace(b'"720p", ', b""))
    status = done("status", workspace.url)
    assert "notice     problem.toml has changed: action '720p' was removed; restart potstill serve to follow" in status
    assert re.search(r"update .*; \d+ are left out: their action", status)
    printed = done("update", workspace.url)
    assert re.search(r"do not fit +\d+ observations, left out: their action", printed)


def test_a_chosen_student_is_shown_with_its_size_and_speed(tmp_path):
    teacher = b'[teacher]\ntype = "linear-ts"\n'
    auto = b'[student]\nhidden = [8]\nsteps = 50\nauto = {budget = "9d", networks = [[]], step_counts = [50]}\n'
    found = worlds.made(str(tmp_path / "video"), teacher + auto)
    worlds.log(found, found.start(), 200, at=now() - DAY)
    printed = " ".join(done("update", found.url).split())
    assert re.search(r"student .* at most 50 steps: [\d.]+ KB, [\d.]+ µs per decision; searched in \d+ s, as", printed)
    worlds.log(found, found.serving(), 200, seed=1, at=now() - DAY)
    choice = json.loads(done("update", found.url, "--json"))["still"]["choice"]
    assert (choice["searched"], choice["version"]) == (False, 1)
    assert choice["file_bytes"] == len(found.serving().to_bytes())
    assert len(choice["tried"]) == 2
