"""A page in headless Chromium, driven through the DevTools protocol."""

from __future__ import annotations

import base64
import itertools
import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

PATIENCE = 60  # timeout in seconds, generous for a busy machine
#: Keys that tests press: code, and text that they type.
KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), "Escape": (27, "")}
QUIET = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
    "--disable-quic", "--no-first-run", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
]  # fmt: skip


class Page:
    """An open page."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection, self._numbers = connection, itertools.count(1)
        #: What the browser complained about, such as a violated policy, and addresses that pages asked for.
        self.complaints: list[str] = []
        self.requests: list[str] = []
        for domain in ("Runtime", "Page", "Log", "Network"):
            self.call(f"{domain}.enable")

    def open(self, url: str, width: int = 1200, height: int = 900, scheme: str = "light") -> None:
        """Go to an address; `scheme` is the colour scheme that the reader prefers."""
        self.show(width, height, scheme)
        self.call("Page.navigate", url=url)

    def show(self, width: int, height: int, scheme: str) -> None:
        """Show the page in another size and colour scheme."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def leave(self) -> None:
        """Leave the page, and forget what it asked for and complained about."""
        self.call("Page.navigate", url="about:blank")
        self.run("0")
        self.complaints.clear()
        self.requests.clear()

    def key(self, name: str) -> None:
        """Press a key such as ``Tab``."""
        code, text = KEYS[name]
        pressed = {"key": name, "code": name, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", **pressed, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **pressed)

    def type(self, text: str) -> None:
        """Type some text where the focus is."""
        self.call("Input.insertText", text=text)

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        told = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told
        return told["result"].get("value")

    def until(self, script: str) -> Any:
        """Poll an expression until its value is true, and return that."""
        deadline = time.monotonic() + PATIENCE
        while not (found := self.run(script)):
            assert time.monotonic() < deadline, f"{script} was never true; {self.run('document.body.innerText')}"
            time.sleep(0.02)
        return found

    def picture(self, path: Path) -> None:
        """Save what is shown."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a method of the DevTools protocol."""
        number = next(self._numbers)
        self._connection.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            told = json.loads(self._connection.recv(PATIENCE))
            if told.get("id") == number:
                assert "error" not in told, told
                return dict(told["result"])
            if told.get("method") == "Log.entryAdded":
                self.complaints.append(told["params"]["entry"]["text"])
            if told.get("method") == "Runtime.exceptionThrown":
                self.complaints.append(str(told["params"]["exceptionDetails"]))
            if told.get("method") == "Network.requestWillBeSent":
                self.requests.append(told["params"]["request"]["url"])


@contextmanager
def browser(chromium: str, profile: Path) -> Iterator[Page]:
    """Start a browser; `profile` is an empty folder."""
    command = [chromium, *QUIET, f"--user-data-dir={profile}", "--remote-debugging-port=0", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with connect(_address(profile / "DevToolsActivePort"), max_size=None) as connection:
            yield Page(connection)
    finally:
        process.kill()
        process.wait()


def _address(announced: Path) -> str:
    """The address of the first page, once the browser has announced its port."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if announced.exists() and (lines := announced.read_text().split()):
            with urllib.request.urlopen(f"http://127.0.0.1:{lines[0]}/json/list") as reply:
                pages = [page for page in json.load(reply) if page["type"] == "page"]
            if pages:
                return str(pages[0]["webSocketDebuggerUrl"])
        time.sleep(0.05)
    raise AssertionError("the browser did not start")
