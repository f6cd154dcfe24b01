"""Avro in Java against fastavro: equal rows, and equal reasons word by word."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.support.decoding import JavaDecoder, check_equal, escaped, python_lines

NASTY = json.loads(Path(__file__).with_name("payloads").joinpath("avro.json").read_text())
"""Columns, types of the fields, and payloads."""
Shape: TypeAlias = tuple[Any, st.SearchStrategy[Any]]
"""A type, and values of it."""


@pytest.fixture(scope="module")
def java(spark: SparkSession) -> JavaDecoder:
    return JavaDecoder(spark)


def record_of(types: Sequence[Any]) -> dict[str, Any]:
    fields = [{"name": name, "type": kind} for name, kind in zip("abc", types, strict=False)]
    return {"type": "record", "name": "r", "namespace": "n", "fields": fields}


@pytest.mark.parametrize(("ddl", "types", "payloads"), NASTY)
def test_nasty_datums_are_read_as_before(
    java: JavaDecoder, ddl: str, types: list[Any], payloads: list[str]
) -> None:
    datums = map(bytes.fromhex, payloads)
    check_equal(java, ddl, [None, *datums], "avro", schema=json.dumps(record_of(types)))


def annotated(kind: str, logical: str, **more: int) -> Mapping[str, Any]:
    return {"type": kind, "logicalType": logical, **more}


LONGS = st.integers(-(2**63), 2**63 - 1)
LEAVES: Sequence[Shape] = [
    ("null", st.none()),
    ("boolean", st.booleans()),
    ("int", st.integers(-(2**31), 2**31 - 1)),
    ("long", LONGS),
    ("float", st.floats(width=32)),
    ("double", st.floats()),
    ("string", st.text(max_size=8)),
    ("bytes", st.binary(max_size=8)),
    (annotated("long", "timestamp-millis"), LONGS),
    (annotated("long", "timestamp-micros"), st.integers(-(2**55), 2**55)),
    (annotated("long", "local-timestamp-millis"), st.integers(-(2**45), 2**45)),
    (annotated("long", "local-timestamp-micros"), LONGS),
    (annotated("int", "date"), st.integers(-(10**6), 3 * 10**6)),
    (annotated("int", "time-millis"), st.integers(-(10**7), 10**8)),
    (annotated("long", "time-micros"), st.integers(-(10**10), 10**11)),
    (annotated("string", "uuid"), st.uuids().map(str)),
    (annotated("bytes", "decimal", precision=9, scale=3), st.binary(max_size=5)),
    (annotated("bytes", "decimal", precision=40, scale=20), st.binary(max_size=17)),
]
"""Values are those of the type without its logical type."""


@st.composite
def shapes(draw: st.DrawFn, names: list[str], depth: int = 0) -> Shape:
    what = draw(st.sampled_from(["leaf"] * 4 + ["union", "array", "map", "record", "named"]))
    if what == "leaf" or depth > 2:
        return draw(st.sampled_from(LEAVES))
    if what == "named":
        names.append(f"t{len(names)}")
        symbols = {"type": "enum", "name": names[-1], "symbols": ["A", "B", "C"]}
        fixed = {"type": "fixed", "name": names[-1], "size": 3}
        ways: list[Shape] = [
            (symbols, st.sampled_from("ABC")),
            (fixed, st.binary(min_size=3, max_size=3)),
        ]
        return draw(st.sampled_from(ways))
    if what == "record":
        names.append(f"t{len(names)}")
        name = names[-1]
        fields = {field: draw(shapes(names, depth + 1)) for field in "xy"}
        told = [{"name": field, "type": kind} for field, (kind, _) in fields.items()]
        values = st.fixed_dictionaries({field: each for field, (_, each) in fields.items()})
        return {"type": "record", "name": name, "fields": told}, values
    kind, values = draw(shapes(names, depth + 1))
    if what == "array":
        return {"type": "array", "items": kind}, st.lists(values, max_size=3)
    if what == "map":
        return {"type": "map", "values": kind}, st.dictionaries(st.text(max_size=3), values)
    if isinstance(kind, list):
        return kind, values
    return ["null", kind], st.one_of(st.none(), values)


def plain(kind: Any) -> Any:
    """A type without logical types, as whose values are written."""
    if isinstance(kind, list):
        return [plain(each) for each in kind]
    if not isinstance(kind, dict):
        return kind
    return {name: plain(value) for name, value in kind.items() if name != "logicalType"}


COLUMNS = [
    "BOOLEAN",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "STRING",
    "BINARY",
    "DATE",
    "TIMESTAMP",
    "TIMESTAMP_NTZ",
    "DECIMAL(9,3)",
    "DECIMAL(38,18)",
    "ARRAY<BIGINT>",
    "ARRAY<STRING>",
    "STRUCT<x: STRING, y: BIGINT>",
    "MAP<STRING, BIGINT>",
]
FITTING: Mapping[str, str] = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "STRING",
    "bytes": "BINARY",
    "array": "ARRAY<BIGINT>",
    "record": "STRUCT<x: STRING, y: BIGINT>",
    "map": "MAP<STRING, BIGINT>",
    "timestamp-millis": "TIMESTAMP",
    "timestamp-micros": "TIMESTAMP",
    "local-timestamp-millis": "TIMESTAMP_NTZ",
    "local-timestamp-micros": "TIMESTAMP",
    "date": "DATE",
    "decimal": "DECIMAL(38,18)",
}


def fitting(kind: Any) -> str:
    """The column that holds values of a type, if there is one."""
    if isinstance(kind, list):
        return fitting(kind[-1])
    name = kind.get("logicalType", kind["type"]) if isinstance(kind, dict) else kind
    return FITTING.get(str(name), "STRING")


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, str, list[bytes]]:
    """Columns, a schema, and payloads of it, whole or with some bytes that are wrong."""
    names: list[str] = []
    found = [draw(shapes(names)) for _ in range(draw(st.integers(1, 3)))]
    types = [kind for kind, _ in found]
    parsed = fastavro.parse_schema(plain(record_of(types)))
    payloads = []
    for _ in range(draw(st.integers(1, 8))):
        datum = {name: draw(values) for name, (_, values) in zip("abc", found, strict=False)}
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, datum)
        payload = bytearray(stream.getvalue())
        for _ in range(draw(st.integers(0, 2))):
            at = draw(st.integers(0, len(payload)))
            end = min(len(payload), at + draw(st.integers(0, 2)))
            payload[at:end] = draw(st.binary(max_size=2))
        payloads.append(bytes(payload))
    columns = [draw(st.one_of(st.just(fitting(kind)), st.sampled_from(COLUMNS))) for kind in types]
    wanted = draw(st.integers(0, len(columns) - 1))
    ddl = ", ".join(f"{n} {c}" for n, c in list(zip("abc", columns, strict=False))[wanted:])
    return ddl, json.dumps(record_of(types)), payloads


@settings(suppress_health_check=[*HealthCheck], deadline=None)
@given(case=cases())
def test_any_bytes_are_read_as_before(
    java: JavaDecoder, case: tuple[str, str, list[bytes]]
) -> None:
    ddl, schema, payloads = case
    ours = java.lines(ddl, payloads, "avro", schema=schema)
    theirs = python_lines(ddl, payloads, "avro", schema=schema)
    assert [*map(escaped, ours)] == [*map(escaped, theirs)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(numbers=st.lists(st.floats(), min_size=1, max_size=50))
def test_numbers_in_reasons_are_written_as_before(java: JavaDecoder, numbers: list[float]) -> None:
    payloads = [fastavro_double(number) for number in numbers]
    check_equal(java, "a STRING", payloads, "avro", schema=json.dumps(record_of(["double"])))


def fastavro_double(number: float) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(record_of(["double"])), {"a": number})
    return stream.getvalue()


NODE = {"type": "record", "name": "node", "fields": [{"name": "next", "type": ["null", "node"]}]}


def test_a_datum_is_refused_before_it_fills_the_stack_or_the_memory(java: JavaDecoder) -> None:
    """fastavro ends the process here."""
    deep = json.dumps(record_of([NODE]))
    (line,) = java.lines("b BIGINT", [b"\x02" * 1_000_000 + b"\0"], "avro", schema=deep)
    told = "not a datum of the schema: more than 1000 values inside one another"
    assert line == f"{told}\tnull "
    wide = json.dumps(record_of([{"type": "array", "items": "null"}]))
    (line,) = java.lines("b BIGINT", [b"\xfe" + b"\xff" * 8 + b"\x01\0"], "avro", schema=wide)
    told = "not a datum of the schema: more than 1000000 items without a byte"
    assert line == f"{told}\tnull "


def test_a_decimal_with_too_many_digits_is_not_rounded(java: JavaDecoder) -> None:
    """fastavro alone would read 327.67 as 327.7."""
    schema = json.dumps(record_of([annotated("bytes", "decimal", precision=4, scale=2)]))
    payloads, ddl = [b"\x04\x27\x0f", b"\x04\x7f\xff"], "a DECIMAL(9,2)"
    expected = ["\t9999 ", "not a datum of the schema: ValueError\tnull "]
    assert java.lines(ddl, payloads, "avro", schema=schema) == expected
    assert python_lines(ddl, payloads, "avro", schema=schema) == expected
