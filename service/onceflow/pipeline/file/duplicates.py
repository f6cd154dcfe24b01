"""Duplicates in the input: of the records with one key, the query sees the first.

Spark's `dropDuplicatesWithinWatermark` forgets a key when the event watermark has passed the event
time of its first row by the watermark's delay, and drops rows older than that. This would tie
`within` to `lateness`, and lose records whose windows are still open. So the operator is shown an
event time that is `within` later, and a delay of zero.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from onceflow.pipeline.file.source import Source
from onceflow.pipeline.file.types import column

SOURCE_KEY = "onceflow.source"
"""In the metadata of the event time that the operator is shown: whose records it compares. Tells it
from operators of the query's own."""
_DELAY_KEY = "spark.watermarkDelayMs"
"""Where Spark looks for the event time among the columns."""
_US_PER_MS = 1_000


def without_duplicates(name: str, source: Source, view: DataFrame, time_column: str) -> DataFrame:
    """Keep the first record of each key; the view has an event watermark and no rows of ticks."""
    if source.deduplicate is None:
        return view
    within_us = source.deduplicate.within_ms * _US_PER_MS
    shown = _moved(view, time_column, within_us).withMetadata(
        time_column, {_DELAY_KEY: 0, SOURCE_KEY: name}
    )
    kept = shown.dropDuplicatesWithinWatermark([*source.deduplicate.key])
    return _moved(kept, time_column, -within_us).withMetadata(
        time_column, {_DELAY_KEY: source.lateness_ms}
    )


def without_key(source: Source) -> Iterator[tuple[Column, str]]:
    """Condition of records that cannot be recognised as duplicates, and the words for it."""
    if source.deduplicate is not None:
        key = source.deduplicate.key
        is_null = F.lit(True)
        for name in key:
            is_null &= column(name).isNull()
        verb = "is" if len(key) == 1 else "are"
        yield is_null, f"{' and '.join(key)} {verb} null, so whether it is a duplicate is unknown"


def _moved(frame: DataFrame, time_column: str, by_us: int) -> DataFrame:
    moved = F.timestamp_micros(F.unix_micros(column(time_column)) + F.lit(by_us))
    return frame.withColumn(time_column, moved)
