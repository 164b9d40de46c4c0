"""What an open page learns by itself, and what that costs the database (C11)."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta

from playwright.sync_api import Page, expect

from tenure import JobSchedulerService
from tenure.web.views.words import left, relative, since
from tests.browser.serving import ask, dashboard, listening
from tests.browser.working_node import CODE
from tests.scenarios.test_costs import CountingProxy
from tests.support.many_runs import code_of, fill
from tests.support.rows import execute
from tests.support.scheduling import MINUTE, TickNode, known_for
from tests.support.waiting import eventually

BEATS = 4
NOW = datetime(2026, 7, 20, 3, tzinfo=UTC)


@contextmanager
def working_node(url: str, label: str, work_s: float = 60.0) -> Iterator[subprocess.Popen[bytes]]:
    """A node in a process of its own, working at one run."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.browser.working_node", url, label, str(work_s)], stderr=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(20)


class Bar:
    """Watch the bar of a node's lease, whose width is that of what is left, of 100."""

    def __init__(self, tab: Page, label: str) -> None:
        self._rect = tab.locator(".lease", has_text=label).locator("rect.left")
        self._seen = [self.width()]

    def width(self) -> float:
        """Give the width now."""
        return float(self._rect.get_attribute("width") or 0)

    def shrinks(self) -> bool:
        """Look again, and say whether it was wider before."""
        self._seen.append(self.width())
        return self._seen[-1] < max(self._seen)

    def fills(self) -> bool:
        """Look again, and say whether it was narrower before."""
        self._seen.append(self.width())
        return self._seen[-1] > min(self._seen)


def test_a_run_is_followed_from_node_to_node(database_url: str, tab: Page) -> None:
    """A run begins, is renewed, dies with its node and is taken over, on a page that is never loaded again."""
    with dashboard(database_url) as address, ExitStack() as stack:
        tab.goto(address)
        expect(tab.locator("#pulse")).to_contain_text("live")
        expect(tab.get_by_role("heading", name="No job is registered yet")).to_be_visible()
        first = stack.enter_context(working_node(database_url, "node-one"))
        eventually(lambda: execute(database_url, 'SELECT 1 FROM "job-scheduler" WHERE "status" = \'RUNNING\''), 20)
        tab.reload()
        loaded = tab.evaluate("performance.timeOrigin")
        held = tab.locator(".lease", has_text="node-one")
        expect(held).to_contain_text(CODE)
        expect(held).to_contain_text("of 10")
        bar = Bar(tab, "node-one")
        eventually(bar.shrinks, 20)
        eventually(bar.fills, 20)  # with a renewal
        os.kill(first.pid, signal.SIGKILL)
        eventually(lambda: bar.width() < 30, 20)  # nobody renews it any more
        row = tab.locator(".job", has_text=CODE)
        expect(row.locator("use[href='#s-lease-expired']").first).to_be_attached(timeout=15_000)
        expect(row).to_contain_text("lease expired")
        stack.enter_context(working_node(database_url, "node-two"))
        taken = tab.locator(".lease", has_text="node-two")
        expect(taken).to_contain_text("attempt 2", timeout=20_000)
        assert tab.evaluate("performance.timeOrigin") == loaded


def test_a_runs_page_follows_its_life(database_url: str, service: JobSchedulerService, tab: Page) -> None:
    """Its state, its sentences and its attempts change while it is open; what one has opened stays open."""
    node = TickNode(service)
    node.register()
    known_for(database_url, 5 * MINUTE)
    won = eventually(lambda: node.claim(known_for(database_url, 5 * MINUTE) + MINUTE).won)
    assert won is not None
    with dashboard(database_url) as address:
        tab.goto(f"{address}/run?id={won.id}")
        expect(tab.locator("#run-now")).to_contain_text("It is running on node-a")
        expect(tab.locator("#lease-now")).to_contain_text("left")
        expect(tab.locator("#pulse")).to_contain_text("live")
        service.fail(won, {"error": "OSError: no route"})
        expect(tab.locator("#run-now")).to_contain_text("Attempt 1 on node-a failed")
        expect(tab.locator("pre.error")).to_have_text("OSError: no route")
        expect(tab.locator(".lane-bar.bad")).to_have_count(1)
        expect(tab.locator("#lease-now")).to_be_empty()


def test_a_jobs_page_tells_of_new_runs_and_does_not_jump(
    database_url: str, service: JobSchedulerService, tab: Page
) -> None:
    """Rows that are shown change in place; newer ones are counted, and shown when asked for."""
    node = TickNode(service)
    node.register()
    begin = known_for(database_url, 5 * MINUTE)
    won = node.claim(begin + MINUTE).won
    assert won is not None
    with dashboard(database_url) as address:
        tab.goto(f"{address}/job?code=sync-orders")
        row = tab.locator("table.runs tbody tr")
        expect(row).to_contain_text("running")
        expect(tab.locator("#pulse")).to_contain_text("live")
        service.complete(won)
        expect(row).to_contain_text("succeeded")
        assert node.claim(begin + 2 * MINUTE).won
        expect(tab.locator("#news")).to_have_text("1 newer run: show")
        expect(row).to_have_count(1)
        tab.get_by_role("link", name="1 newer run: show").click()
        expect(row).to_have_count(2)


def test_an_overview_tells_of_a_new_order_and_does_not_jump(database_url: str, tab: Page) -> None:
    """A job that comes into trouble stays where somebody may be reading; a link sorts anew."""
    fill(database_url, runs=40, jobs=20)
    last = tab.locator(".job-name a").last
    with dashboard(database_url) as address:
        tab.goto(address)
        expect(tab.locator("#pulse")).to_contain_text("live")
        code = last.inner_text()
        execute(database_url, 'UPDATE "job-scheduler_jobs" SET "pausedAt" = now() WHERE "code" = %s', code)
        row = tab.locator(".job", has_text=code)
        expect(row).to_contain_text("paused")
        expect(last).to_have_text(code)
        tab.get_by_role("link", name="changed places").click()
        expect(last).not_to_have_text(code)
        expect(tab.locator("#jobs-news")).to_be_empty()


def test_the_script_goes_on_as_the_server_writes(address: str, tab: Page) -> None:
    """A time that counts has the same words from both, for each kind and each size."""
    away_s = (95_000.5, 3_725.5, 75.5, 12.5, 0.4, -12.5, -3_725.5, -200_000.5)
    kinds = {"when": relative, "since": since, "left": left}
    moment = NOW + timedelta(milliseconds=250)  # the script may have looked anywhere in half a second
    written = [
        re.sub("<[^>]*>", "", str(write(NOW + timedelta(seconds=seconds), moment)))
        for write in kinds.values()
        for seconds in away_s
    ]
    tab.goto(address)
    expect(tab.locator("#pulse")).to_contain_text("live")

    def shown() -> list[str]:
        tab.evaluate(SHOW_TIMES, [list(kinds), list(away_s)])
        return eventually(lambda: all(found := tab.locator(".probe").all_inner_texts()) and found) or []

    # once more where this machine was too slow to look in time
    assert eventually(lambda: shown() == written)


SHOW_TIMES = """([kinds, away]) => {
  document.querySelectorAll(".probe").forEach(time => time.remove());
  kinds.forEach(kind => away.forEach(seconds => {
    const time = document.createElement("time");
    time.dataset.clock = kind;
    time.className = "probe";
    time.dateTime = new Date(Date.now() + seconds * 1000).toISOString();
    document.querySelector("main").append(time);
  }));
}"""


def test_all_open_pages_together_cost_one_query_a_second(database_url: str) -> None:
    """C11: five pages of four kinds look on; each beat is one statement on the wire, whoever hears of it."""
    fill(database_url, runs=240, jobs=12)
    [(run,)] = execute(database_url, 'SELECT "id" FROM "job-scheduler" ORDER BY "fencingToken" DESC LIMIT 1')
    with CountingProxy.in_front_of(database_url) as proxy, dashboard(proxy.url(database_url)) as address:
        pages = ["page=overview", "page=overview", "page=nodes", f"page=job&code={code_of(1)}", f"page=run&id={run}"]
        with ExitStack() as stack:
            streams = [stack.enter_context(listening(address, page)) for page in pages]
            for stream in streams:
                next(stream)
            before = statements(proxy)
            for _ in range(BEATS):
                for stream in streams:
                    next(stream)
            sent = statements(proxy) - before
        assert BEATS - 1 <= sent <= BEATS + 1, "one more may be on its way"


def statements(proxy: CountingProxy) -> int:
    """Count what was executed on the wire."""
    return sum(kind in (b"B", b"Q") for kind, _ in list(proxy.seen))


def test_a_page_takes_few_queries_however_many_jobs_there_are(database_url: str) -> None:
    """C11: the overview of 200 jobs is one statement; no page takes more than three."""
    fill(database_url, runs=2_000, jobs=200)
    [(run,)] = execute(database_url, 'SELECT "id" FROM "job-scheduler" ORDER BY "fencingToken" DESC LIMIT 1')
    most = {"/": 1, "/nodes": 1, f"/job?code={code_of(1)}": 3, f"/run?id={run}": 2}
    with CountingProxy.in_front_of(database_url) as proxy, dashboard(proxy.url(database_url)) as address:
        assert ask(address, "/").status == 200  # the connection asks for its own settings, once
        taken = {}
        for page in most:
            before = statements(proxy)
            assert ask(address, page).status == 200
            taken[page] = statements(proxy) - before
    assert taken == most


def test_nobody_looks_on_and_nothing_is_asked(database_url: str) -> None:
    """When the last page is closed, the queries end."""
    with CountingProxy.in_front_of(database_url) as proxy, dashboard(proxy.url(database_url)) as address:
        with listening(address, "page=overview") as stream:
            next(stream)
            next(stream)
        quiet = [statements(proxy)]

        def has_ended() -> bool:
            quiet.append(statements(proxy))
            return len(quiet) > 30 and len(set(quiet[-30:])) == 1

        assert eventually(has_ended, 20, every_s=0.1)


def test_a_stream_that_comes_back_hears_only_what_has_changed(database_url: str) -> None:
    """A browser that reconnects says what it has heard; a page that is new hears all."""
    fill(database_url, runs=240, jobs=12)
    with dashboard(database_url) as address, ExitStack() as stack:
        stream = stack.enter_context(listening(address, "page=overview"))
        assert len(json.loads(next(stream))["parts"]) == 15
        again = json.loads(next(stream))["parts"]
        assert len(again) < 15
        late = stack.enter_context(listening(address, "page=overview"))
        assert len(json.loads(next(late))["parts"]) == 15


def test_a_database_that_is_away_is_told_and_comes_back(database_url: str, tab: Page) -> None:
    """The page says that what it shows is old, and goes on by itself."""
    fill(database_url, runs=24, jobs=12)
    with CountingProxy.in_front_of(database_url) as proxy, dashboard(proxy.url(database_url)) as address:
        tab.goto(address)
        expect(tab.locator("#pulse")).to_contain_text("live")
        proxy.refuse_new(True)
        proxy.reset_all()
        expect(tab.locator("#trouble")).to_contain_text("what is shown is older", timeout=30_000)
        expect(tab.locator(".job")).to_have_count(12)
        proxy.heal()
        expect(tab.locator("#pulse")).to_contain_text("live", timeout=30_000)
        expect(tab.locator("#trouble")).to_be_hidden()


def test_a_stream_of_no_page_is_refused(address: str) -> None:
    """Only what a page of ours would ask for is streamed."""
    for query in ("page=nothing", "page=run&id=1", "page=job&code=a&top=x", ""):
        assert ask(address, f"/live?{query}").status == 404, query
