"""The decoders in Java against those in Python: equal rows, and equal reasons word by word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.support.decoding import JavaDecoder, check_equal, escaped, python_lines

PAYLOADS = Path(__file__).with_name("payloads")
NASTY = json.loads(PAYLOADS.joinpath("json.json").read_text())
"""Payloads for each list of columns; a character is a byte."""
NASTY_ROWS = json.loads(PAYLOADS.joinpath("csv.json").read_text())
"""Columns, options of the format, and payloads."""


@pytest.fixture(scope="module")
def java(spark: SparkSession) -> JavaDecoder:
    return JavaDecoder(spark)


@pytest.mark.parametrize("ddl", NASTY)
def test_nasty_documents_are_read_as_before(java: JavaDecoder, ddl: str) -> None:
    check_equal(java, ddl, [None, *(text.encode("latin-1") for text in NASTY[ddl])])


SCALARS = [text for texts in NASTY.values() for text in texts if len(text) < 60]
BLANKS = st.sampled_from(["", "", "", " ", "\n", "\t \r"])
WORDS = [
    "null",
    "true",
    "false",
    "0",
    "-0",
    "1",
    "-12",
    "1.5",
    "-0.25",
    "1e2",
    "7e-3",
    "2147483648",
]
WORDS += ['"x"', '"2026-11-01"', '"2026-11-01T10:00:00.123456Z"', '"1.25"', '"aGk="', '"\\u00e9"']
VALUES = st.recursive(
    st.one_of(
        st.sampled_from(WORDS),
        st.integers(-(2**70), 2**70).map(str),
        st.floats().map(json.dumps),
        st.decimals(allow_nan=False, allow_infinity=False).map(lambda d: json.dumps(str(d))),
        st.text(max_size=12).map(json.dumps),
        st.text(max_size=12).map(lambda text: json.dumps(text, ensure_ascii=False)),
        st.datetimes().map(lambda at: json.dumps(str(at))),
        st.datetimes(timezones=st.timezones()).map(lambda at: json.dumps(at.isoformat())),
        st.dates().map(lambda day: json.dumps(str(day))),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]"),
        st.lists(st.tuples(st.sampled_from("abxy"), inner), max_size=3).map(
            lambda fields: "{" + ",".join(f'"{name}":{value}' for name, value in fields) + "}"
        ),
    ),
    max_leaves=6,
)
FIELDS = st.tuples(BLANKS, st.sampled_from(["a", "a", "b", "b", "x", ""]), BLANKS, VALUES, BLANKS)
DOCUMENTS = st.lists(FIELDS, max_size=4).map(
    lambda fields: (
        "{"
        + ",".join(f'{one}"{name}"{two}:{value}{three}' for one, name, two, value, three in fields)
        + "}"
    )
)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A document, whole or with some bytes that are wrong, missing, or there twice."""
    document = draw(st.one_of(DOCUMENTS, st.sampled_from(SCALARS)))
    payload = bytearray(document.encode("utf-8", "surrogatepass"))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(payload)))
        end = min(len(payload), at + draw(st.integers(0, 3)))
        new = draw(
            st.one_of(st.binary(max_size=2), st.sampled_from([b'"', b"\\", b"}", b",", b"{"]))
        )
        payload[at:end] = draw(st.sampled_from([new, bytes(payload[at:end]) * 2]))
    return bytes(payload)


COLUMNS = st.lists(
    st.sampled_from(
        [
            "BOOLEAN",
            "TINYINT",
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
            "ARRAY<DATE>",
            "STRUCT<a: STRING, b: DOUBLE>",
            "ARRAY<STRUCT<x: TIMESTAMP, y: ARRAY<STRING>>>",
            "MAP<STRING, BIGINT>",
        ]
    ),
    min_size=2,
    max_size=2,
).map(lambda types: f"a {types[0]}, b {types[1]}")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(ddl=COLUMNS, payloads=st.lists(mutated(), min_size=1, max_size=20))
def test_any_bytes_are_read_as_before(java: JavaDecoder, ddl: str, payloads: list[bytes]) -> None:
    ours, theirs = java.lines(ddl, payloads), python_lines(ddl, payloads)
    assert [*map(escaped, ours)] == [*map(escaped, theirs)]


@pytest.mark.parametrize(("ddl", "options", "texts"), NASTY_ROWS)
def test_nasty_rows_are_read_as_before(
    java: JavaDecoder, ddl: str, options: dict[str, Any], texts: list[str]
) -> None:
    check_equal(java, ddl, [None, *(text.encode("latin-1") for text in texts)], "csv", **options)


FIELD_TYPES = ["BOOLEAN", "SMALLINT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BINARY", "DATE"]
FIELD_TYPES += ["TIMESTAMP", "TIMESTAMP_NTZ", "DECIMAL(9,3)", "DECIMAL(38,10)"]
ROW_TEXTS = [text for _, _, texts in NASTY_ROWS for text in texts if len(text) < 60]
ROW_BYTES = st.lists(
    st.one_of(
        st.sampled_from(ROW_TEXTS).map(lambda text: text.encode("latin-1")),
        VALUES.map(str.encode),
        st.sampled_from([b",", b'"', b"\n", b"\r", b"x", b"1", b".5", b"-"]),
        st.binary(max_size=2),
    ),
    min_size=1,
    max_size=4,
).map(b"".join)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    types=st.lists(st.sampled_from(FIELD_TYPES), min_size=1, max_size=2),
    payloads=st.lists(ROW_BYTES, min_size=1, max_size=20),
)
def test_any_bytes_of_rows_are_read_as_before(
    java: JavaDecoder, types: list[str], payloads: list[bytes]
) -> None:
    ddl = ", ".join(f"{name} {kind}" for name, kind in zip("ab", types, strict=False))
    check_equal(java, ddl, payloads, "csv")


@pytest.mark.parametrize(("kind", "ddl"), [("text", "a STRING"), ("binary", "a BINARY")])
def test_plain_payloads_are_read_as_before(java: JavaDecoder, kind: str, ddl: str) -> None:
    odd = [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf0\x9f\x98\x80"]
    check_equal(java, ddl, [None, b"", b"x", "\u00e9\n\0".encode(), *odd], kind)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    kind=st.sampled_from([("text", "a STRING"), ("binary", "a BINARY")]),
    payloads=st.lists(
        st.one_of(st.binary(max_size=6), st.text(max_size=3).map(str.encode)), min_size=1
    ),
)
def test_any_plain_payload_is_read_as_before(
    java: JavaDecoder, kind: tuple[str, str], payloads: list[bytes]
) -> None:
    check_equal(java, kind[1], payloads, kind[0])


def test_a_record_does_not_change_those_around_it(java: JavaDecoder) -> None:
    """Also not their nulls: rows are reused, and a refused record leaves them half written."""
    ddl = "a STRUCT<x: BIGINT, y: ARRAY<STRING>>, b TIMESTAMP"
    good = b'{"a": {"x": 1, "y": ["q", null]}, "b": "2026-11-01T10:00:00.123456789Z"}'
    odd = [b'{"a": {"x": 1, "y": ["q", 5]}}', b'{"a": null, "b": "20261101"}', b'{"b": 1}', b"{}"]
    payloads = [each for one in odd for each in (good, one, good)]
    check_equal(java, ddl, payloads)
    alone = {each: java.lines(ddl, [each]) for each in payloads}
    assert [[line] for line in java.lines(ddl, payloads)] == [alone[each] for each in payloads]
