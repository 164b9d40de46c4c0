"""The proxy that other tests believe: each fault is what it says, seen from both ends of a real connection."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any

import psycopg
import pytest

from tenure.embedded import EmbeddedPostgres
from tests.support.proxy import FaultProxy

PATIENCE_S = 20.0
# Long enough for bytes on the loopback to arrive many times over: for what must not happen.
MOMENT_S = 0.25

Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    with EmbeddedPostgres.start(durable=False) as server:
        yield server.url()


@pytest.fixture
def direct(server_url: str) -> Iterator[Connection]:
    """Look at the server past the proxy, with an empty table `effect`."""
    with closing(psycopg.connect(server_url, autocommit=True)) as connection:
        connection.execute("DROP TABLE IF EXISTS effect")
        connection.execute("CREATE TABLE effect (n integer)")
        yield connection


@pytest.fixture
def proxy(server_url: str, direct: Connection) -> Iterator[FaultProxy]:
    with FaultProxy.in_front_of(server_url) as running:
        yield running


@pytest.fixture
def connect(proxy: FaultProxy, server_url: str) -> Iterator[Callable[..., Connection]]:
    """Open connections through the proxy, and close them all at the end."""
    opened: list[Connection] = []

    def opener(**given: Any) -> Connection:
        opened.append(psycopg.connect(proxy.url(server_url), autocommit=True, **given))
        return opened[-1]

    yield opener
    for connection in opened:
        connection.close()


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(10) as pool:
        yield pool


def effects(direct: Connection) -> list[int]:
    return [row[0] for row in direct.execute("SELECT n FROM effect ORDER BY n")]


def backends(direct: Connection, name: str) -> int:
    row = direct.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", [name]).fetchone()
    assert row is not None
    return int(row[0])


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.005)


def stays_open(future: Future[Any]) -> bool:
    """Say whether nothing came back for a moment."""
    try:
        future.result(MOMENT_S)
    except TimeoutError:
        return True
    return False


def send_two_inserts_at_once(connection: Connection) -> None:
    """Send two Query messages in one segment, past libpq, so that the proxy finds both in one chunk."""
    texts = (b"INSERT INTO effect VALUES (1)\0", b"INSERT INTO effect VALUES (2)\0")
    with socket.socket(fileno=socket.dup(connection.fileno())) as wire:
        wire.settimeout(PATIENCE_S)
        wire.sendall(b"".join(b"Q" + (4 + len(text)).to_bytes(4) + text for text in texts))


def bytes_until_reset(connection: Connection) -> bytes:
    """Read past libpq, whose own waiting would hold the GIL, and with it the proxy."""
    received = b""
    with socket.socket(fileno=socket.dup(connection.fileno())) as wire, suppress(ConnectionResetError):
        wire.settimeout(PATIENCE_S)
        while chunk := wire.recv(65_536):
            received += chunk
        pytest.fail("the connection was ended, not reset")
    return received


class TestWithoutFaults:
    def test_it_hands_on_everything(self, connect: Callable[..., Connection], proxy: FaultProxy) -> None:
        connection = connect()

        rows = connection.execute("SELECT n, repeat('x', 100) FROM generate_series(1, 20000) n").fetchall()
        big = connection.execute("SELECT %s::text", ["y" * 3_000_000]).fetchone()

        assert [n for n, _ in rows] == list(range(1, 20_001))
        assert big == ("y" * 3_000_000,)
        assert (proxy.connections, proxy.matched, proxy.cut, proxy.stalled) == (1, 0, 0, 0)

    def test_errors_pipelines_and_copies_pass(self, connect: Callable[..., Connection], direct: Connection) -> None:
        connection = connect()

        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("SELECT 1/0")
        with connection.pipeline():
            cursors = [connection.execute("SELECT %s::int", [n]) for n in range(20)]
        with connection.cursor().copy("COPY effect FROM STDIN") as copy:
            copy.write_row([7])

        assert [cursor.fetchone() for cursor in cursors] == [(n,) for n in range(20)]
        assert effects(direct) == [7]

    @pytest.mark.parametrize("asking", [{"sslmode": "disable"}, {"sslmode": "prefer", "gssencmode": "prefer"}])
    def test_a_client_that_asks_for_encryption_first_is_understood(
        self, connect: Callable[..., Connection], proxy: FaultProxy, asking: dict[str, str]
    ) -> None:
        connection = connect(**asking)
        proxy.cut_after(b"SELECT 'asked'")

        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 'asked'")

    def test_a_cancel_request_passes(
        self, connect: Callable[..., Connection], background: ThreadPoolExecutor, direct: Connection
    ) -> None:
        connection = connect(application_name="sleeper")
        sleeping = background.submit(connection.execute, "SELECT pg_sleep(60)")
        eventually(lambda: self.is_asleep(direct))

        connection.cancel_safe()

        assert isinstance(sleeping.exception(PATIENCE_S), psycopg.errors.QueryCanceled)

    @staticmethod
    def is_asleep(direct: Connection) -> bool:
        asleep = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'sleeper' AND wait_event = 'PgSleep'"
        return direct.execute(asleep).fetchone() is not None

    def test_an_end_passes_either_way(self, connect: Callable[..., Connection], direct: Connection) -> None:
        connect(application_name="goes").close()
        eventually(lambda: backends(direct, "goes") == 0)

        connection = connect(application_name="is-ended")
        direct.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'is-ended'")
        with pytest.raises(psycopg.errors.AdminShutdown):
            connection.execute("SELECT 1")


class TestUrl:
    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ("postgresql://u:p%40w@db.example:5432/app", "postgresql://u:p%40w@127.0.0.1:{port}/app"),
            ("postgresql://db/app?sslmode=disable", "postgresql://127.0.0.1:{port}/app?sslmode=disable"),
            ("postgresql://u@/app?host=%2Ftmp&port=1&a=b%20c", "postgresql://u@127.0.0.1:{port}/app?a=b%20c"),
            ("postgresql+psycopg://u@[::1]:5/app", "postgresql+psycopg://u@127.0.0.1:{port}/app"),
        ],
    )
    def test_only_host_and_port_change(self, proxy: FaultProxy, given: str, expected: str) -> None:
        assert proxy.url(given) == expected.format(port=proxy.port)


class TestCutBefore:
    def test_the_statement_never_reaches_the_server(
        self, connect: Callable[..., Connection], proxy: FaultProxy, direct: Connection
    ) -> None:
        connection = connect(application_name="before")
        proxy.cut_before(b"INSERT INTO effect")

        with pytest.raises(psycopg.OperationalError):
            connection.execute("INSERT INTO effect VALUES (1)")

        eventually(lambda: backends(direct, "before") == 0)
        assert effects(direct) == []
        assert (proxy.matched, proxy.cut) == (1, 1)

    def test_what_came_before_it_is_done(
        self, connect: Callable[..., Connection], proxy: FaultProxy, direct: Connection
    ) -> None:
        proxy.cut_before(b"VALUES (2)")

        send_two_inserts_at_once(connect())

        eventually(lambda: effects(direct) == [1])
        eventually(lambda: proxy.cut == 1)

    def test_a_commit_can_be_cut(
        self, connect: Callable[..., Connection], proxy: FaultProxy, direct: Connection
    ) -> None:
        connection = connect(application_name="commit")
        proxy.cut_before(b"COMMIT")

        with pytest.raises(psycopg.OperationalError), connection.transaction():
            connection.execute("INSERT INTO effect VALUES (1)")

        eventually(lambda: backends(direct, "commit") == 0)
        assert effects(direct) == []

    def test_it_counts_down_over_all_connections(self, connect: Callable[..., Connection], proxy: FaultProxy) -> None:
        proxy.cut_before(b"SELECT 'twice'", times=2)

        for _ in range(2):
            with pytest.raises(psycopg.OperationalError):
                connect().execute("SELECT 'twice'")

        assert connect().execute("SELECT 'twice'").fetchone() == ("twice",)
        assert (proxy.connections, proxy.matched, proxy.cut) == (3, 2, 2)

    def test_parameters_are_looked_at_too(self, connect: Callable[..., Connection], proxy: FaultProxy) -> None:
        connection = connect()
        proxy.cut_before(b"needle")

        assert connection.execute("SELECT %s", ["hay"]).fetchone() == ("hay",)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT %s", ["a needle in it"])

    def test_a_prepared_statement_is_known_by_its_text(
        self, connect: Callable[..., Connection], proxy: FaultProxy, direct: Connection
    ) -> None:
        connection = connect()
        for n in range(3):
            connection.execute("INSERT INTO effect VALUES (%s)", [n], prepare=True)
        proxy.cut_before(b"INSERT INTO effect")

        with pytest.raises(psycopg.OperationalError):
            connection.execute("INSERT INTO effect VALUES (%s)", [3], prepare=True)

        assert effects(direct) == [0, 1, 2]
        assert proxy.matched == 1


class TestCutAfter:
    @pytest.mark.parametrize("prepare", [False, True])
    @pytest.mark.parametrize("parameters", [None, [1]])
    def test_the_server_has_done_it_and_the_client_does_not_know(
        self,
        connect: Callable[..., Connection],
        proxy: FaultProxy,
        direct: Connection,
        parameters: list[int] | None,
        prepare: bool,
    ) -> None:
        """Query, unnamed Parse, and Parse of its own: the first time that this text is seen."""
        connection = connect()
        proxy.cut_after(b"INSERT INTO effect")

        with pytest.raises(psycopg.OperationalError):
            connection.execute(
                "INSERT INTO effect VALUES (%s) RETURNING n" if parameters else "INSERT INTO effect VALUES (1)",
                parameters,
                prepare=prepare,
            )

        assert effects(direct) == [1]
        assert (proxy.matched, proxy.cut, proxy.stalled) == (1, 1, 0)

    def test_a_prepared_statement_is_known_by_its_text(
        self, connect: Callable[..., Connection], proxy: FaultProxy, direct: Connection
    ) -> None:
        connection = connect()
        for n in range(3):
            connection.execute("INSERT INTO effect VALUES (%s)", [n], prepare=True)
        proxy.cut_after(b"INSERT INTO effect")

        with pytest.raises(psycopg.OperationalError):
            connection.execute("INSERT INTO effect VALUES (%s)", [3], prepare=True)

        assert effects(direct) == [0, 1, 2, 3]

    def test_it_waits_for_the_end_of_the_answer(
        self, connect: Callable[..., Connection], proxy: FaultProxy, direct: Connection
    ) -> None:
        """Rows that fill the server's buffer are sent long before the statement has committed."""
        connection = connect()
        proxy.cut_after(b"INSERT INTO effect")

        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT repeat('Z', 100000); SELECT pg_sleep(0.3); INSERT INTO effect VALUES (1)")

        assert effects(direct) == [1]

    def test_a_commit_is_durable_and_unanswered(
        self, connect: Callable[..., Connection], proxy: FaultProxy, direct: Connection
    ) -> None:
        connection = connect()
        proxy.cut_after(b"COMMIT")

        with pytest.raises(psycopg.OperationalError), connection.transaction():
            connection.execute("INSERT INTO effect VALUES (1)")

        assert effects(direct) == [1]

    def test_answers_that_came_before_it_are_given(
        self, connect: Callable[..., Connection], proxy: FaultProxy, direct: Connection
    ) -> None:
        connection = connect()
        connection.execute("SELECT %s", ["counted by its Sync"])
        proxy.cut_after(b"VALUES (2)")

        send_two_inserts_at_once(connection)

        assert bytes_until_reset(connection).count(b"INSERT 0 1") == 1
        assert effects(direct) == [1, 2]


class TestStallAfter:
    def test_it_is_committed_and_the_client_waits_for_ever(
        self,
        connect: Callable[..., Connection],
        proxy: FaultProxy,
        direct: Connection,
        background: ThreadPoolExecutor,
    ) -> None:
        connection = connect(application_name="stalls")
        proxy.stall_after(b"INSERT INTO effect")

        answer = background.submit(connection.execute, "INSERT INTO effect VALUES (1)")

        eventually(lambda: proxy.stalled == 1)
        assert effects(direct) == [1]
        assert stays_open(answer)
        assert backends(direct, "stalls") == 1
        proxy.heal()
        direct.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'stalls'")
        eventually(lambda: backends(direct, "stalls") == 0)
        assert stays_open(answer)
        assert (proxy.matched, proxy.cut) == (1, 0)
        assert connect().execute("SELECT 1").fetchone() == (1,)
        proxy.close()
        assert isinstance(answer.exception(PATIENCE_S), psycopg.OperationalError)


class TestBlackHole:
    def test_nothing_comes_through_until_it_is_healed(
        self,
        connect: Callable[..., Connection],
        proxy: FaultProxy,
        direct: Connection,
        background: ThreadPoolExecutor,
    ) -> None:
        connection = connect()
        proxy.black_hole()

        answer = background.submit(connection.execute, "INSERT INTO effect VALUES (1) RETURNING n")

        assert stays_open(answer)
        assert effects(direct) == []
        proxy.heal()
        assert answer.result(PATIENCE_S).fetchone() == (1,)

    def test_an_answer_on_its_way_is_held_back(
        self,
        connect: Callable[..., Connection],
        proxy: FaultProxy,
        direct: Connection,
        background: ThreadPoolExecutor,
    ) -> None:
        connection = connect()
        direct.execute("BEGIN")
        direct.execute("LOCK TABLE effect")
        answer = background.submit(connection.execute, "INSERT INTO effect VALUES (1) RETURNING n")
        eventually(lambda: direct.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone() is not None)

        proxy.black_hole()
        direct.execute("COMMIT")

        eventually(lambda: effects(direct) == [1])
        assert stays_open(answer)
        proxy.heal()
        assert answer.result(PATIENCE_S).fetchone() == (1,)

    def test_bytes_are_acknowledged_however_many(self, proxy: FaultProxy, connect: Callable[..., Connection]) -> None:
        """More than any kernel buffers: a send that returned is one that the proxy took."""
        connection = connect()
        proxy.black_hole()
        with socket.socket(fileno=socket.dup(connection.fileno())) as wire:
            wire.settimeout(PATIENCE_S)
            wire.sendall(b"d" + (40_000_004).to_bytes(4) + bytes(40_000_000))

    def test_the_server_does_not_hear_of_an_end(
        self, connect: Callable[..., Connection], proxy: FaultProxy, direct: Connection
    ) -> None:
        connection = connect(application_name="gone")
        proxy.black_hole()
        connection.close()

        time.sleep(MOMENT_S)
        assert backends(direct, "gone") == 1
        proxy.heal()
        eventually(lambda: backends(direct, "gone") == 0)

    def test_new_connections_are_swallowed_too(
        self, connect: Callable[..., Connection], proxy: FaultProxy, background: ThreadPoolExecutor
    ) -> None:
        proxy.black_hole()

        coming = background.submit(connect)

        eventually(lambda: proxy.connections == 1)
        assert stays_open(coming)
        proxy.heal()
        assert coming.result(PATIENCE_S).execute("SELECT 1").fetchone() == (1,)

    def test_the_server_does_not_hear_of_new_connections(self) -> None:
        with closing(socket.create_server(("127.0.0.1", 0))) as server:
            server.settimeout(MOMENT_S)
            with FaultProxy("127.0.0.1", server.getsockname()[1]) as proxy:
                proxy.black_hole()
                with closing(socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S)):
                    with pytest.raises(TimeoutError):
                        server.accept()
                    proxy.heal()
                    server.settimeout(PATIENCE_S)
                    server.accept()[0].close()

    def test_or_not_if_so_asked(
        self, connect: Callable[..., Connection], proxy: FaultProxy, background: ThreadPoolExecutor
    ) -> None:
        old = connect()
        proxy.black_hole(new=False)

        answer = background.submit(old.execute, "SELECT 1")

        assert connect().execute("SELECT 2").fetchone() == (2,)
        assert not answer.done()
        proxy.heal()
        assert answer.result(PATIENCE_S).fetchone() == (1,)


class TestLatency:
    def test_each_way_takes_longer_until_healed(self, connect: Callable[..., Connection], proxy: FaultProxy) -> None:
        connection = connect()

        proxy.latency(0.2)
        slow = self.seconds(connection)
        proxy.heal()
        fast = self.seconds(connection)

        assert 0.4 <= slow < 0.4 + PATIENCE_S
        assert fast < 0.2

    @staticmethod
    def seconds(connection: Connection) -> float:
        started = time.monotonic()
        connection.execute("SELECT 1")
        return time.monotonic() - started


class TestReset:
    def test_both_sides_are_reset(
        self, connect: Callable[..., Connection], proxy: FaultProxy, direct: Connection
    ) -> None:
        connection = connect(application_name="reset")
        with closing(socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S)) as wire:
            eventually(lambda: proxy.connections == 2)

            proxy.reset_all()

            with pytest.raises(ConnectionResetError):
                wire.recv(1)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
        eventually(lambda: backends(direct, "reset") == 0)
        assert proxy.cut == 2
        assert connect().execute("SELECT 1").fetchone() == (1,)

    def test_a_black_hole_can_be_reset(
        self, connect: Callable[..., Connection], proxy: FaultProxy, background: ThreadPoolExecutor
    ) -> None:
        connection = connect()
        proxy.black_hole()
        answer = background.submit(connection.execute, "SELECT 1")
        assert stays_open(answer)

        proxy.reset_all()

        assert isinstance(answer.exception(PATIENCE_S), psycopg.OperationalError)


class TestRefuseNew:
    def test_new_connections_are_refused_and_old_ones_work(
        self, connect: Callable[..., Connection], proxy: FaultProxy
    ) -> None:
        connection = connect()
        port = proxy.port

        proxy.refuse_new(True)

        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), PATIENCE_S).close()
        assert connection.execute("SELECT 1").fetchone() == (1,)
        proxy.refuse_new(False)
        assert proxy.port == port
        assert connect().execute("SELECT 2").fetchone() == (2,)

    def test_heal_takes_new_connections_again(self, connect: Callable[..., Connection], proxy: FaultProxy) -> None:
        proxy.refuse_new(True)
        proxy.heal()

        assert connect().execute("SELECT 1").fetchone() == (1,)

    def test_a_server_that_is_not_there_resets_the_client(self) -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            with FaultProxy("127.0.0.1", unused.getsockname()[1]) as proxy:
                # The reset may come while connecting, too.
                with pytest.raises(ConnectionResetError):
                    with closing(socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S)) as wire:
                        wire.recv(1)


class TestThreads:
    def test_faults_may_change_while_many_talk(
        self, connect: Callable[..., Connection], proxy: FaultProxy, background: ThreadPoolExecutor
    ) -> None:
        connections = [connect() for _ in range(8)]

        def talk(connection: Connection) -> list[Any]:
            return [connection.execute("SELECT %s::int", [n]).fetchone() for n in range(100)]

        talking = [background.submit(talk, connection) for connection in connections]
        while not all(future.done() for future in talking):
            proxy.black_hole()
            proxy.latency(0.001)
            proxy.heal()

        assert [future.result() for future in talking] == [[(n,) for n in range(100)]] * 8

    def test_close_leaves_no_thread_and_no_port(self, server_url: str) -> None:
        before = set(threading.enumerate())
        proxy = FaultProxy.in_front_of(server_url)
        with proxy:
            with closing(psycopg.connect(proxy.url(server_url))) as connection:
                assert set(threading.enumerate()) > before
                proxy.black_hole()
                proxy.close()
                with pytest.raises(psycopg.OperationalError):
                    connection.execute("SELECT 1")

        assert set(threading.enumerate()) == before
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S).close()
        with pytest.raises(RuntimeError, match="not running"):
            proxy.heal()

    def test_close_finds_clients_that_have_only_just_come(self, server_url: str) -> None:
        """A link that is ended before its first step must not leave its socket open."""
        for _ in range(20):
            with FaultProxy.in_front_of(server_url) as proxy:
                wires = [socket.create_connection(("127.0.0.1", proxy.port), PATIENCE_S) for _ in range(5)]
            for wire in wires:
                with closing(wire), suppress(ConnectionResetError):
                    assert wire.recv(1) == b""
