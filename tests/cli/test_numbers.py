"""The commands on a workspace whose action is a number."""

import json
import re

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner
from worlds import NOON

from potstill import LoggedDecision, LoggedReward, Workspace
from potstill.cli import app
from potstill.keys import Key
from potstill.workspace import template

PROBLEM = """
name = "pricing"
[[context]]
type = "numeric"
name = "demand"
low = 0
high = 1
[actions]
type = "continuous"
name = "price"
low = 2
high = 14
bins = 24
[reward]
window = "1s"
"""
CONTEXT = '{"demand": 0.5}'


def run(*arguments):
    runner = CliRunner(env={"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"})
    return runner.invoke(app, [str(argument) for argument in arguments])


def done(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments):
    result = run(*arguments)
    assert result.exit_code == 1, result.output
    assert "Traceback" not in result.output
    return result.output


def flat(text):
    return re.sub(r"\s+", " ", text)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A workspace as `potstill init` makes it, with 150 decisions, one update, and a smaller network."""
    folder = tmp_path_factory.mktemp("numbers")
    (folder / "problem.toml").write_text(PROBLEM)
    done("init", folder / "ws", "--problem", folder / "problem.toml")
    config = folder / "ws" / "potstill.toml"
    config.write_text(config.read_text().replace("# hidden = [100, 100]", "hidden = [16]\nsteps = 300"))
    workspace, rng = Workspace(folder / "ws"), Key(0).generator()
    policy, events = workspace.start(), []
    for i in range(150):
        context = {"demand": float(rng.random())}
        decision = policy.decide(context, id=str(i))
        events.append(LoggedDecision.of(decision, context, time=NOON + i))
        value = 1 - ((decision.action - 4 - 8 * context["demand"]) / 6) ** 2
        events.append(LoggedReward(id=decision.id, reward=float(value), time=NOON + i))
    with workspace.event_log() as log:
        log.append(*events)
    return folder / "ws"


@pytest.fixture(scope="module")
def updated(place):
    result = run("update", place)
    assert result.exit_code in (0, 2), result.output  # a network so small may fail the gate of divergence
    if result.exit_code == 2:
        done("promote", place, 1)
    return place, result.stdout


def test_init_needs_only_the_problem_to_change(tmp_path):
    """The commented example of the template is a problem, and its configuration fits."""
    text = template.PROBLEM
    start, end = text.index('type = "discrete"'), text.index("# A number, such as")
    number = re.sub(r"^# (type|name|low|high|scale) = ", r"\1 = ", text[:start] + text[end:], flags=re.M)
    workspace = Workspace.create(str(tmp_path / "ws"), number.encode(), template.CONFIG.encode())
    assert workspace.problem.actions.measure == "lebesgue"
    assert "0 new observations" in done("status", tmp_path / "ws")


def test_update_and_status_state_the_wasserstein_distance_with_its_unit(updated):
    place, said = updated
    for text in (said, done("status", place)):
        assert re.search(r"held-out KL \S+ nats, Wasserstein distance \S+ in price, \S+ % of its range", flat(text))
    fidelity = Workspace(place).serving().metadata.fidelity
    assert f"(at most {fidelity['w1_price']:.2g})" in flat(said)


def test_show_decide_and_explain(updated):
    place, _ = updated
    assert "price, a number from 2 to 14 (linear scale, 24 bins)" in done("show", place)
    said = done("decide", place, CONTEXT, "--id", "a", "--eligible", "[4, 9.5]")
    assert re.search(r"price: \S+ expected, 80 % from \S+ to \S+\n[\d.]+ with density", said)
    found = json.loads(done("explain", place, '{"demand": 1.0}', "--json"))
    assert abs(sum(one["probability"] for one in found["ranges"]) - 1) < 1e-6
    assert found["effects"][0]["change"] > 0
    assert "Effects of features on the expected number" in flat(done("explain", place, CONTEXT))


@pytest.mark.parametrize(
    ("eligible", "message"),
    [
        ("x", "--eligible must be JSON, such as '[2, 5]', got 'x'"),
        ("NaN", "--eligible must be JSON"),
        ("[9, 4]", "from below to"),
        ("[1, 4]", "price must be a number from 2 to 14, got 1"),
        ('["a", 4]', "price must be a number from 2 to 14, got 'a'"),
        ("4", "must be an interval [from, to] of price"),
    ],
)
def test_an_eligible_that_is_no_interval_is_refused(updated, eligible, message):
    for command in ("decide", "explain"):
        assert message in flat(refused(command, updated[0], CONTEXT, "--eligible", eligible))


def test_what_needs_a_list_says_so(updated, tmp_path):
    place, _ = updated
    pl.DataFrame({"demand": [0.1, 0.2]}).write_csv(tmp_path / "units.csv")
    assert "evaluate plan needs a finite list of actions" in refused("evaluate", "plan", place)
    assert "an initial design needs a finite list" in refused("design", place, "--contexts", tmp_path / "units.csv")


def test_tune_tries_only_teachers_of_numbers(updated, monkeypatch):
    """The candidates by default; nothing is learnt here."""
    from potstill.cli.tune import _usual
    from potstill.teachers import from_config

    names = _usual(Workspace(updated[0]))
    assert "continuous-linear-ts" in names
    assert "uniform" not in names
    for name in names:
        assert from_config({"type": name}).supports(Workspace(updated[0]).problem.actions) is None


def test_a_fixed_number_is_evaluated_on_the_lake(updated):
    found = json.loads(done("evaluate", updated[0], "--policy", "action:8", "--json"))
    assert found["target"]["bandwidth"] is not None
    assert "got 'x'" in refused("evaluate", updated[0], "--policy", "action:x")
    assert "price must be a number from 2 to 14, got 99" in refused("evaluate", updated[0], "--policy", "action:99")


def test_exports_and_audit(updated, tmp_path):
    place, _ = updated
    for kind in ("c", "js", "onnx"):
        assert "pricing" in done("export", place, "--to", kind, "--out", tmp_path / kind)
    assert "all propensities and actions match" in done("audit", place)
    assert np.isfinite(Workspace(place).serving().decide({"demand": 0.5}).propensity)
