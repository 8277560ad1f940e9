"""The parent process of `potstill serve`: it owns the socket and supervises workers, a flusher and updaters."""

from __future__ import annotations

import ipaddress
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial

import msgspec

from potstill.errors import PotstillError
from potstill.problem import Problem, seconds
from potstill.registry import OtherProblem
from potstill.service import shared_ids
from potstill.service.counts import create_memory
from potstill.service.experiment import check_experiment
from potstill.service.process.supervisor import Child, Signals, stop, supervise
from potstill.service.process.worker import Spec
from potstill.service.tokens import InvalidToken, TokenFile, token_file
from potstill.spaces import FiniteSpace
from potstill.workspace import Config, NoFirstPolicy, Workspace, check_config

#: Seconds for workers to finish requests, and for the last flush, at shutdown.
DRAIN, LAST_FLUSH = 7.0, 2.5
BACKLOG = 2048
#: Bytes of problems and configurations in an argument of a worker; Linux allows 128 KiB for the whole argument.
ARGUMENT = 100_000
#: Niceness of updaters, and seconds before a failed one is restarted: each start costs seconds of a processor.
NICE, PAUSE = 10, 5.0

_Address = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[str, int]]


class CannotServe(PotstillError, ValueError):
    """The service cannot be started as asked; the message says why and what to do."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How to serve.

    Attributes:
        places: Workspaces: folders or addresses.
        host: Address to listen on.
        port: Port to listen on; 0 for any free one.
        workers: Number of processes that answer requests.
        update_every: Time between two updates, such as ``10m``; None for no updates.
        stage: Whether updates only stage their versions, for a person to promote.
        fresh: Whether to start from a uniform policy where the problem has changed so that no version fits.
        tokens: A file of tokens for all workspaces; None for one in each.
        cors: Origins of pages that may call.
        personalizer: Whether to answer the requests of Azure Personalizer.
    """

    places: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    update_every: str | None = None
    stage: bool = False
    fresh: bool = False
    tokens: str | None = None
    cors: tuple[str, ...] = ()
    personalizer: bool = False


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """A running service.

    Attributes:
        url: Its address.
        workspaces: Its workspaces.
        open: For each workspace, whether callers need no token.
        local: Whether only this machine can call.
    """

    url: str
    workspaces: tuple[Workspace, ...]
    open: tuple[bool, ...]
    local: bool


def run(settings: Settings, *, on_ready: Callable[[Service], None], warn: Callable[[str], None]) -> int:
    """Serve until SIGTERM or SIGINT; then finish requests, flush the log into the lake, and return.

    A second signal stops all processes at once; what was acknowledged is on disk.

    Args:
        settings: How to serve.
        on_ready: Called when requests are answered.
        warn: Called with a sentence that an operator should know.

    Returns:
        The exit code: 0, or 1 if workers could not be started or the shutdown was forced.

    Raises:
        CannotServe: It cannot be started like this.
        OtherProblem: No version fits the problem, which has changed.
    """
    workspaces, address = _workspaces(settings, warn), _address(settings.host, settings.port)
    if settings.personalizer:
        _check_personalizer(workspaces)
    opened = tuple(_is_open(token_file(workspace, settings.tokens), warn) for workspace in workspaces)
    local = ipaddress.ip_address(address[4][0]).is_loopback
    if not local:
        _refuse_open(settings, [place for place, is_open in zip(settings.places, opened, strict=True) if is_open])
    with ExitStack() as stack:
        signals = stack.enter_context(Signals().caught())
        listening = stack.enter_context(closing(_bound(address, settings)))
        counts, ids = create_memory(settings.workers), _shared_ids(settings, stack)
        stack.callback(os.close, counts)
        child = partial(Child, lifeline=_lifeline(stack))
        service = Service(url=_url(listening), workspaces=workspaces, open=opened, local=local)
        workers, updaters = _workers(settings, service, child, listening, counts, ids), _updaters(settings, child)
        flusher = child("the flusher", "potstill.service.process.flusher", settings.places)
        well = supervise(
            [*workers, flusher, *updaters],
            signals,
            on_ready=lambda: on_ready(service),
            on_death=lambda dead, how: warn(f"{dead.name} {how}; restarting it"),
        )
        if not well:
            warn("a worker cannot be started; its error is above")
        listening.close()  # refuse new connections rather than let them wait
        forced = stop([*workers, *updaters], signals, DRAIN)
        forced = stop([flusher], signals, 0.0 if forced else LAST_FLUSH) or forced
    return 0 if well and not forced else 1


def _workspaces(settings: Settings, warn: Callable[[str], None]) -> tuple[Workspace, ...]:
    workspaces = tuple(Workspace(place) for place in settings.places)
    by_name: dict[str, str] = {}
    for workspace in workspaces:
        name = workspace.problem.name
        if name in by_name:
            raise CannotServe(
                f"{by_name[name]} and {workspace.url} both have the problem name {name!r}, part of the address; "
                "serve one of them, or rename one in its problem.toml"
            )
        by_name[name] = workspace.url
        check_config(workspace)
        _start(workspace, warn, fresh=settings.fresh)
        check_experiment(workspace)
    return workspaces


def _check_personalizer(workspaces: Sequence[Workspace]) -> None:
    """Refuse workspaces that requests of Personalizer cannot be answered for."""
    if len(workspaces) != 1:
        raise CannotServe("requests of Personalizer name no problem: --personalizer serves one workspace")
    if not isinstance(workspaces[0].problem.actions, FiniteSpace):
        raise CannotServe("Personalizer ranks a list of actions, and the action of this problem is a number")


def _is_open(file: TokenFile, warn: Callable[[str], None]) -> bool:
    """Whether callers need no token; where that cannot be told, they do."""
    try:
        return file.read() is None
    except InvalidToken as error:
        warn(str(error))
        return False


def _start(workspace: Workspace, warn: Callable[[str], None], *, fresh: bool) -> None:
    """Publish what is to serve, or refuse a problem that no version fits. A pin that is released is said.

    Other faults, such as a damaged version or unavailable storage, do not keep a service from starting.
    """
    try:
        before = workspace.registry.head()
        workspace.start(fresh=fresh)
        head = workspace.registry.head()
        if before is not None and before.pinned is not None and head is not None and head.pinned is None:
            warn(f"{workspace.problem.name}: {head.note}")
    except OtherProblem:
        raise
    except NoFirstPolicy as error:
        _distil_first(workspace, error, warn)
    except (PotstillError, OSError):
        return


def _distil_first(workspace: Workspace, why: NoFirstPolicy, warn: Callable[[str], None]) -> None:
    """Run the first update in a process of its own: this one never imports what learns."""
    warn(f"{workspace.problem.name}: distilling the first policy from the teacher's prior")
    command = [sys.executable, "-m", "potstill.cli", "update", workspace.url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "TERM": "dumb"})
    if workspace.registry.head() is None:
        said = " ".join((done.stderr or done.stdout).split())
        raise CannotServe(f"{why}. The update failed: {said}")


def _refuse_open(settings: Settings, places: Sequence[str]) -> None:
    if places:
        where = "" if settings.tokens is None else f" --tokens {settings.tokens}"
        commands = "\n".join(f"  potstill token create {place} NAME{where}" for place in places)
        raise CannotServe(
            f"{settings.host} can be reached from other machines, so callers need tokens, and there are none yet. "
            f"Create one with\n{commands}\nor listen on 127.0.0.1"
        )


def _address(host: str, port: int) -> _Address:
    """The first address of a host, IPv4 if there is one."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, OverflowError) as error:
        raise CannotServe(f"cannot listen on {host} port {port}: {error}; name another with --host, --port") from error
    return min(found, key=lambda address: address[0] != socket.AF_INET)  # type: ignore[return-value]


def _bound(address: _Address, settings: Settings) -> socket.socket:
    listening = socket.socket(address[0], address[1])
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address[4])
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        where = f"{settings.host} port {settings.port}"
        raise CannotServe(f"cannot listen on {where}: {error.strerror}; name another with --host, --port") from error
    return listening


def _url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _lifeline(stack: ExitStack) -> int:
    """The read end of a pipe that only this process writes to: it ends when the process does."""
    theirs, ours = os.pipe()
    stack.callback(os.close, ours)
    stack.callback(os.close, theirs)
    return theirs


def _shared_ids(settings: Settings, stack: ExitStack) -> int | None:
    """Memory for the ids that several workers have decided."""
    if settings.workers == 1:
        return None
    ids = shared_ids.create_memory(settings.workers)
    stack.callback(os.close, ids)
    return ids


def _workers(
    settings: Settings,
    service: Service,
    child: Callable[..., Child],
    listening: socket.socket,
    counts: int,
    ids: int | None,
) -> list[Child]:
    problems, configs = _files(service)
    seed = shared_ids.hash_seed()
    specs = [
        Spec(
            places=settings.places,
            problems=problems,
            configs=configs,
            number=number,
            descriptor=listening.fileno(),
            workers=settings.workers,
            counts=counts,
            ids=ids,
            tokens=settings.tokens,
            closed=tuple(not (service.local and is_open) for is_open in service.open),
            cors=settings.cors,
            personalizer=settings.personalizer,
        )
        for number in range(settings.workers)
    ]
    return [
        child(
            f"worker {spec.number}",
            "potstill.service.process.worker",
            [msgspec.json.encode(spec).decode()],
            descriptors=[spec.descriptor, spec.counts, *([] if ids is None else [ids])],
            reports=True,
            variables=seed,
        )
        for spec in specs
    ]


def _files(service: Service) -> tuple[tuple[Problem, ...], tuple[Config, ...]]:
    """The problems and configurations of the start, for workers; nothing if they are too large for an argument."""
    problems = tuple(workspace.problem for workspace in service.workspaces)
    configs = tuple(workspace.config for workspace in service.workspaces)
    return (problems, configs) if len(msgspec.json.encode((problems, configs))) <= ARGUMENT else ((), ())


def _updaters(settings: Settings, child: Callable[..., Child]) -> list[Child]:
    every = settings.update_every
    if every is None:
        if settings.stage:
            raise CannotServe("--stage is about the versions of updates, and there are none: add --update-every")
        return []
    seconds(every, "--update-every")
    return [
        child(
            f"the updater of {place}",
            "potstill.cli",
            ["update", place, "--watch", "--every", every, *(["--stage"] if settings.stage else [])],
            nice=NICE,
            pause=PAUSE,
            variables={"TERM": "dumb"},  # no progress bars among the log lines
        )
        for place in settings.places
    ]
