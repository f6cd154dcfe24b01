"""Many JSON values at once become the same table, with the same rejects, as one after another."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.columns import parse_columns
from onceflow.columns.tables import table_of
from onceflow.contracts.record import Record
from onceflow.delivery.decoding import Decoded, Decoder
from onceflow.delivery.json_tables import JsonTables, OddError
from onceflow.delivery.tables import TableDecoder

COLUMNS = parse_columns(
    "ok BOOLEAN, tiny TINYINT, small SMALLINT, n INT, big BIGINT NOT NULL, f FLOAT, d DOUBLE,"
    " s STRING, day DATE, at TIMESTAMP, wall TIMESTAMP_NTZ"
)
OTHERS = parse_columns("big BIGINT NOT NULL, price DECIMAL(10,2), tags ARRAY<STRING>, b BINARY")
USUAL = {
    "ok": True,
    "tiny": 1,
    "small": -300,
    "n": 7,
    "big": 2**60,
    "f": 0.1,
    "d": 1e-3,
    "s": "grün \U0001f600",
    "day": "2024-02-29",
    "at": "2024-02-29T01:02:03.000004Z",
    "wall": "2024-02-29T01:02:03",
}
ODD = (
    *("1", "-0", "01", "1.0", "1e2", "-1.5", "1e999", "-1e999", "1e-999", "127", "128", "-129"),
    *("32768", "2147483648", "9007199254740992", "9007199254740993", "-9007199254740993"),
    *("9223372036854775808", "3.4028235677973366e38", "0.1", "16777217", "1" + "0" * 4400),
    *("NaN", "Infinity", "-Infinity", "Inf", "-Inf", '"NaN"', '"Infinity"', "nan"),
    *("true", "false", "null", "True", "[]", "{}", "[1,[2]]", '{"a":{"b":1}}', '""', '"x"'),
    *(r'"\ud800"', r'"\udc00"', r'"\ud83d\ude00"', r'"\u0000"', '"\t"', '"\n"', '"a: NaN"', '"/"'),
    *('"2024-02-29"', '"2023-02-29"', '"0000-01-01"', '"0001-01-01"', '"9999-12-31"', '"20240229"'),
    *('"10000-01-01"', '"2024-2-9"', '" 2024-02-29"', '"2024-W09-4"', '"2024-02-29T00:00:00"'),
    *('"2024-02-29 00:00:00Z"', '"2024-02-29T00:00Z"', '"2024-02-29T00Z"', '"2024-02-29Z"'),
    *('"2024-02-29T24:00:00Z"', '"2024-02-29T23:59:60Z"', '"2024-02-29T00:00:00z"'),
    *('"2024-02-29T00:00:00.1Z"', '"2024-02-29T00:00:00.1234567Z"', '"2024-02-29T00:00:00,5Z"'),
    *('"2024-02-29T00:00:00+01:30"', '"2024-02-29T00:00:00+0130"', '"2024-02-29T00:00:00+01"'),
    *('"0001-01-01T00:00:00+01:00"', '"9999-12-31T23:59:59-01:00"', '"2024-02-29T00:00:00+24:00"'),
    *('"2024-02-29T00:00:00-23:59"', '"2024-02-29T00:00:00+01:00:30"', '"1969-12-31T23:59:59.9Z"'),
    *(
        "[" * 390 + "]" * 390,
        "[" * 3000 + "]" * 3000,
        '{"a":1,"a":2}',
        "'x'",
        "/* */ 1",
        "+1",
        ".5",
    ),
)
"""Values that parsers differ in."""

values = st.one_of(
    st.sampled_from(ODD),
    st.integers().map(str),
    st.floats().map(json.dumps),
    st.text(max_size=5).map(json.dumps),
    st.text(max_size=5).map(lambda text: json.dumps(text, ensure_ascii=False)),
)
names = st.sampled_from([*COLUMNS.names, "other", r"\u0062ig", "Big"])
fields = st.tuples(names, values).map(
    lambda pair: f'"{pair[0]}":{pair[1]}'.encode("utf-8", "replace")
)
usual = [f'"{name}":{json.dumps(value)}'.encode() for name, value in USUAL.items()]


@st.composite
def objects(draw: st.DrawFn) -> bytes:
    """Usual fields, a few of them others."""
    changed = draw(st.lists(fields, max_size=2))
    kept = draw(st.sampled_from([usual, usual, usual[4:5], []]))
    gap = draw(st.sampled_from([b",", b" , ", b",\n"]))
    return b"{" + gap.join([*kept, *changed]) + b"}"


payloads = st.one_of(
    objects(),
    objects(),
    objects(),
    st.sampled_from(
        [
            *(
                None,
                b"",
                b" ",
                b"{}",
                b"[]",
                b"null",
                b"1",
                b"{",
                b"}",
                b'{"big":1}\n',
                b'{"big":1},',
            ),
            *(b'{"big":1}{"big":2}', b'{"big":1}\n{"big":2}', b"\xef\xbb\xbf{}", b'{"big":1,}'),
            *(b'{"big":1,"x":"\xff"}', b'{"big":1,"x":NaN}', b"{'big':1}", b'{"big":1} {'),
        ]
    ),
    st.tuples(objects(), st.integers(0, 200), st.binary(max_size=2)).map(
        lambda cut: cut[0][: cut[1]] + cut[2] + cut[0][cut[1] :]
    ),
)


def records(given_payloads: Sequence[bytes | None]) -> list[Record]:
    return [Record("t", 0, n, 0, b"1", payload) for n, payload in enumerate(given_payloads)]


def assert_equal(found: Decoded, strict: Decoded, columns: object = COLUMNS) -> None:
    assert [*found.records] == [*strict.records]
    assert [*found.unreadable] == [*strict.unreadable]
    assert found.deleted == strict.deleted
    assert found.table is not None
    expected = table_of(COLUMNS if columns is COLUMNS else OTHERS, strict.rows)
    assert found.table.schema == expected.schema
    assert found.table.to_pylist() == expected.to_pylist()


@settings(max_examples=600, deadline=None)
@given(payloads)
@example(json.dumps(USUAL).encode())
def test_what_is_read_at_once_is_what_the_decoder_reads(payload: bytes | None) -> None:
    read_at_once_is_equal(payload)


def read_at_once_is_equal(payload: bytes | None) -> None:
    """One payload, so that nothing odd is hidden by another."""
    try:
        table = JsonTables(COLUMNS, COLUMNS.required).table([payload])
    except OddError:
        return
    strict = Decoder(COLUMNS, COLUMNS.required, ()).decoded(records([payload]))
    assert_equal(Decoded(records([payload]), table=table), strict)


def test_every_odd_value_is_the_same_in_every_column() -> None:
    for name in (*COLUMNS.names, "other"):
        for value in ODD:
            kept = [each for each in usual if not each.startswith(f'"{name}"'.encode())]
            payload = b"{" + b",".join([*kept, f'"{name}":{value}'.encode()]) + b"}"
            read_at_once_is_equal(payload)


@settings(max_examples=150, deadline=None)
@given(st.lists(payloads, max_size=60), st.sampled_from([(), ("big",)]))
def test_records_are_decoded_and_rejected_as_one_by_one(
    found: list[bytes | None], deletes_by: Sequence[str]
) -> None:
    strict = Decoder(COLUMNS, COLUMNS.required, deletes_by)
    at_once = TableDecoder(strict, COLUMNS, JsonTables(COLUMNS, COLUMNS.required))
    assert_equal(at_once.decoded(records(found)), strict.decoded(records(found)))


@pytest.mark.parametrize("field", ['"n": null', '"unknown": {"a": [1]}', '"s": "Information"'])
def test_usual_records_are_not_odd(field: str) -> None:
    """Otherwise everything would be decoded one by one."""
    usual_ones = [json.dumps(USUAL | {"big": n}).encode() for n in range(1000)]
    usual_ones.append(f'{{"big": 5, {field}}}'.encode())
    table = JsonTables(COLUMNS, COLUMNS.required).table(usual_ones)
    assert table.num_rows == len(usual_ones)


def test_one_odd_record_does_not_make_the_others_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [json.dumps(USUAL).encode()] * 1000
    found[700] = b"{}"
    strict = Decoder(COLUMNS, COLUMNS.required, ())
    decoded: list[int] = []
    whole = strict.decoded

    def counted(given_records: Sequence[Record]) -> Decoded:
        decoded.append(len(given_records))
        return whole(given_records)

    monkeypatch.setattr(strict, "decoded", counted)
    result = TableDecoder(strict, COLUMNS, JsonTables(COLUMNS, COLUMNS.required)).decoded(
        records(found)
    )
    assert [each.offset for each, _ in result.unreadable] == [700]
    assert sum(decoded) < 20
    table = result.without(frozenset({0, 998})).batch([]).table
    assert table is not None
    assert table.num_rows == 997


def test_columns_that_cannot_be_read_at_once_are_read_one_by_one() -> None:
    found = records([b'{"big": 1, "price": 1.5, "tags": ["x"], "b": "eA=="}', b'{"price": "x"}'])
    strict = Decoder(OTHERS, OTHERS.required, ())
    at_once = TableDecoder(strict, OTHERS, JsonTables(OTHERS, OTHERS.required))
    assert_equal(at_once.decoded(found), strict.decoded(found), OTHERS)
    assert at_once.decoded([]).table is not None
