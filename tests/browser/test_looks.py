"""That everybody can use the pages: axe finds nothing, by day and by night, on a phone, and by keyboard alone."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.serving import dashboard
from tests.support.many_runs import Trouble, code_of, fill, keep_alive
from tests.support.rows import execute

AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text()
ALL_RULES: dict[str, list[str]] = {}
RULES_OF_LOOKS = {"runOnly": ["color-contrast", "target-size", "link-in-text-block", "scrollable-region-focusable"]}
"""Those that depend on colours and sizes; the others have looked at the same page before."""
PHONE = {"width": 360, "height": 740}
DESK = {"width": 1280, "height": 900}


@pytest.fixture
def filled(database_url: str) -> str:
    """Twenty jobs with all kinds of trouble, and two live leases."""
    fill(database_url, runs=1_000, jobs=20)
    keep_alive(database_url)
    return database_url


def pages_of(url: str) -> dict[str, str]:
    """Name a page of each kind, with as much on it as there can be."""
    [(exhausted,)] = execute(url, 'SELECT "id" FROM "job-scheduler" WHERE "outcome" = \'exhausted\' LIMIT 1')
    [(held,)] = execute(url, 'SELECT "id" FROM "job-scheduler" WHERE "status" = \'RUNNING\' LIMIT 1')
    failing = code_of(Trouble.FAILING)
    return {
        "overview": "/",
        "overview, filtered to nothing": "/?q=nothing-like-it",
        "job": f"/job?code={failing}",
        "job that is paused": f"/job?code={code_of(Trouble.PAUSED)}",
        "run that is exhausted": f"/run?id={exhausted}",
        "run that is held": f"/run?id={held}",
        "nodes": "/nodes",
        "why": f"/why?code={code_of(Trouble.OVERDUE)}&tick=2026-07-20T03:00:00Z",
        "why, of no time": f"/why?code={failing}&tick=noon",
        "confirmation": f"/act?do=release&id={held}&attempt=1",
        "nothing there": "/nothing",
    }


def findings(tab: Page, rules: dict[str, list[str]]) -> list[str]:
    """Let axe look at the page as it is."""
    tab.evaluate(AXE)
    looked: dict[str, list[dict[str, Any]]] = tab.evaluate("rules => axe.run(document, rules)", rules)
    assert looked["passes"]
    found = looked["violations"]
    return [f"{each['id']}: {node['html'][:120]} {node['failureSummary']}" for each in found for node in each["nodes"]]


@pytest.mark.parametrize(
    ("scheme", "size", "rules"),
    [("light", DESK, ALL_RULES), ("dark", PHONE, RULES_OF_LOOKS)],
    ids=["day", "night, on a phone"],
)
def test_axe_finds_nothing_on_any_page(
    filled: str, chromium: Browser, scheme: Any, size: Any, rules: dict[str, list[str]]
) -> None:
    """All rules of axe, its best practices included; and no page is wider than the screen."""
    with dashboard(filled, "--writable") as address:
        context = chromium.new_context(color_scheme=scheme, viewport=size, reduced_motion="reduce")
        tab = context.new_page()
        found = {}
        for name, page in pages_of(filled).items():
            tab.goto(address + page)
            tab.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
            found[name] = findings(tab, rules)
            wider = tab.evaluate("document.documentElement.scrollWidth - innerWidth")
            found[name] += [f"{wider} pixels wider than the screen"] if wider > 0 else []
        context.close()
    assert {name: told for name, told in found.items() if told} == {}


def test_everything_is_reached_by_keyboard(filled: str, tab: Page) -> None:
    """From the skip link to a confirmation, without a mouse; what is focused can be seen."""
    with dashboard(filled, "--writable") as address:
        tab.goto(address)
        tab.keyboard.press("Tab")
        expect(tab.locator("a.skip")).to_be_focused()
        expect(tab.locator("a.skip")).to_be_in_viewport()
        tab.keyboard.press("Enter")
        expect(tab.locator("main")).to_be_focused()
        reached = press_tab_until(tab, f"a[href='job?code={code_of(Trouble.OVERDUE)}']")
        assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        assert reached < 60, "no one has to pass each cell of each strip"
        tab.keyboard.press("Enter")
        expect(tab.locator("h1")).to_have_text(code_of(Trouble.OVERDUE))
        press_tab_until(tab, "a[href^='act?do=pause']")
        tab.keyboard.press("Enter")
        expect(tab.locator("h1")).to_have_text("Pause this job")
        press_tab_until(tab, "input[name=by]")
        tab.keyboard.type("alice")
        tab.keyboard.press("Tab")
        tab.keyboard.type("by keyboard")
        tab.keyboard.press("Tab")
        tab.keyboard.press("Enter")
        expect(tab.locator(".done")).to_contain_text("Paused.")


def press_tab_until(tab: Page, selector: str) -> int:
    """Press the key until that element has the focus, and count."""
    for pressed in range(1, 200):
        tab.keyboard.press("Tab")
        if tab.evaluate("selector => document.activeElement.matches(selector)", selector):
            return pressed
    raise AssertionError(f"{selector} is not reached")


def test_a_live_page_leaves_focus_and_what_is_open_alone(filled: str, tab: Page) -> None:
    """A beat that changes a part neither closes what somebody has opened nor takes the focus away."""
    with dashboard(filled) as address:
        tab.goto(f"{address}/nodes")
        expect(tab.locator("#pulse")).to_contain_text("live")
        summary = tab.locator("summary").first
        summary.click()
        before = tab.locator(".node dd").first.locator("time").get_attribute("datetime")
        keep_alive(filled)
        expect(tab.locator(".node dd").first.locator("time")).not_to_have_attribute("datetime", before or "")
        expect(tab.locator("details").first).to_have_attribute("open", "")
        expect(summary).to_be_focused()
