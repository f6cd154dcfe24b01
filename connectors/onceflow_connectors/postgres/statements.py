"""The SQL of one delivery. Pure: texts in, statements out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from psycopg.sql import SQL, Composable, Composed, Identifier

from onceflow.columns import Columns
from onceflow_connectors.postgres.block import PostgresBlock
from onceflow_connectors.postgres.table import CAST, Table, TableColumn, staged_type

POSITIONS = "onceflow_positions"
STAGE = Identifier("onceflow_stage")
"""Temporary, so of this connection alone; found before tables of other schemas."""
ORDINAL = Identifier("onceflow ordinal")
"""Number of a row in its batch. No column of a file can have this name with a blank."""
DELETED = Identifier("onceflow deleted")

_CREATE_POSITIONS = """
CREATE TABLE IF NOT EXISTS {positions} (
    delivery text NOT NULL,
    topic text NOT NULL,
    partition int4 NOT NULL,
    destination regclass NOT NULL,
    claim_epoch int8 NOT NULL,
    next_offset int8,
    filter_state text,
    moved_at timestamptz,
    PRIMARY KEY (delivery, topic, partition)
)
"""
_CLAIM = """
INSERT INTO {positions} AS p (delivery, topic, partition, destination, claim_epoch)
VALUES (%s, %s, %s, %s::oid::regclass, 1)
ON CONFLICT (delivery, topic, partition) DO UPDATE SET claim_epoch = p.claim_epoch + 1
WHERE p.destination = excluded.destination
RETURNING claim_epoch, next_offset, filter_state
"""
_LOCK = """
SELECT p.topic, p.partition, p.claim_epoch, p.next_offset
FROM {positions} p JOIN unnest(%s::text[], %s::int4[]) AS w (topic, partition)
  USING (topic, partition)
WHERE p.delivery = %s
ORDER BY p.topic, p.partition
FOR UPDATE OF p
"""
_MOVE = """
UPDATE {positions} p
SET next_offset = w.next_offset, filter_state = w.filter_state, moved_at = now()
FROM unnest(%s::text[], %s::int4[], %s::int8[], %s::text[])
  AS w (topic, partition, next_offset, filter_state)
WHERE p.delivery = %s AND p.topic = w.topic AND p.partition = w.partition
"""
_UPSERT = """
INSERT INTO {table} AS t ({columns})
SELECT {values} FROM (
    SELECT DISTINCT ON ({key}) * FROM {stage} AS s
    WHERE NOT s.{deleted}{undeleted}
    ORDER BY {key}, {newest}
) AS s
ON CONFLICT ({key}) DO {update}
"""
_UNDELETED = """ AND NOT EXISTS (
        SELECT FROM {stage} AS d
        WHERE d.{deleted} AND d.{ordinal} > s.{ordinal} AND {same_key}
    )"""
_APPEND = "INSERT INTO {table} ({columns}) SELECT {values} FROM {stage} AS s ORDER BY s.{ordinal}"
_DELETE = "DELETE FROM {table} AS t USING {stage} AS d WHERE d.{deleted} AND {same_key}"


@dataclass(frozen=True)
class Statements:
    """Statements for one table."""

    create_positions: Composed
    claim: Composed
    positions: Composed
    lock: Composed
    move: Composed
    create_stage: Composed
    copy: Composed
    clear_stage: Composed
    delete: Composed
    write: Composed
    write_after_deletions: Composed
    stage_types: tuple[str, ...]


def positions_name(table: Table) -> str:
    """The name of the table of positions, next to the table itself."""
    return f"{table.schema}.{POSITIONS}"


def statements(table: Table, block: PostgresBlock, columns: Columns) -> Statements:
    """Compose the statements for a table that has all columns."""
    names = [Identifier(name) for name in columns.names]
    types = [staged_type(kind) for kind in columns.types]
    positions = Identifier(table.schema, POSITIONS)
    parts: dict[str, Composable] = {
        "table": Identifier(table.schema, table.name),
        "stage": STAGE,
        "ordinal": ORDINAL,
        "deleted": DELETED,
        "columns": SQL(", ").join(names),
        "values": SQL(", ").join(_value(table.columns[name]) for name in columns.names),
        "same_key": _same_key("t", "d", block.key),
    }
    declared = [
        SQL("{} {}").format(name, SQL(type_name))
        for name, type_name in zip(names, types, strict=True)
    ]
    return Statements(
        create_positions=SQL(_CREATE_POSITIONS).format(positions=positions),
        claim=SQL(_CLAIM).format(positions=positions),
        positions=SQL(
            "SELECT topic, partition, next_offset, filter_state FROM {}"
            " WHERE delivery = %s AND next_offset IS NOT NULL"
        ).format(positions),
        lock=SQL(_LOCK).format(positions=positions),
        move=SQL(_MOVE).format(positions=positions),
        create_stage=SQL(
            "CREATE TEMP TABLE {} ({} int8, {} bool, {}) ON COMMIT DELETE ROWS"
        ).format(STAGE, ORDINAL, DELETED, SQL(", ").join(declared)),
        copy=SQL("COPY {} FROM STDIN (FORMAT BINARY)").format(STAGE),
        clear_stage=SQL("TRUNCATE {}").format(STAGE),
        delete=SQL(_DELETE).format(**parts),
        write=_write(block, columns, parts, has_deletions=False),
        write_after_deletions=_write(block, columns, parts, has_deletions=True),
        stage_types=("int8", "bool", *types),
    )


def _write(
    block: PostgresBlock, columns: Columns, parts: Mapping[str, Composable], *, has_deletions: bool
) -> Composed:
    if block.mode == "append":
        return SQL(_APPEND).format(**parts)
    newest = SQL("s.{} DESC").format(ORDINAL)
    if block.revision is not None:
        # Of equal revisions the first stays, in this batch as among batches.
        newest = SQL("s.{} DESC, s.{}").format(Identifier(block.revision), ORDINAL)
    undeleted: Composable = SQL("")
    if has_deletions:
        same_key = _same_key("s", "d", block.key)
        undeleted = SQL(_UNDELETED).format(**{**parts, "same_key": same_key})
    key = SQL(", ").join(Identifier(name) for name in block.key)
    update = _update(block, columns)
    return SQL(_UPSERT).format(**parts, key=key, newest=newest, undeleted=undeleted, update=update)


def _update(block: PostgresBlock, columns: Columns) -> Composed | SQL:
    others = [Identifier(name) for name in columns.names if name not in block.key]
    if not others:
        return SQL("NOTHING")
    changed = SQL(", ").join(SQL("{0} = excluded.{0}").format(name) for name in others)
    if block.revision is None:
        return SQL("UPDATE SET {}").format(changed)
    return SQL("UPDATE SET {0} WHERE t.{1} < excluded.{1}").format(
        changed, Identifier(block.revision)
    )


def _same_key(one: str, other: str, key: tuple[str, ...]) -> Composed:
    return SQL(" AND ").join(
        SQL("{0}.{2} = {1}.{2}").format(SQL(one), SQL(other), Identifier(name)) for name in key
    )


def _value(column: TableColumn) -> Composed:
    found = SQL("s.{}").format(Identifier(column.name))
    if column.is_enum or column.type_name in CAST:
        return SQL("{}::{}").format(found, Identifier(column.type_schema, column.type_name))
    return found
