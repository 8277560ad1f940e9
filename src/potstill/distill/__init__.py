"""From a teacher's labels to a student network, and how faithful it is; the still runs both, batch by batch."""

from potstill.distill.choice import ChoiceReport, StudentChoice, TriedStudent
from potstill.distill.fidelity import MEASURES, Fidelity, fidelity
from potstill.distill.imitate import Imitation, imitate
from potstill.distill.prior import declared_contexts, prior_policy
from potstill.distill.reservoir import Part
from potstill.distill.shard_order import Labels
from potstill.distill.still import Report, Still
from potstill.distill.streamed import OnProgress, UnlabelledContexts
from potstill.distill.student import AutoStudent, Student, default_student, student_from_config
from potstill.distill.synthetic import children, synthetic

__all__ = [
    "MEASURES",
    "AutoStudent",
    "ChoiceReport",
    "Fidelity",
    "Imitation",
    "Labels",
    "OnProgress",
    "Part",
    "Report",
    "Still",
    "Student",
    "StudentChoice",
    "TriedStudent",
    "UnlabelledContexts",
    "children",
    "declared_contexts",
    "default_student",
    "fidelity",
    "imitate",
    "prior_policy",
    "student_from_config",
    "synthetic",
]
