"""From a teacher's labels to a student network, and how faithful it is."""

from potstill.distill.fidelity import Fidelity, fidelity
from potstill.distill.imitate import Imitation, imitate
from potstill.distill.student import Student
from potstill.distill.synthetic import synthetic

__all__ = ["Fidelity", "Imitation", "Student", "fidelity", "imitate", "synthetic"]
