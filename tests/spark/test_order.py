"""Which plans keep rows in the order of their input partition: as analysed, and as Spark runs them.

The stream is Spark's own, so that nothing here depends on our source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from onceflow.errors import Fault
from onceflow.java.loader import new_instance
from onceflow.pipeline.analysis.analysis import Analysis
from onceflow.pipeline.analysis.ordering import order_text
from onceflow.pipeline.plan.plan import jvm_of
from tests.support.pipelines import pipeline_text

PARTITIONS = 3
CONSTANTS = "VALUES (0, 'even'), (1, 'odd'), (0, 'zero') AS names(code, name)"
NO_BROADCAST = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
Query = Callable[[SparkSession], DataFrame]
SQL: dict[str, str] = {
    "filter": "SELECT value AS v FROM steps WHERE value % 4 != 0",
    "explode": "SELECT value AS v, e FROM steps LATERAL VIEW explode(array(2, 1)) t AS e",
    "left join": f"SELECT value AS v, name FROM steps LEFT JOIN {CONSTANTS} ON value % 3 = code",
    "join": f"SELECT value AS v, name FROM {CONSTANTS} JOIN steps ON value % 2 = code",
    "in": f"SELECT value AS v FROM steps WHERE value % 3 IN (SELECT code FROM {CONSTANTS})",
    "not in": f"SELECT value AS v FROM steps WHERE value % 4 NOT IN (SELECT code FROM {CONSTANTS})",
    "cross join": "SELECT value AS v, two FROM steps CROSS JOIN (VALUES (1), (2) AS t(two))",
    "union": "SELECT value AS v FROM steps UNION ALL SELECT value + 1000 AS v FROM more",
}


def by_python(spark: SparkSession, *, by_arrow: bool) -> DataFrame:
    unchanged = F.udf(lambda value: value, "bigint", useArrow=by_arrow)
    return steps(spark).select(unchanged("value").alias("v"))


@contextmanager
def settings(spark: SparkSession, conf: dict[str, str]) -> Iterator[None]:
    before = {name: str(spark.conf.get(name)) for name in conf}
    for name, value in conf.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


def steps(spark: SparkSession) -> DataFrame:
    options = {"rowsPerBatch": "60", "numPartitions": str(PARTITIONS)}
    return spark.readStream.format("rate-micro-batch").options(**options).load()


def run(spark: SparkSession, query: Query, folder: Path) -> tuple[bool, list[int]]:
    """Whether Spark's plan is taken to keep the order, and column `v` of the first batch."""
    steps(spark).createOrReplaceTempView("steps")
    steps(spark).createOrReplaceTempView("more")
    reader, found = new_instance(jvm_of(spark), "ExecutionReader"), list[tuple[bool, list[int]]]()

    def look(batch: DataFrame, _: int) -> None:
        rows = batch.toArrow()
        plan = started[0]._jsq.streamingQuery().lastExecution().executedPlan()
        found.append((reader.keepsOrder(plan), rows.column("v").to_pylist()))

    started = list[Any]()
    writer = query(spark).writeStream.foreachBatch(look).trigger(availableNow=True)
    started.append(writer.option("checkpointLocation", str(folder)).start())
    started[0].awaitTermination(60)
    return found[0]


@pytest.mark.parametrize(
    "query",
    [
        *(pytest.param(lambda spark, t=t: spark.sql(t), id=name) for name, t in SQL.items()),
        pytest.param(partial(by_python, by_arrow=False), id="udf"),
        pytest.param(partial(by_python, by_arrow=True), id="arrow udf"),
    ],
)
def test_rows_stay_in_the_order_of_their_partition(
    spark: SparkSession, query: Query, tmp_path: Path
) -> None:
    keeps_order, values = run(spark, query, tmp_path)
    assert keeps_order
    assert len({*values}) > PARTITIONS
    for partition in range(PARTITIONS):
        own = [v for v in values if v < 1000 and v % PARTITIONS == partition]
        assert own == sorted(own)
    assert values != sorted(values)


@pytest.mark.parametrize(
    ("text", "conf"),
    [
        ("SELECT /*+ REPARTITION(2) */ value AS v FROM steps", {}),
        ("SELECT value AS v FROM steps DISTRIBUTE BY value", {}),
        (SQL["left join"], NO_BROADCAST),
        (f"SELECT /*+ MERGE(names) */ value AS v FROM steps JOIN {CONSTANTS} ON value = code", {}),
        (f"SELECT /*+ BROADCAST(s) */ value AS v FROM steps s JOIN {CONSTANTS} ON value=code", {}),
        ("SELECT value AS v, two FROM steps CROSS JOIN (VALUES (1), (2) AS t(two))", NO_BROADCAST),
    ],
    ids=["repartition", "distribute", "no broadcast", "merge", "stream is broadcast", "cartesian"],
)
def test_an_exchange_that_spark_makes_is_noticed(
    spark: SparkSession, text: str, conf: dict[str, str], tmp_path: Path
) -> None:
    with settings(spark, conf):
        keeps_order, _ = run(spark, lambda spark: spark.sql(text), tmp_path)
    assert not keeps_order


NAMES = "VALUES ('a', 1) AS names(user, n)"


PER_MINUTE = "FROM clicks GROUP BY page, window(at, '1 minute')"


@pytest.mark.parametrize(
    ("query", "order"),
    [
        ("SELECT user, explode(split(page, '/')) AS part FROM clicks WHERE ms > 5", "arrival"),
        (f"SELECT c.user, n FROM clicks c LEFT JOIN {NAMES} ON c.user = names.user", "arrival"),
        (f"SELECT c.user, n FROM {NAMES} JOIN clicks c ON c.user = names.user", "arrival"),
        ("SELECT user, at FROM clicks DISTRIBUTE BY user", "at, content"),
        (f"SELECT page, count(*) AS n, window(at, '1 minute') AS w {PER_MINUTE}", "w.end, content"),
        (f"SELECT page, window.start AS at, count(*) AS n {PER_MINUTE}", "at, content"),
    ],
)
def test_the_order_is_known_before_the_start(
    analysed: Callable[..., Analysis], query: str, order: str
) -> None:
    assert str(analysed(query).order) == order


ORDERED = (
    "SELECT page, window(at, '1 minute') AS w, map('a', 1) AS m, count(*) AS `how many`"
    " FROM clicks GROUP BY page, window(at, '1 minute')"
)


def sink_by(*terms: str) -> str:
    lines = "".join(f"\n  - {term}" for term in terms)
    return "kafka: {topic: views, partitions: 1}\norder_by:" + lines


def test_an_order_of_its_own_comes_before_the_usual_one(
    analysed: Callable[..., Analysis],
) -> None:
    order = analysed(ORDERED, sink=sink_by("'`how many` desc'", "w.start")).order
    assert str(order) == "`how many` desc, w.start, w.end, content"
    assert order_text(order) == (
        "records in order: by `how many` desc, w.start, w.end; equal ones by key and value"
    )


@pytest.mark.parametrize(
    ("term", "what"),
    [
        ("pages desc", "the result has no column `pages`. Did you mean `page`?"),
        ("w.ends", "the result has no column `w.ends`. Did you mean `w.end`?"),
        ("w", "which has no order. Name one of its fields, such as `w.start`."),
        ("m", "the column `m` is MAP<STRING,INT>, which has no order; expected a column of text"),
    ],
)
def test_what_cannot_be_ordered_by_is_refused_with_its_line(
    faults: Callable[..., tuple[Fault, ...]], term: str, what: str
) -> None:
    sink = sink_by("page", term)
    (fault,) = faults(ORDERED, sink=sink)
    assert what in str(fault)
    assert fault.line == pipeline_text(ORDERED, sink=sink).splitlines().index(f"    - {term}") + 1
    assert fault.where == "sink.order_by.1"
