"""Finds exactly the rows of a batch that stateful operators dropped as too late.

Spark's own count (`numRowsDroppedByWatermark`) is taken after a partial aggregation, so it tells
that there were some, and not how many. Here the plan of the batch is taken as Spark ran it, up to
the lowest stateful operators, over a second reading of the same ranges, under the predicate that
Spark drops by (`WatermarkSupport.watermarkExpression`) and the watermark that it dropped by.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from onceflow.java.loader import new_instance
from onceflow.pipeline.plan.plan import jvm_of

ORIGIN_COLUMN = "__origin"
"""The record that a row was made of."""
LATE_COLUMN = "__is_late"
MAY_BE_DUPLICATE_COLUMN = "__may_be_duplicate"
"""Set for a row that is not late where a source's duplicates are dropped: it may have been dropped
there. A row that is late there was not."""
WATERMARK_COLUMN = "__event_watermark_ms"


class LateRows:
    """Looks for the late rows of a query's last execution."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        jvm = jvm_of(spark)
        self._finder = new_instance(jvm, "LateRows")

    def of(self, query: StreamingQuery, ranges: Mapping[str, DataFrame]) -> DataFrame | None:
        """Origins of rows, whether each was dropped, and by which watermark.

        For use inside `foreachBatch`.

        Args:
            query: after the action of its batch.
            ranges: source -> what it read in that batch, with all columns that the query reads and
                the origin of each record, for every source that read something.

        Returns:
            Columns `ORIGIN_COLUMN`, `LATE_COLUMN`, `WATERMARK_COLUMN`, `MAY_BE_DUPLICATE_COLUMN`;
            a record whose row belongs to several windows is in several rows. None if no operator
            drops anything.
        """
        execution = query._jsq.streamingQuery().lastExecution()  # noqa: SLF001  no public way
        frames = {name: frame._jdf for name, frame in ranges.items()}  # noqa: SLF001
        found = self._finder.of(
            self._spark._jsparkSession,  # noqa: SLF001
            execution,
            frames,
            ORIGIN_COLUMN,
        )
        parts = [DataFrame(each, self._spark) for each in found]
        return reduce(DataFrame.unionByName, parts) if parts else None
