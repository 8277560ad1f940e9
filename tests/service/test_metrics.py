"""Metrics: what Prometheus' own parser makes of the text, also when several workers count and one is killed."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from potstill.service.counts import create_memory
from potstill.service.metrics import VERSIONS, Metrics, ProblemGauges
from potstill.service.summary_metrics import SummaryGauges
from potstill.summaries import Sums, UpdateRun

WORKER = """
import sys
from potstill.service.counts import Counts
from potstill.service.metrics import Metrics
metrics = Metrics(counts=Counts(*map(int, sys.argv[1:])))
counted = metrics.of("video")
for command in sys.stdin:
    if command == "tell\\n":
        sys.stdout.buffer.write(metrics.exposition({"video"}) + b"# END\\n")
        sys.stdout.flush()
    else:
        counted.count_decisions("online", 3, int(command))
        counted.time_decide(0.003)
        print("counted", flush=True)
"""


def values(text):
    """Samples by name and labels; that the text parses is half of the test."""
    families = text_string_to_metric_families(text.decode())
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value for family in families for sample in family.samples
    }


def value(text, name, **labels):
    return values(text).get((name, *sorted(labels.items())))


def test_every_name_is_there_with_its_labels():
    gauges = [
        ProblemGauges("video", 7, 2.5, mode_fault=True, pinned=True, unused={"late": 3}),
        ProblemGauges("new", None, 0.0),
    ]
    metrics = Metrics(lambda: gauges)
    counted = metrics.of("video")
    counted.count_decisions("online", 7)
    counted.count_decisions("online", 7, 999)
    counted.count_decisions("apprentice", 7)
    counted.count_arm("control", 4)
    counted.count_rewards(3)
    counted.count_observations(5)
    counted.count_refusal("unfit")
    counted.count_reload("swapped")
    counted.time_decide(0.004)
    text = metrics.exposition({"video", "new"})
    assert value(text, "potstill_decisions_total", problem="video", mode="online", policy="7") == 1000
    assert value(text, "potstill_decisions_total", problem="video", mode="apprentice", policy="7") == 1
    assert value(text, "potstill_experiment_total", problem="video", arm="control") == 4
    assert value(text, "potstill_rewards_total", problem="video") == 3
    assert value(text, "potstill_observations_total", problem="video") == 5
    assert value(text, "potstill_refused_total", problem="video", reason="unfit") == 1
    assert value(text, "potstill_reloads_total", problem="video", outcome="swapped") == 1
    assert value(text, "potstill_policy_version", problem="video") == 7
    assert value(text, "potstill_policy_version", problem="new") is None
    assert value(text, "potstill_log_lag_seconds", problem="video") == 2.5
    assert value(text, "potstill_mode_fault", problem="video") == 1
    assert value(text, "potstill_mode_fault", problem="new") == 0
    assert [value(text, "potstill_pinned", problem=name) for name in ("video", "new")] == [1, 0]
    assert value(text, "potstill_paused", problem="video") == 0
    assert value(text, "potstill_rewards_unused_total", problem="video", reason="late") == 3
    assert value(text, "potstill_decide_seconds_count", problem="video") == 1
    assert value(text, "potstill_decide_seconds_bucket", problem="video", le="0.0025") == 0
    assert value(text, "potstill_decide_seconds_bucket", problem="video", le="0.005") == 1
    assert b"_created" not in text


def test_a_problem_that_may_not_be_read_is_not_shown():
    metrics = Metrics(lambda: [ProblemGauges("mine", 1, 0.0), ProblemGauges("theirs", 2, 0.0)])
    for problem in ("mine", "theirs", ""):
        metrics.of(problem).count_refusal("token")
    text = metrics.exposition({"mine"})
    assert b"theirs" not in text
    assert value(text, "potstill_refused_total", problem="", reason="token") == 1
    assert value(text, "potstill_policy_version", problem="mine") == 1


def test_a_name_of_any_characters_is_escaped():
    name = 'a "quoted"\\ name\nof two lines, ünïcode'
    metrics = Metrics(lambda: [ProblemGauges(name, 1, 0.0)])
    metrics.of(name).count_rewards(2)
    assert value(metrics.exposition({name}), "potstill_rewards_total", problem=name) == 2


def test_versions_of_long_ago_are_left_out_unless_one_serves():
    metrics = Metrics(lambda: [ProblemGauges("video", 1, 0.0)])  # rolled back to the first
    for version in range(1, 2 * VERSIONS + 1):
        metrics.of("video").count_decisions("online", version)
    found = {
        int(dict(key[1:])["policy"])
        for key in values(metrics.exposition({"video"}))
        if key[0] == "potstill_decisions_total"
    }
    assert found == {1, *range(VERSIONS + 1, 2 * VERSIONS + 1)}


class Workers:
    """Processes that count in one memory."""

    def __init__(self, memory):
        self.memory, self.processes = memory, []

    def start(self, number):
        command = [sys.executable, "-c", WORKER, str(self.memory), str(number), "2"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[self.memory])
        self.processes.append(process)
        return process

    def stop(self):
        for process in self.processes:
            process.stdin.close()
            process.wait()
            process.stdout.close()


@pytest.fixture
def workers():
    started = Workers(create_memory(2))
    yield started
    started.stop()
    os.close(started.memory)


def told(process, command):
    process.stdin.write(f"{command}\n".encode())
    process.stdin.flush()
    if command != "tell":
        assert process.stdout.readline() == b"counted\n"
        return None
    return b"".join(iter(process.stdout.readline, b"# END\n"))


def test_workers_count_together_and_nothing_is_lost_with_one_that_is_killed(workers):
    first, second = workers.start(0), workers.start(1)
    told(first, 10)
    told(second, 100)
    for asked in (first, second):
        text = told(asked, "tell")
        assert value(text, "potstill_decisions_total", problem="video", mode="online", policy="3") == 110
        assert value(text, "potstill_decide_seconds_count", problem="video") == 2
    os.kill(second.pid, signal.SIGKILL)
    second.wait()
    assert value(told(first, "tell"), "potstill_decisions_total", problem="video", mode="online", policy="3") == 110
    third = workers.start(1)  # takes its place
    told(third, 1000)
    for asked in (first, third):
        text = told(asked, "tell")
        assert value(text, "potstill_decisions_total", problem="video", mode="online", policy="3") == 1110
        assert value(text, "potstill_decide_seconds_bucket", problem="video", le="0.0025") == 0
        assert value(text, "potstill_decide_seconds_bucket", problem="video", le="0.005") == 3


def test_what_summaries_say_is_exposed_by_version():
    run = UpdateRun(began=0, ended=4_000_000, outcome="failed", why="disk", every=600.0)
    gauges = SummaryGauges(
        decisions=10,
        rewards=8,
        joined={3: Sums(4, -2.0, 5.0)},
        actions={3: {'<b>\n"x"': 3, "720p": 1}},
        run=run,
        ended=1_000_000,
        pending=6,
        agreement=0.25,
    )
    metrics = Metrics(lambda: [ProblemGauges("video", 3, 0.0, summaries=gauges), ProblemGauges("new", None, 0.0)])
    text = metrics.exposition({"video", "new"})
    assert value(text, "potstill_lake_decisions_total", problem="video") == 10
    assert value(text, "potstill_joined_decisions_total", problem="video", policy="3") == 4
    assert value(text, "potstill_joined_reward_sum", problem="video", policy="3") == -2.0
    assert value(text, "potstill_action_share", problem="video", policy="3", action='<b>\n"x"') == 0.75
    assert value(text, "potstill_update_outcome", problem="video", outcome="failed") == 1
    assert value(text, "potstill_update_outcome", problem="video", outcome="published") == 0
    assert value(text, "potstill_update_seconds", problem="video") == 4.0
    assert value(text, "potstill_update_interval_seconds", problem="video") == 600.0
    assert value(text, "potstill_update_age_seconds", problem="video") > 1e9
    assert value(text, "potstill_pending_decisions", problem="video") == 6
    assert value(text, "potstill_apprentice_agreement", problem="video") == 0.25
    assert value(text, "potstill_lake_decisions_total", problem="new") is None


def test_every_metric_of_the_dashboard_and_the_alerts_exists():
    """A panel without data, or an alert that never fires, would go unnoticed."""
    run = UpdateRun(began=0, ended=1, outcome="published", every=600.0)
    full = SummaryGauges(joined={1: Sums(1, 1.0, 1.0)}, actions={1: {"a": 1}}, run=run, ended=1, agreement=1.0)
    metrics = Metrics(
        lambda: [ProblemGauges("p", 1, 0.0, unused={"late": 1}, watermarks={("a", "b"): 1.0}, summaries=full)]
    )
    counted = metrics.of("p")
    counted.count_decisions("online", 1)
    counted.count_arm("control")
    for count in (counted.count_rewards, counted.count_observations, counted.time_decide):
        count(1)
    counted.count_refusal("unfit")
    counted.count_reload("swapped")
    known = {name for name, *_ in values(metrics.exposition({"p"}))}
    examples = Path(__file__).parents[2] / "examples" / "grafana"
    dashboard = json.loads((examples / "dashboard.json").read_text(encoding="utf-8"))
    asked = " ".join(target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", []))
    alerts = (examples / "alerts.yml").read_text(encoding="utf-8")
    used = {*re.findall(r"potstill_\w+", asked), *re.findall(r"potstill_\w+", alerts)}
    assert len(used) > 15
    assert used <= known, used - known
    told = (Path(__file__).parents[2] / "docs" / "incidents.md").read_text(encoding="utf-8")
    rules = re.findall(r"alert: (\w+)", alerts)
    assert len(rules) > 5
    assert re.findall(r"^\| `(Potstill\w+)`", told, re.M) == rules  # what to do about each, in the same order
