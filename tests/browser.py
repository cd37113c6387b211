"""A small driver for headless Chromium over its DevTools protocol: open a page, look at it, click in it.

One browser, one page at a time. Everything the page says on its console, throws or asks the network for is
kept, so that a test can demand that there was nothing.
"""

import base64
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from websockets.sync.client import ClientConnection, connect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
)
Scheme = Literal["light", "dark"]
PATIENCE_SECONDS = 60


class Page:
    """The page that is open, and what it said and asked for since then."""

    def __init__(self, connection: ClientConnection) -> None:
        self.console: list[str] = []
        self.requests: list[str] = []
        self._connection = connection
        self._calls = 0
        self._loaded = False
        self._session: str | None = None
        target = self._call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self._call("Target.attachToTarget", {"targetId": target, "flatten": True})
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def open(self, path: Path, width: int = 1280, height: int = 900, scheme: Scheme = "light") -> None:
        """Load a file at the given size and colour scheme, and wait until it is loaded."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._call("Emulation.setDeviceMetricsOverride", size)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._call("Emulation.setEmulatedMedia", {"features": [feature]})
        self.console.clear()
        self.requests.clear()
        self._loaded = False
        self._call("Page.navigate", {"url": path.absolute().as_uri()})
        while not self._loaded:
            self._note(self._receive())

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; promises are awaited."""
        answer = self._call(
            "Runtime.evaluate",
            {"expression": expression, "returnByValue": True, "awaitPromise": True, "userGesture": True},
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        self.evaluate(f"document.querySelector({json.dumps(selector)}).click()")

    def choose(self, selector: str, value: str) -> None:
        """Pick an option of a select element as a user would: the change event included."""
        self.evaluate(
            f"(() => {{ const box = document.querySelector({json.dumps(selector)});"
            f"box.value = {json.dumps(value)};"
            "box.dispatchEvent(new Event('change', {bubbles: true})); })()"
        )

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        options = {"format": "png", "captureBeyondViewport": whole}
        if whole:
            size = self._call("Page.getLayoutMetrics")["cssContentSize"]
            options["clip"] = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        path.write_bytes(base64.b64decode(self._call("Page.captureScreenshot", options)["data"]))

    def _call(self, method: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        self._calls += 1
        request: dict[str, Any] = {"id": self._calls, "method": method, "params": parameters or {}}
        if self._session is not None:
            request["sessionId"] = self._session
        self._connection.send(json.dumps(request))
        while True:
            message = self._receive()
            if message.get("id") == self._calls:
                assert "error" not in message, message["error"]
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def _receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._connection.recv(timeout=PATIENCE_SECONDS))
        return message

    def _note(self, message: dict[str, Any]) -> None:
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.console.append(json.dumps(parameters["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled":
            self.console.append(json.dumps(parameters["args"]))
        elif method == "Log.entryAdded":
            self.console.append(parameters["entry"]["text"])


@contextmanager
def browser() -> Iterator[Page]:
    """`with browser() as page:` starts a Chromium with a profile of its own, and ends it with the block."""
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(prefix="antiphon-browser-", ignore_cleanup_errors=True) as profile:
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                with connect(_address(process), max_size=None, proxy=None) as connection:
                    yield Page(connection)
                    connection.send(json.dumps({"id": 0, "method": "Browser.close"}))
                process.wait(PATIENCE_SECONDS)
            finally:
                process.kill()


def _address(process: subprocess.Popen[str]) -> str:
    """Chromium says on stderr where it listens, after whatever else it has to say."""
    assert process.stderr is not None
    found = (re.search(r"ws://\S+", line) for line in process.stderr)
    return next(match.group() for match in found if match)
