"""Everything about a table that does not fit a delivery. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from deltalake import DeltaTable, Schema

from onceflow.columns import Columns
from onceflow.errors import Fault
from onceflow_connectors.delta.block import PARTITIONED_BY, DeltaBlock
from onceflow_connectors.delta.rows import arrow_schema

_KNOWN_FEATURES = frozenset(
    {"appendOnly", "changeDataFeed", "deletionVectors", "invariants", "timestampNtz"}
)
"""Of tables that list what a writer must know: those that change nothing about added files. For
`invariants` see the fields."""
_OLD_WRITERS = 2
"""The latest version of tables that list nothing and ask for nothing but invariants."""
_LISTING_WRITERS = 7
_FORGETS_POSITIONS = "delta.setTransactionRetentionDuration"
_FIELD_RULES = ("delta.invariants", "delta.generationExpression", "delta.identity.start")


def table_faults(table: DeltaTable, block: DeltaBlock, columns: Columns) -> Iterator[Fault]:
    """Find what does not fit."""
    yield from _column_faults(table, columns)
    yield from _partition_faults(table, block, columns)
    yield from _rule_faults(table)


def _column_faults(table: DeltaTable, columns: Columns) -> Iterator[Fault]:
    found = {each.name: each for each in table.schema().fields}
    for wanted in Schema.from_arrow(arrow_schema(columns)).fields:
        field = found.pop(wanted.name, None)
        if field is None:
            yield Fault("the column is missing", wanted.name)
        elif field.type != wanted.type:
            expected, other = _name(wanted.type), _name(field.type)
            yield Fault(f"the column has the type {other}", wanted.name, None, expected)
    for field in found.values():
        if not field.nullable:
            yield Fault("the table needs a value that the delivery does not have", field.name)


def _partition_faults(table: DeltaTable, block: DeltaBlock, columns: Columns) -> Iterator[Fault]:
    found = tuple(table.metadata().partition_columns)
    if block.partition_by and block.partition_by != found:
        what = f"the table is partitioned by {', '.join(found) or 'nothing'}"
        yield Fault(what, "partition_by", None, ", ".join(block.partition_by))
    for name in found:
        kind = columns.by_name.get(name)
        if kind is not None and kind.ddl not in PARTITIONED_BY:
            what = f"the table is partitioned by a column of the type {kind.ddl}"
            yield Fault(what, name, None, ", ".join(sorted(PARTITIONED_BY)))


def _rule_faults(table: DeltaTable) -> Iterator[Fault]:
    """Find rules that rows are not checked against here, and columns that others compute."""
    protocol, configuration = table.protocol(), table.metadata().configuration
    unknown = set(protocol.writer_features or ()) - _KNOWN_FEATURES
    if protocol.min_writer_version == _LISTING_WRITERS and unknown:
        what = f"the table asks its writers for {', '.join(sorted(unknown))}"
        yield Fault(what, expected=f"at most {', '.join(sorted(_KNOWN_FEATURES))}")
    elif _OLD_WRITERS < protocol.min_writer_version < _LISTING_WRITERS:
        for name in configuration:
            if name.startswith(("delta.constraints.", "delta.columnMapping.mode")):
                yield Fault(f"the table has the property {name}", expected="none such")
    for field in table.schema().fields:
        for rule in _FIELD_RULES:
            if rule in field.metadata:
                yield Fault(f"the column has {rule}", field.name, None, "a plain column")
    if _FORGETS_POSITIONS in configuration:
        suggestion = f"Unset {_FORGETS_POSITIONS}: positions would be forgotten after that time."
        yield Fault("the table forgets positions", suggestion=suggestion)


def _name(kind: object) -> str:
    name = getattr(kind, "type", None)
    return name if isinstance(name, str) and name not in {"array", "map", "struct"} else str(kind)
