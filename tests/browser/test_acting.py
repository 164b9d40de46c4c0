"""Each act, from the button to the row that says who and why, and the forms that are not taken (C11)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from playwright.sync_api import Browser, Page, expect

from tenure import JobAcquired, JobSchedulerService, LostReason
from tests.browser.serving import PASSWORD, Answer, ask, basic, dashboard
from tests.support.rows import execute, row_of
from tests.support.scheduling import CODE, MINUTE, TickNode, known_for, tick_row


@pytest.fixture
def node(database_url: str, service: JobSchedulerService) -> TickNode:
    """A node that has known its job for five minutes."""
    made = TickNode(service)
    made.register()
    known_for(database_url, 5 * MINUTE)
    return made


def won_by(node: TickNode, url: str, nth: int = 1) -> JobAcquired:
    [(watermark,)] = execute(url, 'SELECT "watermark" FROM "job-scheduler_jobs" WHERE "code" = %s', CODE)
    won = node.claim(watermark + nth * MINUTE).won
    assert won is not None
    return won


def confirm(tab: Page, reason: str, button: str) -> None:
    tab.get_by_label("Who you are").fill("alice")
    tab.get_by_label("Why").fill(reason)
    tab.get_by_role("button", name=button).click()


def kept(url: str) -> list[tuple[str, str, str]]:
    return [
        (action, by, reason)
        for action, by, reason in execute(
            url, 'SELECT "action", "by", "reason" FROM "job-scheduler_actions" ORDER BY "id"'
        )
    ]


def test_release_fences_the_holder(database_url: str, node: TickNode, writable: str, tab: Page) -> None:
    """What it means is said first; then the run is free, its holder is told, and the history names who and why."""
    won = won_by(node, database_url)
    tab.goto(f"{writable}/run?id={won.id}")
    tab.get_by_role("link", name="Release…").click()
    expect(tab.locator(".means")).to_contain_text("can record nothing any more")
    confirm(tab, "it hangs", "Release the run")
    expect(tab.locator(".done")).to_contain_text("Released.")
    expect(tab.locator(".acted")).to_contain_text("alice released it")
    assert kept(database_url) == [("released", "alice", "it hangs")]
    assert node.service.heartbeat(won) is False
    assert won.hold is not None
    assert won.hold.lost_reason is LostReason.RELEASED


def test_retry_makes_an_exhausted_run_due(database_url: str, node: TickNode, writable: str, tab: Page) -> None:
    """One more attempt, at once."""
    won = won_by(node, database_url)
    node.service.fail(won, {"error": "no route"})
    execute(database_url, 'UPDATE "job-scheduler" SET "outcome" = \'exhausted\'')
    tab.goto(f"{writable}/run?id={won.id}")
    tab.get_by_role("link", name="Retry…").click()
    confirm(tab, "the route is mended", "Retry the run")
    expect(tab.locator(".done")).to_contain_text("Due again.")
    assert row_of(database_url, won.id)["outcome"] == "retried"
    assert kept(database_url) == [("retried", "alice", "the route is mended")]


def test_a_run_that_has_succeeded_is_done_again_only_by_force(
    database_url: str, node: TickNode, writable: str, chromium: Browser
) -> None:
    """The box must be ticked, for the server as well as for the browser."""
    won = won_by(node, database_url)
    node.service.complete(won)
    context = chromium.new_context()
    tab = context.new_page()
    tab.goto(f"{writable}/act?do=retry&id={won.id}")
    tab.locator("form.act").evaluate("form => { form.noValidate = true }")
    confirm(tab, "once more", "Retry the run")
    expect(tab.locator(".refused")).to_contain_text("Say that you want it done again")
    assert kept(database_url) == []
    tab.get_by_label("It has succeeded.").check()
    tab.get_by_role("button", name="Retry the run").click()
    expect(tab.locator(".done")).to_contain_text("Due again.")
    context.close()


def test_skip_a_tick_to_come(database_url: str, node: TickNode, writable: str, tab: Page) -> None:
    """From the list of next ticks; the tick has a row that says so, and its page says who."""
    tab.goto(f"{writable}/job?code={CODE}")
    tab.get_by_role("link", name="Skip…").nth(1).click()
    tick = tab.locator("input[name=tick]").get_attribute("value") or ""
    confirm(tab, "the bank is closed", "Skip the tick")
    expect(tab.locator(".done")).to_contain_text("Skipped.")
    expect(tab.locator(".answer")).to_contain_text("alice gave the tick up")
    [(key, outcome)] = execute(database_url, 'SELECT "runKey", "outcome" FROM "job-scheduler"')
    assert (key, outcome) == (tick, "skipped")


def test_pause_resume_and_trigger(database_url: str, node: TickNode, writable: str, tab: Page) -> None:
    """The job's own acts; a reason is asked for, but not to go on."""
    tab.goto(f"{writable}/job?code={CODE}")
    tab.get_by_role("link", name="Pause…").click()
    confirm(tab, "maintenance", "Pause the job")
    expect(tab.locator("#job-now")).to_contain_text("Paused by alice: maintenance")
    tab.get_by_role("link", name="Run now…").click()
    expect(tab.locator(".means")).to_contain_text("The job is paused")
    tab.get_by_role("link", name="Cancel").click()
    tab.get_by_role("link", name="Resume…").click()
    confirm(tab, "", "Resume the job")
    expect(tab.locator(".done")).to_contain_text("Resumed.")
    tab.get_by_role("link", name="Run now…").click()
    confirm(tab, "a test", "Run it now")
    expect(tab.locator("table.runs tbody tr")).to_contain_text("by hand")
    assert [action for action, _, _ in kept(database_url)] == ["paused", "resumed", "triggered"]


def test_what_has_changed_meanwhile_is_not_acted_upon(
    database_url: str, node: TickNode, writable: str, tab: Page
) -> None:
    """A form names the attempt that was looked at."""
    won = won_by(node, database_url)
    tab.goto(f"{writable}/act?do=release&id={won.id}&attempt=1")
    node.service.complete(won)
    confirm(tab, "it hangs", "Release the run")
    expect(tab.locator(".refused")).to_contain_text("Nobody holds it")
    assert kept(database_url) == []


class Form:
    """A confirmation, as fetched: the cookie and the hidden fields."""

    def __init__(self, address: str, query: str, **headers: Any) -> None:
        answer = ask(address, f"/act?{query}", **headers)
        assert answer.status == 200
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        self.attributes = answer.headers["set-cookie"].partition(";")[2].lower()
        self.fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', answer.text))
        self.address, self.headers = address, headers

    def send(self, cookie: str | None = None, **changes: str) -> Answer:
        fields = {**self.fields, "by": "alice", "reason": "because", **changes}
        sent: dict[str, Any] = {**self.headers, "Cookie": self.cookie if cookie is None else cookie}
        return ask(self.address, "/act", form=fields, **sent)


def test_a_form_of_another_site_is_not_taken(database_url: str, node: TickNode, writable: str) -> None:
    """C11: without our cookie, without our signature, with another's, or from another site, nothing is done."""
    form = Form(writable, f"do=pause&code={CODE}")
    assert "httponly" in form.attributes
    assert "samesite=strict" in form.attributes
    other = Form(writable, f"do=pause&code={CODE}")
    refused = [
        form.send(cookie=""),
        form.send(csrf=""),
        form.send(csrf="é"),
        form.send(csrf=other.fields["csrf"]),
        ask(writable, "/act", form=form.fields, Cookie=form.cookie, Sec_Fetch_Site="cross-site"),
    ]
    assert [answer.status for answer in refused] == [403] * 5
    plain = ask(writable, "/act", form={"do": "pause"}, Cookie=form.cookie, Content_Type="text/plain")
    assert plain.status == 415
    assert form.send(reason="x" * 70_000).status == 413
    assert kept(database_url) == []
    assert form.send().status == 303


def test_a_form_that_is_sent_twice_is_done_once(database_url: str, node: TickNode, writable: str) -> None:
    """A double click, or a page that was reloaded after it."""
    form = Form(writable, f"do=trigger&code={CODE}")
    assert [form.send().status for _ in range(2)] == [303, 303]
    assert len(kept(database_url)) == 1
    assert Form(writable, f"do=trigger&code={CODE}").send().status == 303
    assert len(kept(database_url)) == 2


def test_a_form_that_makes_no_sense_changes_nothing(database_url: str, node: TickNode, writable: str) -> None:
    """Each is answered by a page that says what is wrong."""
    senseless: list[tuple[dict[str, str], int]] = [
        ({"reason": " "}, 400),
        ({"by": ""}, 400),
        ({"by": "x" * 257}, 400),
        ({"reason": "\0"}, 400),
        ({"action_token": "none"}, 400),
        ({"do": "destroy"}, 400),
        ({"do": "skip", "tick": "noon"}, 400),
        ({"do": "skip", "tick": "2026-07-20T03:00:00"}, 400),
        ({"do": "release", "id": "nobody"}, 404),
        ({"do": "release", "id": str(UUID(int=0))}, 404),
        ({"code": "nothing-like-it"}, 404),
        ({"code": ""}, 400),
    ]
    form = Form(writable, f"do=pause&code={CODE}")
    answered = [(changes, form.send(**changes).status) for changes, _ in senseless]
    assert answered == senseless
    assert kept(database_url) == []


def test_nothing_can_be_done_unless_acting_is_switched_on(database_url: str, node: TickNode) -> None:
    """Read only is the default: no buttons, and the forms' address refuses."""
    won = won_by(node, database_url)
    with dashboard(database_url) as address:
        for page in ("/", f"/job?code={CODE}", f"/run?id={won.id}"):
            assert "act?" not in ask(address, page).text
        assert ask(address, f"/act?do=pause&code={CODE}").status == 403
        fields = {"do": "pause", "code": CODE, "by": "a", "reason": "b", "action_token": str(uuid4())}
        assert ask(address, "/act", form=fields).status == 403
    assert kept(database_url) == []


def test_who_signed_in_is_who_acted(database_url: str, node: TickNode) -> None:
    """With authentication nobody is asked for a name, and none that a form gives is believed."""
    allowed = basic("operator", PASSWORD)
    with dashboard(database_url, "--writable", TENURE_DASHBOARD_PASSWORD=PASSWORD) as address:
        form = Form(address, f"do=pause&code={CODE}", Authorization=allowed)
        assert form.send(by="mallory").status == 303
    assert kept(database_url) == [("paused", "operator", "because")]


def test_a_tick_that_waits_can_be_given_up(database_url: str, node: TickNode, writable: str, tab: Page) -> None:
    """From the run's own page."""
    won = won_by(node, database_url)
    node.service.fail(won, {"error": "no route"})
    execute(
        database_url, 'UPDATE "job-scheduler" SET "outcome" = \'failed\', "retryAt" = now() + %s', timedelta(hours=1)
    )
    tick = row_of(database_url, won.id)["scheduledAt"]
    tab.goto(f"{writable}/run?id={won.id}")
    tab.get_by_role("link", name="Skip…").click()
    confirm(tab, "no use", "Skip the tick")
    expect(tab.locator(".done")).to_contain_text("Skipped.")
    assert tick_row(database_url, tick)["outcome"] == "skipped"
