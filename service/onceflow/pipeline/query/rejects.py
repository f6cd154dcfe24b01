"""Which records a query never sees, and why: decided per record, before any event time passes."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from onceflow.contracts.source import REJECT_COLUMN, TICK_COLUMN
from onceflow.contracts.values import duration_text
from onceflow.pipeline.file.duplicates import without_key
from onceflow.pipeline.file.source import Source

REASON_COLUMN = "__reason"
"""`<code>: <text>` of a rejected record, null of an accepted one."""
TIMESTAMP_COLUMN = "_timestamp"
_US_PER_MS = 1_000


class Reason(StrEnum):
    """Codes of reasons. Written into dead letters, so none ever changes its meaning."""

    UNDECODABLE = "undecodable"
    NULL_VALUE = "null_value"
    NO_EVENT_TIME = "no_event_time"
    EVENT_TIME_TOO_OLD = "event_time_too_old"
    EVENT_TIME_AHEAD = "event_time_ahead"
    NULL_KEY = "null_key"
    TOO_LARGE = "too_large"
    LATE = "late"
    DIVERGED = "diverged"
    PROCESSOR_FAILED = "processor_failed"


def looked_at(source: Source) -> frozenset[str]:
    """Columns besides those of the query and of the event time that decide about a record."""
    ahead = () if source.max_ahead_ms is None else (TIMESTAMP_COLUMN,)
    key = () if source.deduplicate is None else source.deduplicate.key
    return frozenset({*source.required, *ahead, *key})


def with_reason(source: Source, loaded: DataFrame, clock: Column) -> DataFrame:
    """Add `REASON_COLUMN`. A tick is not a record and has none.

    The clock is that of the batch: Spark pins it in the offset log, so a replay decides the same.
    """
    reason = F.coalesce(*_reasons(source, loaded, clock), F.lit(None).cast("string"))
    if TICK_COLUMN in loaded.columns:
        reason = F.when(F.col(TICK_COLUMN).isNull(), reason)
    return loaded.withColumn(REASON_COLUMN, reason)


def accepted(marked: DataFrame) -> DataFrame:
    """The rows without a reason."""
    return marked.filter(F.col(REASON_COLUMN).isNull()).drop(REASON_COLUMN)


def _reasons(source: Source, loaded: DataFrame, clock: Column) -> Iterator[Column]:
    if REJECT_COLUMN in loaded.columns:
        why = loaded[REJECT_COLUMN]
        yield _reason(Reason.UNDECODABLE, why.isNotNull(), why)
    for name in source.required:
        yield _reason(Reason.NULL_VALUE, loaded[f"`{name}`"].isNull(), f"{name} is null")
    for is_null, words in without_key(source):
        yield _reason(Reason.NULL_VALUE, is_null, words)
    if source.event_time is None:
        return
    at = F.expr(source.event_time)
    time = at.cast("string")
    yield _reason(Reason.NO_EVENT_TIME, at.isNull(), "the event time is null")
    if source.min_event_time is not None:
        lowest = source.min_event_time.isoformat()
        is_too_old = at < F.lit(lowest).cast("timestamp")
        yield _reason(Reason.EVENT_TIME_TOO_OLD, is_too_old, time, f" is before {lowest}")
    if source.max_ahead_ms is not None:
        arrived = F.least(loaded[TIMESTAMP_COLUMN], clock)
        highest = F.unix_micros(arrived) + F.lit(source.max_ahead_ms * _US_PER_MS)
        words = f" is more than {duration_text(source.max_ahead_ms)} after "
        is_ahead = F.unix_micros(at) > highest
        yield _reason(Reason.EVENT_TIME_AHEAD, is_ahead, time, words, arrived.cast("string"))


def _reason(code: Reason, condition: Column, *text: str | Column) -> Column:
    """`<code>: <text>` where the condition holds, null elsewhere."""
    words = (F.lit(part) if isinstance(part, str) else part for part in text)
    return F.when(condition, F.concat(F.lit(f"{code.value}: "), *words))
