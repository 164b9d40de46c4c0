"""What the pages show, in a real browser, of real runs (C11)."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Browser, Dialog, Page, expect

from tenure import JobAcquireOptions, JobSchedulerService
from tests.browser.serving import dashboard
from tests.operating.operator import Operator
from tests.support.many_runs import Trouble, code_of, fill
from tests.support.rows import execute
from tests.support.scheduling import MINUTE, TickNode, known_for

NASTY = "<script>alert(1)</script>"
NASTY_NODE = "<img src=x onerror=alert(2)>"


def this_minute() -> datetime:
    return datetime.now(UTC).replace(second=0, microsecond=0)


@pytest.fixture
def filled(database_url: str) -> str:
    """Twelve jobs with some history, a few of them in trouble, each in its own way."""
    fill(database_url, runs=1_200, jobs=12)
    return database_url


def test_an_empty_table_teaches(address: str, tab: Page) -> None:
    """Who has nothing yet is told how to begin, on each page."""
    tab.goto(address)
    expect(tab.get_by_role("heading", name="No job is registered yet")).to_be_visible()
    expect(tab.locator("pre")).to_contain_text("@scheduler.job")
    tab.get_by_role("link", name="Nodes", exact=True).click()
    expect(tab.get_by_role("heading", name="No node has reported yet")).to_be_visible()


def test_the_overview_says_what_needs_somebody_first(filled: str, tab: Page) -> None:
    """Jobs in trouble come first, each says what is wrong in words, and the strip shows it by shape and by words."""
    with dashboard(filled) as address:
        tab.goto(address)
        expect(tab.get_by_role("status").first).to_contain_text("need somebody")
        first = tab.locator(".job").first
        expect(first).to_contain_text("overdue")
        failing = tab.locator(".job", has_text=code_of(Trouble.FAILING))
        expect(failing).to_contain_text("40 runs have used up the attempts")
        expect(failing.locator("use[href='#s-exhausted']")).to_have_count(30)
        expect(failing.locator(".job-strip")).to_contain_text("Last 30 runs: 30 exhausted.")
        expect(tab.locator(".job", has_text=code_of(Trouble.PAUSED))).to_contain_text("Paused by ops: maintenance")
        expect(tab.locator(".job", has_text=code_of(1)).locator(".job-fact").first).to_contain_text("in ")
        expect(tab.locator(".job", has_text=code_of(Trouble.RETRYING)).locator(".late")).to_contain_text("behind")


def test_the_overview_filters_by_code_and_standing(filled: str, tab: Page) -> None:
    """A filter is an address, so it can be kept and sent on."""
    with dashboard(filled) as address:
        tab.goto(address)
        tab.get_by_label("Standing").select_option("exhausted")
        tab.get_by_role("button", name="Filter").click()
        expect(tab.locator(".job")).to_have_count(1)
        expect(tab).to_have_url(re.compile("health=exhausted"))
        tab.get_by_label("Code").fill("nothing-like-it")
        tab.get_by_role("button", name="Filter").click()
        expect(tab.get_by_text("No job has “nothing-like-it” in its code and is exhausted.")).to_be_visible()


def test_a_jobs_page_has_words_ticks_history_and_pages_of_runs(filled: str, tab: Page) -> None:
    """The schedule in words, ten ticks in its zone, both charts, fifty runs a page, and each page follows the last."""
    code = code_of(1)
    execute(filled, 'UPDATE "job-scheduler_jobs" SET "timezone" = \'Asia/Tokyo\' WHERE "code" = %s', code)
    with dashboard(filled) as address:
        tab.goto(f"{address}/job?code={code}")
        expect(tab.locator(".lead")).to_contain_text("every minute (Asia/Tokyo)")
        expect(tab.locator(".ticks li")).to_have_count(10)
        expect(tab.locator(".ticks li").first).to_contain_text("JST")
        expect(tab.locator(".chart.duration a")).to_have_count(100)
        expect(tab.locator(".chart.lag figcaption")).to_contain_text("median")
        rows = tab.locator("table.runs tbody tr")
        expect(rows).to_have_count(50)
        newest = rows.first.get_attribute("id")
        tab.get_by_role("link", name="Older runs").click()
        expect(rows).to_have_count(50)
        assert rows.first.get_attribute("id") != newest
        tab.get_by_role("link", name="Older runs").click()
        expect(tab.get_by_text("No run meets this filter")).to_be_visible()


def test_runs_are_filtered_by_state_time_and_node(filled: str, tab: Page) -> None:
    """A time without a zone is of the job's clocks."""
    with dashboard(filled) as address:
        tab.goto(f"{address}/job?code={code_of(Trouble.FAILING)}")
        rows = tab.locator("table.runs tbody tr")
        tab.get_by_label("State").select_option("exhausted")
        tab.get_by_role("button", name="Filter").click()
        expect(rows).to_have_count(40)
        half_past = this_minute() - timedelta(minutes=30)
        tab.get_by_label("Began after").fill(f"{half_past:%Y-%m-%d %H:%M}")
        tab.get_by_role("button", name="Filter").click()
        expect(rows.first).to_contain_text("exhausted")
        assert 28 <= rows.count() <= 33
        tab.get_by_label("before").fill("tomorrow, or so")
        tab.get_by_role("button", name="Filter").click()
        expect(tab.get_by_role("alert").last).to_contain_text("“tomorrow, or so” is no time, and was left out.")
        tab.get_by_label("before").fill("")
        holder = rows.first.locator("td").nth(4).inner_text()
        tab.get_by_label("Node").fill(holder)
        tab.get_by_role("button", name="Filter").click()
        expect(rows.first).to_contain_text(holder)
        assert set(rows.locator("td:nth-child(6)").all_inner_texts()) == {holder}


def test_a_runs_page_tells_its_whole_life(filled: str, tab: Page) -> None:
    """Attempts on an axis of time and in a table, each with its holder and error; what it left; why it stands so."""
    with dashboard(filled) as address:
        tab.goto(f"{address}/job?code={code_of(Trouble.FAILING)}")
        tab.locator("table.runs tbody tr a").first.click()
        expect(tab.locator(".answer")).to_contain_text("It has used up its attempts: 5 of the 5")
        expect(tab.locator(".lane-bar")).to_have_count(5)
        expect(tab.locator("pre.error")).to_have_count(5)
        expect(tab.get_by_role("heading", name="What it left")).to_be_visible()
        expect(tab.locator("#key")).to_contain_text("v2:")
        assert tab.get_by_role("link", name="Retry…").count() == 0, "it only shows"


def test_the_idempotency_key_is_copied_and_finds_the_run(filled: str, chromium: Browser) -> None:
    """The button copies the key, and the field in the head of each page finds a run by it."""
    with dashboard(filled) as address:
        context = chromium.new_context(permissions=["clipboard-read", "clipboard-write"])
        tab = context.new_page()
        tab.goto(f"{address}/job?code={code_of(1)}")
        tab.locator("table.runs tbody tr a").first.click()
        tab.locator("button[data-copies=key]").click()
        expect(tab.locator("button[data-copies=key]")).to_have_text("Copied")
        copied = tab.evaluate("navigator.clipboard.readText()")
        assert copied == tab.locator("#key").inner_text()
        found = tab.locator("#run-id").inner_text()
        tab.goto(address)
        tab.get_by_placeholder("Run id or key").fill(copied)
        tab.keyboard.press("Enter")
        expect(tab.locator("#run-id")).to_have_text(found)
        context.close()


def test_it_answers_why_a_tick_did_not_run(service: JobSchedulerService, address: str, tab: Page) -> None:
    """C11: asked by a time on the job's clocks, with and without a row; and each tick leads to its neighbours."""
    node = TickNode(service)
    node.register()
    node.pause(reason="the bank is closed")
    tick = this_minute() + 2 * MINUTE
    tab.goto(f"{address}/job?code=sync-orders")
    tab.get_by_label("Tick, by the clocks of UTC").fill(f"{tick:%Y-%m-%d %H:%M}")
    tab.get_by_role("button", name="Ask").click()
    expect(tab.locator(".answer")).to_contain_text("It is still to come")
    expect(tab.locator(".answer")).to_contain_text("paused since")
    expect(tab.locator(".answer")).to_contain_text("the bank is closed")
    tab.get_by_role("link", name="Tick before").click()
    expect(tab.locator("h2").first).to_contain_text(f"{tick - MINUTE:%Y-%m-%d %H:%M}:00 UTC")
    tab.get_by_label("Tick, by the clocks of UTC").fill("yesterday")
    tab.get_by_role("button", name="Ask").click()
    expect(tab.get_by_role("alert").last).to_contain_text("That is no time")
    tab.get_by_label("Tick, by the clocks of UTC").fill(f"{tick - 7 * MINUTE:%H:%M}")
    tab.get_by_role("button", name="Ask").click()
    expect(tab.locator("h2").first).to_contain_text(f"{tick - 7 * MINUTE:%Y-%m-%d %H:%M}:00 UTC")


def test_whatever_a_name_holds_is_only_shown(database_url: str, rival: JobSchedulerService, tab: Page) -> None:
    """C11: a job, a node, a reason, an error and data that hold HTML start nothing, on any page, live or not."""
    dialogs: list[str] = []

    def note(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    tab.on("dialog", note)
    with JobSchedulerService(database_url, owner_label=NASTY_NODE) as service:
        node = TickNode(service, label=NASTY_NODE)
        node.register(NASTY, policy={"words": NASTY, "overlap": NASTY, "catch_up": NASTY, "lease_ms": NASTY})
        known_for(database_url, 5 * MINUTE, NASTY)
        held = node.claim(this_minute() - MINUTE, NASTY).won
        failed = node.claim(this_minute(), NASTY).won
        assert held is not None
        assert failed is not None
        service.checkpoint(held, {"done": 1, "of": 2, NASTY: NASTY})
        service.fail(failed, {"error": NASTY, NASTY_NODE: [NASTY]})
        node.pause(NASTY, by=NASTY_NODE, reason=NASTY)
    with dashboard(database_url, "--writable") as address:
        tab.goto(address)
        expect(tab.locator(".job-name a")).to_have_text(NASTY)
        expect(tab.locator("#pulse")).to_contain_text("live")
        expect(tab.locator(".holder")).to_have_text(NASTY_NODE)
        tab.locator(".job-name a").click()
        expect(tab.locator("h1")).to_have_text(NASTY)
        expect(tab.locator("#pulse")).to_contain_text("live")
        Operator(rival, name=NASTY).release(held.id, Operator(rival, name=NASTY).action(NASTY))
        for run in (failed.id, held.id):
            tab.goto(f"{address}/run?id={run}")
            expect(tab.locator("#data-title")).to_be_visible()
            expect(tab.locator(".lead")).to_contain_text(NASTY)
        expect(tab.locator(".acted")).to_contain_text(NASTY)
        tab.get_by_role("link", name=NASTY).click()
        tab.get_by_role("link", name="Run now…").click()
        expect(tab.locator(".identity")).to_contain_text(NASTY)
        tab.goto(f"{address}/nodes")
        expect(tab.locator(".node strong")).to_have_text(NASTY_NODE)
        tab.goto(f"{address}/job?code=%3Cscript%3Ealert(3)%3C/script%3E")
        expect(tab.locator(".first")).to_contain_text("<script>alert(3)")
    assert dialogs == []


def test_a_run_without_a_scheduler_has_a_page_too(service: JobSchedulerService, address: str, tab: Page) -> None:
    """Plain `acquire` is shown under its code, as not scheduled."""
    won = service.acquire(JobAcquireOptions(code="plain", run_key="monday"))
    assert won.acquired
    service.complete(won, {"rows": 3})
    tab.goto(address)
    expect(tab.locator(".job")).to_contain_text("not scheduled")
    tab.get_by_role("link", name="plain").click()
    expect(tab.locator(".lead")).to_contain_text("No scheduler has registered this job")
    tab.locator("table.runs tbody a").click()
    expect(tab.locator("pre").first).to_contain_text(json.dumps({"rows": 3})[1:-1])


def test_without_a_script_everything_can_be_read_and_done(
    database_url: str, writable: str, service: JobSchedulerService, chromium: Browser
) -> None:
    """All of it is links and forms: overview, job, run, why, and an act."""
    node = TickNode(service)
    node.register()
    known_for(database_url, 5 * MINUTE)
    won = node.claim(this_minute()).won
    assert won is not None
    context = chromium.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(writable)
    expect(tab.locator(".lease")).to_contain_text("node-a")
    width = float(tab.locator(".lease rect.left").get_attribute("width") or 0)
    assert 0 < width <= 100
    tab.locator(".job-name a").click()
    tab.get_by_role("link", name="Pause…").click()
    tab.get_by_label("Who you are").fill("alice")
    tab.get_by_label("Why").fill("no script here")
    tab.get_by_role("button", name="Pause the job").click()
    expect(tab.locator(".done")).to_contain_text("Paused.")
    expect(tab.locator(".troubles")).to_contain_text("Paused by alice: no script here")
    assert not tab.locator("button.copy").first.is_visible()
    context.close()
