"""What is to be said of a database: pure, from facts to findings. Each one says what, why, and the mend."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from tenure.durations import format_duration
from tenure.operating.findings import DoctorFacts, Finding, Level, Pooling, TableFacts
from tenure.options import DEFAULT_LEASE_MS

OLDEST_VERSION: Final = 140_000
SKEW: Final = timedelta(seconds=1)
SLOW: Final = timedelta(milliseconds=100)
SHORTEST_TIMEOUT_MS: Final = 1_000
LONG_TRANSACTION: Final = timedelta(hours=1)
FEW_ROWS: Final = 10_000

_GRANT_WANTED: Final = "The role lacks"


def judge(facts: DoctorFacts) -> tuple[Finding, ...]:
    """Say all that is to be said, subject by subject, good news too; the worst does not come first."""
    return (
        _version(facts),
        _writable(facts),
        _isolation(facts),
        _durability(facts),
        _pooler(facts),
        _prepared(facts),
        _round_trip(facts),
        _clock(facts),
        *_schema(facts),
        *_grants(facts),
        *_timeouts(facts),
        *_zones(facts),
        _autovacuum(facts),
        *(finding for table in facts.tables for finding in _table(table)),
        _transactions(facts),
    )


def worst(findings: tuple[Finding, ...]) -> Level:
    """Give the worst level that is among them."""
    levels = {finding.level for finding in findings}
    return next((level for level in (Level.BAD, Level.WARN) if level in levels), Level.OK)


def _version(facts: DoctorFacts) -> Finding:
    found = f"PostgreSQL {facts.version // 10_000}.{facts.version % 10_000}"
    why = "Older servers than 14 lack what the schema is written in."
    if facts.version >= OLDEST_VERSION:
        return Finding(level=Level.OK, subject="server", found=found, why=why)
    return Finding(level=Level.BAD, subject="server", found=found, why=why, mend="Upgrade to 14 or newer.")


def _writable(facts: DoctorFacts) -> Finding:
    why = "A run can only be acquired, renewed and settled where the database can be written."
    if facts.in_recovery:
        mend = "Connect to the primary; target_session_attrs=read-write picks it from several hosts."
        found = "a standby, read-only"
    elif facts.read_only:
        mend = "Set default_transaction_read_only = off for this role and database."
        found = "default_transaction_read_only is on"
    else:
        return Finding(level=Level.OK, subject="writable", found="a primary, writable", why=why)
    return Finding(level=Level.BAD, subject="writable", found=found, why=why, mend=mend)


def _isolation(facts: DoctorFacts) -> Finding:
    why = (
        "tenure's statements run at READ COMMITTED whatever is set, but your own transactions take the default: above "
    )
    why += "it, one that settles a run may have to be retried for 40001."
    if facts.isolation == "read committed":
        return Finding(level=Level.OK, subject="isolation", found="read committed", why=why)
    mend = "Retry your transactions on 40001, or set default_transaction_isolation = 'read committed'."
    return Finding(level=Level.WARN, subject="isolation", found=facts.isolation, why=why, mend=mend)


def _durability(facts: DoctorFacts) -> Finding:
    why = "What a crash of the server forgets may happen again: a run that was acquired, or one that had succeeded."
    if not facts.fsync:
        mend = "Set fsync = on, unless all of this database may be lost."
        return Finding(level=Level.BAD, subject="durability", found="fsync is off", why=why, mend=mend)
    found = f"synchronous_commit is {facts.synchronous_commit}"
    if facts.synchronous_commit == "off":
        mend = "Set synchronous_commit = on for this role; tenure writes little."
        return Finding(level=Level.WARN, subject="durability", found=found, why=why, mend=mend)
    return Finding(level=Level.OK, subject="durability", found=found, why=why)


def _pooler(facts: DoctorFacts) -> Finding:
    why = "tenure keeps no session state, so a pooler in session or transaction mode is fine; in statement mode no "
    why += "transaction can be opened, and an effect cannot be written together with its run."
    if facts.pooling is Pooling.STATEMENT:
        mend = "Set pool_mode = transaction."
        return Finding(level=Level.BAD, subject="pooler", found="one in statement mode", why=why, mend=mend)
    found = "none" if facts.pooling is Pooling.NONE else f"one in {facts.pooling.value} mode"
    return Finding(level=Level.OK, subject="pooler", found=found, why=why)


def _prepared(facts: DoctorFacts) -> Finding:
    if facts.pooling in (Pooling.NONE, Pooling.SESSION):
        found, why = "used", "The server plans a statement once for each connection, rather than each time."
        if facts.pooling is Pooling.SESSION:
            found = "not used by tenure"
    else:
        found = "not used by tenure"
        why = (
            "Behind a pooler a prepared statement may be looked for on another server connection. Your own connections "
        )
        why += "must not prepare either, unless PgBouncer is 1.21 or newer with max_prepared_statements set: "
        why += "prepare_threshold=None for psycopg, statement_cache_size=0 for asyncpg."
    return Finding(level=Level.OK, subject="prepared statements", found=found, why=why)


def _round_trip(facts: DoctorFacts) -> Finding:
    lease = timedelta(milliseconds=facts.shortest_lease_ms or DEFAULT_LEASE_MS)
    found = f"{facts.round_trip / timedelta(milliseconds=1):.1f} ms; the shortest lease is {format_duration(lease)}"
    why = "Each acquire and each renewal takes one. A lease has to outlive several that fail."
    mend = "Give jobs longer leases, or bring the nodes nearer to the database."
    if facts.round_trip * 10 > lease:
        return Finding(level=Level.BAD, subject="round trip", found=found, why=why, mend=mend)
    if facts.round_trip > SLOW:
        return Finding(level=Level.WARN, subject="round trip", found=found, why=why, mend=mend)
    return Finding(level=Level.OK, subject="round trip", found=found, why=why)


def _clock(facts: DoctorFacts) -> Finding:
    ahead = facts.clock_offset >= timedelta(0)
    found = f"{format_duration(facts.clock_offset)} {'ahead of' if ahead else 'behind'} the database's"
    why = "Only the database's clock decides what is due and what has expired, so no run is harmed; but this machine's "
    why += "logs and the times in the table do not agree."
    if abs(facts.clock_offset) <= SKEW:
        return Finding(level=Level.OK, subject="clock", found=found, why=why)
    mend = "Let this machine, or the database's, keep time by NTP."
    return Finding(level=Level.WARN, subject="clock", found=found, why=why, mend=mend)


def _schema(facts: DoctorFacts) -> Iterator[Finding]:
    why = "What is missing or different makes statements fail, or slow, or unsafe."
    faults = [fault for fault in facts.faults if not fault.startswith(_GRANT_WANTED)]
    if not faults:
        yield Finding(level=Level.OK, subject="schema", found="as this version needs it", why=why)
    for fault in faults:
        mend = "Do as it says; tenure schema check says it again."
        yield Finding(level=Level.BAD, subject="schema", found=fault, why=why, mend=mend)


def _grants(facts: DoctorFacts) -> Iterator[Finding]:
    why = "A node needs SELECT, INSERT, UPDATE, DELETE on the tables; whoever only looks on, SELECT."
    lacking = [fault for fault in facts.faults if fault.startswith(_GRANT_WANTED)]
    if not lacking:
        yield Finding(level=Level.OK, subject="grants", found=f"the role {facts.role} has all that is needed", why=why)
    for fault in lacking:
        found, _, mend = fault.partition(". ")
        yield Finding(level=Level.WARN, subject="grants", found=f"{found}.", why=why, mend=mend)


def _timeouts(facts: DoctorFacts) -> Iterator[Finding]:
    lease_ms = facts.shortest_lease_ms or DEFAULT_LEASE_MS
    for name, timeout_ms in facts.timeouts_ms.items():
        found = "off" if timeout_ms == 0 else format_duration(timedelta(milliseconds=timeout_ms))
        why = _TIMEOUTS.get(name, "It may end what tenure has begun.")
        least_ms = lease_ms // 3 if name == "idle_session_timeout" else SHORTEST_TIMEOUT_MS
        if timeout_ms == 0 or timeout_ms >= least_ms:
            yield Finding(level=Level.OK, subject=name, found=found, why=why)
            continue
        least = format_duration(timedelta(milliseconds=least_ms))
        mend = f"Set {name} to at least {least} for this role, or to 0."
        yield Finding(level=Level.WARN, subject=name, found=found, why=why, mend=mend)


_TIMEOUTS: Final = {
    "statement_timeout": (
        "One that is shorter than a busy server's answer fails acquires and renewals; tenure bounds its own statements."
    ),
    "lock_timeout": "tenure's statements skip locked rows rather than wait, but for short waits on a new row's key.",
    "idle_in_transaction_session_timeout": (
        "It ends a transaction of yours that holds a run's row, and its effects with it. Off, one that hangs keeps "
        "that run from being taken over for as long."
    ),
    "idle_session_timeout": (
        "Renewal keeps a connection that is idle between rounds: one that is ended has to be opened again in the "
        "middle of a lease."
    ),
    "transaction_timeout": "It ends transactions of yours that take longer, and the effects of their runs with them.",
}


def _zones(facts: DoctorFacts) -> Iterator[Finding]:
    why = (
        "Nodes count ticks by their own time zone data, so all must know the zones of their jobs, in the same version."
    )
    found = facts.tzdata or "no time zone data"
    if facts.tzdata is None:
        mend = "Install the system's package tzdata, or: pip install tzdata"
        level = Level.BAD if set(facts.zones) - {"UTC"} else Level.WARN
        yield Finding(level=level, subject="time zone data", found=found, why=why, mend=mend)
    else:
        yield Finding(level=Level.OK, subject="time zone data", found=found, why=why)
    upgrade = "Upgrade the system's package tzdata there and here, or: pip install --upgrade tzdata"
    for zone in facts.zones_unknown_here:
        yield Finding(level=Level.BAD, subject="time zones", found=f"{zone} is not known here", why=why, mend=upgrade)
    for zone in facts.zones_differing:
        told = f"{zone} shows other times here than on the server"
        yield Finding(level=Level.WARN, subject="time zones", found=told, why=why, mend=upgrade)
    for zone in facts.zones_unknown_there:
        why_there = "Ticks do not depend on it, but SQL of yours that reads them in this zone fails."
        told = f"{zone} is not known to the server"
        yield Finding(level=Level.WARN, subject="time zones", found=told, why=why_there, mend=upgrade)
    if not (facts.zones_unknown_here or facts.zones_differing or facts.zones_unknown_there):
        used = ", ".join(facts.zones) or "none in use"
        yield Finding(level=Level.OK, subject="time zones", found=f"the same here and there: {used}", why=why)


def _autovacuum(facts: DoctorFacts) -> Finding:
    why = "Renewals leave dead rows: autovacuum makes room of them, or tables grow without end."
    if facts.autovacuum:
        return Finding(level=Level.OK, subject="autovacuum", found="on", why=why)
    mend = "Set autovacuum = on and track_counts = on in the server's settings."
    return Finding(level=Level.BAD, subject="autovacuum", found="off", why=why, mend=mend)


def _table(table: TableFacts) -> Iterator[Finding]:
    subject = f"table {table.name}"
    hot = "" if table.hot_share is None else f", {table.hot_share:.0%} of updates touched no index"
    last = f"{table.last_autovacuum:%Y-%m-%d %H:%M} UTC" if table.last_autovacuum else "never"
    size = f"{table.live:,} rows, {table.dead:,} dead, {table.size_bytes / 1_048_576:,.1f} MiB"
    found = f"{size}{hot}; last autovacuum {last}"
    why = "Dead rows make every statement on the table read more than it shows."
    if not table.autovacuum:
        mend = f"ALTER TABLE {table.name} RESET (autovacuum_enabled);"
        yield Finding(level=Level.BAD, subject=subject, found=f"autovacuum is off; {found}", why=why, mend=mend)
    elif table.dead > max(FEW_ROWS, table.live):
        mend = f"VACUUM {table.name}; and end transactions that are open for long, which keep dead rows."
        yield Finding(level=Level.WARN, subject=subject, found=found, why=why, mend=mend)
    else:
        yield Finding(level=Level.OK, subject=subject, found=found, why=why)


def _transactions(facts: DoctorFacts) -> Finding:
    why = "A transaction that stays open keeps dead rows from being removed, in all tables."
    oldest = facts.oldest_transaction
    found = "none that this role may see" if oldest is None else f"the oldest is open for {format_duration(oldest)}"
    if oldest is None or oldest <= LONG_TRANSACTION:
        return Finding(level=Level.OK, subject="open transactions", found=found, why=why)
    mend = "Find it in pg_stat_activity by xact_start, and end it: pg_terminate_backend(pid)."
    return Finding(level=Level.WARN, subject="open transactions", found=found, why=why, mend=mend)
