from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.contracts.source import SourceSpec
from onceflow.errors import ConfigError
from onceflow_connectors.batches import BatchBuilder
from onceflow_connectors.decoders import decode, decoder_for

US_UTC = pa.timestamp("us", tz="UTC")


class RefusedError(Exception):
    """A payload, by its index, is bad."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(reason)
        self.index, self.reason = index, reason


def rows(
    format_name: str,
    schema: pa.Schema,
    payloads: Sequence[bytes | None],
    options: Mapping[str, Any] | None = None,
) -> list[Any]:
    """Decoded rows; of a single column, its values."""
    spec = SourceSpec("s", format_name, schema, options or {})
    arrays, reasons = decode(decoder_for(spec), payloads, schema)
    for index, reason in enumerate(reasons.to_pylist()):
        if reason is not None:
            raise RefusedError(index, reason)
    batch = pa.RecordBatch.from_arrays(list(arrays), schema=schema)
    batch.validate(full=True)
    columns = [column.to_pylist() for column in batch.columns]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def one(column_type: pa.DataType) -> pa.Schema:
    return pa.schema([("a", column_type)])


def json_values(column_type: pa.DataType, *texts: str) -> list[Any]:
    return rows("json", one(column_type), [f'{{"a": {text}}}'.encode() for text in texts])


def refusal(
    format_name: str,
    schema: pa.Schema,
    payloads: Sequence[bytes | None],
    options: Mapping[str, Any] | None = None,
) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        rows(format_name, schema, payloads, options)
    return caught.value


def test_json_fields_are_matched_by_name() -> None:
    schema = pa.schema([("b", pa.string()), ("a", pa.int64())])
    payloads = [b'{"a": 1, "b": "x"}', b'{"B": "no", "other": [{"deep": 1}]}', b'{"b": null}']
    assert rows("json", schema, payloads) == [("x", 1), (None, None), (None, None)]


@pytest.mark.parametrize(
    ("column_type", "text", "expected"),
    [
        (pa.int64(), "-9223372036854775808", -(2**63)),
        (pa.int32(), "7", 7),
        (pa.int16(), "null", None),
        (pa.float64(), "5", 5.0),
        (pa.float64(), "-1.5e-3", -0.0015),
        (pa.bool_(), "true", True),
        (pa.string(), '"\\u00e9\\ud83d\\ude00\\n"', "é😀\n"),
        (pa.binary(), '"aGk="', b"hi"),
        (pa.date32(), '"2026-11-01"', date(2026, 11, 1)),
        (pa.decimal128(10, 2), "1.5", Decimal("1.50")),
        (pa.decimal128(10, 2), '"-0.10"', Decimal("-0.10")),
        (pa.decimal128(38, 18), "0.1", Decimal("0.1").quantize(Decimal("1e-18"))),
        (pa.list_(pa.field("element", pa.int64())), "[1, null, 2]", [1, None, 2]),
        (pa.list_(pa.field("element", pa.date32())), '["2026-11-01"]', [date(2026, 11, 1)]),
        (
            pa.struct([("x", pa.int64()), ("y", pa.string())]),
            '{"x": 1, "z": 9}',
            {"x": 1, "y": None},
        ),
        (pa.map_(pa.string(), pa.int64()), '{"k": 1, "l": null}', [("k", 1), ("l", None)]),
    ],
)
def test_json_reads_every_type(column_type: pa.DataType, text: str, expected: object) -> None:
    assert json_values(column_type, text) == [expected]
    assert json_values(column_type, text, "null", text) == [expected, None, expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-01T10:00:00Z", datetime(2026, 11, 1, 10, tzinfo=UTC)),
        ("2026-11-01T10:00:00", datetime(2026, 11, 1, 10, tzinfo=UTC)),
        ("2026-11-01 10:00:00.5", datetime(2026, 11, 1, 10, 0, 0, 500_000, UTC)),
        ("2026-11-01T10:00:00.123+02:00", datetime(2026, 11, 1, 8, 0, 0, 123_000, UTC)),
        ("2026-11-01T10:00:00.123456789Z", datetime(2026, 11, 1, 10, 0, 0, 123_456, UTC)),
        ("9999-12-31T23:59:59.999999Z", datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)),
        ("9999-12-31T23:59:59.999999999Z", datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)),
        ("1969-12-31T23:59:59.9Z", datetime(1969, 12, 31, 23, 59, 59, 900_000, UTC)),
        ("2026-11-01", datetime(2026, 11, 1, tzinfo=UTC)),
    ],
)
def test_json_timestamps_are_iso_8601_and_utc_without_a_zone(text: str, expected: datetime) -> None:
    others = '"2026-01-01T00:00:00Z"', '"2026-01-01T00:00:00.000000001Z"'
    assert json_values(US_UTC, f'"{text}"') == [expected]
    assert json_values(US_UTC, f'"{text}"', *others)[0] == expected
    assert json_values(pa.timestamp("us"), f'"{text}"') == [expected.replace(tzinfo=None)]


@pytest.mark.parametrize(
    ("column_type", "text"),
    [
        (pa.int64(), "1.0"),
        (pa.int64(), "9223372036854775808"),
        (pa.int64(), '"5"'),
        (pa.int64(), "true"),
        (pa.int32(), "3000000000"),
        (pa.float64(), '"1.5"'),
        (pa.float64(), "1e400"),
        (pa.bool_(), "1"),
        (pa.string(), "5"),
        (pa.string(), '{"x": 1}'),
        (pa.string(), '"\\ud83d"'),
        (pa.binary(), '"not base64"'),
        (pa.date32(), "5"),
        (pa.date32(), '"2026-13-01"'),
        (US_UTC, "1700000000"),
        (US_UTC, '"yesterday"'),
        (pa.decimal128(10, 2), "1.555"),
        (pa.decimal128(10, 2), "123456789012"),
        (pa.decimal128(9, 3), "5e-324"),
        (pa.list_(pa.int64()), "5"),
        (pa.struct([("x", pa.int64())]), "[1]"),
        (pa.map_(pa.string(), pa.int64()), "[1]"),
    ],
)
def test_json_coerces_nothing(column_type: pa.DataType, text: str) -> None:
    assert refusal("json", one(column_type), [f'{{"a": {text}}}'.encode()]).reason


BAD_JSON = [
    None,
    b"",
    b"null",
    b"5",
    b"[1]",
    b'{"a": 1',
    b'{"a": 1}}',
    b'{"a": 1}{"a": 2}',
    b'{"a": 1}\n{"a": 2}',
    b'{"a": 1}, {"a": 2}',
    b'{"a": 1}, "b": 2',
    b'{"a": [1, ',
    b'{"a": 1} x',
    b'\xef\xbb\xbf{"a": 1}',
    b'{"a": "x}',
    b'{","b":1}',
    b'{"b": "\xff"}',
    b'{"a": 1e99999999999999999999}',
    b"[" * 100_000,
]


@pytest.mark.parametrize("bad", BAD_JSON)
@pytest.mark.parametrize("before", [0, 1, 100])
@pytest.mark.parametrize("after", [0, 37])
def test_a_bad_json_record_is_named_by_its_place(
    bad: bytes | None, before: int, after: int
) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    payloads = [b'{"a": 1, "b": "x"}'] * before + [bad] + [b'{"a": 2}'] * after
    assert refusal("json", schema, payloads).index == before


@given(st.lists(st.sampled_from([*BAD_JSON[:-1], b'{"a": 1}', b' {"a":\n2}\n']), max_size=8))
def test_json_records_never_shift(payloads: list[bytes | None]) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    good = {b'{"a": 1}': (1, None), b' {"a":\n2}\n': (2, None)}
    bad = [index for index, payload in enumerate(payloads) if payload not in good]
    if bad:
        assert refusal("json", schema, payloads).index == bad[0]
    else:
        assert rows("json", schema, payloads) == [good[p] for p in payloads if p]


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**65), 2**65),
    st.floats(),
    st.text(max_size=5),
    st.datetimes().map(str),
    st.dates().map(str),
    st.decimals(-(10**9), 10**9, places=3).map(str),
    st.lists(st.integers(), max_size=2),
)
TYPES = st.sampled_from(
    [
        pa.int64(),
        pa.int8(),
        pa.float64(),
        pa.float32(),
        pa.bool_(),
        pa.string(),
        pa.date32(),
        US_UTC,
        pa.timestamp("us"),
        pa.decimal128(12, 3),
        pa.list_(pa.field("element", pa.int64())),
    ]
)


@given(TYPES, st.lists(VALUES, min_size=1, max_size=6))
def test_what_a_record_means_does_not_depend_on_its_neighbours(
    column_type: pa.DataType, values: list[object]
) -> None:
    payloads = [json.dumps({"a": value}).encode() for value in values]
    alone: list[Any] = []
    for index, payload in enumerate(payloads):
        try:
            alone += rows("json", one(column_type), [payload])
        except RefusedError:
            assert refusal("json", one(column_type), payloads).index == index
            return
    assert repr(rows("json", one(column_type), payloads)) == repr(alone)  # NaN is not itself


def test_csv_columns_are_matched_by_order() -> None:
    schema = pa.schema([("c", pa.int64()), ("a", pa.string())])
    payloads = [b'"x, ""y""\nz",ignored,5', b"a\xc3\xa9,,", b'"",,7\r\n']
    options = {"columns": ["a", "b", "c"]}
    assert rows("csv", schema, payloads, options) == [(5, 'x, "y"\nz'), (None, "aé"), (7, None)]


@pytest.mark.parametrize(
    ("column_type", "text", "expected"),
    [
        (pa.int32(), "7", 7),
        (pa.float64(), "1.5", 1.5),
        (pa.bool_(), "false", False),
        (pa.date32(), "2026-11-01", date(2026, 11, 1)),
        (US_UTC, "2026-11-01T10:00:00+01:00", datetime(2026, 11, 1, 9, tzinfo=UTC)),
        (US_UTC, "2026-11-01 10:00:00", datetime(2026, 11, 1, 10, tzinfo=UTC)),
        (pa.decimal128(10, 2), "1.5", Decimal("1.50")),
        (pa.binary(), "aGk=", b"hi"),
        (pa.string(), "x" * 200_000, "x" * 200_000),
    ],
)
def test_csv_reads_every_scalar_type(column_type: pa.DataType, text: str, expected: object) -> None:
    schema = pa.schema([("a", column_type), ("b", pa.int64())])
    payloads = [f"{text},1".encode(), b",2"]
    assert rows("csv", schema, payloads) == [(expected, 1), (None, 2)]


@pytest.mark.parametrize(
    "bad",
    [
        None,
        b"",
        b"1",
        b"1,2,3",
        b"x,y",
        b" 1,y",
        b"1_0,y",
        b"1,x\n2,y",
        b'1,"x',
        b'1,"x\n2,y',
        b'y",2',
        b"1,\xff",
    ],
)
@pytest.mark.parametrize("before", [0, 5])
def test_a_bad_csv_record_is_named_by_its_place(bad: bytes | None, before: int) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    assert refusal("csv", schema, [b"1,x"] * before + [bad] + [b"2,z"] * 3).index == before


@given(st.lists(st.lists(st.text(max_size=6), min_size=2, max_size=2), min_size=1, max_size=8))
def test_csv_records_never_shift(written: list[list[str]]) -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.string())])
    quoted = [["".join(('"', field.replace('"', '""'), '"')) for field in row] for row in written]
    payloads = [",".join(row).encode() for row in quoted]
    assert rows("csv", schema, payloads) == [tuple(f or None for f in row) for row in written]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("9" * 39, "cannot be represented as decimal128"),
        ("1." + "0" * 40, "cannot be represented as decimal128"),
        ("123456789012345678901234567890e30", "does not fit in precision 38"),
        ("5e-324", "would cause data loss"),
        ("x", "is not a valid decimal128 number"),
    ],
)
def test_csv_refuses_digits_that_arrow_would_not_count(text: str, reason: str) -> None:
    assert reason in refusal("csv", one(pa.decimal128(38, 0)), [text.encode()]).reason


def test_csv_takes_another_delimiter() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    assert rows("csv", schema, [b"1;x,y"], {"delimiter": ";"}) == [(1, "x,y")]


def test_csv_refuses_columns_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match="do not have: z"):
        rows("csv", one(pa.int64()).append(pa.field("z", pa.int64())), [], {"columns": ["a"]})
    with pytest.raises(ConfigError, match="nested"):
        rows("csv", one(pa.list_(pa.int64())), [])


def test_text_is_utf_8_and_null_without_a_payload() -> None:
    assert rows("text", one(pa.string()), [b"", None, "é\n".encode()]) == ["", None, "é\n"]
    assert refusal("text", one(pa.string()), [b"x", b"\xff", b"y"]).index == 1


def test_binary_is_the_payload_itself() -> None:
    assert rows("binary", one(pa.binary()), [b"", None, b"\xff"]) == [b"", None, b"\xff"]


@pytest.mark.parametrize(("format_name", "wrong"), [("text", pa.binary()), ("binary", pa.string())])
def test_single_column_formats_refuse_other_columns(format_name: str, wrong: pa.DataType) -> None:
    with pytest.raises(ConfigError, match="single column"):
        rows(format_name, one(wrong), [])


AVRO = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "device", "type": "string"},
        {"name": "value", "type": ["null", "double"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "tags", "type": {"type": "map", "values": "int"}},
    ],
}


def avro(**fields: Any) -> bytes:
    whole: dict[str, Any] = {
        "device": "d",
        "value": None,
        "at": datetime(2026, 11, 1, tzinfo=UTC),
        "price": Decimal("1.50"),
        "tags": {},
    }
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), {**whole, **fields})
    return stream.getvalue()


def test_avro_fields_are_matched_by_name() -> None:
    schema = pa.schema(
        [
            ("tags", pa.map_(pa.string(), pa.int32())),
            ("at", US_UTC),
            ("price", pa.decimal128(9, 2)),
            ("value", pa.float64()),
            ("absent", pa.string()),
        ]
    )
    payloads = [avro(value=1.5, tags={"a": 1}), avro()]
    at = datetime(2026, 11, 1, tzinfo=UTC)
    assert rows("avro", schema, payloads, {"schema": json.dumps(AVRO)}) == [
        ([("a", 1)], at, Decimal("1.50"), 1.5, None),
        ([], at, Decimal("1.50"), None, None),
    ]


@pytest.mark.parametrize("bad", [None, b"", b"\x02", avro() + b"x", b"\xff" * 20])
def test_a_bad_avro_record_is_named_by_its_place(bad: bytes | None) -> None:
    payloads = [avro(), avro(), bad, avro()]
    schema = pa.schema([("device", pa.string())])
    assert refusal("avro", schema, payloads, {"schema": json.dumps(AVRO)}).index == 2


@pytest.mark.parametrize("schema", ["", "{", '"string"', '{"type": "nonsense"}'])
def test_an_unreadable_avro_schema_is_refused(schema: str) -> None:
    with pytest.raises(ConfigError, match="Avro schema"):
        rows("avro", one(pa.int64()), [], {"schema": schema})


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ConfigError, match="one of avro, binary, csv, json, text"):
        rows("xml", one(pa.int64()), [])


@given(st.lists(st.sampled_from([b'{"a": 1}', b'{"a": null}', b'{"a": "x"}', b"[", b"", None])))
def test_bad_payloads_become_rows_with_a_reason_and_change_no_other(
    payloads: list[bytes | None],
) -> None:
    schema = one(pa.int64())
    decoder = decoder_for(SourceSpec("s", "json", schema))
    good = {b'{"a": 1}': 1, b'{"a": null}': None}
    for whole in [payloads, [*payloads, b'{"a": 1}']]:
        if not whole:
            continue
        (values,), reasons = decode(decoder, whole, schema)
        assert values.to_pylist() == [good.get(p) if p in good else None for p in whole]
        assert [reason is None for reason in reasons.to_pylist()] == [p in good for p in whole]
        assert (values.type, reasons.type) == (pa.int64(), pa.string())


def test_a_column_of_the_record_itself_has_its_type() -> None:
    with pytest.raises(ConfigError, match="_offset of source s; expected int64; found string"):
        BatchBuilder(SourceSpec("s", "text", pa.schema([("_offset", pa.string())])), {})
