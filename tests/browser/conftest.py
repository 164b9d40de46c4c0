"""A real browser, and pages that must not complain."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from tests.browser.serving import dashboard

# The pictures are of pages that other tests look at more closely; drawing them is asked for: `make screenshots`.
collect_ignore = [] if os.environ.get("TENURE_SCREENSHOTS") else ["test_pictures.py"]

# A browser that shares its cores with other tests may take its time.
expect.set_options(timeout=15_000)

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = (
    "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync "
    "--no-first-run"
)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The installed browser; one a module, since no other loop may run beside it."""
    if PROGRAM is None:
        pytest.skip("no Chromium is installed (Debian: chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=ARGUMENTS.split())
        yield browser
        browser.close()


@pytest.fixture
def tab(chromium: Browser) -> Iterator[Page]:
    """A tab with nothing remembered; a script's error, or what the policy of the page forbids, fails the test."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(15_000)
    complaints: list[str] = []

    def note(message: ConsoleMessage) -> None:
        # the browser itself notes each answer that is no 2xx
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            complaints.append(message.text)

    page.on("console", note)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    context.close()
    assert complaints == []


@pytest.fixture
def address(database_url: str) -> Iterator[str]:
    """The page on a fresh database, as it is by default: it only shows."""
    with dashboard(database_url) as served:
        yield served


@pytest.fixture
def writable(database_url: str) -> Iterator[str]:
    """The page on a fresh database, with acting switched on."""
    with dashboard(database_url, "--writable") as served:
        yield served
