"""A way to a server that can be cut: at once, or after the server has had the request and before its answer comes."""

import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit


class Proxy:
    """Passes connections on to a server on loopback; a context manager.

    Attributes:
        mode: ``"pass"``; ``"refuse"`` ends connections before the server hears of them; ``"hang"`` lets the client
            wait; ``"deafen"`` lets the server have the request, and ends the connection when its answer comes.
        deafen_once: ends the connection like that for the next request in which these bytes are.
    """

    def __init__(self, address: str) -> None:
        self.mode = "pass"
        self.deafen_once: bytes | None = None
        self._server = (urlsplit(address).hostname, urlsplit(address).port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._deaf: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> "Proxy":
        self._begin(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        _end(self._listener)
        self._listener.close()
        for connection in self._open:
            _end(connection)
        for thread in self._threads:
            thread.join()
        for connection in self._open:
            connection.close()

    def _begin(self, work: object, *sockets: socket.socket) -> None:
        thread = threading.Thread(target=work, args=sockets, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                self._open += [client, server]
                self._begin(self._requests, client, server)
                self._begin(self._answers, server, client)

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while (data := client.recv(65536)) and self.mode != "refuse":
                if self.deafen_once is not None and self.deafen_once in data:
                    self.deafen_once = None
                    self._deaf.add(client)
                if self.mode != "hang":
                    server.sendall(data)
        _end(client)
        _end(server)

    def _answers(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while (data := server.recv(65536)) and self.mode != "deafen" and client not in self._deaf:
                client.sendall(data)
        _end(client)
        _end(server)


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
