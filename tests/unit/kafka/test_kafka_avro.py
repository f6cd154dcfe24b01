"""Rows become plain Avro datums, or an error that names what does not fit."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest

from onceflow.errors import ConfigError, RecordError
from onceflow_connectors.kafka.sink.avro import encode_avro

FIELDS: list[dict[str, Any]] = [
    {"name": "page", "type": "string"},
    {"name": "views", "type": ["null", "long"]},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {
        "name": "price",
        "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
    },
    {"name": "flag", "type": "boolean", "default": True},
]
SCHEMA = json.dumps({"type": "record", "name": "View", "fields": FIELDS})
ROW = {
    "page": "/a",
    "views": None,
    "at": datetime(2026, 11, 1, tzinfo=UTC),
    "price": Decimal("1.20"),
    "flag": False,
}


def decoded(datum: bytes) -> object:
    schema = fastavro.parse_schema(json.loads(SCHEMA))
    return fastavro.schemaless_reader(io.BytesIO(datum), schema, None)


def test_rows_come_back_as_they_went() -> None:
    rows: list[dict[str, Any]] = [ROW, {**ROW, "views": 7}]
    assert [decoded(datum) for datum in encode_avro(SCHEMA, rows)] == rows


def test_a_missing_field_takes_its_default() -> None:
    row = {name: value for name, value in ROW.items() if name != "flag"}
    (datum,) = encode_avro(SCHEMA, [row])
    assert decoded(datum) == {**row, "flag": True}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"views": "many"}, "views"),
        ({"page": None}, "page"),
        ({"at": None}, "at"),
        ({"price": Decimal("1.234")}, "1.234"),
        ({"views": 2**70}, "views"),
        ({"left_over": 1}, "left_over"),
    ],
)
def test_a_row_that_does_not_fit_is_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(RecordError, match=named):
        encode_avro(SCHEMA, [ROW, {**ROW, **change}])


def test_a_row_without_a_field_that_has_no_default_is_refused() -> None:
    with pytest.raises(RecordError, match="price"):
        encode_avro(SCHEMA, [{name: value for name, value in ROW.items() if name != "price"}])


@pytest.mark.parametrize("schema", ["{", '{"type": "nonsense"}', '{"type": "record"}'])
def test_a_schema_that_cannot_be_read_is_a_matter_of_configuration(schema: str) -> None:
    with pytest.raises(ConfigError, match="unreadable Avro schema"):
        encode_avro(schema, [ROW])
