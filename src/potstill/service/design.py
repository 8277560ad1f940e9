"""The initial design in the service: points are handed to their units, once each on a machine."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from potstill.files import OPEN, PRIVATE, lock, make_folder, unlock
from potstill.service.decide import Batch
from potstill.spaces import ActionSpace, Restriction
from potstill.storage import child
from potstill.workspace import DESIGN, InitialDesign, InvalidDesign, Workspace, decode_design

_logger = logging.getLogger(__name__)


#: Bytes of a claim.
_BYTES = 8


class Claims:
    """Which decisions got the points of a design: a digest of the id each, in a file that a machine's workers share.

    Machines do not see each other's claims: a unit that asks two of them may get its point twice.
    """

    def __init__(self, path: Path, count: int) -> None:
        make_folder(path.parent)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | OPEN, PRIVATE)
        os.truncate(path, max(os.fstat(self._descriptor).st_size, count * _BYTES))

    def take(self, number: int, decision: str) -> bool:
        """Whether a point is free, and then taken, or was taken by this decision: a repeated request gets it again."""
        token, place = hashlib.blake2b(decision.encode(), digest_size=_BYTES).digest(), number * _BYTES
        lock(self._descriptor, wait=True)
        try:
            found = os.pread(self._descriptor, _BYTES, place)
            if any(found):
                return found == token
            os.pwrite(self._descriptor, token, place)
            return True
        finally:
            unlock(self._descriptor)

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
        eligible = {place: batch.requests[place].eligible for place in asked}
        allowed = {place: self._space.restrict(one) for place, one in eligible.items() if one is not None}
        found: dict[int, Any] = {}
        for place in asked:
            name = batch.ids[place] or secrets.token_hex(16)
            action = self._next(batch.requests[place].unit or "", name, allowed.get(place))
            if action is not None:
                found[place] = action
        return found

    def _next(self, unit: str, decision: str, allowed: Restriction | None) -> Any:
        """The action of a unit's next point, which is taken; None if it has none that is allowed."""
        points = self._points.get(unit, deque())
        while points and (allowed is None or allowed.permits(points[0][1])):
            number, action = points.popleft()
            if not points:
                del self._points[unit]
            with contextlib.suppress(OSError):  # no room on the disk: the policy decides
                if self._claims.take(number, decision):
                    return action
        return None


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
