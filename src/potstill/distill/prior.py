"""The first policy: it imitates Thompson sampling from the prior, as Algorithm 1 of the paper begins.

A prior that treats all actions alike makes that policy uniform. Otherwise the teacher labels contexts that are drawn
from the declared features, since none was observed yet.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill._version import __version__
from potstill.distill.fidelity import fidelity
from potstill.distill.imitate import imitate
from potstill.distill.masked import labelled, learning_of
from potstill.distill.student import Student
from potstill.keys import Key
from potstill.policy import Lineage, Policy
from potstill.problem import Feature, Problem
from potstill.spaces import learning
from potstill.teachers import AnyTeacher, label, to_config

Float32 = NDArray[np.float32]

#: Contexts to imitate on, if the student does not want more.
_CONTEXTS = 4096
#: Share of contexts in which a feature that may be missing is missing.
_MISSING = 0.1
#: The lineage's origin of a policy that imitates a prior.
ORIGIN = {"prior": True}


def prior_policy(
    problem: Problem, teacher: AnyTeacher, state: Any, student: Student, *, seed: int, floor: float
) -> Policy:
    """Version 0 of a problem, distilled from the prior `state` of a teacher."""
    key, space = Key(seed).child("prior"), learning(problem.actions)
    contexts = declared_contexts(problem, max(student.contexts, _CONTEXTS), key.child("contexts"))
    training = learning_of(student, problem.actions)
    rows = labelled(training, teacher, state, contexts, contexts[:0], key.child("label"))
    imitation_key = key.child("imitate")
    found = imitate(rows.contexts, rows.labels, student, imitation_key, learning=training, repeats=rows.repeats)
    policy = Policy.build(
        problem,
        found.layers,
        version=0,
        seed=seed,
        floor=floor,
        activation=student.activation,
        masked=student.masked,
        mean=contexts.mean(axis=0, dtype=np.float64).astype(np.float32),
        lineage=Lineage(
            library=__version__,
            seed=seed,
            teacher=to_config(teacher),
            exactness=msgspec.to_builtins(teacher.exactness),
            student=_config(student),
            origin=dict(ORIGIN),
        ),
    )
    held_out = found.held_out[: len(found.held_out) // rows.repeats]
    labels = (
        label(space, teacher, state, contexts[held_out], key.child("label"))
        if student.masked
        else rows.labels[held_out]
    )
    student_of, served = policy.distribution(contexts[held_out], floor=0.0), policy.distribution(contexts[held_out])
    measured = fidelity(space, labels, student_of, None, served=served if floor else None)
    return policy.with_fidelity(msgspec.to_builtins(measured))


def _config(student: Student) -> dict[str, Any]:
    """All options, without `masked` where it is off: the first of these lineages lack it."""
    config: dict[str, Any] = msgspec.to_builtins(student)
    return config if student.masked else {name: value for name, value in config.items() if name != "masked"}


def declared_contexts(problem: Problem, count: int, key: Key) -> Float32:
    """Encoded contexts float32[count, d], drawn uniformly from the ranges and values of the declared features."""
    blocks = [_drawn(feature, count, key.child(feature.name)) for feature in problem.context]
    return np.concatenate([np.zeros((count, 0), np.float32), *blocks], axis=1)


def _drawn(feature: Feature, count: int, key: Key) -> Float32:
    rng = key.generator()
    block = feature.draw(rng, count)
    if feature.missing != "flag":
        return block
    missing = rng.random(count) < _MISSING
    block[missing] = 0.0
    return np.column_stack([block, missing.astype(np.float32)])
