"""The disks of simulated hosts: real files, of which it is known what a power cut would leave.

Calls of `os` on files below the root of a host are I/O points of the scheduler. File data is durable once the file was
synced, a directory entry once the directory was synced. Directory operations become durable in their order, and each
directory on its own: what POSIX promises, and no more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from simulation.scheduler import MILLISECOND, Process, Scheduler

#: Called with the kind of a disk call before its effect; may raise. Whether a write is to be short.
Fault = Callable[[str], bool]
Entries = dict[str, int]
_scandir, _open, _close = os.scandir, os.open, os.close


class Disks:
    """The disks of all hosts below one folder: the first part of a path is the host's name.

    Attributes:
        fault: Called before each call.
    """

    def __init__(self, scheduler: Scheduler, root: Path) -> None:
        self._scheduler, self._root = scheduler, f"{root}/"
        self.fault: Fault | None = None
        self._real = {name: getattr(os, name) for name in _WRAPPED}
        self._flock = fcntl.flock
        self._paths: dict[int, str] = {}  # of open descriptors
        self._synced: dict[int, bytes] = {}  # by inode
        self._entries: dict[str, Entries] = {}  # durable ones, by folder
        self._pending: dict[str, list[tuple[str, int | None, str, int | None]]] = {}  # changes since the last sync

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Simulate the disks within this context."""
        with contextlib.ExitStack() as stack:
            for name in _WRAPPED:
                stack.enter_context(mock.patch.object(os, name, getattr(self, f"_{name}")))
            stack.enter_context(mock.patch.object(fcntl, "flock", self._lock))
            yield

    def release(self, process: Process) -> None:
        """Close what a dead process had open, which releases its locks."""
        for descriptor in sorted(process.descriptors):
            self._paths.pop(descriptor, None)
            self._real["close"](descriptor)
        process.descriptors.clear()

    def cut_power(self, host: str) -> None:
        """Leave of a host's files what a power cut would; its processes must have been killed."""
        top = self._root + host
        contents = _contents(top)
        chosen: dict[str, Entries] = {}
        for folder in sorted(self._entries):
            if folder == top or folder.startswith(f"{top}/"):
                chosen[folder] = self._after_cut(folder)
        shutil.rmtree(top)
        for table in (self._entries, self._pending):
            for folder in [name for name in table if name == top or name.startswith(f"{top}/")]:
                del table[folder]
        self._rebuild(top, chosen, contents)

    def make_host(self, host: str) -> Path:
        """Create the folder of a host, durably."""
        self._real["mkdir"](self._root + host)
        self._entries[self._root + host] = {}
        return Path(self._root + host)

    def _after_cut(self, folder: str) -> Entries:
        """Entries after a prefix of the changes that were not synced."""
        pending = self._pending.get(folder, [])
        kept = pending[: self._scheduler.random.randint(0, len(pending))]
        entries = dict(self._entries[folder])
        for old, _, new, inode in kept:
            entries.pop(old, None)
            if inode is not None:
                entries[new] = inode
        return entries

    def _rebuild(self, folder: str, chosen: dict[str, Entries], contents: dict[int, bytes]) -> None:
        self._real["mkdir"](folder)
        made: Entries = {}
        for name, inode in sorted(chosen.get(folder, {}).items()):
            path = f"{folder}/{name}"
            if path in chosen:
                self._rebuild(path, chosen, contents)
            else:
                synced = self._synced.get(inode, b"")
                data = _torn(self._scheduler, synced, contents.get(inode, synced))
                Path(path).write_bytes(data)
                self._synced[_inode(path)] = data
            made[name] = _inode(path)
        self._entries[folder] = made

    # What follows takes the place of functions of `os`.

    def _open(self, path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        name = self._within(path)
        if name is None:
            return int(self._real["open"](path, flags, mode, **more))
        self._point(f"open {self._short(name)}")
        new = bool(flags & os.O_CREAT) and not os.path.lexists(name)
        descriptor = int(self._real["open"](name, flags, mode, **more))
        self._paths[descriptor] = name
        self._scheduler.process.descriptors.add(descriptor)
        if new:
            inode = os.fstat(descriptor).st_ino
            self._synced[inode] = b""
            self._change(name, None, name, inode)
        return descriptor

    def _write(self, descriptor: int, data: Any) -> int:
        if descriptor not in self._paths:
            return int(self._real["write"](descriptor, data))
        short = self._point(f"write {self._short(self._paths[descriptor])} {len(data)}")
        return int(self._real["write"](descriptor, data[: len(data) // 2 or 1] if short else data))

    def _fsync(self, descriptor: int) -> None:
        path = self._paths.get(descriptor)
        if path is None:
            self._real["fsync"](descriptor)
            return
        self._point(f"sync {self._short(path)}")
        about = os.fstat(descriptor)
        if stat.S_ISDIR(about.st_mode):
            self._entries[path] = _inodes(path)
            self._pending.pop(path, None)
        else:
            assert _inode(path) == about.st_ino, "a file that was renamed while it is open is not simulated"
            self._synced[about.st_ino] = _bytes(path, about.st_size)
        self._scheduler.answered()

    _fdatasync = _fsync

    def _ftruncate(self, descriptor: int, length: int) -> None:
        if descriptor in self._paths:
            self._point(f"truncate {self._short(self._paths[descriptor])} {length}")
        self._real["ftruncate"](descriptor, length)

    def _close(self, descriptor: int) -> None:
        if self._paths.pop(descriptor, None) is not None and (task := self._scheduler.task) is not None:
            task.process.descriptors.discard(descriptor)
        self._real["close"](descriptor)

    def _fdopen(self, descriptor: int, *more: Any, **options: Any) -> Any:
        """The file closes its descriptor by itself; until then it can still be synced by its number."""
        if descriptor not in self._paths:
            return self._real["fdopen"](descriptor, *more, **options)
        self._scheduler.process.descriptors.discard(descriptor)
        return _File(self._real["fdopen"](descriptor, *more, **options), self, self._paths[descriptor])

    def write_file(self, file: Any, data: bytes, path: str) -> None:
        """Write to a file object."""
        self._point(f"write {self._short(path)} {len(data)}")
        file.write(data)

    def _rename(self, source: Any, target: Any, **more: Any) -> None:
        self._move("rename", source, target)

    def _replace(self, source: Any, target: Any, **more: Any) -> None:
        self._move("replace", source, target)

    def _move(self, kind: str, source: Any, target: Any) -> None:
        old, new = self._within(source), self._within(target)
        if old is None or new is None:
            self._real[kind](source, target)
            return
        self._point(f"{kind} {self._short(old)} {self._short(new)}")
        assert os.path.dirname(old) == os.path.dirname(new), "renames between folders are not simulated"  # noqa: PTH120
        self._real[kind](old, new)
        self._change(old, None, new, _inode(new))
        self._scheduler.answered()

    def _link(self, source: Any, target: Any, **more: Any) -> None:
        old, new = self._within(source), self._within(target)
        if old is None or new is None:
            self._real["link"](source, target)
            return
        self._point(f"link {self._short(new)}")
        self._real["link"](old, new)
        self._change(new, None, new, _inode(new))
        self._scheduler.answered()

    def _unlink(self, path: Any, **more: Any) -> None:
        name = self._within(path)
        if name is None:
            self._real["unlink"](path, **more)
            return
        self._point(f"unlink {self._short(name)}")
        self._real["unlink"](name)
        self._change(name, None, name, None)

    def _mkdir(self, path: Any, mode: int = 0o777, **more: Any) -> None:
        name = self._within(path)
        if name is None:
            self._real["mkdir"](path, mode, **more)
            return
        self._point(f"mkdir {self._short(name)}")
        self._real["mkdir"](name, mode)
        self._entries[name] = {}
        self._change(name, None, name, _inode(name))

    def _rmdir(self, path: Any, **more: Any) -> None:
        name = self._within(path)
        if name is None:
            self._real["rmdir"](path, **more)
            return
        self._point(f"rmdir {self._short(name)}")
        self._real["rmdir"](name)
        self._change(name, None, name, None)

    def _scandir(self, path: Any = ".") -> Any:
        name = self._within(path)
        if name is not None:
            self._point(f"list {self._short(name)}")
        return self._real["scandir"](path)

    def _lock(self, descriptor: int, operation: int) -> None:
        """Wait for a lock in virtual time."""
        if self._scheduler.task is None or operation & fcntl.LOCK_NB:
            self._flock(descriptor, operation)
            return
        while True:
            try:
                self._flock(descriptor, operation | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                self._scheduler.sleep(200 * MILLISECOND)

    def _point(self, line: str) -> bool:
        """One call; whether a write is to be short."""
        short = self.fault is not None and self.fault(line.partition(" ")[0])
        self._scheduler.point(line)
        return short

    def _within(self, path: Any) -> str | None:
        """A path of a simulated host as text, if a task asks for it."""
        if self._scheduler.task is None or isinstance(path, int):
            return None
        name = os.fspath(path)
        return name if isinstance(name, str) and name.startswith(self._root) else None

    def _short(self, path: str) -> str:
        return path.removeprefix(self._root)

    def _change(self, old: str, before: int | None, new: str, inode: int | None) -> None:
        folder, _, name = new.rpartition("/")
        self._pending.setdefault(folder, []).append((old.rpartition("/")[2], before, name, inode))


class _File:
    """A file object whose writes are I/O points."""

    def __init__(self, file: Any, disks: Disks, path: str) -> None:
        self._file, self._disks, self._path = file, disks, path
        self.flush = file.flush

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, data: bytes) -> None:
        self._disks.write_file(self._file, data, self._path)


_WRAPPED = (
    "open", "write", "fsync", "fdatasync", "ftruncate", "close", "fdopen", "rename", "replace", "link", "unlink",
    "mkdir", "rmdir", "scandir",
)  # fmt: skip


def _inodes(folder: str) -> Entries:
    with _scandir(folder) as entries:
        return {entry.name: entry.inode() for entry in entries}


def _inode(path: str) -> int:
    return os.stat(path).st_ino  # noqa: PTH116 - called often, and `Path` costs more than the call


def _bytes(path: str, size: int) -> bytes:
    descriptor = _open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, size)
    finally:
        _close(descriptor)


def _contents(top: str) -> dict[int, bytes]:
    paths = (path for path in sorted(Path(top).rglob("*")) if path.is_file())
    return {path.stat().st_ino: path.read_bytes() for path in paths}


def _torn(scheduler: Scheduler, synced: bytes, present: bytes) -> bytes:
    """Data of a file after a power cut: of what was appended since the last sync, a part, perhaps zeroed."""
    if present == synced:
        return synced
    if not present.startswith(synced):
        return scheduler.random.choice([synced, present])
    kept = scheduler.random.randint(len(synced), len(present))
    zeros = scheduler.random.randint(0, kept - len(synced)) if scheduler.random.random() < 0.3 else 0
    return present[: kept - zeros] + bytes(zeros)
