"""The online half stays light: deciding imports no learning library."""

import subprocess
import sys

LEARNS = ("jax", "optax", "scipy", "altair", "numpyro", "polars", "pandas", "torch")

DECIDE = """
import sys
import potstill as ps
problem = ps.Problem(name="p", context=[ps.Boolean("b")], actions=ps.Discrete(["x", "y"]))
ps.Policy.from_bytes(ps.Policy.uniform(problem).to_bytes()).decide({"b": True})
import potstill.cli
print(*sorted(m for m in sys.modules if m.split(".")[0] in %r))
"""

WORKER = """
import sys
import potstill.service.process.worker
print(*sorted(m for m in sys.modules if m.split(".")[0] in (*%r, "deltalake")))
"""

BLOCKED = """
import sys
sys.modules.update({name: None for name in %r})
import potstill as ps
assert "Still" in dir(ps)
try:
    ps.Still
except ImportError as error:
    print(error)
"""

# Windows has no fcntl.
WITHOUT_LOCKS = """
import sys
sys.modules["fcntl"] = None
%r
import tempfile
from pathlib import Path
import potstill as ps
problem = ps.Problem(name="p", context=[ps.Boolean("b")], actions=ps.Discrete(["x", "y"]))
folder = Path(tempfile.mkdtemp())
ps.Policy.uniform(problem).save(folder / "first.policy")
print(ps.Policy.load(folder / "first.policy").decide({"b": True}, id="a").propensity)
try:
    ps.EventLog(folder / "log", problem)
except ps.PotstillError as error:
    print(error)
"""


def run(code):
    done = subprocess.run([sys.executable, "-c", code % (LEARNS,)], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_and_deciding_pulls_in_no_jax():
    assert run(DECIDE) == ""


def test_a_worker_of_the_service_brings_no_tables():
    """Polars and Delta Lake take 45 MB of each worker, and only the flusher needs them."""
    assert run(WORKER) == ""


def test_without_the_learn_extra_the_way_out_is_named():
    assert "pip install 'potstill[learn]'" in run(BLOCKED)


def test_without_file_locks_policies_decide_and_logs_say_where_they_run():
    decided, refused = run(WITHOUT_LOCKS).splitlines()
    assert decided == "0.5"
    assert refused.startswith("event logs, workspaces and edge clients need POSIX file locks")
