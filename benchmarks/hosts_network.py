"""Hosts on one machine: network namespaces around a bridge, with links that fail. Needs root; Linux only.

Each host has loopback and one link to the store's namespace. Nothing is added to the machine's own network.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX, NETWORK, STORE = "potstill-", "10.77.0.", "store"
_CLONE_NEWNET = 0x40000000


class Network:
    """A store and some hosts, each in a namespace of its own."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self.hosts = tuple(hosts)

    @property
    def store_address(self) -> str:
        """Address of the store."""
        return f"{NETWORK}1"

    def set_up(self) -> None:
        """Create namespaces, the bridge and the links."""
        for name in (STORE, *self.hosts):
            _ip("netns", "add", PREFIX + name)
            _ip("-n", PREFIX + name, "link", "set", "lo", "up")
        _ip("-n", PREFIX + STORE, "link", "add", "bridge", "type", "bridge")
        _ip("-n", PREFIX + STORE, "address", "add", f"{self.store_address}/24", "dev", "bridge")
        _ip("-n", PREFIX + STORE, "link", "set", "bridge", "up")
        for number, name in enumerate(self.hosts, 2):
            peer = ["peer", "name", "uplink", "netns", PREFIX + name]
            _ip("-n", PREFIX + STORE, "link", "add", f"to-{name}", "type", "veth", *peer)
            _ip("-n", PREFIX + STORE, "link", "set", f"to-{name}", "master", "bridge", "up")
            _ip("-n", PREFIX + name, "address", "add", f"{NETWORK}{number}/24", "dev", "uplink")
            _ip("-n", PREFIX + name, "link", "set", "uplink", "up")

    def tear_down(self) -> None:
        """Delete the namespaces, and with them all links."""
        for name in (STORE, *self.hosts):
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", PREFIX + name)

    def cut(self, host: str) -> None:
        """Part a host from the store: packets are dropped, connections hang."""
        _ip("-n", PREFIX + STORE, "link", "set", f"to-{host}", "down")

    def heal(self, host: str) -> None:
        """Mend the link of a host."""
        _ip("-n", PREFIX + STORE, "link", "set", f"to-{host}", "up")


@contextmanager
def network(hosts: Sequence[str]) -> Iterator[Network]:
    """A network that is deleted at the end."""
    made = Network(hosts)
    made.tear_down()  # what a killed run has left
    try:
        made.set_up()
        yield made
    finally:
        made.tear_down()


def command_in(host: str, *command: str) -> list[str]:
    """A command in the namespace of a host. It has the process id of the command itself."""
    return ["ip", "netns", "exec", PREFIX + host, *command]


def run_in(host: str, *command: str) -> str:
    """Run a command in the namespace of a host; returns its output."""
    return subprocess.run(command_in(host, *command), check=True, capture_output=True, text=True).stdout


def connect(host: str, port: int, timeout: float) -> socket.socket:
    """A connection to loopback of a host. Moves the calling thread, and no other, into the host's namespace."""
    descriptor = os.open(Path("/run/netns") / (PREFIX + host), os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _libc.setns(descriptor, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the namespace of host {host}")
    finally:
        os.close(descriptor)
    return socket.create_connection(("127.0.0.1", port), timeout)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


_libc = ctypes.CDLL(None, use_errno=True)
