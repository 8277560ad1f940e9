"""Requests with `eligible`: how far students are from Thompson sampling on the eligible actions, by size of the mask.

    python benchmarks/masked.py                                     # renormalising and masks as inputs: some minutes
    python benchmarks/masked.py --students moments --teachers linear-ts    # an hour on two cores

Three students of one posterior, which Thompson sampling collected in five batches of 500:

- ``renormalise``: a student of P(best of all); its probabilities are renormalised over the eligible actions.
- ``masked``: `Student.masks()`, whose network also takes which actions are not eligible.
- ``moments``: a network of the same layers with a location and a scale for each action. The probability of being best
  is worked out at decision time, by a quadrature of 24 nodes over the eligible actions. It is trained through that
  quadrature on the labels of 4 masks per context. It is not built into the runtimes: its head is timed alone, in C.

Prints mean and largest total variation from exact masked labels on contexts that were not trained on: with all actions,
with the upper half of the list, and with random sets of a half, a quarter and two of the actions; the seconds of
labels and imitation; microseconds of a decision from a dict with half of the actions eligible; bytes of the policy.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from potstill.distill import Student, default_student, imitate
from potstill.distill.masked import labelled, learning_of
from potstill.distill.synthetic import synthetic
from potstill.keys import Key
from potstill.lab.problems import ClassificationProblem, VideoUpload, tables
from potstill.lab.problems.environment import Simulation
from potstill.lab.problems.warfarin import warfarin
from potstill.policy import Policy, outputs
from potstill.spaces import masks_of_size
from potstill.teachers import TEACHERS

BATCHES, SIZE, CONTEXTS, MEASURED = 5, 500, 4_000, 500
NODES, MASKS = 24, 4
#: Ends of the quadrature in scales: below and above, an action's distribution function is 0 and 1 to 1e-6.
LOW, HIGH = -5.0, 4.5
KEY = Key(7)


def letter() -> Any:
    return ClassificationProblem.from_csv(tables() / "letter.csv", label="letter")


PROBLEMS: dict[str, Callable[[], Any]] = {"warfarin-20": lambda: warfarin(20), "video": VideoUpload, "letter": letter}


class Posterior(NamedTuple):
    """A teacher after its own decisions; contexts to imitate on, and others to measure on."""

    problem: Any
    teacher: Any
    state: Any
    contexts: Any
    measured: Any
    examples: list[dict[str, Any]]

    @classmethod
    def collected(cls, name: str, teacher: Any) -> Posterior:
        """The posterior after the teacher's own decisions."""
        environment = PROBLEMS[name]()
        problem, state = environment.problem, teacher.init(environment.problem)
        world = Simulation(environment, BATCHES * SIZE, KEY.child("world"))
        for batch in range(BATCHES):
            key = KEY.child("batch", batch)

            def choose(contexts: Any, state: Any = state, key: Key = key) -> Any:
                taken = teacher.sample_actions(state, contexts, 1, key)[:, 0]
                return taken, np.full(len(contexts), 0.5, np.float32)

            state = teacher.update(state, world.batch(SIZE, choose).observations, key)
        rng = KEY.child("contexts").generator()
        encoded = environment.encode(environment.contexts(CONTEXTS + MEASURED, rng))
        distinct = rng.permutation(np.unique(encoded, axis=0))
        examples = [{feature.name: feature.example for feature in problem.context}]
        return cls(problem, teacher, state, distinct[MEASURED:], distinct[:MEASURED], examples)

    def exact(self, eligible: Any) -> Any:
        """The teacher's labels of the measured contexts under masks."""
        return self.teacher.propensities(self.state, self.measured, KEY.child("exact"), eligible)


class Made(NamedTuple):
    """Probabilities under masks, and what they cost."""

    probabilities: Callable[[Any], Any]
    seconds: float
    microseconds: float
    bytes: int


def student_of(posterior: Posterior, options: dict[str, Any], *, masked: bool) -> Any:
    if masked:
        return Student.masks(posterior.teacher, **options)
    return msgspec.structs.replace(default_student(posterior.teacher), **options)


def network(posterior: Posterior, options: dict[str, Any], *, masked: bool) -> Made:
    student = student_of(posterior, options, masked=masked)
    began = time.perf_counter()
    learning = learning_of(student, posterior.problem.actions)
    more = synthetic(posterior.problem, posterior.contexts, student, KEY)
    rows = labelled(learning, posterior.teacher, posterior.state, posterior.contexts, more, KEY)
    given = {"learning": learning, "synthetic": rows.synthetic, "repeats": rows.repeats}
    found = imitate(rows.contexts, rows.labels, student, KEY, **given)
    took = time.perf_counter() - began
    policy = Policy.build(posterior.problem, found.layers, version=1, masked=masked)
    answers = lambda eligible: policy.probabilities_many(posterior.measured, eligible=eligible)  # noqa: E731
    return Made(answers, took, microseconds(policy, posterior.examples[0]), len(policy.to_bytes()))


def microseconds(policy: Policy, context: dict[str, Any]) -> float:
    """The median of a decision from a dict with half of the actions eligible."""
    names = policy.problem.actions.names
    eligible, taken = list(names[: len(names) // 2]), []
    for i in range(5_000):
        identity, before = f"request-{i}", time.perf_counter_ns()
        policy.decide(context, id=identity, eligible=eligible)
        taken.append(time.perf_counter_ns() - before)
    return float(np.median(taken)) / 1000


def quadrature(moments: Any, eligible: Any) -> Any:
    """P(best of the eligible actions), [N, K], for locations and log scales [N, 2K].

    Distribution functions are normal to 1.4e-4: F = 1/(1 + e^-w) with w a cubic (Bowling et al., 2009). Each panel adds
    the rise of G = ∏ F_b, shared by the rises of log F_a: no mass is missed however narrow an action is.
    """
    k = eligible.shape[1]
    at, scale = moments[:, :k], jnp.exp(moments[:, k:])
    low = jnp.max(jnp.where(eligible, at + LOW * scale, -1e30), axis=1)
    high = jnp.max(jnp.where(eligible, at + HIGH * scale, -1e30), axis=1)
    x = low[:, None] + (high - low)[:, None] * jnp.linspace(0, 1, NODES)
    z = jnp.where(eligible[:, None], (x[:, :, None] - at[:, None]) / scale[:, None], 0.0)
    z = jnp.clip(z, -8.0, None)
    minus_log = jnp.where(eligible[:, None], jax.nn.softplus(-(1.5976 * z + 0.07056 * z**3)), 0.0)
    minus_log = jnp.concatenate([minus_log, jnp.zeros_like(minus_log[:, :1])], axis=1)
    total = minus_log.sum(axis=2)
    rise, fall = jnp.diff(jnp.exp(-total), axis=1), jnp.maximum(-jnp.diff(total, axis=1), 1e-30)
    p = ((rise / fall)[:, :, None] * -jnp.diff(minus_log, axis=1)).sum(axis=1)
    return p / jnp.maximum(p.sum(axis=1, keepdims=True), 1e-30)


class Moments(msgspec.Struct, frozen=True):
    """Imitation by moments: labels are those of some masks side by side, -1 where an action is not eligible."""

    actions: int

    @property
    def outputs(self) -> int:
        """A location and a scale for each action."""
        return 2 * self.actions

    def check(self, labels: Any) -> tuple[Any, str]:
        """Nothing is refused."""
        return np.zeros(len(labels), bool), ""

    def loss(self, found: Any, labels: Any) -> Any:
        """The cross-entropy, the mean over masks."""

        def of_mask(label: Any) -> Any:
            p = quadrature(found, label >= 0)
            return -(jnp.maximum(label, 0) * jnp.log(jnp.maximum(p, 1e-7))).sum(axis=1)

        masks = labels.reshape(len(labels), -1, self.actions).transpose(1, 0, 2)
        return jax.lax.map(jax.checkpoint(of_mask), masks).mean(axis=0)

    def start(self, labels: Any) -> Any:
        """The scores of the mean label, and equal scales."""
        mean = np.maximum(labels[:, : self.actions].mean(axis=0), 1e-4)
        return np.concatenate([np.log(mean), np.zeros(self.actions)]).astype(np.float32)

    def divergence(self, found: Any, labels: Any) -> Any:
        """The cross-entropy: what early stopping and warm starts go by."""
        return np.asarray(self.loss(jnp.asarray(found, jnp.float32), jnp.asarray(labels)), np.float64)


def moments(posterior: Posterior, options: dict[str, Any]) -> Made:
    student, actions = student_of(posterior, options, masked=False), len(posterior.problem.actions)
    began = time.perf_counter()
    more = synthetic(posterior.problem, posterior.contexts, student, KEY)
    together = np.concatenate([posterior.contexts, more])
    labels = []
    for number in range(MASKS):
        key = KEY.child("mask", number)
        sizes = np.where(number, key.generator().integers(2, actions, size=len(together)), actions)
        order = key.child("order").generator().random((len(together), actions)).argsort(axis=1).argsort(axis=1)
        eligible = order < sizes[:, None]
        p = posterior.teacher.propensities(posterior.state, together, key, eligible)
        labels.append(np.where(eligible, p, np.float32(-1)))
    learning: Any = Moments(actions)
    stacked = np.concatenate(labels, axis=1)
    found = imitate(posterior.contexts, stacked, student, KEY, learning=learning, synthetic=more)
    took = time.perf_counter() - began
    given = jnp.asarray(outputs(found.layers, student.activation, posterior.measured), jnp.float32)
    size = sum(array.nbytes for layer in found.layers for array in layer)
    one = Policy.build(posterior.problem, [*found.layers[:-1], half(found.layers[-1])], version=1)
    head = head_microseconds(np.asarray(given[0]), actions)
    return Made(
        lambda mask: np.asarray(quadrature(given, mask)), took, microseconds(one, posterior.examples[0]) + head, size
    )


def half(layer: Any) -> Any:
    return type(layer)(*(array[..., : array.shape[-1] // 2] for array in layer))


_HEAD = r"""
#include <math.h>
#include <stdint.h>
void head(const float *moments, const uint8_t *eligible, int k, int nodes, float low, float high, float *p, float *last)
{
    float from = -1e30f, to = -1e30f, before = 0.0f, sum = 0.0f;
    for (int a = 0; a < k; a++) {
        p[a] = last[a] = 0.0f;
        if (!eligible[a]) continue;
        const float s = expf(moments[k + a]);
        from = fmaxf(from, moments[a] + low * s);
        to = fmaxf(to, moments[a] + high * s);
    }
    for (int j = 0; j <= nodes; j++) {
        float now[4096], total = 0.0f, x = from + (to - from) * (float)j / (float)(nodes - 1);
        for (int a = 0; a < k; a++) {
            now[a] = 0.0f;
            if (j < nodes && eligible[a]) {
                const float z = fmaxf((x - moments[a]) / expf(moments[k + a]), -8.0f);
                now[a] = log1pf(expf(-(1.5976f * z + 0.07056f * z * z * z)));
            }
            total += now[a];
        }
        if (j) {
            const float share = (expf(-total) - expf(-before)) / fmaxf(before - total, 1e-30f);
            for (int a = 0; a < k; a++) p[a] += share * (last[a] - now[a]);
        }
        for (int a = 0; a < k; a++) last[a] = now[a];
        before = total;
    }
    for (int a = 0; a < k; a++) sum += p[a];
    for (int a = 0; a < k; a++) p[a] /= sum;
}
double seconds(const float *m, const uint8_t *e, int k, int nodes, float low, float high, float *p, float *last, int n);
#include <time.h>
double seconds(const float *m, const uint8_t *e, int k, int nodes, float low, float high, float *p, float *last, int n)
{
    struct timespec a, b;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
    for (int i = 0; i < n; i++) head(m, e, k, nodes, low, high, p, last);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
    return (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
}
"""


def head_microseconds(given: Any, actions: int) -> float:
    """Processor time of the quadrature in C with libm, with half of the actions eligible."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "head.c", Path(folder) / "head.so"
        source.write_text(_HEAD)
        subprocess.run(
            ["cc", "-O3", "-march=native", "-ffast-math", "-fPIC", "-shared", source, "-lm", "-o", library], check=True
        )
        timed = ctypes.CDLL(str(library)).seconds
        timed.restype = ctypes.c_double
        eligible = (np.arange(actions) < actions // 2).astype(np.uint8)
        arrays = [np.ascontiguousarray(given, np.float32), eligible]
        made = [np.zeros(actions, np.float32) for _ in range(2)]
        numbers = ctypes.c_int(actions), ctypes.c_int(NODES), ctypes.c_float(LOW), ctypes.c_float(HIGH)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in [*arrays, *made]]
        rounds = 20_000
        return 1e6 * timed(*pointers[:2], *numbers, *pointers[2:], ctypes.c_int(rounds)) / rounds


STUDENTS: dict[str, Callable[[Posterior, dict[str, Any]], Made]] = {
    "renormalise": partial(network, masked=False),
    "masked": partial(network, masked=True),
    "moments": moments,
}


def masks(actions: int) -> dict[str, Any]:
    shape = MEASURED, actions
    upper = np.broadcast_to(np.arange(actions) >= actions // 2, shape)
    sizes = {"half": actions // 2, "quarter": max(actions // 4, 2), "two": 2}
    drawn = {name: masks_of_size(*shape, size, KEY.child("masks", size)) for name, size in sizes.items()}
    return {"all": np.ones(shape, bool), "upper": upper, **drawn}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="*", default=list(PROBLEMS), choices=list(PROBLEMS))
    parser.add_argument("--teachers", nargs="*", default=["linear-ts", "neural-linear-ts", "auto-ts"])
    parser.add_argument("--students", nargs="*", default=["renormalise", "masked"], choices=list(STUDENTS))
    parser.add_argument("--options", type=json.loads, default={}, help="of all students, such as '{\"steps\": 4000}'")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if not options.json:
        print("| problem | teacher | student | all | upper half | half | quarter | two | s | µs | bytes |")
        print("|---|---|---|---|---|---|---|---|---|---|---|")
    for problem in options.problems:
        for teacher in options.teachers:
            posterior = Posterior.collected(problem, TEACHERS[teacher]())
            wanted = {
                name: (mask, posterior.exact(mask)) for name, mask in masks(len(posterior.problem.actions)).items()
            }
            for name in options.students:
                made = STUDENTS[name](posterior, options.options)
                tv = {part: np.abs(made.probabilities(mask) - p).sum(axis=1) / 2 for part, (mask, p) in wanted.items()}
                row = {"problem": problem, "teacher": teacher, "student": name}
                row |= {part: [round(float(one.mean()), 4), round(float(one.max()), 2)] for part, one in tv.items()}
                row |= {"seconds": made.seconds, "microseconds": made.microseconds, "bytes": made.bytes}
                print(json.dumps(row) if options.json else shown(row), flush=True)


def shown(row: dict[str, Any]) -> str:
    parts = [f"{row[part][0]:.4f} ({row[part][1]:.2f})" for part in ("all", "upper", "half", "quarter", "two")]
    cost = [f"{row['seconds']:.1f}", f"{row['microseconds']:.2f}", f"{row['bytes']:,}"]
    return "| " + " | ".join([row["problem"], row["teacher"], row["student"], *parts, *cost]) + " |"


if __name__ == "__main__":
    main()
