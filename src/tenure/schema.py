"""The schema: print it, apply the migrations that are missing, say what differs (C9.1, C9.2, C9.4).

Applying is one transaction under a transaction-level advisory lock, so two nodes may apply at once and a pooler in
transaction mode is fine. A migration that was released is never edited.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tenure.drivers import Administrator
from tenure.errors import DatabaseProblem, JobDatabaseError
from tenure.shapes import RUNS, SHAPES, Shape
from tenure.statements import SQL, Table, migration_script, quote, schema_script

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

LOCK_TIMEOUT = "15s"

_AS_PRINTED = "Make it as in: tenure schema print"
_RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")


def script(table: Table | None = None) -> str:
    """Give the whole present schema as SQL, for those who run migrations with tools of their own."""
    return schema_script(table or Table())


def migrations() -> list[str]:
    """Give the file names of all migrations, in their order."""
    return sorted(name for name in os.listdir(os.path.join(SQL, "migrations")) if name.endswith(".sql"))


def apply(administrator: Administrator, table: Table) -> list[str]:
    """Apply the migrations that are missing and give their names; all or none."""
    with administrator() as connection, connection.transaction():
        # Else a node that waits for another one's change would look with the eyes of before it.
        connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
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


def faults(connection: Connection, table: Table) -> list[str]:
    """Say what `check` says, as the connection's open transaction sees it."""
    if not _exists(connection, table.schema, table.name):
        return [f"The table {table.quoted} does not exist. Run: tenure schema apply"]
    unrecorded = _unrecorded(connection, table)
    return [
        *_migration_faults(connection, table, unrecorded),
        *(
            fault
            for shape in SHAPES
            if shape.migration not in unrecorded
            for fault in _faults_of(connection, table, shape)
        ),
    ]


def _faults_of(connection: Connection, table: Table, shape: Shape) -> list[str]:
    quoted = shape.quoted(table)
    if not _table_exists(connection, table, shape):
        return [f"The table {quoted} is missing. {_AS_PRINTED}"]
    return [
        *_column_faults(connection, table, shape),
        *_default_faults(connection, table, shape),
        *_index_faults(connection, table, shape),
        *_program_faults(connection, table, shape),
        *_grant_faults(connection, table, shape),
    ]


def lock_for_change(connection: Connection, table: Table, lock_timeout: str) -> None:
    """Let one transaction at a time change the schema of a table, and let none wait for a lock for ever."""
    connection.execute(f"SET LOCAL lock_timeout = '{lock_timeout}'".encode())
    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", [f"tenure {table.quoted}"])


def applied_migrations(connection: Connection, table: Table) -> set[str]:
    """Give the names of the migrations that are recorded as applied; none where there is no record."""
    return _applied(connection, table) if _exists(connection, table.schema, f"{table.name}_migrations") else set()


def migrations_table_script(table: Table) -> str:
    """Give the SQL that makes the table which remembers which migrations were applied."""
    return (
        f'CREATE TABLE {table.migrations_quoted} ("name" text PRIMARY KEY, '
        '"appliedAt" timestamptz NOT NULL DEFAULT clock_timestamp())'
    )


def _make_schema(connection: Connection, table: Table) -> None:
    # CREATE SCHEMA IF NOT EXISTS asks for the right to create even where nothing is to be created
    if connection.execute("SELECT FROM pg_namespace WHERE nspname = $1", [table.schema]).fetchone() is None:
        connection.execute(f"CREATE SCHEMA {quote(table.schema)}".encode())


def _missing(connection: Connection, table: Table) -> list[str]:
    """Give the migrations to apply; refuse a table that tenure did not make, and a newer schema than this version's."""
    if not _exists(connection, table.schema, f"{table.name}_migrations"):
        if _exists(connection, table.schema, table.name):
            raise JobDatabaseError(
                DatabaseProblem.SCHEMA_OLD,
                f"The table {table.quoted} exists, but tenure did not make it. Nothing was changed. If NestJS nodes "
                "use it, or another tool made it by our SQL, take it over with: tenure schema adopt. Else give "
                "tenure a table of its own with --table, or rename that one.",
            )
        connection.execute(migrations_table_script(table).encode())
    if not _may_read_migrations(connection, table):
        return _nothing_missing_as_far_as_can_be_seen(connection, table)
    applied = _applied(connection, table)
    return [name for name in migrations() if name not in applied]


def _may_read_migrations(connection: Connection, table: Table) -> bool:
    row = connection.execute("SELECT has_table_privilege($1, 'SELECT')", [table.migrations_quoted]).fetchone()
    return row is not None and bool(row[0])


def _nothing_missing_as_far_as_can_be_seen(connection: Connection, table: Table) -> list[str]:
    """Let a run-time role apply a schema that is there; it may see the columns, if not which migrations made them."""
    for shape in SHAPES:
        faults = (
            _column_faults(connection, table, shape)
            if _table_exists(connection, table, shape)
            else [f"The table {shape.quoted(table)} is missing."]
        )
        if faults:
            role = quote(connection.info.user)
            raise JobDatabaseError(
                DatabaseProblem.GRANT_MISSING,
                f"{faults[0]} The role {role} may not do that: apply as the owner of {table.quoted}.",
            )
    return []


def _applied(connection: Connection, table: Table) -> set[str]:
    return {row[0] for row in connection.execute(f'SELECT "name" FROM {table.migrations_quoted}'.encode())}


def _exists(connection: Connection, schema: str, name: str) -> bool:
    query = (
        "SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2"
    )
    return connection.execute(query, [schema, name]).fetchone() is not None


def _table_exists(connection: Connection, table: Table, shape: Shape) -> bool:
    return _exists(connection, table.schema, table.name if shape.side is None else f"{table.name}_{shape.side}")


def _unrecorded(connection: Connection, table: Table) -> set[str]:
    """Give the migrations that are known not to be applied; none where nobody wrote it down, or it may not be read."""
    if not _exists(connection, table.schema, f"{table.name}_migrations") or not _may_read_migrations(connection, table):
        return set()
    return set(migrations()) - _applied(connection, table)


def _migration_faults(connection: Connection, table: Table, unrecorded: set[str]) -> list[str]:
    if not _exists(connection, table.schema, f"{table.name}_migrations"):
        return [
            f"{table.migrations_quoted} is missing: another tool made this table. If all else is as it should be, "
            "record that with: tenure schema adopt"
        ]
    return [f"Migration {name} is not applied. Run: tenure schema apply" for name in sorted(unrecorded)]


def _column_faults(connection: Connection, table: Table, shape: Shape) -> list[str]:
    rows = connection.execute(
        "SELECT attname, format_type(atttypid, atttypmod), t.typname FROM pg_attribute a "
        "JOIN pg_type t ON t.oid = a.atttypid "
        "WHERE attrelid = CAST($1 AS regclass) AND attnum > 0 AND NOT attisdropped",
        [shape.quoted(table)],
    ).fetchall()
    found = {name: typname if typname.endswith("_enum") else full for name, full, typname in rows}
    mend = "Run: tenure schema apply" if shape is RUNS else _AS_PRINTED
    faults: list[str] = []
    for name, expected in shape.column_types(table).items():
        if name not in found:
            faults.append(f"The column {_column(name, table, shape)} is missing. {mend}")
        elif found[name] != expected:
            faults.append(
                f"The column {_column(name, table, shape)} is {found[name]}, and should be {expected}. Alter it."
            )
    return faults


def _column(name: str, table: Table, shape: Shape) -> str:
    return f'"{name}"' if shape is RUNS else f'"{name}" of {shape.quoted(table)}'


def _default_faults(connection: Connection, table: Table, shape: Shape) -> list[str]:
    """Look for what an INSERT relies on, ours and a NestJS node's, and for the room that renewals need."""
    quoted = shape.quoted(table)
    rows = connection.execute(
        "SELECT attname, attnotnull, atthasdef, attidentity <> '' FROM pg_attribute "
        "WHERE attrelid = CAST($1 AS regclass) AND attnum > 0 AND NOT attisdropped",
        [quoted],
    ).fetchall()
    faults: list[str] = []
    for name, not_null, has_default, has_identity in rows:
        column = _column(name, table, shape)
        if name in shape.identity and not has_identity:
            faults.append(f"The column {column} is no identity: no row can be inserted. Make it one.")
        elif name in shape.defaulted and not has_default:
            faults.append(f"The column {column} has lost its default. Set it as in: tenure schema print")
        elif name not in shape.columns and not_null and not (has_default or has_identity):
            faults.append(
                f"The column {column} is not ours and must be given: no row can be inserted. Give it a default."
            )
    options = connection.execute("SELECT reloptions FROM pg_class WHERE oid = CAST($1 AS regclass)", [quoted])
    wanted = f"fillfactor={shape.fillfactor}"
    if shape.fillfactor and wanted not in ((options.fetchone() or [None])[0] or []):
        what = "Renewals" if shape.renewed else "Updates"
        faults.append(f"{what} have no room: ALTER TABLE {quoted} SET (fillfactor = {shape.fillfactor});")
    return faults


def _index_faults(connection: Connection, table: Table, shape: Shape) -> list[str]:
    quoted = shape.quoted(table)
    rows = connection.execute(
        "SELECT c.relname, i.indexrelid::regclass::text, i.indisunique AND i.indpred IS NULL, "
        "pg_get_indexdef(i.indexrelid), ARRAY(SELECT a.attname::text FROM generate_series(1, i.indnkeyatts) AS key (n) "
        "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[key.n - 1] ORDER BY key.n) "
        "FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
        "WHERE i.indrelid = CAST($1 AS regclass) AND i.indisvalid ORDER BY 1",
        [quoted],
    ).fetchall()
    unique = {tuple(columns) for _, _, whole, _, columns in rows if whole}
    of = "" if shape is RUNS else f" of {quoted}"
    unsafe = [", ".join(f'"{name}"' for name in key) for key in sorted(shape.unique) if key not in unique]
    missing = sorted({f"{table.name}_{suffix}" for suffix in shape.indexes} - {row[0] for row in rows})
    renewed = [name for _, name, _, definition, _ in rows if shape.renewed and f'"{shape.renewed}"' in definition]
    return [
        *(f"There is no unique index on {key}{of}: runs are not safe. Create it." for key in unsafe),
        *(
            f"The index {quote(name)} is missing: {shape.slow}. Create it as in: tenure schema print"
            for name in missing
        ),
        *(f'The index {name} mentions "{shape.renewed}": every renewal pays for it. Drop it.' for name in renewed),
    ]


def _program_faults(connection: Connection, table: Table, shape: Shape) -> list[str]:
    """Look for triggers, foreign keys and functions."""
    quoted = shape.quoted(table)
    triggers = connection.execute(
        "SELECT tgname FROM pg_trigger WHERE tgrelid = CAST($1 AS regclass) AND tgenabled <> 'D'", [table.quoted]
    )
    firing = {row[0] for row in triggers}
    keys = connection.execute(
        "SELECT conname FROM pg_constraint WHERE conrelid = CAST($1 AS regclass) AND contype = 'f'", [quoted]
    )
    kept = {row[0] for row in keys}
    return [
        *(
            f"The {suffix.replace('_', ' ')} is missing or disabled: {consequence}."
            for suffix, consequence in shape.triggers.items()
            if f"{table.name}_{suffix}" not in firing
        ),
        *(
            f"The foreign key {quote(f'{table.name}_{suffix}')} is missing: a deleted run leaves rows. {_AS_PRINTED}"
            for suffix in shape.foreign_keys
            if f"{table.name}_{suffix}" not in kept
        ),
        *(
            f"The function {signature} is missing: no run can be acquired. {_AS_PRINTED}"
            for signature in shape.signatures(table)
            if not _is_there(connection, "to_regprocedure", signature)
        ),
    ]


def _grant_faults(connection: Connection, table: Table, shape: Shape) -> list[str]:
    role, quoted = quote(connection.info.user), shape.quoted(table)
    lacking = [(right, quoted) for right in _RIGHTS if not _is_there(connection, "has_table_privilege", quoted, right)]
    lacking += [
        ("EXECUTE", f"FUNCTION {signature}")
        for signature in shape.signatures(table)
        if _is_there(connection, "to_regprocedure", signature)
        and not _is_there(connection, "has_function_privilege", signature, "EXECUTE")
    ]
    return [
        f"The role lacks {right}. As the owner, run: GRANT {right} ON {named} TO {role};" for right, named in lacking
    ]


def _is_there(connection: Connection, function: str, *arguments: str) -> bool:
    """Ask a function of the catalog that gives a truth, or something rather than NULL."""
    given = ", ".join(f"CAST(${n} AS text)" for n in range(1, len(arguments) + 1))
    row = connection.execute(f"SELECT {function}({given})::text".encode(), arguments).fetchone()
    return row is not None and row[0] not in (None, "false")
