"""The table of a delivery, as the catalog describes it, and everything about it that does not fit.

Pure but for `describe_table`, which asks the catalog.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from psycopg import Cursor

from onceflow.columns import Columns, Scalar, Type
from onceflow.errors import Fault
from onceflow_connectors.postgres.block import PostgresBlock

_STAGED: Mapping[str, str] = {
    "boolean": "bool",
    "tinyint": "int2",
    "smallint": "int2",
    "int": "int4",
    "bigint": "int8",
    "float": "float4",
    "double": "float8",
    "string": "text",
    "binary": "bytea",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}
"""Type of a column -> type in which its values are sent. Decimals are numeric."""
_FITTING: Mapping[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "int2": ("int2", "int4", "int8", "numeric"),
    "int4": ("int4", "int8", "numeric"),
    "int8": ("int8", "numeric"),
    "float4": ("float4", "float8"),
    "float8": ("float8",),
    "numeric": ("numeric",),
    "text": ("text", "varchar", "uuid", "json", "jsonb"),
    "bytea": ("bytea",),
    "date": ("date",),
    "timestamptz": ("timestamptz",),
    "timestamp": ("timestamp",),
}
"""Type in which values are sent -> types of the table that keep every value as it is."""
_FITTING_PARTS = ("jsonb", "json")
"""The same for types with parts, whose values are sent as text."""
CAST = frozenset({"uuid", "json", "jsonb"})
"""Types to which text must be cast explicitly."""
_MICROSECONDS = 6

_TABLE = """
SELECT c.oid::int8, n.nspname, c.relname, c.relkind::text, c.relpersistence::text,
       has_table_privilege(c.oid, 'INSERT'), has_table_privilege(c.oid, 'SELECT'),
       has_table_privilege(c.oid, 'UPDATE'), has_table_privilege(c.oid, 'DELETE'),
       has_database_privilege(current_database(), 'TEMP')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(%s)
"""
_COLUMNS = """
SELECT a.attname, n.nspname, t.typname, t.typtype = 'e', a.atttypmod,
       a.atthasdef OR a.attidentity <> '' OR NOT a.attnotnull,
       a.attgenerated <> '' OR a.attidentity = 'a'
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
  JOIN pg_namespace n ON n.oid = t.typnamespace
WHERE a.attrelid = %s::oid AND a.attnum > 0 AND NOT a.attisdropped
"""
_UNIQUE = """
SELECT array_agg(a.attname::text)
FROM pg_index i JOIN pg_attribute a
  ON a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
WHERE i.indrelid = %s::oid AND i.indisunique AND i.indisvalid AND i.indimmediate
  AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid
"""


@dataclass(frozen=True)
class TableColumn:
    """A column as it is.

    Args:
        modifier: what the type's declaration limits; -1 for nothing.
        is_optional: whether a row may leave it out.
        is_computed: whether no row may give it a value.
    """

    name: str
    type_schema: str
    type_name: str
    is_enum: bool
    modifier: int
    is_optional: bool
    is_computed: bool


@dataclass(frozen=True)
class Table:
    """A table as it is.

    Args:
        oid: changes when the table is dropped and created again.
        is_table: not a view, or another thing with columns.
        is_durable: whether its rows outlive a crash of the server.
        rights: our rights, in words of SQL.
        unique: columns of each unique index that can decide conflicts.
    """

    oid: int
    schema: str
    name: str
    is_table: bool
    is_durable: bool
    rights: frozenset[str]
    columns: Mapping[str, TableColumn]
    unique: tuple[frozenset[str], ...]

    @property
    def full_name(self) -> str:
        """Schema and name."""
        return f"{self.schema}.{self.name}"


def staged_type(kind: Type) -> str:
    """The type in which values of a column are sent."""
    if not isinstance(kind, Scalar):
        return "text"
    return "numeric" if kind.digits else _STAGED[kind.name]


def _fitting(kind: Type) -> tuple[str, ...]:
    return _FITTING[staged_type(kind)] if isinstance(kind, Scalar) else _FITTING_PARTS


def describe_table(cursor: Cursor, name: str) -> Table | None:
    """Look a table up; None if there is none of that name, or we may not see it."""
    quoted = ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))
    found = cursor.execute(_TABLE, [quoted]).fetchone()
    if found is None:
        return None
    oid, schema, relation, kind, persistence, *has = found
    names = ("INSERT", "SELECT", "UPDATE", "DELETE", "TEMP")
    described = cursor.execute(_COLUMNS, [oid]).fetchall()
    return Table(
        oid=oid,
        schema=schema,
        name=relation,
        is_table=kind in {"r", "p"},
        is_durable=persistence == "p",
        rights=frozenset(right for right, is_there in zip(names, has, strict=True) if is_there),
        columns={found[0]: TableColumn(*found) for found in described},
        unique=tuple(frozenset(names) for (names,) in cursor.execute(_UNIQUE, [oid])),
    )


def table_faults(table: Table, block: PostgresBlock, columns: Columns) -> Iterator[Fault]:
    """Find everything that would keep the delivery from writing, or change what it writes."""
    name = table.full_name
    if not table.is_table:
        yield Fault("not a table", where=name, expected="a table, or a partitioned table")
        return
    if not table.is_durable:
        yield Fault(
            "the table loses its rows when the server crashes, but not the position",
            where=name,
            expected="a table that is logged",
            suggestion="Run `ALTER TABLE ... SET LOGGED`.",
        )
    needed = {"INSERT", "SELECT", "TEMP"} | ({"UPDATE"} if block.mode == "upsert" else set())
    needed |= {"DELETE"} if block.deletes else set()
    if missing := sorted(needed - table.rights):
        expected = f"the rights {', '.join(sorted(needed))} (TEMP is of the database)"
        yield Fault(f"the right {', '.join(missing)} is missing", where=name, expected=expected)
    for column, kind in columns.by_name.items():
        yield from _column_faults(name, column, kind, table.columns.get(column))
    for other in table.columns.values():
        if other.name not in columns.names and not (other.is_optional or other.is_computed):
            yield Fault(
                "the table needs a value that the delivery does not have",
                where=f"{name}.{other.name}",
                suggestion="Add the column to `schema`, or give it a default.",
            )
    if block.mode == "upsert" and frozenset(block.key) not in table.unique:
        key = ", ".join(block.key)
        yield Fault(
            "no unique index decides which row a key has",
            where=name,
            expected=f"a unique index, neither partial nor deferrable, of exactly ({key})",
            suggestion=f"Run `CREATE UNIQUE INDEX ON {name} ({key})`.",
        )


def _column_faults(
    table: str, name: str, kind: Type, column: TableColumn | None
) -> Iterator[Fault]:
    where = f"{table}.{name}"
    if column is None:
        expected = f"a column of type {_fitting(kind)[0]}"
        suggestion = "Add it to the table, or remove it from `schema`."
        yield Fault("the column is missing", where=where, expected=expected, suggestion=suggestion)
        return
    if column.is_computed:
        suggestion = "Remove it from `schema`."
        yield Fault("the table computes this column", where=where, suggestion=suggestion)
    fitting = _fitting(kind)
    if column.type_name not in fitting and not (column.is_enum and "text" in fitting):
        yield Fault(
            f"the column has the type {column.type_name}",
            where=where,
            expected=f"{' or '.join(fitting)} for {kind.ddl}",
        )
    elif limit := _too_narrow(kind, column):
        yield Fault("the column would round", where=where, expected=limit)


def _too_narrow(kind: Type, column: TableColumn) -> str:
    """Say how wide the column must be; empty if it keeps every value as it is."""
    if column.modifier < 0:
        return ""
    if column.type_name in {"timestamp", "timestamptz"} and column.modifier < _MICROSECONDS:
        return f"{column.type_name} with all {_MICROSECONDS} digits of a second"
    digits = kind.digits if isinstance(kind, Scalar) else None
    if column.type_name == "numeric" and digits is not None:
        # As the catalog packs it: precision, then scale, above a header of 4 bytes.
        scale = (column.modifier - 4) & 0x7FF
        if scale < digits[1]:
            return f"at least {digits[1]} digits after the point"
    return ""
