"""Queries that could make or search without bound are refused before they run; others are not."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from onceflow.errors import ConfigError
from onceflow.pipeline.analysis.analysis import analyse
from onceflow.pipeline.file.rules import Rule
from tests.support.pipelines import NOW_MS, pipeline_text, write_pipeline

SOURCE = """\
  c:
    kafka: {topics: [clicks]}
    schema: "s STRING, n INT, a ARRAY<INT>, at TIMESTAMP, x DOUBLE, b BINARY"
    event_time: at
    lateness: 10 seconds
"""
HONEST = (
    "lpad(s, 10, '0')",
    "rpad(s, 255, ' ')",
    "repeat('-', 80)",
    "space(4)",
    "size(sequence(0, 86400))",
    "size(sequence(10, -10, -5))",
    "size(sequence(DATE'2026-01-01', DATE'2026-12-31'))",
    "size(sequence(DATE'2026-01-01', DATE'2030-01-01', INTERVAL 1 MONTH))",
    "size(sequence(TIMESTAMP'2026-01-01 00:00Z', TIMESTAMP'2026-01-02 00:00Z', INTERVAL 1 HOUR))",
    "size(transform(sequence(0, 23), h -> h + n))",
    "size(array_repeat(n, 3))",
    "round(x, 2)",
    "bround(x, -2)",
    "format_number(x, 2)",
    "format_string('%08.3f %s', x, s)",
    "printf('%d%%', n)",
    "s RLIKE '^[a-z]+-[0-9]+$'",
    "regexp_replace(s, '[^a-z0-9]+', '-')",
    r"regexp_extract(s, '^(\\S+) (\\S+) (\\d{3})', 3)",
    "regexp_count(s, 'a+')",
    "split(s, ',')",
    "split_part(s, '((', 1)",
    "str_to_map(s, '&', '=')",
    "s LIKE '%a%b%'",
    "s LIKE ANY ('a%', '%b')",
    "parse_url(s, 'QUERY', 'id')",
    "parse_url(s, 'HOST')",
    "xpath_string(s, '//a/b')",
    "explode(a)",
    "explode(sequence(1, 10))",
    "explode(split(s, ' '))",
)
HOSTILE = {
    "repeat('x', 2000000000)": "makes too much",
    "repeat(s, n)": "is computed",
    "repeat(repeat('x', 10000), 10000)": "makes too much",
    "lpad(s, 2000000000, 'x')": "makes too much",
    "rpad(s, n, 'x')": "is computed",
    "lpad(b, 2000000000, b)": "makes too much",
    "space(n)": "is computed",
    "size(sequence(1, 1000000000))": "makes too much",
    "size(sequence(1, n))": "is computed",
    "size(sequence(-1000000000, 0))": "makes too much",
    "size(sequence(DATE'0001-01-01', DATE'9999-12-31'))": "makes too much",
    "size(sequence(at, at + INTERVAL 1 DAY, INTERVAL 1 MICROSECOND))": "is computed",
    "size(flatten(transform(sequence(1, 100000), i -> sequence(1, 100000))))": "makes too much",
    "size(array_repeat(n, 1000000000))": "makes too much",
    "size(array_repeat(array_repeat(n, 100000), 100000))": "makes too much",
    "size(array_insert(a, 1000000000, 1))": "makes too much",
    "round(x, 2000000000)": "makes too much",
    "ceil(x, 2000000000)": "makes too much",
    "format_number(x, 2000000000)": "makes too much",
    "format_string('%2000000000d', n)": "makes too much",
    "format_string('%.2000000000f', x)": "makes too much",
    "format_string(s, n)": "is computed",
    "s RLIKE '(a+)+b'": "repetition inside",
    "s RLIKE s": "is computed",
    "regexp_replace(s, '(a|aa)+b', '')": "begin alike",
    "regexp_extract(s, '(.*)*x')": "repetition inside",
    "regexp_extract_all(s, concat('(a', '+)+b'), 0)": "is computed",
    "regexp_count(s, '(a+)+b')": "repetition inside",
    "regexp_instr(s, '(a+)+b')": "repetition inside",
    "regexp_substr(s, '(a+)+b')": "repetition inside",
    r"regexp_like(s, '(a)\\1')": "backreference",
    "split(s, '(a+)+b')": "repetition inside",
    "str_to_map(s, '(a+)+b', s)": "is computed",
    "s LIKE '%a%a%a%a%a%a%b'": "`%` inside",
    "s LIKE s": "is computed",
    "s LIKE ANY ('%a%a%a%a%a%a%b', 'a')": "`%` inside",
    "parse_url(s, 'QUERY', '(a+)+b')": "repetition inside",
    "parse_url(s, 'QUERY', s)": "is computed",
    "xpath_string(s, '//a//a//a//a//a')": "`//`",
    "explode(sequence(1, 1000000000))": "makes too much",
}
HOSTILE_QUERIES = {
    "SELECT count(*) AS k FROM c JOIN range(0, 1000000000000)": "too many rows",
    "SELECT count(*) AS k FROM c GROUP BY window(at, '100 days', '1 second')": "slides too often",
    "SELECT count(*) AS k FROM c GROUP BY window(at, '1 week 3 days', '1 fortnight')": "understood",
    "SELECT approx_count_distinct(n, 1e-6D) AS k FROM c GROUP BY window(at, '1 day')": "too small",
    f"SELECT count(*) AS k FROM c GROUP BY CUBE({', '.join(f'n + {i}' for i in range(25))})": "25",
}


def faults_of(spark: SparkSession, folder: Path, query: str) -> list[str]:
    file = write_pipeline(folder, pipeline_text(query, sources=SOURCE))
    try:
        analyse(spark, file, NOW_MS)
    except ConfigError as refused:
        return [str(fault) for fault in refused.faults if fault.rule == Rule.UNBOUNDED]
    return []


def test_honest_queries_are_let_in(spark: SparkSession, tmp_path: Path) -> None:
    for expression in HONEST:
        found = faults_of(spark, tmp_path, f"SELECT s, {expression} AS k FROM c")
        assert found == [], expression
    sliding = "SELECT count(*) AS k FROM c GROUP BY window(at, '1 hour', '5 minutes')"
    assert faults_of(spark, tmp_path, sliding) == []


def test_hostile_queries_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    wanted = {f"SELECT s, {key} AS k FROM c": why for key, why in HOSTILE.items()}
    for query, why in {**wanted, **HOSTILE_QUERIES}.items():
        found = faults_of(spark, tmp_path, query)
        assert found, query
        assert any(why in each for each in found), query
        assert found[0].startswith("line 4, query: "), query


def test_the_limit_and_its_setting_are_told(spark: SparkSession, tmp_path: Path) -> None:
    (found,) = faults_of(spark, tmp_path, "SELECT repeat(s, 1000001) AS k FROM c")
    assert "at most 1000000 characters or elements (spark.max_made)" in found
