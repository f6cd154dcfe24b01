"""References: which rows make a table, what is refused, and what a file may declare."""

from __future__ import annotations

import io
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from onceflow.errors import ConfigError
from onceflow.pipeline.file.loader import load_pipeline
from onceflow.pipeline.references import table as tables
from onceflow.pipeline.references.declaration import Reference
from onceflow.pipeline.references.table import (
    RefusedTableError,
    changed_table,
    decoded,
    encoded,
    table_of_file,
)

NAMES = Reference("symbol STRING, name STRING, size BIGINT", ("symbol",))
SINCE = Reference("symbol STRING, name STRING, since TIMESTAMP", ("symbol",), "since")
CSV = "symbol,name,size\n"


def of_csv(text: str, reference: Reference = NAMES) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table_of_file(reference, ".csv", text.encode()).to_pylist()
    return found


def of_parquet(columns: Mapping[str, list[Any]]) -> pa.Table:
    out = io.BytesIO()
    parquet.write_table(pa.table(dict(columns)), out)
    return table_of_file(NAMES, ".parquet", out.getvalue())


def test_rows_of_every_kind_of_file_are_in_the_order_of_their_keys() -> None:
    expected = [
        {"symbol": "F", "name": "Ford", "size": None},
        {"symbol": "NA", "name": "a\nb", "size": 2},
    ]
    assert of_csv(f'more,{CSV}x,NA,"a\nb",2\n\nx,F,Ford,\n') == expected
    lines = b'{"symbol": "NA", "name": "a\\nb", "size": 2, "x": []}\n\n{"symbol":"F","name":"Ford"}'
    assert table_of_file(NAMES, ".jsonl", lines).to_pylist() == expected
    found = of_parquet({"size": [2, None], "name": ["a\nb", "Ford"], "symbol": ["NA", "F"]})
    assert found.to_pylist() == expected
    assert of_csv(CSV) == []


def test_dates_and_decimals_are_read_from_lines() -> None:
    typed = Reference("k STRING, day DATE, price DECIMAL(10,2)", ("k",))
    found = table_of_file(typed, ".jsonl", b'{"k": "F", "day": "2026-01-02", "price": "3.5"}')
    assert found.to_pylist() == [{"k": "F", "day": date(2026, 1, 2), "price": Decimal("3.50")}]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('F,Ford,1\n\nG,"a\nb",2\nF,again,3\n', "line 2 and line 6 have the same key: symbol F"),
        ("F,Ford,many\n", "line 2: CSV conversion error to int64: invalid value 'many'"),
        ("F,Ford\n", "line 2: CSV parse error: Expected 3 columns, got 2: F,Ford"),
        ("F,Ford,1\n,G,2\n", "line 3 has no `symbol`"),
    ],
)
def test_a_csv_file_is_refused_with_the_line(text: str, why: str) -> None:
    with pytest.raises(RefusedTableError) as refused:
        of_csv(CSV + text)
    assert str(refused.value) == why


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"symbol":"F"}\n\n{"symbol":"F"}', "line 1 and line 3 have the same key: symbol F"),
        ('\n{"symbol":7}', "line 2: JSON parse error: Column(/symbol) changed"),
        ('{"symbol":"F"}\n{"symb', "line 2: JSON parse error"),
        ('{"symbol":"F"}\nnull', "line 2 has no `symbol`"),
        ('{"symbol":"F"}\n[]', "line 2: JSON parse error"),
        ('{"name":"Ford"}', "line 1 has no `symbol`"),
    ],
)
def test_lines_are_refused_with_their_number(text: str, why: str) -> None:
    with pytest.raises(RefusedTableError) as refused:
        table_of_file(NAMES, ".jsonl", text.encode())
    assert str(refused.value).startswith(why)


def test_other_columns_and_no_content_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedTableError, match=r"^it has no column `name`, `size`$"):
        of_csv("symbol,nam\nF,Ford\n")
    with pytest.raises(RefusedTableError, match=r"^it has no column `size`$"):
        of_parquet({"symbol": ["F"], "name": ["Ford"]})
    with pytest.raises(RefusedTableError, match=r"^row 1 and row 2 have the same key: symbol F$"):
        of_parquet({"symbol": ["F", "F"], "name": ["", ""], "size": [1, 2]})
    with pytest.raises(RefusedTableError, match=r"^it is empty$"):
        table_of_file(NAMES, ".jsonl", b"")
    monkeypatch.setattr(tables, "MAX_BYTES", 2**20)
    with pytest.raises(RefusedTableError, match=r"^it has more than 1 MiB$"):
        of_csv("x" * (2**20 + 1))
    # A small file, but not its rows.
    many = 2**17
    symbols = [str(n) for n in range(many)]
    with pytest.raises(RefusedTableError, match=r"^it has more than 1 MiB$"):
        of_parquet({"symbol": symbols, "name": ["x" * 9] * many, "size": [0] * many})


def test_each_row_is_valid_until_the_next_one_of_its_key() -> None:
    rows = of_csv(
        "symbol,name,since\n"
        "F,second,2026-03-01T00:00:00Z\nF,first,2026-01-01T01:00:00+01:00\n"
        "A,only,2026-02-01T00:00:00Z\n",
        SINCE,
    )
    march = datetime(2026, 3, 1, tzinfo=UTC)
    forever = datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)
    assert [(r["name"], r["since"], r["valid_until"]) for r in rows] == [
        ("only", datetime(2026, 2, 1, tzinfo=UTC), forever),
        ("first", datetime(2026, 1, 1, tzinfo=UTC), march),
        ("second", march, forever),
    ]
    with pytest.raises(RefusedTableError, match=r"line 2 and line 3 have the same key: symbol F,"):
        of_csv("symbol,name,since\n" + "F,x,2026-03-01T00:00:00Z\n" * 2, SINCE)
    days = Reference("k STRING, since DATE", ("k",), "since")
    found = of_csv("k,since\nF,2026-02-01\nF,2026-01-01\n", days)
    assert [r["valid_until"] for r in found] == [date(2026, 2, 1), date(9999, 12, 31)]


def test_records_replace_and_delete_rows() -> None:
    first = changed_table(
        NAMES, None, {b"1": b'{"symbol":"F",\n"size":1}', b"2": b'{"symbol":"G"}'}
    )
    kept = decoded(encoded(first))
    changes = {b"1": b'{"symbol":"F","size":7}', b"2": None, b"never": None}
    assert [r["size"] for r in changed_table(NAMES, kept, changes).to_pylist()] == [7]
    other_way = {b"2": b'{"symbol":"G"}', b"1": b'{"symbol":"F","size":1}'}
    assert encoded(changed_table(NAMES, None, other_way)) == encoded(first)
    assert len(changed_table(NAMES, kept, {b"1": None, b"2": None})) == 0
    moved = changed_table(NAMES, kept, {b"1": b'{"symbol":"G"}', b"2": None})
    assert [r["symbol"] for r in moved.to_pylist()] == ["G"]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b'{"symbol":"F"}', "the record with key b'1' and the record with key b'2' have the same"),
        (b'{"symbol":7}', "the record with key b'2': JSON parse error: Column(/symbol) changed"),
        (b"7", "the record with key b'2' is not a JSON object"),
        (b'{"symbol":"a"}{"symbol":"b"}', "the record with key b'2': Extra data"),
        (b'{"size":7}', "the record with key b'2' has no `symbol`"),
        (b"", "the record with key b'2': "),
    ],
)
def test_a_record_that_makes_no_row_is_named(value: bytes, why: str) -> None:
    before = changed_table(NAMES, None, {b"1": b'{"symbol":"F"}'})
    with pytest.raises(RefusedTableError) as refused:
        changed_table(NAMES, before, {b"3": b'{"symbol":"H"}', b"2": value})
    assert str(refused.value).startswith(why)


PIPELINE = """\
apiVersion: onceflow/v1
name: named
sources:
  trades:
    kafka: {{topics: [trades]}}
    schema: "symbol STRING, at TIMESTAMP"
references:
  names: {{{block}}}
query: SELECT t.symbol, n.name FROM trades t JOIN names n ON t.symbol = n.symbol
sink: {{kafka: {{topic: out}}}}
"""
GOOD = 'file: names.csv, schema: "symbol STRING, name STRING", key: symbol'


def refusal(folder: Path, block: str) -> str:
    path = folder / "pipeline.yaml"
    path.write_text(PIPELINE.format(block=block))
    with pytest.raises(ConfigError) as refused:
        load_pipeline(path)
    return str(refused.value)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("file: names.csv", "file: names.xls", "unknown kind of file; expected .csv, .jsonl"),
        ("file: names.csv, ", "", "a reference is a file or a topic; expected one of both"),
        ("key: symbol", "key: [symbol, x]", "the schema has no column `x`; expected one of symbol"),
        ("name STRING", "name TEXT", "references.names.schema"),
        ("key: symbol", "key: symbol, valid_from: name", "`name` is string; expected timestamp or"),
        ("key: symbol", "key: symbol, valid_from: at", "the schema has no column `at`"),
        ("file: names.csv", "topic: out", "a pipeline cannot read the topic that it writes"),
    ],
)
def test_a_block_that_does_not_fit_is_refused(tmp_path: Path, old: str, new: str, why: str) -> None:
    assert old in GOOD
    assert why in refusal(tmp_path, GOOD.replace(old, new))


def test_a_reference_has_a_name_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINE.format(block=GOOD).replace("  names: {", "  trades: {"))
    with pytest.raises(ConfigError, match="a source has this name"):
        load_pipeline(path)


def test_what_a_table_is_belongs_to_the_query_and_where_it_is_does_not(tmp_path: Path) -> None:
    def parts(block: str) -> Mapping[str, Any]:
        path = tmp_path / "pipeline.yaml"
        path.write_text(PIPELINE.format(block=block))
        return load_pipeline(path).pipeline.result_parts()

    before = parts(GOOD)
    assert before["references.names"]
    assert parts(GOOD.replace("file: names.csv", "topic: names, every: 5 s")) == before
    assert parts(GOOD.replace("name STRING", "name STRING, x INT")) != before
    assert parts(GOOD.replace("key: symbol", "key: [symbol, name]")) != before
