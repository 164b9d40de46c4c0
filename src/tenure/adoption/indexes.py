"""Decide which indexes of a table that was found are dropped, renamed and made: pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from string import Template

from tenure.adoption.found import Found, Index
from tenure.adoption.step import Step
from tenure.statements import Table, quote, read_sql

_ADDED = ("fencingToken",)
"""A column that adoption itself adds before."""
_NOT_SUCCESS = re.compile(r"\(status <> 'SUCCESS'::.+\)", re.DOTALL)
_INDEX = re.compile(r"CREATE INDEX \$\{(?P<name>\w+)\} ON \$\{table\} [^;]*;", re.DOTALL)


def dropped_indexes(found: Found, table: Table) -> Iterator[Step]:
    """Drop those that renewals pay for, and those that others replace."""
    for index in found.indexes:
        dropping = f"DROP INDEX {quote(table.schema)}.{quote(index.name)};"
        if not _is_dropped(index):
            continue
        if index.renewed:
            yield Step(f'Drop an index on "modifiedAt", which every renewal pays for: {index.definition}', dropping)
        else:
            yield Step(f'Drop an index that the one on ("code", "fencingToken") replaces: {index.definition}', dropping)


def _is_dropped(index: Index) -> bool:
    replaced = index.sound and not index.unique and index.columns == ("code",) and index.predicate is None
    return index.renewed or replaced


def indexes(found: Found, table: Table) -> Iterator[Step]:
    """Make, or name, those that listings look for."""
    wanted = {
        "code_idx": (("code", "fencingToken"), ""),
        "unfinished_idx": (("status", "fencingToken"), " WHERE \"status\" <> 'SUCCESS'"),
    }
    for suffix, (columns, condition) in wanted.items():
        name = f"{table.name}_{suffix}"
        able = [index for index in found.indexes if _serves(index, columns, partial=bool(condition))]
        if any(index.name == name for index in able):
            continue
        where = f"{quote(table.schema)}."
        if able:
            sql = f"ALTER INDEX {where}{quote(able[0].name)} RENAME TO {quote(name)};"
            yield Step(f"Give the index on {columns[0]} its name.", sql)
            continue
        drop = (
            f"DROP INDEX {where}{quote(name)};\n"
            if any(i.name == name and not _is_dropped(i) for i in found.indexes)
            else ""
        )
        listed = ", ".join(map(quote, columns))
        yield Step(
            "Index what listings look for.",
            f"{drop}CREATE INDEX {quote(name)} ON {table.quoted} ({listed}){condition};",
        )


def later_indexes(found: Found, table: Table) -> Iterator[Step]:
    """Make those of a later migration anew that went with a column; what is to be applied brings its own."""
    there = {index.name for index in found.indexes}
    for migration in sorted(found.made):
        for each in _INDEX.finditer(read_sql(f"migrations/{migration}")):
            columns = set(re.findall(r'"(\w+)"', each[0]))
            if f"{table.name}_{each['name']}" not in there and columns <= {*found.columns, *_ADDED}:
                sql = Template(each[0]).safe_substitute(table.identifiers())
                yield Step(f"Make an index of {migration} anew.", sql)


def _serves(index: Index, columns: tuple[str, ...], *, partial: bool) -> bool:
    fits = _NOT_SUCCESS.fullmatch(index.predicate or "") if partial else index.predicate is None
    return bool(index.sound and not index.unique and index.columns == columns and fits)
