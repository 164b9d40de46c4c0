"""Who may look, from where and under which name; and that no secret leaves (C11)."""

from __future__ import annotations

import re
import socket
import subprocess
import sys

import pytest
from playwright.sync_api import Browser, expect

from tenure import JobSchedulerService
from tests.browser.serving import PASSWORD, ask, basic, dashboard, listening, serving
from tests.cli.commands import Tenure
from tests.support.rows import execute
from tests.support.scheduling import MINUTE, TickNode, known_for

MOUNTED = [sys.executable, "-W", "error", "-m", "tests.browser.mounted"]
PAGES = ["/", "/nodes", "/job?code=sync-orders", "/why?code=sync-orders", "/nothing", "/static/page.css"]


@pytest.fixture
def held(database_url: str, service: JobSchedulerService) -> str:
    """The id of a run that is held."""
    node = TickNode(service)
    node.register()
    won = node.claim(known_for(database_url, 5 * MINUTE) + MINUTE).won
    assert won is not None
    return str(won.id)


def test_with_a_password_each_page_asks(database_url: str) -> None:
    """C11: pages, the live stream, the style; a wrong name or password, or none, sees nothing."""
    with dashboard(database_url, "--user", "öps", TENURE_DASHBOARD_PASSWORD=PASSWORD) as address:
        for page in [*PAGES, "/live?page=overview", "/act"]:
            answer = ask(address, page)
            assert answer.status == 401, page
            assert answer.headers["www-authenticate"].startswith("Basic ")
            assert "tenure</a>" not in answer.text
        wrong = [basic("öps", "wrong"), basic("x", PASSWORD), "Basic ***", "Bearer x", basic("öps", PASSWORD + " ")]
        assert {ask(address, "/", Authorization=given).status for given in wrong} == {401}
        seen = ask(address, "/", Authorization=basic("öps", PASSWORD))
        assert seen.status == 200
        assert "Nobody is asked who they are" not in seen.text
        assert "Signed in as <strong>öps" in seen.text
        with listening(address, "page=overview", Authorization=basic("öps", PASSWORD)) as stream:
            assert next(stream)


def test_without_one_it_is_for_this_machine_alone_and_says_so(address: str) -> None:
    """C11: a proxy before it, or a foreign name that leads here, is refused; each page has the line."""
    answer = ask(address, "/")
    assert answer.status == 200
    assert "Nobody is asked who they are" in answer.text
    assert ask(address, "/", X_Forwarded_For="203.0.113.9").status == 403
    assert ask(address, "/", Forwarded="for=203.0.113.9").status == 403
    assert ask(address, "/", Host="rebound.example").status == 400
    assert ask(address, "/", Host="localhost:1").status == 200


def test_it_is_not_served_to_others_without_a_password(database_url: str) -> None:
    """C11: refused before anything listens; and the loud line stands on stderr where it is open to this machine."""
    tenure = Tenure(database_url)
    refused = tenure("dashboard", "--host", "0.0.0.0", "--port", "0")
    assert refused.code == 2
    assert "open to other machines" in refused.err
    assert "TENURE_DASHBOARD_PASSWORD" in refused.err
    process = subprocess.Popen(
        [sys.executable, "-m", "tenure", "dashboard", "--port", "0", "--writable"],
        env=tenure.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    said = process.stdout.readline()
    process.terminate()
    _, loud = process.communicate(timeout=20)
    assert b"acting is switched on" in said
    assert b"THE PAGE HAS NO AUTHENTICATION" in loud
    assert b"sees and does everything" in loud


def test_a_port_that_is_taken_is_one_line(database_url: str) -> None:
    """C11: what is wrong, and what to give instead."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        told = Tenure(database_url)("dashboard", "--port", str(taken.getsockname()[1]))
    assert told.code == 69
    assert "Give another --port." in told.err


def test_a_database_without_our_tables_is_a_page_that_says_what_to_do(empty_database_url: str) -> None:
    """C11: no traceback, no connection string."""
    with dashboard(empty_database_url) as address:
        answer = ask(address, "/")
    assert answer.status == 503
    assert "Run: tenure schema apply" in answer.text
    assert "Nothing was changed." in answer.text
    assert "postgresql://" not in answer.text


def test_each_answer_forbids_what_is_not_ours(address: str) -> None:
    """C11: no script, no style, no frame, no form of anybody else's, on errors as well."""
    for page in [*PAGES, "/run?id=1", "/job"]:
        answer = ask(address, page)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "style=" not in answer.text
        assert "<script>" not in answer.text
    assert ask(address, "/").headers["cache-control"] == "no-store"
    style = re.findall(r'href="(static/page.css\?\w+)"', ask(address, "/").text)
    assert "max-age" in ask(address, f"/{style[0]}").headers["cache-control"]


def test_no_owner_token_is_ever_sent(database_url: str, held: str) -> None:
    """C11: on no page, in no stream, not even while the run is held."""
    [(token,)] = execute(database_url, 'SELECT "ownerToken"::text FROM "job-scheduler"')
    with dashboard(database_url, "--writable") as address:
        pages = [*PAGES, f"/run?id={held}", f"/act?do=release&id={held}"]
        texts = [ask(address, page).text for page in pages]
        for topic in ("page=overview", "page=nodes", "page=job&code=sync-orders", f"page=run&id={held}&mark=old"):
            with listening(address, topic) as stream:
                texts += [next(stream), next(stream)]
    assert held in "".join(texts)
    assert not [text for text in texts if token in text or token.replace("-", "") in text]


@pytest.mark.parametrize("framework", ["starlette", "django", "fastapi", "litestar"])
def test_it_mounts_under_a_prefix(database_url: str, held: str, framework: str) -> None:
    """With an async service, and who asks told by the application; every link stays under the prefix."""
    with serving([*MOUNTED, framework], database_url) as address:
        prefix = "/ops/tenure"
        moved = ask(address, prefix)
        assert moved.status == 307
        assert moved.headers["location"].endswith("tenure/")
        assert ask(address, f"{prefix}/").status == 403, "the function says nobody"
        seen = ask(address, f"{prefix}/", X_User="carol")
        assert "Signed in as <strong>carol" in seen.text
        assert 'href="/' not in seen.text
        assert 'src="/' not in seen.text
        for page in ("nodes", f"run?id={held}", "job?code=sync-orders", "static/page.js"):
            assert ask(address, f"{prefix}/{page}", X_User="carol").status == 200, page
        with listening(f"{address}{prefix}", "page=overview", X_User="carol") as stream:
            assert "sync-orders" in next(stream)
        assert ask(address, f"{prefix}/", X_User="guest").headers["location"] == "/login"
        if framework == "django":
            assert "Django is here" in ask(address, "/elsewhere").text


def test_a_page_that_asks_nobody_answers_to_this_machines_names_alone(database_url: str) -> None:
    """C11: mounted, too: a page of somebody else's whose name leads here could read it; `hosts` says others."""
    with serving([*MOUNTED, "starlette"], database_url) as address:
        assert ask(address, "/open/").status == 200
        assert ask(address, "/open/", Host="rebound.example").status == 400
        assert ask(address, "/named/", Host="ops.example").status == 200
        assert ask(address, "/named/").status == 400
        assert ask(address, "/ops/tenure/", Host="any.example", X_User="carol").status == 200


def test_a_browser_finds_its_way_under_a_prefix(database_url: str, held: str, chromium: Browser) -> None:
    """Style, script, links and the live stream, from an address without its last slash on."""
    with serving([*MOUNTED, "starlette"], database_url) as address:
        context = chromium.new_context(extra_http_headers={"x-user": "carol"})
        tab = context.new_page()
        tab.goto(f"{address}/ops/tenure")
        expect(tab.locator("#pulse")).to_contain_text("live")
        tab.locator(".job-name a").click()
        expect(tab).to_have_url(f"{address}/ops/tenure/job?code=sync-orders")
        tab.get_by_role("link", name="Nodes", exact=True).click()
        expect(tab.locator(".node strong")).to_have_text("node-a")
        context.close()
