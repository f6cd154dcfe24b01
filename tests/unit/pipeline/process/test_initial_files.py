"""Files of an initial state: what is read, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from onceflow.columns import parse_columns
from onceflow.errors import ConfigError
from onceflow.pipeline.process.initial import read_initial
from tests.support.pipelines import pipeline_text, write_pipeline

COLUMNS = parse_columns("card string, total decimal(10,2), at timestamp")
AT = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = [
    {"card": "a", "total": Decimal("1.50"), "at": AT},
    {"card": "b", "total": None, "at": AT},
]
CSV = "other,card,total,at\nx,a,1.50,2026-01-01T00:00:00Z\ny,b,,2026-01-01T00:00:00Z\n"
LINES = """\
{"card": "a", "total": "1.50", "at": "2026-01-01T00:00:00Z", "other": 1}
{"card": "b", "total": null, "at": "2026-01-01T00:00:00Z"}
"""


def read(file: Path) -> Any:
    return (
        pa.ipc.open_stream(read_initial(f"step cards, {file.name}", file, COLUMNS, ["card"]))
        .read_all()
        .to_pylist()
    )


@pytest.mark.parametrize(("name", "text"), [("t.csv", CSV), ("t.jsonl", LINES)])
def test_columns_of_text_are_read_as_declared(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert read(tmp_path / name) == ROWS


def test_columns_of_parquet_are_read_as_declared(tmp_path: Path) -> None:
    parquet.write_table(pa.Table.from_pylist(ROWS), tmp_path / "t.parquet")
    assert read(tmp_path / "t.parquet") == ROWS


@pytest.mark.parametrize("places", ["", "file: a.csv, topic: a, "])
def test_an_initial_state_is_in_a_file_or_in_a_topic(tmp_path: Path, places: str) -> None:
    state = f"{{{places}columns: user string}}"
    step = f"process: {{s: {{class: m:S, input: clicks, initial_state: {state}}}}}\n"
    with pytest.raises(ConfigError, match=r"process\.s\.initial_state: .*in a file or in a topic"):
        write_pipeline(tmp_path, step + pipeline_text())


def test_records_are_read_as_declared() -> None:
    values = [line.encode() for line in LINES.splitlines()]
    values[1] = values[1].replace(b", ", b",\n")
    for some, expected in ((values, ROWS), (values[:1], ROWS[:1]), ([], [])):
        rows = read_initial("step cards, totals", some, COLUMNS, ["card"])
        assert pa.ipc.open_stream(rows).read_all().to_pylist() == expected
    with pytest.raises(ConfigError, match="step cards, totals"):
        read_initial("step cards, totals", [b"no JSON"], COLUMNS, ["card"])


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("t.csv", None, "No such file"),
        ("t.txt", CSV, "ends in .parquet, .csv or .jsonl"),
        ("t.csv", "card,at\na,2026-01-01T00:00:00Z\n", "total"),
        ("t.csv", CSV.replace("1.50", "much"), "much"),
        ("t.csv", CSV.replace("1.50", "1.505"), "scale|rescale|decimal"),
        ("t.jsonl", LINES.replace('"b"', "null"), "`card`, which is a column of the key, is null"),
        ("t.jsonl", LINES.replace('"card": "b", ', ""), "`card`, which is a column of the key"),
        ("t.jsonl", "{", "JSON"),
        ("t.parquet", "PAR1", "t.parquet|Parquet"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(
    tmp_path: Path, name: str, text: str | None, told: str
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=told) as caught:
        read(tmp_path / name)
    assert f"step cards, {name}" in str(caught.value)
    assert "total decimal(10,2)" in str(caught.value)
