"""Queries that need tables or teachers, answered by a process that is started when the first one comes.

A worker stays small and its decisions stay fast: the process has a low priority, and ends when nothing was asked for a
while, or when the worker does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from typing import Any, TypeVar

import msgspec

from potstill.service.http import Refusal, overloaded, unavailable

Q = TypeVar("Q")
#: Named, not imported: what it loads must not be loaded here.
MODULE = "potstill.pipeline.queries"
#: Seconds for an answer, and seconds without a query after which the process ends.
PATIENCE, IDLE = 60.0, 300.0
#: The most bytes of an answer, and the most queries that wait.
MOST_BYTES, MOST_WAITING = 64 * 1024 * 1024, 8


class _Answer(msgspec.Struct):
    reply: msgspec.Raw = msgspec.Raw(b"null")
    status: int = 200
    error: str = ""


class Queries:
    """Asks a process about one workspace.

    Args:
        place: The workspace.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._process: asyncio.subprocess.Process | None = None
        self._turn, self._waiting = asyncio.Lock(), 0
        self._idle: asyncio.TimerHandle | None = None

    async def ask(self, name: str, kind: type[Q], **arguments: Any) -> Q:
        """The answer to a query; `Refusal` if there is none.

        Args:
            name: Name of the query.
            kind: Type of the answer.
            arguments: Its arguments.
        """
        if self._waiting >= MOST_WAITING:
            raise overloaded(f"{MOST_WAITING} queries wait already; retry")
        self._waiting += 1
        try:
            async with self._turn:
                answer = await self._answer(msgspec.json.encode({"name": name, "arguments": arguments}))
        finally:
            self._waiting -= 1
        if answer.status != 200:
            raise Refusal(answer.status, "query", answer.error)
        return msgspec.json.decode(answer.reply, type=kind)

    @property
    def busy(self) -> bool:
        """Whether a query waits for its answer."""
        return self._waiting > 0

    async def close(self) -> None:
        """End the process; a query that runs is refused, since a service stops within seconds."""
        await self._end()

    async def _answer(self, query: bytes) -> _Answer:
        if self._idle is not None:
            self._idle.cancel()
        try:
            line = await asyncio.wait_for(self._exchange(query), PATIENCE)
            return msgspec.json.decode(line, type=_Answer)
        except TimeoutError:
            await self._end()
            raise unavailable("query", f"there was no answer within {PATIENCE:.0f} seconds; ask for less") from None
        except (OSError, ValueError, asyncio.CancelledError) as error:
            await self._end()  # its next line would be the answer to this query
            if isinstance(error, asyncio.CancelledError):
                raise
            raise unavailable("query", "the process that reads the workspace ended; retry") from error
        finally:
            self._idle = asyncio.get_running_loop().call_later(IDLE, self._end_later)

    async def _exchange(self, query: bytes) -> bytes:
        process = self._process or await self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(query + b"\n")
        await process.stdin.drain()
        return await process.stdout.readline()

    async def _start(self) -> asyncio.subprocess.Process:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            MODULE,
            self._place,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=MOST_BYTES,
            start_new_session=True,  # Ctrl-C is for the service, which ends this process in its turn
            env={**os.environ, "TERM": "dumb", "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu")},
        )
        return self._process

    def _end_later(self) -> None:
        self._idle = None
        if self._process is not None and not self._turn.locked() and self._process.stdin is not None:
            self._process.stdin.close()  # it ends by itself
            self._process = None

    async def _end(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
