"""A processor with a million keys, compared with what SQL says about the same records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.cloudpickle import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from onceflow.columns import parse_columns
from onceflow.pipeline.process import operator
from onceflow.processing import Processor, Value
from onceflow.processing.checks import make_runner

KEYS = 1_000_000
COLUMNS = "card string, amount bigint, at timestamp"
RECORDS = f"""\
SELECT concat('card-', pmod(id * 7, {KEYS})) AS card, id AS amount,
    timestamp_millis(1767225600000 + id) AS at
FROM range({{}}, {{}}, 1, 2)"""
BATCHES = ((0, KEYS), (KEYS, 2 * KEYS), (2 * KEYS, 2 * KEYS + 1))
"""Numbers of records: each key once, each key again, and one that lets the others' time pass."""
DIGEST = ["count(*)", "sum(n)", "sum(amount)", "bit_xor(xxhash64(card, n, amount))"]


class Count(Processor):
    key = "card"
    sums = Value("n bigint, amount bigint", default=(0, 0))
    output = "card string, n bigint, amount bigint"

    def on_records(self, key: Any, records: Any) -> Any:
        n, amount = self.sums.get()
        self.sums.set((n + len(records), amount + sum(each.amount for each in records)))
        yield key, *self.sums.get()


def digest(rows: DataFrame) -> tuple[Any, ...]:
    [found] = rows.selectExpr(*DIGEST).collect()
    return tuple(found)


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_million_keys_have_their_counts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cloudpickle, "_PICKLE_BY_VALUE_MODULES", {__name__})
    columns = parse_columns(COLUMNS)
    runner = make_runner(Count, name="count", columns=columns, key=None, time="at", output=None)
    source = spark.readStream.schema(COLUMNS).parquet(str(tmp_path / "in*"))
    output: Any = StructType.fromDDL(f"{runner.output.columns_ddl}, __rejected string")
    frame = source.withWatermark("at", "0 seconds")
    rows = operator.batch_at_a_time(frame, ["card"], runner.order_columns, output, runner)
    came: list[Any] = []
    expected: list[Any] = []
    for number, (start, end) in enumerate(BATCHES):
        spark.sql(RECORDS.format(start, end)).write.parquet(str(tmp_path / f"in{number}"))
        query = (
            rows.writeStream.foreachBatch(lambda frame, _: came.append(digest(frame)))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        spark.sql(RECORDS.format(0, end)).createOrReplaceTempView("so_far")
        spark.sql(RECORDS.format(start, end)).createOrReplaceTempView("new")
        oracle = "SELECT card, count(*) AS n, sum(amount) AS amount FROM so_far GROUP BY card"
        expected.append(digest(spark.sql(f"{oracle} HAVING card IN (SELECT card FROM new)")))
    assert [each for each in came if each[0]] == expected
    assert [each[0] for each in expected] == [KEYS, KEYS, 1]
