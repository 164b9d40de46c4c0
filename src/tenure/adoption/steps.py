"""Decide how a table that was found is made ours: pure, from what the catalog says to steps of SQL.

The target is what migration 0001 makes; later migrations follow as they are, or are recorded where another tool ran
them. A test compares the result with a table
that the migrations made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from string import Template

from tenure.adoption.found import Column, Found, is_unique
from tenure.adoption.indexes import dropped_indexes, indexes, later_indexes
from tenure.adoption.step import Step
from tenure.errors import DatabaseProblem, JobDatabaseError
from tenure.schema import migrations, migrations_table_script
from tenure.statements import Table, migration_script, quote, read_sql

FIRST_MIGRATION = "0001_initial.sql"
FILLFACTOR = 50

_REFERENCE = {
    "id": "uuid",
    "lockKey": "character varying(320)",
    "code": "character varying(64)",
    "name": "character varying(256)",
    "type": "enum",
    "status": "enum",
    "ownerToken": "uuid",
    "data": "jsonb",
    "createdAt": "timestamp with time zone",
    "modifiedAt": "timestamp with time zone",
}
_LABELS = {"type": frozenset({"INITIAL", "SCHEDULE"}), "status": frozenset({"RUNNING", "SUCCESS", "FAIL"})}
_FURTHER = {
    "fencingToken": "bigint",
    "attempt": "integer",
    "leaseMs": "bigint",
    "owner": "character varying(256)",
    "runKey": "character varying(1024)",
    "startedAt": "timestamp with time zone",
    "finishedAt": "timestamp with time zone",
}
_DEFAULTS = {
    "id": "gen_random_uuid()",
    "createdAt": "clock_timestamp()",
    "modifiedAt": "clock_timestamp()",
    "attempt": "1",
    "startedAt": "clock_timestamp()",
}
_NULLABLE = frozenset({"name", "data", "leaseMs", "owner", "runKey", "startedAt", "finishedAt"})
_KEYS = {"id": "pkey", "lockKey": "lock_key_key", "ownerToken": "owner_token_key", "fencingToken": "fencing_token_key"}
_TEXT = re.compile(r"text|character varying(\(\d+\))?")
_ZONED = re.compile(r"timestamp(\(\d\))? with time zone")
_ZONELESS = re.compile(r"timestamp(\(\d\))? without time zone")
_FUNCTION = re.compile(
    r"CREATE (?P<again>OR REPLACE )?FUNCTION \$\{(?P<name>\w+)_function\}.*?\$(?P=name)\$(?P<body>.*?)\$(?P=name)\$;",
    re.DOTALL,
)
_TRIGGER = re.compile(
    r"CREATE TRIGGER \$\{(?P<name>\w+)_trigger\}.*?EXECUTE FUNCTION \$\{(?P<function>\w+)_function\}\(\);", re.DOTALL
)
_ATOMIC = re.compile(r"CREATE FUNCTION \$\{(?P<name>\w+)_function\}[^\n]*\nBEGIN ATOMIC\n.*?\nEND;", re.DOTALL)
_GRANT = re.compile(r"GRANT EXECUTE ON FUNCTION .*?;", re.DOTALL)


def zoneless_columns(found: Found) -> list[str]:
    """Give the columns whose instants cannot be known without the time zone that they were written in."""
    return [
        name
        for name in ("createdAt", "modifiedAt")
        if name in found.columns and _ZONELESS.fullmatch(found.columns[name].type)
    ]


def refuse_what_cannot_be_adopted(found: Found, table: Table) -> None:
    """Raise one `JobDatabaseError` with all that stands in the way."""
    if reasons := [*_column_obstacles(found, table), *_row_obstacles(found, table), *_index_obstacles(found)]:
        raise JobDatabaseError(
            DatabaseProblem.SCHEMA_OLD,
            f"The table {table.quoted} cannot be adopted, and nothing was changed. {' '.join(reasons)}",
        )


def steps_for(found: Found, table: Table, zone: str | None) -> Iterator[Step]:
    """Give the steps in their order; none where all is as it should be."""
    yield from dropped_indexes(found, table)
    yield from _room(found, table)
    yield from _types(found, table)
    yield from _instants(found, table, zone)
    yield from _defaults(found, table)
    yield from _further_columns(found, table)
    yield from _filled(found, table)
    yield from _nullability(found, table)
    yield from _identity(found, table)
    yield from _constraints(found, table)
    yield from indexes(found, table)
    yield from later_indexes(found, table)
    yield from _programs(found, table)
    yield from _records(found, table)


def _column_obstacles(found: Found, table: Table) -> Iterator[str]:
    if missing := [name for name in _REFERENCE if name not in found.columns]:
        yield f"It is no table of runs: it has no column {', '.join(map(quote, missing))}."
        return
    for name, wanted in {**_REFERENCE, **_FURTHER}.items():
        if (column := found.columns.get(name)) and not _can_become(column, wanted):
            yield f"The column {quote(name)} is {column.type}, which is not to be made {wanted}."
    for name in _LABELS:
        column, wanted = found.columns[name], f"{table.name}_{name}_enum"
        if column.type_name != wanted and wanted in found.types:
            yield f"The column {quote(name)} is {column.type}, and there is another type {quote(wanted)}. Drop that."
    for column in found.columns.values():
        ours = column.name in _REFERENCE or column.name in _FURTHER
        if not ours and column.not_null and column.default is None and not column.identity:
            yield f"The column {quote(column.name)} is not ours and must be given. Give it a default."


def _can_become(column: Column, wanted: str) -> bool:
    if wanted == "enum":
        return column.labels == _LABELS[column.name]
    if wanted == "timestamp with time zone":
        zoneless = column.name in _REFERENCE and _ZONELESS.fullmatch(column.type)
        return bool(zoneless or _ZONED.fullmatch(column.type))
    return column.type == wanted or bool(wanted.startswith("character") and _TEXT.fullmatch(column.type))


def _row_obstacles(found: Found, table: Table) -> Iterator[str]:
    for name, count in found.shared.items():
        if name in _KEYS:
            yield (
                f"{count} value{'s' if count > 1 else ''} of {quote(name)} stand in more than one row each, and every "
                f'row needs its own. Find the rows with: SELECT "id" FROM {table.quoted} WHERE {quote(name)} IN '
                f"(SELECT {quote(name)} FROM {table.quoted} GROUP BY 1 HAVING count(*) > 1);"
            )
    for name in sorted(found.nulls & _REFERENCE.keys()):
        yield f"The column {quote(name)} is empty in some rows. Fill it, or delete them."


def _index_obstacles(found: Found) -> Iterator[str]:
    for index in found.indexes:
        if index.primary and not is_unique(index, "id"):
            yield f'Its primary key {quote(index.name)} is not one on "id" alone.'
        if index.renewed and (index.constraint or index.unique):
            yield f'{quote(index.name)} mentions "modifiedAt", which every renewal changes. Drop it, if you can.'


def _room(found: Found, table: Table) -> Iterator[Step]:
    if f"fillfactor={FILLFACTOR}" not in found.options:
        yield Step(
            "Leave room in each page, so that renewals touch no index.",
            f"ALTER TABLE {table.quoted} SET (fillfactor = {FILLFACTOR});",
        )


def _types(found: Found, table: Table) -> Iterator[Step]:
    for name in _LABELS:
        column, wanted = found.columns[name], f"{table.name}_{name}_enum"
        if column.type_schema != table.schema:
            moved = (
                f"ALTER TYPE {quote(column.type_schema)}.{quote(column.type_name)} SET SCHEMA {quote(table.schema)};"
            )
            yield Step(f"Move the type of {quote(name)} to the table's schema.", moved)
        if column.type_name != wanted:
            renamed = f"ALTER TYPE {quote(table.schema)}.{quote(column.type_name)} RENAME TO {quote(wanted)};"
            yield Step(f"Give the type of {quote(name)} its name.", renamed)
    for name, wanted in {**_REFERENCE, **_FURTHER}.items():
        if wanted.startswith("character") and name in found.columns and found.columns[name].type != wanted:
            altered = f"ALTER TABLE {table.quoted} ALTER COLUMN {quote(name)} TYPE {wanted};"
            yield Step(f"Give {quote(name)} its length.", altered)


def _instants(found: Found, table: Table, zone: str | None) -> Iterator[Step]:
    zoneless = zoneless_columns(found)
    altered = [
        f"ALTER COLUMN {quote(name)} TYPE {wanted}"
        + (f" USING {quote(name)} AT TIME ZONE '{zone}'" if name in zoneless else "")
        for name, wanted in {**_REFERENCE, **_FURTHER}.items()
        if wanted == "timestamp with time zone" and name in found.columns and found.columns[name].type != wanted
    ]
    if altered:
        how = f", reading them as written in {zone}" if zoneless else ""
        yield Step(f"Make instants of the times{how}.", f"ALTER TABLE {table.quoted} {', '.join(altered)};")


def _defaults(found: Found, table: Table) -> Iterator[Step]:
    for name, wanted in _DEFAULTS.items():
        column = found.columns.get(name)
        if column is None or column.default == wanted or (name == "id" and column.default is not None):
            continue
        sql = f"ALTER TABLE {table.quoted} ALTER COLUMN {quote(name)} SET DEFAULT {wanted};"
        yield Step(f"Let {quote(name)} default to {wanted}.", sql)


def _further_columns(found: Found, table: Table) -> Iterator[Step]:
    added = [(name, kind) for name, kind in _FURTHER.items() if name not in found.columns]
    if not added:
        return
    # Without a default at first, or rows that are there would get one: a start that nobody saw.
    counted = {"attempt": f" NOT NULL DEFAULT {_DEFAULTS['attempt']}"}
    clauses = ", ".join(f"ADD COLUMN {quote(name)} {kind}{counted.get(name, '')}" for name, kind in added)
    yield Step("Add the columns that a NestJS node does not know.", f"ALTER TABLE {table.quoted} {clauses};")
    if "startedAt" not in found.columns:
        sql = f'ALTER TABLE {table.quoted} ALTER COLUMN "startedAt" SET DEFAULT {_DEFAULTS["startedAt"]};'
        yield Step("Note from now on when a lease begins.", sql)


def _filled(found: Found, table: Table) -> Iterator[Step]:
    """A lease that began after another had ended has the younger row: its number is the larger one (C4.3)."""
    sql: list[str] = []
    if "fencingToken" not in found.columns or "fencingToken" in found.nulls:
        sql.append(
            f'UPDATE {table.quoted} AS run SET "fencingToken" = numbered."n" FROM (SELECT "id", '
            f'(SELECT COALESCE(max("fencingToken"), 0) FROM {table.quoted}) '
            f'+ row_number() OVER (ORDER BY "modifiedAt", "createdAt", "id") AS "n" FROM {table.quoted} '
            'WHERE "fencingToken" IS NULL) AS numbered WHERE run."id" = numbered."id";'
        )
    if "attempt" in found.nulls:
        sql.append(f'UPDATE {table.quoted} SET "attempt" = 1 WHERE "attempt" IS NULL;')
    if "finishedAt" not in found.columns:
        sql.append(f'UPDATE {table.quoted} SET "finishedAt" = "modifiedAt" WHERE "status" <> \'RUNNING\';')
    if sql:
        yield Step(
            "Number the rows by age, and note when those that have ended did.",
            "\n".join([*_triggers(found, table, "DISABLE"), *sql, *_triggers(found, table, "ENABLE")]),
        )


def _triggers(found: Found, table: Table, verb: str) -> Iterator[str]:
    """A trigger of the application's could touch "modifiedAt" when rows are numbered."""
    for trigger in found.triggers:
        if trigger.mode in ("O", "A"):
            how = "ENABLE ALWAYS" if (verb, trigger.mode) == ("ENABLE", "A") else verb
            yield f"ALTER TABLE {table.quoted} {how} TRIGGER {quote(trigger.name)};"


def _nullability(found: Found, table: Table) -> Iterator[Step]:
    wanted = {name: name in _NULLABLE for name in (*_REFERENCE, *_FURTHER)}
    present = {name: not found.columns[name].not_null for name in wanted if name in found.columns}
    # A column that was just added is there without NOT NULL, but for "attempt".
    present = {**({} if "fencingToken" in present else {"fencingToken": True}), **present}
    clauses = [
        f"ALTER COLUMN {quote(name)} {'DROP' if wanted[name] else 'SET'} NOT NULL"
        for name, nullable in present.items()
        if nullable != wanted[name]
    ]
    if clauses:
        yield Step("Say which columns are never empty.", f"ALTER TABLE {table.quoted} {', '.join(clauses)};")


def _identity(found: Found, table: Table) -> Iterator[Step]:
    column = found.columns.get("fencingToken")
    if column and column.identity:
        return
    alter = f'ALTER TABLE {table.quoted} ALTER COLUMN "fencingToken"'
    sql = [f"{alter} DROP DEFAULT;"] if column and column.default else []
    sequence = f"pg_get_serial_sequence({_literal(table.quoted)}, 'fencingToken')"
    sql += [
        f"{alter} ADD GENERATED BY DEFAULT AS IDENTITY;",
        f'SELECT setval({sequence}, COALESCE(max("fencingToken"), 0) + 1, false) FROM {table.quoted};',
    ]
    yield Step("Count fencing tokens on from there.", "\n".join(sql))


def _literal(text: str) -> str:
    """Quote a text for SQL, whatever standard_conforming_strings says."""
    doubled = text.replace("'", "''").replace("\\", "\\\\")
    return f"E'{doubled}'" if "\\" in text else f"'{doubled}'"


def _constraints(found: Found, table: Table) -> Iterator[Step]:
    for column, suffix in _KEYS.items():
        name, kind = f"{table.name}_{suffix}", "PRIMARY KEY" if column == "id" else "UNIQUE"
        able = [index for index in found.indexes if is_unique(index, column)]
        constraints = [index for index in able if index.constraint and index.primary == (column == "id")]
        if any(index.name == name for index in constraints):
            continue
        alter, add = f"ALTER TABLE {table.quoted}", f"ADD CONSTRAINT {quote(name)} {kind}"
        if constraints:
            sql = f"{alter} RENAME CONSTRAINT {quote(constraints[0].name)} TO {quote(name)};"
            yield Step(f"Give the constraint on {quote(column)} its name.", sql)
        elif bare := [index for index in able if not index.constraint]:
            yield Step(
                f"Make a constraint of the unique index on {quote(column)}.",
                f"{alter} {add} USING INDEX {quote(bare[0].name)};",
            )
        else:
            yield Step(f"Let no two rows share one {quote(column)}.", f"{alter} {add} ({quote(column)});")


def _programs(found: Found, table: Table) -> Iterator[Step]:
    """Make functions and triggers anew where one is missing, off or another's; what is to be applied brings its own."""
    purposes = {FIRST_MIGRATION: "Fence and count takeovers by NestJS nodes."}
    texts = {
        name: read_sql(f"migrations/{name}") for name in migrations() if name == FIRST_MIGRATION or name in found.made
    }
    newest = {each["name"]: each for text in texts.values() for each in _FUNCTION.finditer(text)}
    for migration, text in texts.items():
        functions = [newest[each["name"]] for each in _FUNCTION.finditer(text) if not each["again"]]
        atomic, triggers = list(_ATOMIC.finditer(text)), list(_TRIGGER.finditer(text))
        if _are_there(found, table, functions, atomic, triggers):
            continue
        dropped = [
            f"DROP TRIGGER IF EXISTS {quote(table.name + '_' + each['name'] + '_trigger')} ON {table.quoted};"
            for each in triggers
        ]
        made = [re.sub(r"\ACREATE FUNCTION", "CREATE OR REPLACE FUNCTION", each[0]) for each in (*functions, *atomic)]
        made += [each[0] for each in (*triggers, *_GRANT.finditer(text))]
        yield Step(
            purposes.get(migration, f"Make the functions and triggers of {migration} anew."),
            "\n".join([*dropped, Template("\n\n".join(made)).safe_substitute(table.identifiers())]),
        )


def _are_there(
    found: Found,
    table: Table,
    functions: list[re.Match[str]],
    atomic: list[re.Match[str]],
    triggers: list[re.Match[str]],
) -> bool:
    firing = {(trigger.name, trigger.function) for trigger in found.triggers if trigger.mode in ("O", "A")}
    return (
        all(found.bodies.get(f"{table.name}_{each['name']}") == each["body"] for each in functions)
        # its body is no text any more once it is made
        and all(f"{table.name}_{each['name']}" in found.bodies for each in atomic)
        and all(
            (f"{table.name}_{each['name']}_trigger", f"{table.name}_{each['function']}") in firing for each in triggers
        )
    )


def _records(found: Found, table: Table) -> Iterator[Step]:
    if not found.has_record:
        yield Step("Remember which migrations are applied.", f"{migrations_table_script(table)};")
    for name in migrations():
        if name not in found.applied:
            record = f"INSERT INTO {table.migrations_quoted} (\"name\") VALUES ('{name}');"
            if name == FIRST_MIGRATION:
                yield Step(f"Record {name}, which the above amounts to.", record)
            elif name in found.made:
                yield Step(f"Record {name}, whose tables are there.", record)
            else:
                yield Step(f"Apply {name}.", f"{migration_script(name, table).strip()}\n{record}")
