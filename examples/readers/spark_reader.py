"""Leaves out what a topic of Onceflow has more than once, in a PySpark program of your own.

Records of a pipeline are numbered 1, 2, 3 ... in each partition. Spark keeps the highest number for
each partition and pipeline with the position of the query, so a record that comes again is
recognised, however late that is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

KEYS = ("topic", "partition", "pipeline")
STATE = "lineage string, number bigint"


def once(records: DataFrame) -> DataFrame:
    """Records of Spark's Kafka source, with `includeHeaders`, each once.

    Rows have the columns `topic`, `partition`, `offset`, `timestamp`, `key` and `value`. Records
    without the header come from other programs, and all of them are kept.
    """
    header = F.element_at(F.filter("headers", lambda each: each.key == "onceflow"), 1).value
    number = F.conv(F.hex(F.substring(header, 25, 8)), 16, 10).cast("bigint")
    is_known = F.hex(F.substring(header, 1, 1)) == "01"
    numbered = records.select(
        *("topic", "partition", "offset", "timestamp", "key", "value"),
        F.coalesce(F.hex(F.substring(header, 5, 4)), F.lit("")).alias("pipeline"),
        F.hex(F.substring(header, 3, 2)).alias("lineage"),
        F.when(is_known, number)
        .when(header.isNotNull(), F.raise_error(F.lit("unknown version of the header")))
        .alias("number"),
    )
    kept = numbered.groupBy(*KEYS).applyInPandasWithState(
        _new, numbered.schema, STATE, "append", "NoTimeout"
    )
    return kept.drop("pipeline", "lineage", "number")


def _new(
    key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any
) -> Iterator[pd.DataFrame]:
    rows = pd.concat(frames).sort_values("offset")
    if not key[2]:
        yield rows
        return
    # Another lineage counts from 1 again: the pipeline has lost its ledger.
    lineage, highest = state.get if state.exists else (None, 0)
    is_new = []
    for row in rows.itertuples():
        if row.lineage != lineage:
            lineage, highest = row.lineage, 0
        is_new.append(row.number > highest)
        highest = max(highest, row.number)
    state.update((lineage, highest))
    yield rows[is_new]
