"""Pipelines that a replay would compute differently are refused before they start, by effect."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from onceflow.errors import Fault
from onceflow.pipeline.analysis.analysis import Analysis
from onceflow.pipeline.file.rules import Rule
from tests.support.pipelines import CLICKS, TIMELESS

UPDATES = "kafka: {topic: views, partitions: 1}\nemit: updates"
Analyse = Callable[..., Analysis]
Faults = Callable[..., tuple[Fault, ...]]


@pytest.mark.parametrize(
    ("function", "rule"),
    [
        ("rand()", Rule.ND_RANDOM),
        ("randn(3)", Rule.ND_RANDOM),
        ("uuid()", Rule.ND_RANDOM),
        ("random(5)", Rule.ND_RANDOM),
        ("shuffle(array(1, 2))", Rule.ND_RANDOM),
        ("spark_partition_id()", Rule.ND_LAYOUT),
        ("monotonically_increasing_id()", Rule.ND_LAYOUT),
        ("input_file_name()", Rule.ND_LAYOUT),
    ],
)
def test_a_function_that_differs_on_a_replay_is_refused_by_name(
    faults: Faults, function: str, rule: Rule
) -> None:
    # Some of them Spark would not run on a stream either.
    fault, *_ = faults(f"SELECT user, {function} AS x FROM clicks")
    name = function.partition("(")[0]
    assert fault.what == f"{name}: gives another result when a batch is replayed"
    assert (fault.rule, fault.where) == (rule, "query")


def test_what_a_replay_computes_alike_is_left_alone(analysed: Analyse) -> None:
    query = "SELECT user, h FROM (SELECT user, hash(user) AS h, rand() AS unused FROM clicks)"
    assert analysed(query).warnings == ()


WINDOW = "FROM clicks GROUP BY window(at, '1 minute')"


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("first(user)", "first"),
        ("last(user)", "last"),
        ("any_value(user)", "any_value"),
        ("collect_list(ms)", "collect_list"),
        ("collect_set(ms)", "collect_set"),
        ("array_agg(ms)", "collect_list"),
        ("listagg(user)", "listagg"),
        ("listagg(user) WITHIN GROUP (ORDER BY ms)", "listagg"),
        ("sort_array(slice(collect_list(ms), 1, 3))", "collect_list"),
        ("max_by(user, ms)", "max_by"),
        ("min_by(user, ms)", "min_by"),
        ("mode(user)", "mode"),
        ("sum(price)", "sum of DOUBLE"),
        ("avg(price)", "avg of DOUBLE"),
        ("stddev(price)", "stddev"),
        ("corr(price, ms)", "corr"),
        ("percentile_approx(ms, 0.5)", "percentile_approx"),
        ("approx_percentile(ms, 0.5)", "approx_percentile"),
        ("histogram_numeric(ms, 5)", "histogram_numeric"),
        ("hll_sketch_agg(user)", "hll_sketch_agg"),
    ],
)
def test_an_aggregate_that_follows_the_order_of_rows_is_refused(
    faults: Faults, expression: str, name: str
) -> None:
    (fault,) = faults(f"SELECT {expression} AS x {WINDOW}")
    assert fault.rule == Rule.ND_AGG
    assert fault.what.partition(":")[0] == name
    assert fault.suggestion


@pytest.mark.parametrize(
    "expression",
    [
        "count(*)",
        "sum(ms)",
        "avg(ms)",
        "sum(CAST(price AS DECIMAL(10, 2)))",
        "max(price)",
        "sort_array(collect_list(ms))",
        "array_sort(collect_set(user))",
        "size(collect_set(user))",
        "array_max(collect_list(ms))",
        "listagg(user) WITHIN GROUP (ORDER BY user)",
        "mode(user, true)",
        "mode() WITHIN GROUP (ORDER BY user)",
        "approx_count_distinct(user)",
        "percentile(ms, 0.5)",
        "bool_and(ms > 5)",
    ],
)
def test_an_aggregate_that_does_not_is_left_alone(analysed: Analyse, expression: str) -> None:
    assert analysed(f"SELECT {expression} AS x {WINDOW}").warnings == ()


@pytest.mark.parametrize(
    ("outer", "is_refused"),
    [
        ("sort_array(items)", False),
        ("size(items)", False),
        ("items", True),
        ("items[0]", True),
        ("minute", False),
    ],
)
def test_a_list_is_judged_by_what_is_seen_of_it(
    analysed: Analyse, faults: Faults, outer: str, is_refused: bool
) -> None:
    inner = f"SELECT window.start AS minute, collect_list(ms) AS items {WINDOW}, user"
    query = f"SELECT {outer} AS x FROM ({inner})"
    if is_refused:
        assert [fault.rule for fault in faults(query)] == [Rule.ND_AGG]
    else:
        assert analysed(query).warnings == ()


def test_ties_may_be_broken_by_a_records_place(analysed: Analyse) -> None:
    sources = CLICKS.replace("_key BINARY", "_key BINARY, _partition INT, _offset BIGINT")
    query = f"SELECT max_by(user, struct(ms, _partition, _offset)) AS x {WINDOW}"
    assert analysed(query, sources=sources).warnings == ()


def test_a_union_below_a_commutative_aggregate_is_fine(analysed: Analyse) -> None:
    query = (
        "SELECT user, count(*) AS n FROM"
        " (SELECT user FROM clicks UNION ALL SELECT user FROM timeless) GROUP BY user"
    )
    analysis = analysed(query, sources=CLICKS + TIMELESS, sink=UPDATES)
    assert Rule.ND_ORDER not in {w.rule for w in analysis.warnings}


WAIVER = """
waivers:
  - rule: {rule}
    place: "query: sum of DOUBLE"
    reason: cents are all multiples of a quarter
    until: {until}
"""


def test_a_waiver_lets_a_pipeline_run_until_its_day(analysed: Analyse) -> None:
    analysis = analysed(
        f"SELECT sum(price) AS x {WINDOW}", WAIVER.format(rule="ND-AGG", until="2026-05-28")
    )
    assert analysis.warnings == ()
    assert [waiver.rule for waiver in analysis.waived] == [Rule.ND_AGG]


def test_a_waiver_that_has_expired_is_none(faults: Faults) -> None:
    (fault,) = faults(
        f"SELECT sum(price) AS x {WINDOW}", WAIVER.format(rule="ND-AGG", until="2026-05-27")
    )
    assert "(waived until 2026-05-27)" in fault.what


def test_a_waiver_of_something_else_waives_nothing(faults: Faults, analysed: Analyse) -> None:
    other = WAIVER.format(rule="ND-RANDOM", until="2026-05-28")
    (fault,) = faults(f"SELECT sum(price) AS x {WINDOW}", other)
    assert 'Or waive ND-AGG at "query: sum of DOUBLE".' in fault.suggestion
    (warning,) = analysed(f"SELECT sum(ms) AS x {WINDOW}", other).warnings
    assert warning.rule == Rule.UNUSED_WAIVER


@pytest.fixture
def refused(faults: Faults, module: Path) -> Faults:
    def refused(code: str) -> tuple[Fault, ...]:
        module.write_text(code)
        return faults(transform=f"{module.stem}:f", sources=TIMELESS)

    return refused


CLOCK_IN_UDF = """\
import time
from pyspark.sql.functions import udf
def stamp(user):
    return f"{user} {time.time()}"
def f(timeless):
    return timeless.select(udf(stamp)("user").alias("user"))
"""


def test_a_clock_in_a_udf_is_refused_with_its_place(refused: Faults) -> None:
    (fault,) = refused(CLOCK_IN_UDF)
    assert fault.rule == Rule.ND_CLOCK
    assert fault.file.endswith(".py")
    assert fault.line == 4
    assert "time.time in stamp()" in fault.what


COUNTER = """
from pyspark.sql.streaming import StatefulProcessor
class Counter(StatefulProcessor):
    def init(self, handle):
        self.handle = handle
    def handleInputRows(self, key, rows, timers):
        self.seen = True
        yield from rows
    def close(self): pass
def f(timeless):
    grouped = timeless.groupBy("user")
    return grouped.transformWithState(Counter(), "user STRING", "append", "none")
"""


def test_attributes_of_a_processor_are_refused_as_state(refused: Faults) -> None:
    assert (Rule.ND_STATE, 7) in {(fault.rule, fault.line) for fault in refused(COUNTER)}


def test_functions_over_chunks_and_groups_are_warned_of(analysed: Analyse, module: Path) -> None:
    module.write_text(
        "def g(frames):\n    yield from frames\n"
        "def f(timeless):\n    return timeless.mapInPandas(g, 'user STRING, page STRING')\n"
    )
    analysis = analysed(transform=f"{module.stem}:f", sources=TIMELESS)
    assert [warning.rule for warning in analysis.warnings] == [Rule.ND_LAYOUT]


def test_a_table_that_is_no_source_is_refused_without_its_columns(
    refused: Faults, tmp_path: Path
) -> None:
    (tmp_path / "prices.json").write_text('{"cents": 5}')
    (fault,) = refused(
        "def f(timeless):\n"
        f"    prices = timeless.sparkSession.read.json('{tmp_path}/prices.json')\n"
        "    return timeless.join(prices)\n"
    )
    assert fault.rule == Rule.ND_SOURCE
    assert "may change before a replay" in fault.what
    assert "cents" not in str(fault)


def test_a_function_of_java_is_refused_in_python_as_well(refused: Faults) -> None:
    (fault,) = refused(
        "from pyspark.sql.functions import java_method, lit\n"
        "def f(timeless):\n"
        "    home = java_method(lit('java.lang.System'), lit('getenv'), lit('HOME'))\n"
        "    return timeless.select(home.alias('home'))\n"
    )
    assert fault.rule == Rule.NOT_ALLOWED
    assert "java_method" in fault.what
