"""Measurements of a report on this machine: latency and complexity, in a single-threaded process."""

from __future__ import annotations

import multiprocessing
import platform
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from potstill._version import __version__
from potstill.files import SHARED, write_atomically
from potstill.lab.measure.complexity import Growth
from potstill.lab.measure.latency import Latency
from potstill.lab.measure.same_language import Language, SameLanguage, languages
from potstill.parallel import ONE_THREAD, environment

#: Calls of one decision at each size of a complexity sweep, at most.
_COMPLEXITY_CALLS = 3_000

Notify = Callable[[str], None]


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine of a measurement."""

    processor: str
    python: str
    system: str

    @classmethod
    def this(cls) -> Machine:
        """This machine."""
        return cls(processor=_processor(), python=platform.python_version(), system=platform.system())


class Measurements(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements and their settings.

    Attributes:
        library: Potstill's version.
        machine: The machine.
        calls: Number of timed calls of each algorithm; slow ones have fewer.
        problems: Problems on which latency was measured.
        algorithms: Algorithms whose latency was measured.
        latency: Latencies, in that order.
        complexity: One entry for each method and dimension.
        languages: Languages in which Thompson sampling and distilled policies were timed alike.
        same_language: Latencies in these languages.
    """

    library: str
    machine: Machine
    calls: int
    problems: list[str]
    algorithms: list[str]
    latency: list[Latency]
    complexity: list[Growth]
    languages: list[Language] = []
    same_language: list[SameLanguage] = []


def take_measurements(
    kept: Path, problems: Sequence[str], algorithms: Sequence[str], calls: int, *, again: bool, say: Notify
) -> Measurements:
    """Measure, or read the file of an earlier measurement with the same settings on this machine.

    Args:
        kept: File of the measurements.
        problems: Problems to measure latency on.
        algorithms: Algorithms to measure latency of.
        calls: Number of timed calls of each.
        again: Measure even if the file exists.
        say: Called with the name of the next measurement.
    """
    wanted = Measurements(
        library=__version__,
        machine=Machine.this(),
        calls=calls,
        problems=list(problems),
        algorithms=list(algorithms),
        latency=[],
        complexity=[],
        languages=languages(),
    )
    found = None if again else _read(kept)
    if found and msgspec.structs.replace(found, latency=[], complexity=[], same_language=[]) == wanted:
        return found
    measured = _measured(wanted, say)
    write_atomically(kept, msgspec.json.format(msgspec.json.encode(measured), indent=1), SHARED)
    return measured


def _read(kept: Path) -> Measurements | None:
    try:
        return msgspec.json.decode(kept.read_bytes(), type=Measurements)
    except (OSError, msgspec.MsgspecError):
        return None


def _measured(wanted: Measurements, say: Notify) -> Measurements:
    spawning = multiprocessing.get_context("spawn")
    here, there = spawning.Pipe(duplex=False)
    process = spawning.Process(target=_in_process, args=(wanted, there), daemon=True)
    with environment(ONE_THREAD):
        process.start()
    there.close()
    try:
        while not isinstance(message := here.recv(), Measurements):
            say(message)
        return message
    except EOFError:
        raise RuntimeError("the measuring process ended early; its output is above") from None
    finally:
        process.kill()


def _in_process(wanted: Measurements, there: Connection) -> None:
    from potstill.lab.measure import complexity, latency, same_language

    timed = latency.measure(wanted.problems, wanted.algorithms, wanted.calls, on_progress=there.send)
    alike = same_language.measure(
        wanted.problems, wanted.algorithms, wanted.calls, wanted.languages, on_progress=there.send
    )
    grown = complexity.measure(min(wanted.calls, _COMPLEXITY_CALLS), on_progress=there.send)
    there.send(msgspec.structs.replace(wanted, latency=timed, complexity=grown, same_language=alike))


def _processor() -> str:
    """Name of the processor, if the system provides it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
