"""Payloads in each format but JSON: what becomes a row, and what is rejected with which reason."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest

from onceflow.columns import Columns, parse_columns
from onceflow.contracts.record import Record
from onceflow.delivery.decoding import Decoder
from onceflow.delivery.formats import payload_format
from onceflow.delivery.loader import load_delivery
from onceflow.errors import ConfigError

COLUMNS = parse_columns(
    "n BIGINT NOT NULL, page STRING, price DECIMAL(6,2), ratio DOUBLE, fresh BOOLEAN, day DATE,"
    " at TIMESTAMP"
)
ROW = (7, "/ä", Decimal("1.50"), 0.5, True, date(2024, 2, 29), datetime(2024, 2, 29, tzinfo=UTC))
AVRO = {
    "type": "record",
    "name": "View",
    "fields": [
        {"name": "n", "type": ["null", "long"]},
        {"name": "page", "type": ["null", "string"]},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
        },
        {"name": "ratio", "type": "double"},
        {"name": "fresh", "type": "boolean"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "unknown", "type": "string"},
    ],
}
FILE = """\
apiVersion: onceflow/v1
kind: delivery
name: views
from: {{topics: [views], {source}}}
to: {{postgres: {{dsn_file: dsn, table: views, mode: append}}}}
"""


def decoder(name: str, columns: Columns, schema: Any = None) -> Decoder:
    payload = payload_format(name, columns, json.dumps(schema))
    return Decoder(
        columns, columns.required, ("n",) if "n" in columns.names else (), payload=payload
    )


def avro(**changed: Any) -> bytes:
    stream = BytesIO()
    names = [field["name"] for field in AVRO["fields"]]  # type: ignore[index]
    datum = dict(zip(names, (*ROW, "x"), strict=True)) | changed
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), datum)
    return stream.getvalue()


def reason(made: Decoder, payload: bytes) -> str:
    [(_, found)] = made.decoded([Record("t", 0, 0, 0, None, payload)]).unreadable
    return found


def test_csv_is_one_row_in_each_record() -> None:
    made = decoder("csv", COLUMNS)
    assert made.row("7,/ä,1.50,0.5,true,2024-02-29,2024-02-29T00:00:00Z".encode()) == ROW
    assert made.row(b'7,"a ""b"", c\n",,,,,') == (7, 'a "b", c\n', None, None, None, None, None)
    assert made.row(b"7,5,,NaN,,,\r\n")[1] == "5"
    assert reason(made, b"7,x") == "expected a row of 7 fields, found 2 fields"
    assert reason(made, b"7,,,,,,\n7,,,,,,").startswith("expected a row of CSV, found new-line")
    assert reason(made, b"") == "expected a row of 7 fields, found 0 fields"
    assert reason(made, b",,,,,,") == "n: expected a value, found null"
    assert reason(made, b"1.5,,,,,,").startswith("n: expected bigint, found str '1.5'")
    assert reason(made, b"7,,1.555,,,,").startswith("price: expected decimal(6,2)")
    assert reason(made, b"7,,,,yes,,").startswith("fresh: expected boolean, found str 'yes'")
    assert reason(made, b'7,"a,,,,,').startswith("expected a row of CSV, found")
    assert reason(made, b"7,\xff,,,,,").startswith("expected a row of CSV, found")


def test_avro_is_one_datum_in_each_record() -> None:
    made = decoder("avro", COLUMNS, AVRO)
    assert made.row(avro()) == ROW
    assert made.row(avro(page=None))[1] is None
    assert reason(made, avro(n=None)) == "n: expected a value, found null"
    assert reason(made, b"") == "expected a datum of the Avro schema, found EOFError"
    assert reason(made, avro() + b"xy").endswith("found 2 bytes after it")
    text = decoder("avro", parse_columns("n STRING"), AVRO)
    assert reason(text, avro()).startswith("n: expected string, found int 7")


def test_a_decimal_of_avro_is_not_rounded() -> None:
    price = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}
    schema = {"type": "record", "name": "R", "fields": [{"name": "price", "type": price}]}
    made = decoder("avro", parse_columns("price DECIMAL(6,2)"), schema)
    assert made.row(b"\x04\x0c\xcc") == (Decimal("327.6"),)
    assert reason(made, b"\x06\x00\x80\x05").endswith("more digits than the schema has")


def test_a_record_of_avro_that_nests_without_end_is_unreadable() -> None:
    """fastavro's quick reader would end the process."""
    fields = [{"name": "n", "type": "long"}, {"name": "next", "type": ["null", "R"]}]
    schema = {"type": "record", "name": "R", "fields": fields}
    made = decoder("avro", parse_columns("n BIGINT"), schema)
    assert made.row(b"\x0e\x02\x10\x00") == (7,)
    assert "RecursionError" in reason(made, b"\x0e\x02" * 1_000_000 + b"\x0e\x00")


def test_text_and_bytes_are_one_value() -> None:
    text = decoder("text", parse_columns("line STRING"))
    assert text.row("ä\n".encode()) == ("ä\n",)
    assert "utf-8" in reason(text, b"\xff")
    assert decoder("binary", parse_columns("value BINARY")).row(b"\xff\x00") == (b"\xff\x00",)


def test_a_key_to_delete_by_is_read_as_ever() -> None:
    """It is text, or a JSON object, whatever the format of values is."""
    for name, schema in (("csv", None), ("avro", AVRO)):
        assert decoder(name, COLUMNS, schema).deletion(b"7")[0] == 7


@pytest.mark.parametrize(
    ("source", "columns"),
    [
        ("format: text", "value STRING"),
        ("format: binary", "value BINARY"),
        ("format: text, schema: line STRING", "line STRING"),
        ('format: csv, schema: "n INT, page STRING"', "n INT, page STRING"),
        ("format: avro, avro: {schema_file: view.avsc}, schema: n BIGINT", "n BIGINT"),
    ],
)
def test_a_file_may_name_a_format(tmp_path: Path, source: str, columns: str) -> None:
    (tmp_path / "view.avsc").write_text(json.dumps(AVRO))
    file = tmp_path / "delivery.yaml"
    file.write_text(FILE.format(source=source))
    assert load_delivery(file).delivery.source.columns == parse_columns(columns)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("format: csv", "`postgres` needs the columns of a row"),
        ("format: text, schema: n INT", "expected one column of type STRING"),
        ('format: csv, schema: "n ARRAY<INT>"', "`n` has the type array<int>"),
        ("format: avro, schema: n INT", "format avro needs a schema"),
        ("avro: {schema_file: view.avsc}, schema: n INT", "`avro` without `format: avro`"),
        ("format: avro, avro: {schema_file: none.avsc}, schema: n INT", "none.avsc"),
        ("format: avro, avro: {schema_file: bad.avsc}, schema: n INT", "schema cannot be used"),
        ("format: protobuf, schema: n INT", "`protobuf` is not yet supported"),
    ],
)
def test_a_format_that_does_not_fit_is_refused(tmp_path: Path, source: str, message: str) -> None:
    bad = {"type": "record", "name": "V", "fields": [{"name": "n", "type": "no such"}]}
    (tmp_path / "bad.avsc").write_text(json.dumps(bad))
    file = tmp_path / "delivery.yaml"
    file.write_text(FILE.format(source=source))
    with pytest.raises(ConfigError) as refused:
        load_delivery(file)
    assert message in str(refused.value)
