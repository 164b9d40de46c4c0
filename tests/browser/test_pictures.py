"""The pictures of the README, of a bad night of a shop; collected only by `make screenshots`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, expect

from tests.browser.scene import play
from tests.browser.serving import PASSWORD, dashboard
from tests.support.rows import execute

WRITTEN_TO = Path(os.environ["TENURE_SCREENSHOTS"])
DESK = {"width": 1240, "height": 900}
PHONE = {"width": 390, "height": 844}


def shop(url: str) -> dict[str, tuple[str, str, dict[str, int]]]:
    """Name each picture, its page, and by which light and on what it is seen."""
    [(run,)] = execute(
        url, 'SELECT "id" FROM "job-scheduler" WHERE "outcome" = \'exhausted\' ORDER BY "scheduledAt" DESC LIMIT 1'
    )
    return {
        "overview": ("/", "light", DESK),
        "overview-dark": ("/", "dark", DESK),
        "overview-phone": ("/", "light", PHONE),
        "job": ("/job?code=sync-orders", "light", DESK),
        "run": (f"/run?id={run}", "light", DESK),
        "nodes": ("/nodes", "light", DESK),
    }


def test_each_page_looks_like_its_picture(database_url: str, chromium: Browser) -> None:
    """Each picture can be drawn, of a page that is live and complains of nothing."""
    play(database_url)
    with dashboard(database_url, "--writable", TENURE_DASHBOARD_PASSWORD=PASSWORD) as address:
        for name, (page, scheme, size) in shop(database_url).items():
            picture = WRITTEN_TO / f"dashboard-{name}.png"
            draw(chromium, address + page, picture, color_scheme=scheme, viewport=size)
            assert picture.stat().st_size > 20_000


def draw(chromium: Browser, url: str, picture: Path, **seen: Any) -> None:
    """Draw a page once it is live."""
    credentials: Any = {"username": "operator", "password": PASSWORD}
    context = chromium.new_context(**seen, http_credentials=credentials, reduced_motion="reduce")
    tab = context.new_page()
    tab.goto(url)
    expect(tab.locator("#pulse")).to_contain_text("live")
    expect(tab.locator("h1")).to_have_count(1)
    tab.screenshot(path=picture, animations="disabled")
    context.close()
