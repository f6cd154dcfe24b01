"""References as tables of queries, over data in files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from onceflow.errors import ConfigError
from onceflow.pipeline.analysis.analysis import Analysis, analyse
from onceflow.pipeline.analysis.rehearsal import rehearse
from onceflow.pipeline.file.loader import load_pipeline

pytestmark = pytest.mark.usefixtures("spark")
"""Or a rehearsal would start one of its own, which later tests of this process would get."""

PIPELINE = """\
apiVersion: onceflow/v1
name: named
sources:
  trades:
    kafka: {topics: [trades]}
    schema: "id BIGINT, symbol STRING, at TIMESTAMP"
    event_time: at
    lateness: 1 hour
references:
  names:
    file: names.csv
    schema: "symbol STRING, name STRING"
    key: symbol
  titles:
    topic: titles
    schema: "symbol STRING, title STRING, since TIMESTAMP"
    key: symbol
    valid_from: since
transformation
sink:
  kafka: {topic: out}
"""
TEMPORAL = "LEFT JOIN titles s ON t.symbol = s.symbol AND t.at >= s.since AND t.at < s.valid_until"
NAMES = "symbol,name\nGOOGL,Alphabet\nF,Ford\n"
TITLES = [
    {"symbol": "F", "title": "old", "since": "2026-01-01T00:00:00Z"},
    {"symbol": "F", "title": "new", "since": "2026-02-01T00:00:00Z"},
]
TRADES = [
    {"id": 1, "symbol": "F", "at": "2025-12-31T23:59:59Z"},
    {"id": 2, "symbol": "F", "at": "2026-01-01T00:00:00Z"},
    {"id": 3, "symbol": "F", "at": "2026-01-31T23:59:59.999999Z"},
    {"id": 4, "symbol": "F", "at": "2026-02-01T00:00:00Z"},
    {"id": 5, "symbol": "GOOGL", "at": "2026-02-01T00:00:00Z"},
    {"id": 6, "symbol": "AAPL", "at": "2026-02-01T00:00:00Z"},
]


def write_file(folder: Path, transformation: str, names: str = NAMES) -> Path:
    file = folder / "pipeline.yaml"
    file.write_text(PIPELINE.replace("transformation", transformation))
    (folder / "names.csv").write_text(names)
    return file


def lines(file: Path, rows: Sequence[object]) -> Path:
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


def rows_of(folder: Path, query: str, names: str = NAMES) -> list[tuple[Any, ...]]:
    file = write_file(folder, f"query: {query}", names)
    data = {
        "trades": lines(folder / "trades.jsonl", TRADES),
        "titles": lines(folder / "titles.jsonl", TITLES),
    }
    found = [tuple(row.values()) for row in rehearse(file, data)]
    return sorted(found, key=str)


def test_each_event_is_joined_with_the_row_of_its_key_and_of_its_time(tmp_path: Path) -> None:
    query = f"SELECT t.id, n.name, s.title FROM trades t {TEMPORAL}"
    query += " LEFT JOIN names n ON t.symbol = n.symbol"
    assert rows_of(tmp_path, query) == [
        (1, "Ford", None),
        (2, "Ford", "old"),
        (3, "Ford", "old"),
        (4, "Ford", "new"),
        (5, "Alphabet", None),
        (6, None, None),
    ]


def test_a_table_can_be_joined_in_every_way_and_several_times(tmp_path: Path) -> None:
    query = f""">-
  SELECT t.id, a.name, b.name AS again FROM trades t {TEMPORAL}
  JOIN names a ON t.symbol = a.symbol LEFT JOIN names b ON a.name = upper(b.name)
  WHERE t.symbol IN (SELECT symbol FROM names) AND t.id > 1
    AND NOT EXISTS (SELECT 1 FROM names x WHERE x.name = 'Alphabet' AND x.symbol = t.symbol)"""
    assert rows_of(tmp_path, query) == [(2, "Ford", None), (3, "Ford", None), (4, "Ford", None)]


def test_a_table_without_rows_takes_no_operator_away(tmp_path: Path) -> None:
    query = f""">-
  SELECT count(*) AS n, max(n.name) AS name FROM trades t {TEMPORAL}
  LEFT JOIN names n ON t.symbol = n.symbol GROUP BY window(t.at, '1 day'), t.symbol"""
    found = rows_of(tmp_path, query, "symbol,name\n")
    assert {name for _, name in found} == {None}


def analysed(spark: SparkSession, folder: Path, transformation: str) -> Analysis:
    return analyse(spark, load_pipeline(write_file(folder, transformation)), 0)


BOTH = f"SELECT t.id, n.name, s.title FROM trades t {TEMPORAL} LEFT JOIN names n USING (symbol)"


def test_a_look_up_keeps_the_order_of_the_input_and_no_state(
    spark: SparkSession, tmp_path: Path
) -> None:
    found = analysed(spark, tmp_path, f"query: {BOTH}")
    assert str(found.order) == "arrival"
    assert not found.is_stateful
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("query", "why"),
    [
        (f"SELECT t.id, s.title FROM trades t {TEMPORAL}", "the reference `names` is not used"),
        (
            BOTH.replace(TEMPORAL, "JOIN titles s USING (symbol)"),
            "the query does not say at which time `titles` is looked up",
        ),
        (BOTH.replace("n.name", "n.nam"), "nam"),
        (BOTH.replace("LEFT JOIN names", "FULL JOIN names"), "full"),
        (BOTH.replace("SELECT t.id", "SELECT /*+ MERGE(n) */ t.id"), "hints may not be used"),
        ("SELECT symbol FROM names", "the source `trades` is not used"),
    ],
)
def test_a_query_that_uses_a_table_wrongly_is_refused(
    spark: SparkSession, tmp_path: Path, query: str, why: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        analysed(spark, tmp_path, f"query: {query}")
    assert why.lower() in str(refused.value).lower()


TRANSFORM = """\
from pyspark.sql import functions as F


def named(trades, names, titles):
    held = F.broadcast(trades) if {is_hint} else trades
    since = (held.at >= titles.since) & (held.at < titles.valid_until)
    found = held.join(titles, (held.symbol == titles.symbol) & since, "left")
    return found.join(names, held.symbol == names.symbol, "left").select(
        held.id, names.name, titles.title
    )
"""


def test_a_function_gets_tables_by_their_names(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "naming.py").write_text(TRANSFORM.format(is_hint=False))
    assert analysed(spark, tmp_path, "transform: naming:named").output.names == [
        "id",
        "name",
        "title",
    ]
    (tmp_path / "hinting.py").write_text(TRANSFORM.format(is_hint=True))
    with pytest.raises(ConfigError, match="`ResolvedHint` may not be used"):
        analysed(spark, tmp_path, "transform: hinting:named")


def test_a_bad_file_is_named_by_a_rehearsal(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="line 2 and line 3 have the same key: symbol F"):
        rows_of(tmp_path, BOTH, "symbol,name\nF,Ford\nF,again\n")
