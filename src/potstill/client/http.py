"""HTTP by httpx, which is imported when the first client is created."""

from __future__ import annotations

import asyncio
import re
import time
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from potstill.client.sansio import NoReply, Outcome, Reply, Send
from potstill.errors import PotstillError

if TYPE_CHECKING:
    import httpx

#: The most connections; further calls wait for one. More make httpx slower, which scans all of them for each call: 500
#: concurrent calls take 1.5 s with 10 connections and 6 s with 100.
CONNECTIONS = 10
#: The largest reply that is read. A policy with 100,000 actions and 100 hidden units has 40 MB.
MAX_REPLY = 64 * 1024 * 1024


def problem_of(url: str) -> str:
    """The name of the problem in an address such as ``https://host/v1/video-upload``; ValueError for any other."""
    parts = urlsplit(url)
    before, _, name = parts.path.rstrip("/").rpartition("/")
    if parts.scheme not in ("http", "https") or not parts.hostname or not before.endswith("/v1") or not name:
        raise ValueError(f"url must be a problem's address such as http://127.0.0.1:8080/v1/video-upload, got {url!r}")
    if parts.username or parts.password or parts.query:
        raise ValueError("url must not carry a user, a password or a query; a token goes to `token`")
    return unquote(name)


class Http:
    """A pool of connections to the endpoints of one problem."""

    def __init__(self, url: str, token: str | None) -> None:
        self._base = _base(url)
        self._client = _httpx().Client(**_settings(url, token))

    def send(self, step: Send) -> Outcome:
        """Send one request; a connection error is an outcome, not an exception.

        httpx limits each wait for more bytes; the total time is limited here.
        """
        deadline = time.monotonic() + step.seconds
        try:
            with self._client.stream(*_line(self._base, step), **_rest(step), timeout=step.seconds) as response:
                body = _Body(response)
                for chunk in response.iter_raw():
                    body.add(chunk)
                    if time.monotonic() > deadline:
                        return _too_slow(step)
                return body.reply()
        except _Unacceptable as error:
            return NoReply(str(error))
        except _httpx().TimeoutException:
            return _too_slow(step)
        except _httpx().RequestError as error:
            return _broken(error)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


class AsyncHttp:
    """The same for an event loop."""

    def __init__(self, url: str, token: str | None) -> None:
        self._base = _base(url)
        self._client = _httpx().AsyncClient(**_settings(url, token))
        # httpx scans its waiters whenever one is added or removed: let hundreds wait here instead.
        self._free = asyncio.Semaphore(CONNECTIONS)

    async def send(self, step: Send) -> Outcome:
        """Send one request; a connection error is an outcome, not an exception."""
        try:
            async with (
                asyncio.timeout(step.seconds),
                self._free,
                self._client.stream(*_line(self._base, step), **_rest(step), timeout=None) as response,
            ):
                body = _Body(response)
                async for chunk in response.aiter_raw():
                    body.add(chunk)
            return body.reply()
        except _Unacceptable as error:
            return NoReply(str(error))
        except TimeoutError:
            return _too_slow(step)
        except _httpx().RequestError as error:
            return _broken(error)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


class _Unacceptable(PotstillError):
    """A reply that is not read to its end."""


class _Body:
    """The body of a reply, within `MAX_REPLY`. Compressed replies, which can unpack to any size, are not accepted."""

    def __init__(self, response: httpx.Response) -> None:
        self._response, self._data = response, bytearray()
        if (coding := response.headers.get("content-encoding", "identity")) != "identity":
            raise _Unacceptable(f"the reply is compressed ({coding}), which this client does not accept")

    def add(self, chunk: bytes) -> None:
        self._data += chunk
        if len(self._data) > MAX_REPLY:
            raise _Unacceptable(f"the reply is larger than {MAX_REPLY // 1024**2} MiB")

    def reply(self) -> Reply:
        return Reply(self._response.status_code, dict(self._response.headers), bytes(self._data))


def _httpx() -> ModuleType:
    try:
        import httpx
    except ModuleNotFoundError as error:
        raise ImportError(f"a client of the service needs {error.name!r}: pip install 'potstill[client]'") from error
    return httpx


def _base(url: str) -> str:
    problem_of(url)
    return url.rstrip("/")


def _settings(url: str, token: str | None) -> dict[str, Any]:
    if token is not None and not re.fullmatch(r"[!-~]+", token):  # not shown: it is a secret
        raise ValueError("token must be printable ASCII without spaces; was it read together with the end of its line?")
    authorization = {} if token is None else {"authorization": f"Bearer {token}"}
    return {
        "headers": {"accept-encoding": "identity", **authorization},
        # Certificates are verified over https; loading the trusted ones is slow, so http skips it.
        "verify": urlsplit(url).scheme == "https",
        "limits": _httpx().Limits(max_connections=CONNECTIONS),
    }


def _line(base: str, step: Send) -> tuple[str, str]:
    return step.request.method, f"{base}/{step.request.path}"


def _rest(step: Send) -> dict[str, Any]:
    return {"content": step.request.body, "headers": dict(step.request.headers)}


def _too_slow(step: Send) -> NoReply:
    return NoReply(f"no complete reply in {step.seconds:.3g} s")


def _broken(error: Exception) -> NoReply:
    return NoReply(f"{type(error).__name__}: {error}".removesuffix(": "))
