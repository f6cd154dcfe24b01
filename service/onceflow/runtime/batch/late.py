"""Finds the records of a batch that came too late, to the record.

Spark's own count (`numRowsDroppedByWatermark`) is taken after a partial aggregation, so it tells
that there were some, and not how many. Here the plan of the batch is taken as Spark ran it, up to
the lowest stateful operators, over a second reading of the same ranges, under the predicate that
Spark drops by (`WatermarkSupport.watermarkExpression`) and the watermark that it dropped by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from onceflow.contracts.source import META_COLUMNS, TICK_COLUMN
from onceflow.java.loader import new_instance
from onceflow.pipeline.file.model import Pipeline
from onceflow.pipeline.file.types import column
from onceflow.pipeline.plan.plan import jvm_of
from onceflow.pipeline.query.rejects import Reason
from onceflow.protocol.dead_letter import DeadLetter
from onceflow.runtime.batch.executed import Execution
from onceflow.runtime.batch.rejects import letter_of
from onceflow.runtime.records.output import collect

ORIGIN_COLUMN = "__origin"
"""The record that a row was made of."""
LATE_COLUMN = "__is_late"
MAY_BE_DUPLICATE_COLUMN = "__may_be_duplicate"
"""Set for a row that is not late where a source's duplicates are dropped: it may have been dropped
there. A row that is late there was not."""
WATERMARK_COLUMN = "__event_watermark_ms"
_KEY = "duplicate_key"
"""In an origin: the key that duplicates of the record have; null if duplicates are kept."""
_PLACE = ("source", "_topic", "_partition", "_offset")

_TEXTS = {
    True: "every window that it belongs to is closed",
    False: "it is so late that whether it is a duplicate is no longer known",
}
"""By `MAY_BE_DUPLICATE_COLUMN`."""


@dataclass(frozen=True)
class LateDesk:
    """Reads a batch that has late records again; no other one.

    A record is late if no window that it belongs to takes it. Those that a filter of the query has
    taken out before are not. After a function over whole batches of rows (`mapInArrow`) there are
    no records any more: rows are counted then, as Spark counts them, and no letters are made.
    """

    spark: SparkSession
    pipeline: Pipeline
    reread: Callable[[str, Execution], DataFrame]
    query: Callable[[], StreamingQuery]
    max_result_bytes: int

    @cached_property
    def _finder(self) -> Any:
        return new_instance(jvm_of(self.spark), "LateRows")

    def of_batch(self, execution: Execution, batch_id: int) -> tuple[int, list[DeadLetter]]:
        """Count the late records of a batch, and make letters of them if they are to be kept."""
        if execution.late == 0:
            return 0, []
        ranges = {name: self._range(name, execution) for name in execution.positions}
        rows = self._late_rows(ranges)
        if rows is None:
            return execution.late, []
        origin = F.first(ORIGIN_COLUMN).alias(ORIGIN_COLUMN)
        event_watermark = F.min(WATERMARK_COLUMN).alias(WATERMARK_COLUMN)
        late = (
            rows.groupBy(*(f"{ORIGIN_COLUMN}.{name}" for name in _PLACE))
            .agg(
                F.min(LATE_COLUMN).alias(LATE_COLUMN),
                F.first(MAY_BE_DUPLICATE_COLUMN).alias(MAY_BE_DUPLICATE_COLUMN),
                event_watermark,
                origin,
            )
            .filter(LATE_COLUMN)
        )
        if execution.duplicates:
            late = self._without_duplicates(late, execution, batch_id)
        budget = self.max_result_bytes
        if self.pipeline.late is None:
            count = collect(late.agg(F.count(F.lit(1)).alias("count")), budget)
            return count.column("count")[0].as_py(), []
        table = collect(
            late.select(ORIGIN_COLUMN, WATERMARK_COLUMN, MAY_BE_DUPLICATE_COLUMN), budget
        )
        letters = [*self._letters(table, batch_id)]
        return len(letters), letters

    def _late_rows(self, ranges: Mapping[str, DataFrame]) -> DataFrame | None:
        """Origins of rows, whether each was dropped, and by which watermark.

        Args:
            ranges: source -> what it read in that batch, with all columns that the query reads and
                the origin of each record, for every source that read something.

        Returns:
            The four columns above; a record whose row belongs to several windows is in several
            rows. None if no operator drops anything.
        """
        query, session = self.query()._jsq, self.spark._jsparkSession  # noqa: SLF001
        execution = query.streamingQuery().lastExecution()  # no public way
        frames = {name: frame._jdf for name, frame in ranges.items()}  # noqa: SLF001
        found = self._finder.of(session, execution, frames, ORIGIN_COLUMN)
        parts = [DataFrame(each, self.spark) for each in found]
        return reduce(DataFrame.unionByName, parts) if parts else None

    def _range(self, name: str, execution: Execution) -> DataFrame:
        """Read what a source read again, each record with its origin and no more than is needed."""
        frame = self.reread(name, execution)
        facts = [F.lit(name).alias("source"), *map(F.col, _PLACE[1:])]
        if execution.deduplications:
            facts.append(self._key_of(name).alias(_KEY))
        if self.pipeline.late is not None:
            facts += [
                *(F.col(n) for n in META_COLUMNS if n not in {*_PLACE, "_timestamp"}),
                F.unix_millis("_timestamp").alias("timestamp_ms"),
                F.unix_millis(self._event_time(name)).alias("event_time_ms"),
            ]
        if self.pipeline.sources[name].idle_after_ms is not None:
            frame = frame.withColumn(TICK_COLUMN, F.lit(None).cast("timestamp"))
        return frame.withColumn(ORIGIN_COLUMN, F.struct(*facts))

    def _without_duplicates(
        self, late: DataFrame, execution: Execution, batch_id: int
    ) -> DataFrame:
        """Those that were not dropped as duplicates: the first of each key that was not known.

        Which keys were known only Spark's state of the batch before tells. The more state, the
        longer it takes to read; so only a batch that has late records and duplicates reads it.
        """
        may_be = F.col(MAY_BE_DUPLICATE_COLUMN) & F.col(f"{ORIGIN_COLUMN}.{_KEY}").isNotNull()
        place = F.struct(*(F.col(f"{ORIGIN_COLUMN}.{name}") for name in _PLACE))
        firsts = late.groupBy(
            F.col(f"{ORIGIN_COLUMN}.source").alias("source"),
            F.when(may_be, F.col(f"{ORIGIN_COLUMN}.{_KEY}")).alias(_KEY),
            F.when(~may_be, place).alias("place"),
        ).agg(F.min_by(F.struct(*late.columns), place).alias("row"))
        for name, each in execution.deduplications.items():
            if batch_id > 0:
                known = self._known_keys(name, each.operator_id, batch_id - 1)
                firsts = firsts.join(known, ["source", _KEY], "left_anti")
        return firsts.select("row.*")

    def _known_keys(self, name: str, operator_id: int, batch_id: int) -> DataFrame:
        state = (
            self.spark.read.format("statestore")
            .option("path", self.pipeline.checkpoint_location)
            .option("batchId", batch_id)
            .option("operatorId", operator_id)
            .load()
        )
        return state.select(F.lit(name).alias("source"), self._key_of(name, "key").alias(_KEY))

    def _key_of(self, name: str, struct: str = "") -> Column:
        """As text, so that it has one type in all sources; null where duplicates are kept.

        Its columns are fields of `struct`, in an order of Spark's, if that is given.
        """
        deduplicate = self.pipeline.sources[name].deduplicate
        if deduplicate is None:
            return F.lit(None).cast("string")
        parts = (F.col(struct)[part] if struct else column(part) for part in deduplicate.key)
        return F.to_json(F.struct(*(p.alias(f"p{n}") for n, p in enumerate(parts))))

    def _event_time(self, name: str) -> Column:
        written = self.pipeline.sources[name].event_time
        return F.lit(None).cast("timestamp") if written is None else F.expr(written)

    def _letters(self, table: pa.Table, batch_id: int) -> Iterator[DeadLetter]:
        for row in table.to_pylist():
            origin, text = row[ORIGIN_COLUMN], _TEXTS[row[MAY_BE_DUPLICATE_COLUMN]]
            yield replace(
                letter_of(origin, Reason.LATE.value, text, self.pipeline.name, batch_id),
                event_time_ms=origin["event_time_ms"],
                event_watermark_ms=row[WATERMARK_COLUMN],
            )
