"""Debian's Chromium, driven by Playwright: a visitor opens pages and keeps what they say."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = 120_000
"""The longest that any step of the browser may take. Raising it only delays a failure."""
Scheme = Literal["light", "dark"]
expect.set_options(timeout=PATIENCE_MS)


class Visitor:
    """Opens pages, each in a context of its own, and keeps what the last one said and asked for."""

    def __init__(self, browser: Browser, contexts: ExitStack) -> None:
        self.console: list[str] = []
        """What the page wrote on its console or threw."""
        self.requests: list[str] = []
        self._browser = browser
        self._contexts = contexts

    def open(self, path: Path, width: int = 1280, height: int = 900, scheme: Scheme = "light") -> Page:
        """Load a file at a size and in a colour scheme; returns once it is loaded."""
        self.console, self.requests = [], []
        context = self._browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, is_mobile=width < 600
        )
        self._contexts.callback(context.close)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.on("console", lambda message: self.console.append(message.text))
        page.on("pageerror", lambda error: self.console.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(path.absolute().as_uri())
        return page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for a module: Playwright's event loop must have ended before another module's tests run."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed, so the page is not looked at.")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=PATIENCE_MS)
        yield chromium
        chromium.close()


@pytest.fixture
def visitor(browser: Browser) -> Iterator[Visitor]:
    with ExitStack() as contexts:
        yield Visitor(browser, contexts)
