"""A real browser for tests: the headless Chromium of `scripts/browser.py`, driven by Playwright."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

__all__ = ["Seen", "chromium", "width_of"]

SOON_MS = 15_000
"""How long Playwright waits for what is to come."""


expect.set_options(timeout=SOON_MS)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser; where there is none the test fails, and says what to do.

    For one module: while Playwright runs, no other event loop can run in this thread.
    """
    program = Path(__file__).resolve().parent.parent / "scripts" / "browser.py"
    spec = importlib.util.spec_from_file_location("millstream_tests_browser", program)
    assert spec is not None
    assert spec.loader is not None
    finding: Any = sys.modules.setdefault(spec.name, importlib.util.module_from_spec(spec))
    spec.loader.exec_module(finding)
    try:
        found = finding.find()
    except finding.NoBrowser as error:
        pytest.fail(str(error), pytrace=False)
    with sync_playwright() as playwright:
        # Root may not use Chromium's own sandbox; it is shown pages of this program alone.
        browser = playwright.chromium.launch(
            executable_path=found.path, env=dict(found.environment), args=["--no-sandbox"]
        )
        try:
            yield browser
        finally:
            browser.close()


class Seen:
    """A page, and what went wrong on it: an error of a script, or of what the page's policy forbids.

    Args:
        more: how the browser is: `viewport`, `color_scheme`, and so on, as Playwright has them.
    """

    def __init__(self, browser: Browser, url: str, **more: Any) -> None:
        self._context = browser.new_context(**more)
        self.page: Page = self._context.new_page()
        self.page.set_default_timeout(SOON_MS)
        self.wrong: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", lambda told: self.wrong.append(told.text) if told.type == "error" else None)
        self.page.goto(url)

    def log_in(self, token: str) -> None:
        """Through the form, as a person does."""
        self.page.get_by_role("textbox", name="Token").fill(token)
        self.page.get_by_role("button", name="Show the dashboard").click()
        self.page.get_by_text("live", exact=True).wait_for()

    def show(self, view: str) -> Page:
        """One of the views, by its link."""
        self.page.get_by_role("navigation", name="Views").get_by_role("link", name=view).click()
        self.page.get_by_role("heading", level=1, name=view).wait_for()
        return self.page

    def close(self) -> None:
        self._context.close()


def width_of(page: Page) -> tuple[int, int]:
    """How wide what is on the page is, and how wide the window is: more means scrolling sideways."""
    width, window = page.evaluate(
        "() => [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    return int(width), int(window)
