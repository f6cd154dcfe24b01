"""Which records a query never sees, and why: decided per record, before any event time passes."""

from __future__ import annotations

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


def looked_at(source: Source) -> frozenset[str]:
    """Columns besides those of the query and of the event time that decide about a record."""
    ahead = () if source.max_ahead_ms is None else (TIMESTAMP_COLUMN,)
    key = () if source.deduplicate is None else source.deduplicate.key
    return frozenset({*source.required, *ahead, *key})


def with_reason(source: Source, loaded: DataFrame, clock: Column) -> DataFrame:
    """Add `REASON_COLUMN`. A tick is not a record and has none.

    Args:
        source: whose bounds hold.
        loaded: the columns that were read.
        clock: of the batch. Spark pins it in the offset log, so that a replay decides the same.
    """
    reason = F.coalesce(*_reasons(source, loaded, clock), F.lit(None).cast("string"))
    if TICK_COLUMN in loaded.columns:
        reason = F.when(F.col(TICK_COLUMN).isNull(), reason)
    return loaded.withColumn(REASON_COLUMN, reason)


def accepted(marked: DataFrame) -> DataFrame:
    """The rows without a reason."""
    return marked.filter(F.col(REASON_COLUMN).isNull()).drop(REASON_COLUMN)


def _reasons(source: Source, loaded: DataFrame, clock: Column) -> list[Column]:
    reasons = []
    if REJECT_COLUMN in loaded.columns:
        reasons.append(F.concat(_code(Reason.UNDECODABLE), loaded[REJECT_COLUMN]))
    for name in source.required:
        text = F.concat(_code(Reason.NULL_VALUE), F.lit(f"{name} is null"))
        reasons.append(F.when(loaded[f"`{name}`"].isNull(), text))
    for is_null, words in without_key(source):
        reasons.append(F.when(is_null, F.concat(_code(Reason.NULL_VALUE), F.lit(words))))
    if source.event_time is None:
        return reasons
    at = F.expr(source.event_time)
    text = F.concat(_code(Reason.NO_EVENT_TIME), F.lit("the event time is null"))
    reasons.append(F.when(at.isNull(), text))
    if source.min_event_time is not None:
        lowest = source.min_event_time.isoformat()
        reasons.append(
            F.when(
                at < F.lit(lowest).cast("timestamp"),
                F.concat(
                    _code(Reason.EVENT_TIME_TOO_OLD),
                    at.cast("string"),
                    F.lit(f" is before {lowest}"),
                ),
            )
        )
    if source.max_ahead_ms is not None:
        arrived = F.least(loaded[TIMESTAMP_COLUMN], clock)
        highest = F.unix_micros(arrived) + F.lit(source.max_ahead_ms * _US_PER_MS)
        ahead = f" is more than {duration_text(source.max_ahead_ms)} after "
        reasons.append(
            F.when(
                F.unix_micros(at) > highest,
                F.concat(
                    _code(Reason.EVENT_TIME_AHEAD),
                    at.cast("string"),
                    F.lit(ahead),
                    arrived.cast("string"),
                ),
            )
        )
    return reasons


def _code(reason: Reason) -> Column:
    return F.lit(f"{reason.value}: ")
