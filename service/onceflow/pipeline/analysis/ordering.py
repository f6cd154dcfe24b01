"""Which order a pipeline's records are written in: what the file asks for, or what can be shown."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql.types import DateType, StructType, TimestampNTZType, TimestampType

from onceflow.errors import Fault, unknown_name
from onceflow.pipeline.file.loader import PipelineFile
from onceflow.pipeline.file.rules import Rule
from onceflow.pipeline.file.sink import Sink
from onceflow.pipeline.file.types import sql_name, type_at
from onceflow.protocol.compare import CheckpointFacts
from onceflow.protocol.ledger import HeadEntry
from onceflow.protocol.order import ARRIVAL, Order, Term, Ties

_TIMES = (DateType, TimestampType, TimestampNTZType)
_ORDERED = frozenset(
    {
        "binary",
        "boolean",
        "bigint",
        "date",
        "double",
        "float",
        "int",
        "smallint",
        "string",
        "timestamp",
        "timestamp_ntz",
        "tinyint",
    }
)
"""Types with one order that everybody knows; and DECIMAL."""


def order_of(sink: Sink, result: StructType, *, keeps_order: bool) -> Order:
    """The order of a pipeline without a fault.

    The query `keeps_order` if its rows stay in the order of their input partition.
    """
    usual = ARRIVAL if keeps_order else Order(tuple(_time_of(result)), Ties.CONTENT)
    asked = sink.order_terms
    more = [term for term in usual.by if term.column not in {each.column for each in asked}]
    return Order((*asked, *more), usual.ties)


def next_order(
    wanted: Order, result: StructType, head: HeadEntry | None, checkpoint: CheckpointFacts
) -> Order | None:
    """The order of the next batches; None to end a batch that is planned as `head` says.

    Outside a transaction, some of its records may already be in the output, numbered. If the
    result no longer has the columns of that order, it is another query's.
    """
    if head is None or checkpoint.planned <= head.batch.batch_id:
        return wanted
    can_order = all(type_at(result, term.column) is not None for term in head.next_order.by)
    return None if can_order else wanted


def order_text(order: Order) -> str:
    """For people."""
    usual = {
        Ties.ARRIVAL: "in the order of their input in its partition",
        Ties.CONTENT: "by key and value",
    }[order.ties]
    if not order.by:
        return f"records in order: {usual}"
    return f"records in order: by {', '.join(map(str, order.by))}; equal ones {usual}"


def order_faults(file: PipelineFile, result: StructType) -> Iterator[Fault]:
    """Find names in `order_by` that cannot be ordered by."""
    for number, term in enumerate(file.pipeline.sink.order_terms):
        faults = _term_faults(result, term.column)
        yield from file.faults_at(Rule.RESULT_COLUMNS, faults, ("sink", "order_by", number))


def _term_faults(result: StructType, path: str) -> Iterator[Fault]:
    found = type_at(result, path)
    if found is None:
        inner = (f"{c.name}.{f}" for c in result for f in _fields(c.dataType))
        yield unknown_name("the result has no column", path, result.names, inner)
    elif isinstance(found, StructType):
        yield Fault(
            f"the column `{path}` is {sql_name(found)}, which has no order",
            suggestion=f"Name one of its fields, such as `{path}.{found.names[0]}`.",
        )
    elif found.simpleString() not in _ORDERED and found.typeName() != "decimal":
        yield Fault(
            f"the column `{path}` is {sql_name(found)}, which has no order",
            expected="a column of text, numbers, time, BOOLEAN or BINARY",
        )


def _time_of(result: StructType) -> Iterator[Term]:
    """The first column of time: an instant, a date, or the end of a window."""
    for column in result:
        if isinstance(column.dataType, _TIMES):
            yield Term(column.name)
            return
        if {"start", "end"} == {*_fields(column.dataType)}:
            yield Term(f"{column.name}.end")
            return


def _fields(kind: object) -> list[str]:
    return kind.names if isinstance(kind, StructType) else []
