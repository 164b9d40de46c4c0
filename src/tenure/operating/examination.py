"""The doctor's look at a database, over connections of its own: `service.examine(examination.look)`.

Changes nothing.
"""

from __future__ import annotations

import time
import zoneinfo
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tenure.drivers import Administrator
from tenure.operating.diagnosis import judge
from tenure.operating.findings import DoctorFacts, Finding, Pooling, TableFacts
from tenure.schema import faults
from tenure.statements import Table

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

_TIMEOUTS: Final = (
    "statement_timeout",
    "lock_timeout",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "transaction_timeout",
)
_SETTINGS: Final = (
    "SELECT CAST(current_setting('server_version_num') AS integer), current_user, pg_is_in_recovery(), "
    "current_setting('transaction_read_only') = 'on', current_setting('default_transaction_isolation'), "
    "current_setting('synchronous_commit'), current_setting('fsync') = 'on', "
    "current_setting('autovacuum') = 'on' AND current_setting('track_counts') = 'on'"
)
_PINGS: Final = 5
_MONTHS: Final = 24


def look(administrator: Administrator, table: Table) -> tuple[Finding, ...]:
    """Look at the database, and say what is to be said of it."""
    return judge(learn(administrator, table))


def learn(administrator: Administrator, table: Table) -> DoctorFacts:
    """Learn all that the judgement stands on."""
    pooling = _pooling(administrator)
    with administrator() as connection:
        version, role, in_recovery, read_only, isolation, synchronous, fsync, autovacuum = _row(connection, _SETTINGS)
        round_trip, clock_offset = _clock(connection)
        wanting = tuple(faults(connection, table))
        zones = _zones(connection, table)
        here, there, differing = _compared(connection, zones)
        return DoctorFacts(
            version=version,
            role=role,
            in_recovery=in_recovery,
            read_only=read_only,
            isolation=isolation,
            synchronous_commit=synchronous,
            fsync=fsync,
            pooling=pooling,
            round_trip=round_trip,
            clock_offset=clock_offset,
            faults=wanting,
            timeouts_ms=_timeouts(connection),
            shortest_lease_ms=_shortest_lease_ms(connection, table),
            autovacuum=autovacuum,
            tables=_tables(connection, table),
            oldest_transaction=_oldest_transaction(connection),
            zones=zones,
            zones_unknown_here=here,
            zones_unknown_there=there,
            zones_differing=differing,
            tzdata=tzdata(),
        )


def _pooling(administrator: Administrator) -> Pooling:
    """Tell a pooler by the server's pid, which is not the one we were told at login; and its mode by moving us about.

    While one connection holds a server connection in a transaction, another one is given a second. When the first lets
    go, a pooler that shares them gives the other one whichever it used last: its pid changes.
    """
    import psycopg

    with administrator() as mine, administrator() as another:
        if _pid(mine) == mine.info.backend_pid:
            return Pooling.NONE
        try:
            mine.execute("BEGIN")
            mine.execute("SELECT 1")
        except psycopg.Error:
            return Pooling.STATEMENT
        before = _pid(another)
        mine.execute("COMMIT")
        return Pooling.SESSION if _pid(another) == before else Pooling.TRANSACTION


def _pid(connection: Connection) -> int:
    return int(_row(connection, "SELECT pg_backend_pid()")[0])


def _clock(connection: Connection) -> tuple[timedelta, timedelta]:
    """Give the shortest of a few round trips, and how far our clock is ahead by its middle."""
    best: tuple[float, float] | None = None
    for _ in range(_PINGS):
        sent_s, sent_wall_s = time.perf_counter(), time.time()
        (server_s,) = _row(connection, "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS float8)")
        took_s = time.perf_counter() - sent_s
        if best is None or took_s < best[0]:
            best = took_s, sent_wall_s + took_s / 2 - server_s
    assert best is not None, "it was asked at least once"
    return timedelta(seconds=best[0]), timedelta(seconds=best[1])


def _timeouts(connection: Connection) -> dict[str, int]:
    """Give the time-outs that this server knows; one that is newer than it is left out."""
    rows = connection.execute(
        "SELECT name, CAST(setting AS bigint) FROM pg_settings WHERE name = ANY ($1)", [list(_TIMEOUTS)]
    ).fetchall()
    found = dict(rows)
    return {name: found[name] for name in _TIMEOUTS if name in found}


def _shortest_lease_ms(connection: Connection, table: Table) -> int | None:
    if not _readable(connection, table.quoted, table.beside("jobs")):
        return None
    query = (
        f'SELECT LEAST((SELECT min("leaseMs") FROM {table.quoted} WHERE "status" = \'RUNNING\'), '
        f"(SELECT min(CAST(\"policy\" ->> 'lease_ms' AS bigint)) FROM {table.beside('jobs')}))"
    )
    found = _row(connection, query)[0]
    return None if found is None else int(found)


def _tables(connection: Connection, table: Table) -> tuple[TableFacts, ...]:
    names = [table.quoted, *table.side_tables().values()]
    rows = connection.execute(
        "SELECT asked.name, s.n_live_tup, s.n_dead_tup, pg_total_relation_size(s.relid), s.n_tup_upd, s.n_tup_hot_upd, "
        "s.last_autovacuum, NOT ('autovacuum_enabled=false' = ANY (COALESCE(c.reloptions, '{}'))) "
        "FROM unnest(CAST($1 AS text[])) WITH ORDINALITY AS asked (name, n) "
        "JOIN pg_stat_user_tables s ON s.relid = to_regclass(asked.name) JOIN pg_class c ON c.oid = s.relid ORDER BY n",
        [names],
    ).fetchall()
    return tuple(_table(row) for row in rows)


def _table(row: Sequence[Any]) -> TableFacts:
    name, live, dead, size, updates, hot, last, autovacuum = row
    return TableFacts(
        name=name,
        live=live,
        dead=dead,
        size_bytes=size,
        updates=updates,
        hot_updates=hot,
        last_autovacuum=last.astimezone(UTC) if isinstance(last, datetime) else None,
        autovacuum=autovacuum,
    )


def _oldest_transaction(connection: Connection) -> timedelta | None:
    (age_s,) = _row(
        connection,
        "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp() - min(xact_start)) AS float8) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' AND datname = current_database()",
    )
    return None if age_s is None else timedelta(seconds=age_s)


def _zones(connection: Connection, table: Table) -> tuple[str, ...]:
    jobs = table.beside("jobs")
    if not _readable(connection, jobs):
        return ()
    query = f'SELECT DISTINCT "timezone" FROM {jobs} WHERE "timezone" IS NOT NULL ORDER BY 1'
    return tuple(row[0] for row in connection.execute(query.encode()).fetchall())


def _compared(connection: Connection, zones: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Give the zones that are not known here, those that the server does not know, and those that differ."""
    rows = connection.execute("SELECT name FROM pg_timezone_names WHERE name = ANY ($1)", [list(zones)]).fetchall()
    known_there = {row[0] for row in rows}
    clocks = {zone: _zone(zone) for zone in zones}
    here = tuple(zone for zone, clock in clocks.items() if clock is None)
    there = tuple(zone for zone in zones if zone not in known_there)
    both = {zone: clock for zone, clock in clocks.items() if clock is not None and zone in known_there}
    return here, there, tuple(zone for zone, clock in both.items() if _differs(connection, zone, clock))


def _differs(connection: Connection, zone: str, clock: zoneinfo.ZoneInfo) -> bool:
    """Compare what the two clocks show, every ten days or so for two years."""
    start = datetime.now(UTC).replace(microsecond=0)
    days = [start + timedelta(days=10 * n) for n in range(_MONTHS * 3)]
    rows = connection.execute(
        "SELECT CAST(EXTRACT(EPOCH FROM (i.at AT TIME ZONE $1) - (i.at AT TIME ZONE 'UTC')) AS bigint) "
        "FROM unnest(CAST($2 AS timestamptz[])) WITH ORDINALITY AS i (at, n) ORDER BY n",
        [zone, days],
    ).fetchall()
    shown = [day.astimezone(clock).utcoffset() for day in days]
    return [timedelta(seconds=row[0]) for row in rows] != shown


def _zone(name: str) -> zoneinfo.ZoneInfo | None:
    try:
        return zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


def tzdata() -> str | None:
    """Say where this process has its time zones from, and which version; `None` if it has none."""
    for folder in zoneinfo.TZPATH:
        if (Path(folder) / "Europe" / "London").exists():
            return f"the system's {_version_in(Path(folder))} ({folder})"
    try:
        return f"the package tzdata {import_module('tzdata').IANA_VERSION}"
    except ImportError:
        return None


def _version_in(folder: Path) -> str:
    with suppress(OSError, UnicodeError):
        return (folder / "+VERSION").read_text().strip()
    with suppress(OSError, UnicodeError), (folder / "tzdata.zi").open() as compiled:
        return compiled.readline().removeprefix("# version").strip()
    return "of unknown version"


def _readable(connection: Connection, *names: str) -> bool:
    """Say whether these tables are there, and may be read."""
    return all(
        bool(_row(connection, "SELECT COALESCE(has_table_privilege(to_regclass($1), 'SELECT'), false)", name)[0])
        for name in names
    )


def _row(connection: Connection, query: str, *values: Any) -> Sequence[Any]:
    row = connection.execute(query.encode(), values or None).fetchone()
    assert row is not None, "each of these questions has one answer"
    return tuple(row)
