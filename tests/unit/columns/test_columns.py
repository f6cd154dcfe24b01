"""Types of Spark SQL for plain values: checks, refusals, and the way through Avro."""

from __future__ import annotations

import io
import pickle
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.columns import Columns, Type, parse_columns, parse_type
from onceflow.errors import ConfigError

SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "tinyint": st.integers(-128, 127),
    "smallint": st.integers(-(2**15), 2**15 - 1),
    "int": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": st.text(st.characters(exclude_categories=["Cs"])),
    "binary": st.binary(),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(UTC), min_value=datetime(1900, 1, 1)),  # noqa: DTZ001
    "timestamp_ntz": st.datetimes(min_value=datetime(1900, 1, 1)),  # noqa: DTZ001
    "decimal(12,3)": st.decimals(-999_999_999, 999_999_999, places=3, allow_nan=False),
}


def typed(ddl: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, Any]]:
    return st.tuples(st.just(ddl), st.none() | values)


def nested(
    inner: st.SearchStrategy[tuple[str, Any]],
) -> st.SearchStrategy[tuple[str, Any]]:
    return st.one_of(
        inner.map(lambda each: (f"array<{each[0]}>", [each[1], None])),
        inner.map(lambda each: (f"struct<a:{each[0]},b:int>", (each[1], 7))),
        inner.map(lambda each: (f"map<string,{each[0]}>", {"x": each[1], "": None})),
    )


TYPED = st.recursive(st.one_of([typed(*each) for each in SCALARS.items()]), nested, max_leaves=4)


def through_avro(kind: Type, value: Any) -> Any:
    schema = fastavro.parse_schema(kind.avro("r"))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, kind.to_avro(kind.check(value)))
    return kind.from_avro(fastavro.schemaless_reader(io.BytesIO(out.getvalue()), schema, None))


@given(TYPED)
def test_a_value_comes_back_from_avro_as_it_was_checked(each: tuple[str, Any]) -> None:
    ddl, value = each
    kind = parse_type(ddl)
    assert through_avro(kind, value) == kind.check(value)
    assert kind.check(kind.check(value)) == kind.check(value)


@given(TYPED)
def test_a_type_is_what_its_own_text_says_and_arrow_takes_its_values(each: tuple[str, Any]) -> None:
    ddl, value = each
    kind = parse_type(ddl)
    assert parse_type(kind.ddl).ddl == kind.ddl
    array = pa.array([plain(kind.check(value))], kind.to_arrow())
    assert len(array) == 1


def plain(value: Any) -> Any:
    """As Arrow takes it: structs by name, maps as pairs."""
    if isinstance(value, tuple):
        return dict(zip(("a", "b"), map(plain, value), strict=True))
    if isinstance(value, list):
        return [plain(each) for each in value]
    return [(k, plain(v)) for k, v in value.items()] if isinstance(value, dict) else value


@pytest.mark.parametrize(
    ("ddl", "value", "text"),
    [
        ("int", True, "expected int, found bool True"),
        ("int", 1.0, "expected int, found float"),
        ("int", 2**31, "to 2147483647"),
        ("double", 2**53 + 1, "a double does not have every integer"),
        ("double", "1", "expected double, found str"),
        ("float", 1e300, "out of the range of a float"),
        ("string", b"x", "expected string, found bytes"),
        ("date", datetime(2026, 1, 1, tzinfo=UTC), "expected date, found datetime"),
        ("timestamp", datetime(2026, 1, 1), "it needs a zone"),  # noqa: DTZ001
        ("timestamp_ntz", datetime(2026, 1, 1, tzinfo=UTC), "it must not have a zone"),
        ("decimal(4,2)", Decimal("1.234"), "too many digits after the point"),
        ("decimal(4,2)", Decimal(100), "too many digits before the point"),
        ("decimal(4,2)", 1.5, "expected decimal(4,2), found float"),
        ("decimal(4,2)", Decimal("NaN"), "it must be finite"),
        ("array<int>", [1, "x"], "item 1: expected int"),
        ("array<int>", "12", "expected array<int>, found str"),
        ("map<string,int>", {None: 1}, "found the key None"),
        ("map<string,int>", 3, "expected map<string,int>, found int"),
        ("a int, b int", {"a": 1, "c": 2}, "b missing and c unknown"),
        ("a int, b int", (1,), "expected 2 values (a, b), found 1"),
        ("a int not null", (None,), "a: expected a value, found null"),
    ],
)
def test_a_value_of_another_type_is_told(ddl: str, value: Any, text: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_type(ddl).check(value)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("ddl", "text"),
    [
        ("", "expected the name of a column"),
        ("color", "expected a type"),
        ("a int, A bigint", "there twice"),
        ("a int default 3", "`default` after `a int`; expected the end"),
        ("a decimal(39,2)", "1 to 38 digits"),
        ("a variant", "`variant` after `a`; expected a type"),
        ("a map<array<int>,int>", "as the key of a map"),
        ("a int); drop table t; --", "expected the end"),
        ("n bigint, sum", "the end after `bigint , sum`; expected a type"),
    ],
)
def test_what_is_no_type_is_refused_with_those_that_are(ddl: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_columns(ddl)
    assert text in str(caught.value)


@pytest.mark.parametrize("ddl", [*SCALARS, "array<map<int,struct<`a b`:decimal(9,2) not null>>>"])
def test_a_type_survives_pickling(ddl: str) -> None:
    kind = parse_columns(f"a {ddl}")
    kind.row(None)

    assert pickle.loads(pickle.dumps(kind)) == kind


def test_names_and_zones_are_kept_as_spark_has_them() -> None:
    columns = parse_columns("`a b` INTEGER, at timestamp, l long, s byte, t timestamp_ltz")
    assert isinstance(columns, Columns)
    assert columns.columns_ddl == "`a b` int, at timestamp, l bigint, s tinyint, t timestamp"
    summer = timezone(timedelta(hours=2))
    row = columns.check((None, datetime(2026, 7, 1, 2, tzinfo=summer), 1, 2, None))
    assert row.at == datetime(2026, 7, 1, tzinfo=UTC)
    assert row.at.tzinfo is UTC


@pytest.mark.parametrize(
    ("old", "new", "value", "expected"),
    [
        ("int", "bigint", 7, 7),
        ("int", "double", 7, 7.0),
        ("float", "double", 0.5, 0.5),
        ("decimal(4,2)", "decimal(10,4)", Decimal("1.25"), Decimal("1.2500")),
        ("a int, b string", "a bigint, c double", (1, "x"), (1, None)),
        ("array<int>", "array<bigint>", [1], [1]),
        ("map<string,int>", "map<string,bigint>", {"x": 1}, {"x": 1}),
        ("date", "date", date(2026, 1, 1), date(2026, 1, 1)),
    ],
)
def test_a_wider_type_reads_what_a_narrower_one_wrote(
    old: str, new: str, value: Any, expected: Any
) -> None:
    before, after = parse_type(old), parse_type(new)
    schema = fastavro.parse_schema(before.avro("r"))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, before.to_avro(before.check(value)))
    read = fastavro.schemaless_reader(io.BytesIO(out.getvalue()), schema, None)
    assert after.from_avro(read) == expected
