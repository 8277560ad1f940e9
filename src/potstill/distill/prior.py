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
    labels = label(space, teacher, state, contexts, key.child("label"))
    found = imitate(contexts, labels, student, key.child("imitate"), learning=space)
    policy = Policy.build(
        problem,
        found.layers,
        version=0,
        seed=seed,
        floor=floor,
        activation=student.activation,
        mean=contexts.mean(axis=0, dtype=np.float64).astype(np.float32),
        lineage=Lineage(
            library=__version__,
            seed=seed,
            teacher=to_config(teacher),
            exactness=msgspec.to_builtins(teacher.exactness),
            student=msgspec.to_builtins(student),
            origin=dict(ORIGIN),
        ),
    )
    rows = found.held_out
    student_of, served = policy.distribution(contexts[rows], floor=0.0), policy.distribution(contexts[rows])
    measured = fidelity(space, labels[rows], student_of, None, served=served if floor else None)
    return policy.with_fidelity(msgspec.to_builtins(measured))


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
