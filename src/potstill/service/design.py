"""The initial design in the service: points are handed to their units, once each on a machine."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from potstill.files import make_folder
from potstill.service.decide import Batch
from potstill.spaces import ActionSpace
from potstill.storage import child
from potstill.workspace import DESIGN, InitialDesign, InvalidDesign, Workspace, decode_design

_logger = logging.getLogger(__name__)


class Claims:
    """Which points of a design were handed out: one byte each, in a file that the workers of a machine share.

    Machines do not see each other's claims: a unit that asks two of them may get its point twice.
    """

    def __init__(self, path: Path, count: int) -> None:
        make_folder(path.parent)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.truncate(path, max(os.fstat(self._descriptor).st_size, count))

    def take(self, number: int) -> bool:
        """Whether a point is free; it is taken then."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        try:
            if os.pread(self._descriptor, 1, number) == b"1":
                return False
            os.pwrite(self._descriptor, b"1", number)
            return True
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def __del__(self) -> None:
        # Not before: a request that is being decided may still use the descriptor, whose number another file would get.
        with contextlib.suppress(AttributeError, OSError):
            os.close(self._descriptor)


class ServedDesign:
    """A design that is being carried out.

    Args:
        design: The design, of the problem that is decided.
        space: The action space.
        claims: Points that were handed out.
    """

    def __init__(self, design: InitialDesign, space: ActionSpace, claims: Claims) -> None:
        self.design, self._space, self._claims = design, space, claims
        self._points: dict[str, deque[tuple[int, Any]]] = {}
        for number, point in enumerate(design.points):
            if point.unit is not None:
                self._points.setdefault(point.unit, deque()).append((number, space.parse(point.action)))

    def hand_out(self, batch: Batch) -> dict[int, Any]:
        """The actions of requests whose units have a point left, by the place of the request; the points are taken.

        A point whose action a request does not allow waits for the unit's next request.
        """
        asked = [place for place, request in enumerate(batch.requests) if request.unit in self._points]
        allowed = {place: self._space.restrict(one) for place in asked if (one := batch.requests[place].eligible)}
        found: dict[int, Any] = {}
        for place in asked:
            unit, restriction = batch.requests[place].unit or "", allowed.get(place)
            points = self._points[unit]
            while points and place not in found and (restriction is None or restriction.permits(points[0][1])):
                number, action = points.popleft()
                if self._take(number):
                    found[place] = action
            if not points:
                self._points.pop(unit, None)
        return found

    def _take(self, number: int) -> bool:
        with contextlib.suppress(OSError):  # no room on the disk: the policy decides
            return self._claims.take(number)
        return False


class DesignWatcher:
    """The current design of a workspace, and its replacement when its file changes.

    Args:
        workspace: The workspace.
        on_reload: Called with ``swapped`` or ``refused`` when a reload finds a change.
    """

    def __init__(self, workspace: Workspace, on_reload: Callable[[str], None] = lambda _: None) -> None:
        self.current: ServedDesign | None = None
        self.notice: str | None = None
        self._workspace, self._on_reload = workspace, on_reload
        self._read: bytes | None = None

    def reload(self) -> None:
        """Load what has changed. A file that is not a design of the problem is refused, and nothing is handed out."""
        try:
            data = self._workspace.storage.read(DESIGN)
        except FileNotFoundError:
            data = None
        except OSError:  # the store is unavailable: keep what was read
            return
        if data == self._read:
            return
        self._read, self.notice = data, None
        try:
            self.current = None if data is None else self._served(data)
        except (InvalidDesign, OSError) as error:
            self.current, self.notice = None, str(error)
        _logger.info("%s: %s", self._workspace.problem.name, self.notice or self._change)
        self._on_reload("refused" if self.notice else "swapped")

    @property
    def _change(self) -> str:
        if self.current is None:
            return "the initial design has ended"
        return f"an initial design of {len(self.current.design.points):,} points is loaded"

    def _served(self, data: bytes) -> ServedDesign:
        workspace = self._workspace
        design = decode_design(data, child(workspace.url, DESIGN))
        design.check(workspace.problem)
        claims = Claims(workspace.spool / f"design-{design.id}.claims", len(design.points))
        return ServedDesign(design, workspace.problem.actions, claims)
