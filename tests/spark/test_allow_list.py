"""Every function of the installed Spark is judged: let in, or refused with a reason."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from onceflow.errors import ConfigError, Fault
from onceflow.pipeline.allow_list import classes
from onceflow.pipeline.allow_list.check import check_analysed, check_written
from onceflow.pipeline.allow_list.functions import (
    ALLOWED,
    FUNCTIONS,
    OPTIONS,
    Category,
    reference,
)
from onceflow.pipeline.analysis.analysis import analyse
from onceflow.pipeline.file.rules import Rule
from onceflow.pipeline.plan.parts import parts_of_plan, parts_of_query
from onceflow.pipeline.plan.plan import jvm_of
from tests.support.pipelines import NOW_MS, pipeline_text, write_pipeline

OURS = {"parameter"}
"""Not of Spark."""
PAGE = Path(__file__).parents[2] / "docs" / "security.md"
EXAMPLE = re.compile(r"^\s*>\s*(SELECT.*?);\s*$", re.M | re.S)
USABLE = sorted(name for name, category in FUNCTIONS.items() if category in ALLOWED)
REFUSED = sorted(FUNCTIONS.keys() - set(USABLE))
WITHOUT_EXAMPLE = {
    *("bigint", "binary", "boolean", "date", "decimal", "double", "float", "int", "smallint"),
    *("string", "timestamp", "tinyint"),
}
"""Spark documents these casts without one."""
OTHER_FORMS = ("max_by(x, y, 2)", "min_by(x, y, 2)")
"""The best of several rows, in an order that was never judged."""


def registries(spark: SparkSession) -> Mapping[str, Any]:
    """Function -> what Spark documents of it, from the tables that its analysis looks it up in."""
    analysis = jvm_of(spark).org.apache.spark.sql.catalyst.analysis
    found = {}
    for table in (
        analysis.TableFunctionRegistry.logicalPlans(),
        analysis.FunctionRegistry.expressions(),
    ):
        entries = table.iterator()
        while entries.hasNext():
            entry = entries.next()
            found[entry._1()] = entry._2()._1()
    return found


def refused(spark: SparkSession, folder: Path, query: str) -> Sequence[Fault]:
    """The faults of a pipeline; none if it may run."""
    try:
        analyse(spark, write_pipeline(folder, pipeline_text(query)), NOW_MS)
    except ConfigError as error:
        return error.faults
    return ()


def test_every_function_of_spark_is_judged(spark: SparkSession) -> None:
    shown = {row.function for row in spark.sql("SHOW FUNCTIONS").collect()}
    # Operators with a syntax of their own; `SHOW FUNCTIONS` makes them up.
    made_up = {"!=", "<>", "case", "||"}
    # What queries of this session may have been analysed with.
    ours = {*OURS, "onceflow_parameter"}
    assert shown - registries(spark).keys() <= made_up | ours
    assert registries(spark).keys() | OURS == FUNCTIONS.keys()


def test_every_refused_function_is_refused_in_a_pipeline(
    spark: SparkSession, tmp_path: Path
) -> None:
    """An analysis tells all that are in a query; of those over windows it does not tell which."""
    over = [name for name in REFUSED if FUNCTIONS[name] is Category.NO_STREAM]
    others = [name for name in REFUSED if name not in over]
    for names in (others, *([name] for name in over)):
        columns = ", ".join(f"{name}(user) AS x{number}" for number, name in enumerate(names))
        tables = ", ".join(f"{name}()" for name in names)
        for query in (f"SELECT {columns} FROM clicks", f"SELECT user FROM {tables}"):
            faults = refused(spark, tmp_path, query)
            assert {fault.rule for fault in faults} == {Rule.NOT_ALLOWED}, query
            told = [fault.what for fault in faults]
            for name in names:
                text = classes.OVER.what if name in over else f"`{name}` may not be used"
                assert any(text in what for what in told), (name, told)


def test_every_usable_function_is_usable_as_spark_documents_it(spark: SparkSession) -> None:
    """Judged by its name, and by the classes that Spark makes of it."""
    session = spark._jsparkSession.sessionState()
    skip = jvm_of(spark).org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
    documented = registries(spark)
    tried = set()
    for name in set(USABLE) - OURS:
        for text in EXAMPLE.findall(documented[name].getExamples()):
            parsed = session.sqlParser().parseQuery(text)
            faults = check_written(parts_of_plan(spark, parsed), ["tab"])
            if any(f"`{other}` may not be used" in f.what for f in faults for other in REFUSED):
                continue
            assert not faults, text
            if re.search(r"\btime\s*'", text, re.IGNORECASE):
                continue  # The type TIME is switched off.
            plan = session.executePlan(parsed, skip).analyzed()
            faults = check_analysed(parts_of_plan(spark, plan))
            assert bool(faults) == any(form in text for form in OTHER_FORMS), text
            tried.add(name)
    assert set(USABLE) - tried == WITHOUT_EXAMPLE | OURS


ROWS = "VALUES (1, 'a', TIMESTAMP '2024-01-01', array(1), map('a', 1)) AS t(n, s, at, l, m)"
LANGUAGE = (
    "SELECT n + 1 - 2 * 3 / 4 % 5, -n, +n, n DIV 2, n & 1 | 2 ^ 3, ~n, n << 1",
    "SELECT n = 1 AND NOT n <> 2 OR n <=> NULL, n BETWEEN 1 AND 2, n IN (1, 2), n IS NULL",
    "SELECT s LIKE 'a%', s NOT LIKE ANY ('a', 'b'), s LIKE ALL ('a'), s RLIKE 'a', s || 'b'",
    "SELECT CASE n WHEN 1 THEN 'x' ELSE 'y' END, CASE WHEN n > 1 THEN 1 END, if(n > 1, 1, 2)",
    "SELECT (n = 1) IS TRUE, n IS DISTINCT FROM 1, (n = 1) IS NOT UNKNOWN",
    "SELECT CAST(n AS STRING), n::DOUBLE, try_cast(s AS INT), DATE '2024-01-01', X'00', 1.5BD",
    "SELECT l[0], m['a'], struct(n, s).n, named_struct('a', n).a, array(struct(n)).n",
    "SELECT at + INTERVAL 1 DAY, at - INTERVAL '1' MONTH, at - at, INTERVAL 1 DAY * 2",
    "SELECT DATE '2024-01-01' + 1, DATE '2024-01-01' - DATE '2023-01-01', INTERVAL 2 DAYS / 2",
    "SELECT DATE '2024-01-01' + INTERVAL 1 MONTH, INTERVAL 1 YEAR * 2, at + INTERVAL 1 YEAR",
    "SELECT make_interval(1) * 2, make_interval(1) / 2, DATE '2024-01-01' + make_interval(1)",
    "SELECT extract(HOUR FROM at), extract(DAY FROM INTERVAL 1 DAY), date_part('year', at)",
    "SELECT timestampadd(HOUR, 1, at), timestampdiff(HOUR, at, at), dateadd(DAY, 1, at)",
    "SELECT trim(BOTH 'a' FROM s), substring(s FROM 1 FOR 2), position('a' IN s)",
    "SELECT overlay(s PLACING 'b' FROM 1)",
    "SELECT transform(l, x -> x + 1), aggregate(l, 0, (a, x) -> a + x)",
    "SELECT parse_json(s):a.b, variant_get(parse_json(s), '$.a', 'int')",
    "SELECT n AS a, a + 1 AS b",
    "SELECT * EXCEPT (n)",
    "SELECT DISTINCT n",
    "SELECT n, count(DISTINCT s), sum(n) FILTER (WHERE n > 1) GROUP BY n HAVING count(*) > 1",
    "SELECT n, s, grouping(n) GROUP BY ROLLUP (n, s)",
    "SELECT n, s, count(*) GROUP BY GROUPING SETS ((n), (s), ())",
    "SELECT n, count(*) GROUP BY CUBE (n) ORDER BY 1 DESC NULLS LAST",
    "SELECT n, count(*) GROUP BY ALL",
    "SELECT window(at, '1 minute').start, count(*) GROUP BY window(at, '1 minute')",
    "SELECT session_window(at, '1 minute').end, count(*) GROUP BY session_window(at, '1 minute')",
    "SELECT window_time(w) FROM (SELECT window(at, '1 day') AS w, count(*) FROM ROWS GROUP BY 1)",
    "SELECT t.n FROM ROWS JOIN (SELECT n AS k FROM ROWS) AS a ON a.k = t.n",
    "SELECT t.n FROM ROWS LEFT SEMI JOIN (SELECT n FROM ROWS) AS a USING (n)",
    "SELECT n FROM ROWS UNION ALL SELECT n FROM ROWS",
    "SELECT n FROM ROWS INTERSECT SELECT n FROM ROWS EXCEPT SELECT n FROM ROWS",
    "SELECT n FROM ROWS WHERE n IN (SELECT n FROM ROWS) AND EXISTS (SELECT 1 FROM ROWS)",
    "SELECT (SELECT max(n) FROM ROWS) AS x",
    "SELECT x FROM ROWS, LATERAL (SELECT t.n + 1 AS x)",
    "SELECT x, i FROM ROWS LATERAL VIEW OUTER posexplode(l) e AS i, x",
    "SELECT explode(m)",
    "SELECT inline(array(struct(n, s)))",
    "SELECT col FROM ROWS, LATERAL explode(l)",
    "SELECT * FROM (SELECT n, s FROM ROWS) PIVOT (sum(n) FOR s IN ('a', 'b'))",
    "SELECT * FROM (SELECT n, n AS k FROM ROWS) UNPIVOT (v FOR name IN (n, k))",
    "SELECT id FROM range(3)",
    "FROM ROWS |> WHERE n > 1 |> EXTEND n + 1 AS k |> AGGREGATE sum(k) AS x GROUP BY s",
)
"""Syntax of Spark SQL besides functions; without FROM, of `ROWS`."""


@pytest.mark.parametrize("query", LANGUAGE)
def test_the_language_itself_may_be_used(spark: SparkSession, query: str) -> None:
    if "FROM ROWS" not in query and "FROM range" not in query:
        before, by, after = query.partition(" GROUP BY")
        query = f"{before} FROM ROWS{by}{after}"
    text = query.replace("ROWS", ROWS)
    assert check_written(parts_of_query(spark, text), ()) == []
    session = spark._jsparkSession.sessionState()
    skip = jvm_of(spark).org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
    plan = session.executePlan(session.sqlParser().parseQuery(text), skip).analyzed()
    assert check_analysed(parts_of_plan(spark, plan)) == []


ARGUMENTS = {
    **dict.fromkeys(("corr", "covar_pop", "covar_samp", "max_by", "min_by"), "price, ms"),
    **dict.fromkeys(("approx_percentile", "percentile_approx"), "ms, 0.5"),
    **dict.fromkeys(("listagg", "string_agg", "hll_sketch_agg", "theta_sketch_agg"), "user"),
    **dict.fromkeys(("rand", "randn", "random", "uuid", "monotonically_increasing_id"), ""),
    **dict.fromkeys(("spark_partition_id", "input_file_name"), ""),
    **dict.fromkeys(("input_file_block_length", "input_file_block_start"), ""),
    "aes_encrypt": "'a', 'abcdefghijklmnop'",
    "histogram_numeric": "ms, 5",
    "kll_sketch_agg_bigint": "ms",
    "kll_sketch_agg_float": "CAST(price AS FLOAT)",
    "randstr": "5",
    "shuffle": "array(1, 2)",
    "uniform": "1, 10",
}
"""Of functions that do not take one DOUBLE."""


def test_every_function_that_a_replay_may_tell_has_a_rule(
    spark: SparkSession, tmp_path: Path
) -> None:
    """An analysis tells all of a query, by their names. Spark has two for one of them."""
    names = {name for name, category in FUNCTIONS.items() if category is Category.REPLAY}
    for group, told in ((names - {"array_agg"},) * 2, ({"array_agg"}, {"collect_list"})):
        columns: list[str] = []
        for name in sorted(group):
            arguments = ARGUMENTS.get(name, "price, ms" if name.startswith("regr_") else "price")
            columns.append(f"{name}({arguments}) AS x{len(columns)}")
        query = f"SELECT {', '.join(columns)} FROM clicks GROUP BY at"
        faults = [f for f in refused(spark, tmp_path, query) if (f.rule or "").startswith("ND-")]
        # "rand: gives another result" or "sum of DOUBLE: the last digits".
        assert {re.split("[: ]", fault.what)[0] for fault in faults} == told


def test_what_nobody_has_judged_is_refused_by_name_and_by_class(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a function that a newer Spark brings."""
    query = "SELECT abs(ms) AS x FROM clicks"
    assert not refused(spark, tmp_path, query)
    with monkeypatch.context() as patch:
        patch.delitem(FUNCTIONS, "abs")
        (fault,) = refused(spark, tmp_path, query)
        assert fault.what == "unknown function `abs`"
    monkeypatch.setattr(classes, "EXPRESSIONS", classes.EXPRESSIONS - {"Abs"})
    (fault,) = refused(spark, tmp_path, query)
    assert fault.what == "`abs` may not be used: it has not been judged in this form"
    monkeypatch.setattr(classes, "OPERATORS", classes.OPERATORS - {"Filter"})
    (fault,) = refused(spark, tmp_path, "SELECT ms FROM clicks WHERE ms > 5")
    assert fault.what == "`Filter` may not be used: it has not been judged"


def test_every_option_is_one_that_spark_has(spark: SparkSession) -> None:
    catalyst = jvm_of(spark).org.apache.spark.sql.catalyst
    for suffix, options in (
        ("json", catalyst.json.JSONOptions.getAllOptions()),
        ("csv", catalyst.csv.CSVOptions.getAllOptions()),
        ("xml", catalyst.xml.XmlOptions.getAllOptions()),
    ):
        known = set(options.mkString(" ").lower().split())
        assert OPTIONS[f"from_{suffix}"] <= known
        assert "rowvalidationxsdpath" not in OPTIONS[f"from_{suffix}"]


def test_the_page_lists_every_function_and_option() -> None:
    page = PAGE.read_text()
    assert reference() in page
    for suffix in ("json", "csv", "xml"):
        names = ", ".join(f"`{name}`" for name in sorted(OPTIONS[f"from_{suffix}"]))
        assert f"Of {suffix.upper()}: {names}." in page
