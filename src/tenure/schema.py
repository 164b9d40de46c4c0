"""The schema: print it, apply the migrations that are missing, say what differs (C9.1, C9.2, C9.4).

Applying is one transaction under a transaction-level advisory lock, so two nodes may apply at once and a pooler in
transaction mode is fine. A migration that was released is never edited.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

from tenure.drivers import Administrator
from tenure.errors import DatabaseProblem, JobDatabaseError
from tenure.statements import Table, migration_script, quote, schema_script

if TYPE_CHECKING:
    import psycopg

LOCK_TIMEOUT = "15s"

COLUMNS = {
    "id": "uuid",
    "lockKey": "character varying(320)",
    "code": "character varying(64)",
    "name": "character varying(256)",
    "type": "{type_enum}",
    "status": "{status_enum}",
    "ownerToken": "uuid",
    "data": "jsonb",
    "createdAt": "timestamp with time zone",
    "modifiedAt": "timestamp with time zone",
    "fencingToken": "bigint",
    "attempt": "integer",
    "leaseMs": "bigint",
    "owner": "character varying(256)",
    "runKey": "character varying(1024)",
    "startedAt": "timestamp with time zone",
    "finishedAt": "timestamp with time zone",
}
"""What `check` expects; a test compares it with what the migrations make."""

DEFAULTED_COLUMNS = ("id", "createdAt", "modifiedAt", "attempt", "startedAt")
UNIQUE_COLUMNS = ("id", "lockKey", "ownerToken", "fencingToken")

_RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")


def script(table: Table | None = None) -> str:
    """Give the whole present schema as SQL, for those who run migrations with tools of their own."""
    return schema_script(table or Table())


def migrations() -> list[str]:
    """Give the file names of all migrations, in their order."""
    folder = files("tenure").joinpath("sql").joinpath("migrations")
    return sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))


def apply(administrator: Administrator, table: Table) -> list[str]:
    """Apply the migrations that are missing and give their names; all or none."""
    with administrator() as connection, connection.transaction():
        lock_for_change(connection, table, LOCK_TIMEOUT)
        _make_schema(connection, table)
        missing = _missing(connection, table)
        for name in missing:
            connection.execute(migration_script(name, table).encode())
            connection.execute(f'INSERT INTO {table.migrations_quoted} ("name") VALUES ($1)'.encode(), [name])
        return missing


def check(administrator: Administrator, table: Table) -> list[str]:
    """Say what is missing or different, one sentence each, with the mend; changes nothing."""
    with administrator() as connection:
        return faults(connection, table)


def faults(connection: psycopg.Connection[Any], table: Table) -> list[str]:
    """Say what `check` says, as the connection's open transaction sees it."""
    if not _exists(connection, table.schema, table.name):
        return [f"The table {table.quoted} does not exist. Run: tenure schema apply"]
    return [
        *_migration_faults(connection, table),
        *_column_faults(connection, table),
        *_default_faults(connection, table),
        *_index_faults(connection, table),
        *_grant_faults(connection, table),
    ]


def lock_for_change(connection: psycopg.Connection[Any], table: Table, lock_timeout: str) -> None:
    """Let one transaction at a time change the schema of a table, and let none wait for a lock for ever."""
    connection.execute(f"SET LOCAL lock_timeout = '{lock_timeout}'".encode())
    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", [f"tenure {table.quoted}"])


def applied_migrations(connection: psycopg.Connection[Any], table: Table) -> set[str]:
    """Give the names of the migrations that are recorded as applied; none where there is no record."""
    return _applied(connection, table) if _exists(connection, table.schema, f"{table.name}_migrations") else set()


def migrations_table_script(table: Table) -> str:
    """Give the SQL that makes the table which remembers which migrations were applied."""
    return (
        f'CREATE TABLE {table.migrations_quoted} ("name" text PRIMARY KEY, '
        '"appliedAt" timestamptz NOT NULL DEFAULT clock_timestamp())'
    )


def _make_schema(connection: psycopg.Connection[Any], table: Table) -> None:
    # CREATE SCHEMA IF NOT EXISTS asks for the right to create even where nothing is to be created
    if connection.execute("SELECT FROM pg_namespace WHERE nspname = $1", [table.schema]).fetchone() is None:
        connection.execute(f"CREATE SCHEMA {quote(table.schema)}".encode())


def _missing(connection: psycopg.Connection[Any], table: Table) -> list[str]:
    """Give the migrations to apply; refuse a table that tenure did not make, and a newer schema than this version's."""
    if not _exists(connection, table.schema, f"{table.name}_migrations"):
        if _exists(connection, table.schema, table.name):
            raise JobDatabaseError(
                DatabaseProblem.SCHEMA_OLD,
                f"The table {table.quoted} exists, but tenure did not make it. Nothing was changed. If NestJS nodes "
                "use it, upgrade it with: tenure schema adopt. Else give tenure a table of its own with --table, or "
                "rename that one.",
            )
        connection.execute(migrations_table_script(table).encode())
    if not _may_read_migrations(connection, table):
        return _nothing_missing_as_far_as_can_be_seen(connection, table)
    applied = _applied(connection, table)
    return [name for name in migrations() if name not in applied]


def _may_read_migrations(connection: psycopg.Connection[Any], table: Table) -> bool:
    row = connection.execute("SELECT has_table_privilege($1, 'SELECT')", [table.migrations_quoted]).fetchone()
    return row is not None and bool(row[0])


def _nothing_missing_as_far_as_can_be_seen(connection: psycopg.Connection[Any], table: Table) -> list[str]:
    """Let a run-time role apply a schema that is there; it may see the columns, if not which migrations made them."""
    if faults := _column_faults(connection, table):
        role = quote(connection.info.user)
        raise JobDatabaseError(
            DatabaseProblem.GRANT_MISSING,
            f"{faults[0]} The role {role} may not do that: apply as the owner of {table.quoted}.",
        )
    return []


def _applied(connection: psycopg.Connection[Any], table: Table) -> set[str]:
    return {row[0] for row in connection.execute(f'SELECT "name" FROM {table.migrations_quoted}'.encode())}


def _exists(connection: psycopg.Connection[Any], schema: str, name: str) -> bool:
    query = (
        "SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2"
    )
    return connection.execute(query, [schema, name]).fetchone() is not None


def _migration_faults(connection: psycopg.Connection[Any], table: Table) -> list[str]:
    if not _exists(connection, table.schema, f"{table.name}_migrations"):
        return [
            f"{table.migrations_quoted} is missing: tenure did not make this table, or another tool applied the schema."
        ]
    if not _may_read_migrations(connection, table):
        return []
    applied = _applied(connection, table)
    return [
        f"Migration {name} is not applied. Run: tenure schema apply" for name in migrations() if name not in applied
    ]


def _column_faults(connection: psycopg.Connection[Any], table: Table) -> list[str]:
    rows = connection.execute(
        "SELECT attname, format_type(atttypid, atttypmod), t.typname FROM pg_attribute a "
        "JOIN pg_type t ON t.oid = a.atttypid "
        "WHERE attrelid = CAST($1 AS regclass) AND attnum > 0 AND NOT attisdropped",
        [table.quoted],
    ).fetchall()
    found = {name: typname if typname.endswith("_enum") else full for name, full, typname in rows}
    names = {"{type_enum}": f"{table.name}_type_enum", "{status_enum}": f"{table.name}_status_enum"}
    faults: list[str] = []
    for name, kind in COLUMNS.items():
        expected = names.get(kind, kind)
        if name not in found:
            faults.append(f'The column "{name}" is missing. Run: tenure schema apply')
        elif found[name] != expected:
            faults.append(f'The column "{name}" is {found[name]}, and should be {expected}. Alter it.')
    return faults


def _default_faults(connection: psycopg.Connection[Any], table: Table) -> list[str]:
    """Look for what an INSERT relies on, ours and a NestJS node's, and for the room that renewals need."""
    rows = connection.execute(
        "SELECT attname, attnotnull, atthasdef, attidentity <> '' FROM pg_attribute "
        "WHERE attrelid = CAST($1 AS regclass) AND attnum > 0 AND NOT attisdropped",
        [table.quoted],
    ).fetchall()
    faults: list[str] = []
    for name, not_null, has_default, has_identity in rows:
        if name == "fencingToken" and not has_identity:
            faults.append('The column "fencingToken" is no identity: no run can be acquired. Make it one.')
        elif name in DEFAULTED_COLUMNS and not has_default:
            faults.append(f'The column "{name}" has lost its default. Set it as in: tenure schema print')
        elif name not in COLUMNS and not_null and not (has_default or has_identity):
            faults.append(
                f'The column "{name}" is not ours and must be given: no run can be acquired. Give it a default.'
            )
    options = connection.execute("SELECT reloptions FROM pg_class WHERE oid = CAST($1 AS regclass)", [table.quoted])
    if "fillfactor=50" not in ((options.fetchone() or [None])[0] or []):
        faults.append(f"Renewals have no room: ALTER TABLE {table.quoted} SET (fillfactor = 50);")
    return faults


def _index_faults(connection: psycopg.Connection[Any], table: Table) -> list[str]:
    unique = connection.execute(
        "SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] "
        "WHERE i.indrelid = CAST($1 AS regclass) AND i.indisunique AND i.indisvalid AND i.indnkeyatts = 1 "
        "AND i.indpred IS NULL",
        [table.quoted],
    ).fetchall()
    renewed = connection.execute(
        "SELECT i.indexrelid::regclass::text FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid "
        "WHERE i.indrelid = CAST($1 AS regclass) AND a.attname = 'modifiedAt' "
        "AND (a.attnum = ANY (i.indkey) OR pg_get_indexdef(i.indexrelid) LIKE '%\"modifiedAt\"%')",
        [table.quoted],
    ).fetchall()
    trigger = connection.execute(
        "SELECT FROM pg_trigger WHERE tgrelid = CAST($1 AS regclass) AND tgname = $2 AND tgenabled <> 'D'",
        [table.quoted, f"{table.name}_reclaim_trigger"],
    ).fetchone()
    ours = {f"{table.name}_code_idx", f"{table.name}_unfinished_idx"}
    indexes = connection.execute(
        "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
        "WHERE i.indrelid = CAST($1 AS regclass) AND i.indisvalid",
        [table.quoted],
    ).fetchall()
    slow = sorted(ours - {row[0] for row in indexes})
    missing = sorted(set(UNIQUE_COLUMNS) - {row[0] for row in unique})
    return [
        *(f'There is no unique index on "{name}": runs are not safe. Create it.' for name in missing),
        *(
            f"The index {quote(name)} is missing: listings are slow. Create it as in: tenure schema print"
            for name in slow
        ),
        *(f'The index {name} mentions "modifiedAt": every renewal pays for it. Drop it.' for (name,) in renewed),
        *(
            []
            if trigger is not None
            else ["The reclaim trigger is missing or disabled: takeovers by NestJS nodes are not fenced."]
        ),
    ]


def _grant_faults(connection: psycopg.Connection[Any], table: Table) -> list[str]:
    role = connection.info.user
    faults: list[str] = []
    for right in _RIGHTS:
        row = connection.execute("SELECT has_table_privilege($1, $2)", [table.quoted, right]).fetchone()
        if not row or not row[0]:
            faults.append(
                f"The role lacks {right}. As the owner, run: GRANT {right} ON {table.quoted} TO {quote(role)};"
            )
    return faults
