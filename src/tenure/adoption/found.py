"""What the catalog says of a table that another tool made.

An ORM makes up the names of constraints and indexes, so all is found by its definition. Nothing is decided here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tenure.errors import DatabaseProblem, JobDatabaseError
from tenure.schema import applied_migrations
from tenure.shapes import SHAPES
from tenure.statements import Table, quote

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[Any]

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """Hold one column; `labels` are those of its enum type, if it has one."""

    name: str
    type: str
    type_schema: str
    type_name: str
    not_null: bool
    default: str | None
    identity: bool
    labels: frozenset[str]


@dataclass(frozen=True, slots=True)
class Index:
    """Hold one index; a column that is an expression, or not in ascending order by its default class, is `None`."""

    name: str
    columns: tuple[str | None, ...]
    unique: bool
    primary: bool
    sound: bool
    """Valid, on a B-tree, and of no deferrable constraint."""
    constraint: bool
    predicate: str | None
    renewed: bool
    """It mentions "modifiedAt", anywhere."""
    definition: str


@dataclass(frozen=True, slots=True)
class Trigger:
    """Hold one trigger; `mode` is PostgreSQL's letter for when it fires."""

    name: str
    mode: str
    function: str


@dataclass(frozen=True, slots=True)
class Found:
    """Hold what the catalog says, and the few facts about the rows that decide what can be done."""

    owner: str
    columns: dict[str, Column]
    indexes: tuple[Index, ...]
    triggers: tuple[Trigger, ...]
    options: frozenset[str]
    types: frozenset[str]
    """The names of the types that the table's schema holds."""
    bodies: dict[str, str]
    """The bodies of the functions in the table's schema, by name."""
    has_record: bool
    applied: frozenset[str]
    made: frozenset[str]
    """The later migrations whose tables are there, recorded or not."""
    has_rows: bool
    nulls: frozenset[str]
    """The columns that hold a NULL."""
    shared: dict[str, int]
    """How many values of a column stand in several rows, where there are any."""


def look(connection: Connection, table: Table) -> Found:
    """Read the catalog in the open transaction.

    Raises `JobDatabaseError` if there is no such table, or if the role may not alter it.
    """
    connection.execute("SET LOCAL search_path = ''")
    owner, options = _table(connection, table)
    columns = _columns(connection, table)
    indexes = _indexes(connection, table)
    may_hold_nulls = [name for name in _KEYS if name in columns and not columns[name].not_null]
    may_be_shared = [name for name in _KEYS if name in columns and not any(is_unique(i, name) for i in indexes)]
    shared = {name: _shared(connection, table, name) for name in may_be_shared}
    return Found(
        owner=owner,
        columns=columns,
        indexes=indexes,
        triggers=_triggers(connection, table),
        options=options,
        types=_types(connection, table),
        bodies=_bodies(connection, table),
        has_record=_exists(connection, table.migrations_quoted),
        applied=frozenset(applied_migrations(connection, table)),
        made=_made(connection, table),
        has_rows=_any(connection, f"SELECT FROM {table.quoted}"),
        nulls=frozenset(
            name
            for name in may_hold_nulls
            if _any(connection, f"SELECT FROM {table.quoted} WHERE {quote(name)} IS NULL")
        ),
        shared={name: count for name, count in shared.items() if count},
    )


_KEYS = ("id", "lockKey", "code", "type", "status", "ownerToken", "createdAt", "modifiedAt", "attempt", "fencingToken")


def is_unique(index: Index, column: str) -> bool:
    """Say whether an index keeps a column unique, as `ON CONFLICT` needs it."""
    return index.sound and index.unique and index.columns == (column,) and index.predicate is None


def _table(connection: Connection, table: Table) -> tuple[str, frozenset[str]]:
    row = connection.execute(
        "SELECT c.relkind::text, pg_get_userbyid(c.relowner), c.reloptions, pg_has_role(c.relowner, 'MEMBER'), "
        "has_schema_privilege(c.relowner, c.relnamespace, 'CREATE') FROM pg_catalog.pg_class c "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2",
        [table.schema, table.name],
    ).fetchone()
    if row is None:
        raise JobDatabaseError(
            DatabaseProblem.SCHEMA_MISSING,
            f"The table {table.quoted} does not exist, so there is nothing to adopt. Name it with --schema and "
            "--table, or make one with: tenure schema apply",
        )
    kind, owner, options, may_act_as_owner, owner_may_create = row
    if kind != "r":
        raise JobDatabaseError(DatabaseProblem.SCHEMA_OLD, f"{table.quoted} is not an ordinary table. Leave it alone.")
    if not may_act_as_owner:
        raise JobDatabaseError(
            DatabaseProblem.GRANT_MISSING,
            f"The role {quote(connection.info.user)} may not alter {table.quoted}. Connect as its owner, "
            f"{quote(owner)}.",
        )
    if not owner_may_create:
        raise JobDatabaseError(
            DatabaseProblem.GRANT_MISSING,
            f"The owner of {table.quoted} may make nothing beside it. As the owner of the schema, run: "
            f"GRANT USAGE, CREATE ON SCHEMA {quote(table.schema)} TO {quote(owner)};",
        )
    return owner, frozenset(options or ())


def _columns(connection: Connection, table: Table) -> dict[str, Column]:
    rows = connection.execute(
        "SELECT a.attname, format_type(a.atttypid, a.atttypmod), n.nspname, t.typname, a.attnotnull, "
        "pg_get_expr(d.adbin, d.adrelid), a.attidentity <> '', "
        "ARRAY(SELECT e.enumlabel::text FROM pg_catalog.pg_enum e WHERE e.enumtypid = t.oid) "
        "FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid "
        "JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace "
        "LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum "
        "WHERE a.attrelid = CAST($1 AS regclass) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
        [table.quoted],
    ).fetchall()
    return {row[0]: _column(row) for row in rows}


def _column(row: Row) -> Column:
    name, kind, type_schema, type_name, not_null, default, identity, labels = row
    return Column(name, kind, type_schema, type_name, not_null, default, identity, frozenset(labels))


def _indexes(connection: Connection, table: Table) -> tuple[Index, ...]:
    rows = connection.execute(
        "SELECT c.relname, i.indisunique, i.indisprimary, "
        "i.indisvalid AND am.amname = 'btree' AND NOT COALESCE(k.condeferrable, false), k.oid IS NOT NULL, "
        "pg_get_expr(i.indpred, i.indrelid), pg_get_indexdef(i.indexrelid), "
        "ARRAY(SELECT CASE WHEN i.indoption[key.n - 1] = 0 AND o.opcdefault THEN a.attname::text END "
        "FROM generate_series(1, CAST(i.indnkeyatts AS integer)) AS key (n) "
        "JOIN pg_catalog.pg_opclass o ON o.oid = i.indclass[key.n - 1] LEFT JOIN pg_catalog.pg_attribute a "
        "ON a.attrelid = i.indrelid AND a.attnum = i.indkey[key.n - 1] AND a.attnum > 0 ORDER BY key.n), "
        "i.indnatts > i.indnkeyatts FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid "
        "JOIN pg_catalog.pg_am am ON am.oid = c.relam "
        "LEFT JOIN pg_catalog.pg_constraint k ON k.conindid = i.indexrelid AND k.contype IN ('p', 'u', 'x') "
        "WHERE i.indrelid = CAST($1 AS regclass) ORDER BY c.relname",
        [table.quoted],
    ).fetchall()
    return tuple(_index(row) for row in rows)


def _index(row: Row) -> Index:
    name, unique, primary, sound, constraint, predicate, definition, columns, includes_more = row
    renewed = '"modifiedAt"' in definition
    shown = (*columns, None) if includes_more else tuple(columns)
    return Index(name, shown, unique, primary, sound, constraint, predicate, renewed, definition)


def _triggers(connection: Connection, table: Table) -> tuple[Trigger, ...]:
    rows = connection.execute(
        "SELECT t.tgname, t.tgenabled::text, p.proname FROM pg_catalog.pg_trigger t "
        "JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid "
        "WHERE t.tgrelid = CAST($1 AS regclass) AND NOT t.tgisinternal ORDER BY t.tgname",
        [table.quoted],
    ).fetchall()
    return tuple(Trigger(*row) for row in rows)


def _types(connection: Connection, table: Table) -> frozenset[str]:
    rows = connection.execute(
        "SELECT t.typname FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace "
        "WHERE n.nspname = $1",
        [table.schema],
    )
    return frozenset(row[0] for row in rows)


def _bodies(connection: Connection, table: Table) -> dict[str, str]:
    rows = connection.execute(
        "SELECT p.proname, p.prosrc FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace "
        "WHERE n.nspname = $1 AND starts_with(p.proname, $2)",
        [table.schema, f"{table.name}_"],
    )
    return {row[0]: row[1] for row in rows}


def _shared(connection: Connection, table: Table, column: str) -> int:
    name = quote(column)
    row = connection.execute(
        f"SELECT count(*) FROM (SELECT FROM {table.quoted} WHERE {name} IS NOT NULL GROUP BY {name} "
        "HAVING count(*) > 1) AS twice".encode()
    ).fetchone()
    return int(row[0]) if row else 0


def _exists(connection: Connection, quoted: str) -> bool:
    row = connection.execute("SELECT to_regclass($1) IS NOT NULL", [quoted]).fetchone()
    return bool(row and row[0])


def _made(connection: Connection, table: Table) -> frozenset[str]:
    lacking = {shape.migration for shape in SHAPES if not _exists(connection, shape.quoted(table))}
    return frozenset(shape.migration for shape in SHAPES if shape.side) - lacking


def _any(connection: Connection, query: str) -> bool:
    return connection.execute(f"{query} LIMIT 1".encode()).fetchone() is not None
