"""What a view is: a name, a title and a function from a call to the inside of a page."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from potstill.problem import Problem
from potstill.service.dashboard.html import Html
from potstill.service.http import read_query
from potstill.service.problem_service import ProblemService

Q = TypeVar("Q")


@dataclass(frozen=True)
class Call:
    """A request for a view, by a caller with the scope `read`.

    Attributes:
        service: The problem.
        query: What the address says after ``?``; see `asked`.
        admin: Whether the caller may change something: it has the scope `admin`, or the problem is open.
    """

    service: ProblemService
    query: bytes
    admin: bool

    @property
    def problem(self) -> Problem:
        """The problem that is decided."""
        return self.service.workspace.problem

    def asked(self, kind: type[Q]) -> Q:
        """The query, as the JSON endpoint of the same name takes it; `Refusal` if it does not fit."""
        return read_query(kind, self.query)


class View(NamedTuple):
    """A page of a problem.

    Attributes:
        name: Its name in addresses, ``/p/PROBLEM/NAME``.
        title: Its name in the navigation.
        render: Gives the inside of the page. What it reads from files it reads by `status.in_thread`.
        deferred: Whether it takes longer than a first paint may: the page comes first then, and asks for the view.
        refresh: Seconds after which the page reads it again while it is looked at; 0 for never.
        module: Name of a script under ``static/`` that the view needs; None for none.
    """

    name: str
    title: str
    render: Callable[[Call], Awaitable[Html]]
    deferred: bool = False
    refresh: int = 0
    module: str | None = None
