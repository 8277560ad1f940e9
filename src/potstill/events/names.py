"""Names that every part of the way from the log to the tables can hold."""

from __future__ import annotations

from potstill.problem import InvalidProblem, Problem


def check_names(problem: Problem) -> None:
    """Refuse features that a Delta table would take for one another, since its columns have no upper and lower case."""
    seen: dict[str, str] = {}
    for feature in problem.context:
        other = seen.setdefault(feature.name.lower(), feature.name)
        if other != feature.name:
            raise InvalidProblem(
                f"features {other!r} and {feature.name!r} differ only in upper and lower case, "
                "and columns of a Delta table must not; rename one of them in the problem"
            )
