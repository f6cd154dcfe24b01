"""Parameters without a broker: types, bad input, and what is kept."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from onceflow.errors import ConfigError, RecordError
from onceflow.processing import Processor, ProcessorHarness
from onceflow.processing.parameters import MAX_VALUE_BYTES, Parameter, Parameters, carrier_of
from onceflow.processing.runner import When

DECLARED = Parameters(
    {
        "limit": Parameter("decimal(10,2)", "100"),
        "mode": Parameter("string", '"strict"'),
        "is_on": Parameter("boolean", "false"),
    }
)


@pytest.mark.parametrize(
    ("kind", "content", "text", "value"),
    [
        ("decimal(10,2)", b"7", "7.00", Decimal(7)),
        ("decimal(10,2)", b'"7.5"', "7.50", Decimal("7.5")),
        ("decimal(38,18)", b"0.123456789012345678", "0.123456789012345678", None),
        ("bigint", b"9007199254740993", "9007199254740993", 2**53 + 1),
        ("double", b"0.5", "0.5", 0.5),
        ("boolean", b"true", "true", True),
        ("string", b'"it\'s \\\\ so"', "it's \\ so", "it's \\ so"),
        ("date", b'"2026-03-01"', "2026-03-01", date(2026, 3, 1)),
        (
            "timestamp",
            b'"2026-03-01T01:00:00+01:00"',
            "2026-03-01T00:00:00+00:00",
            datetime(2026, 3, 1, tzinfo=UTC),
        ),
    ],
)
def test_a_value_is_kept_as_sql_casts_it(kind: str, content: bytes, text: str, value: Any) -> None:
    parameter = Parameter(kind, "null")
    assert parameter.text(content) == text
    assert value is None or parameter.value(text) == value


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("decimal(10,2)", b"{"),
        ("decimal(10,2)", b"1.234"),
        ("decimal(10,2)", b"NaN"),
        ("decimal(10,2)", b'"many"'),
        ("decimal(10,2)", b"true"),
        ("decimal(10,2)", b"null"),
        ("double", b"Infinity"),
        ("int", b"1.5"),
        ("int", b"3000000000"),
        ("int", b"\xff"),
        ("boolean", b"1"),
        ("string", b"5"),
        ("string", b"[]"),
        ("string", b'"' + b"x" * MAX_VALUE_BYTES + b'"'),
        ("string", b"[" * 4000),
        ("timestamp", b'"2026-03-01T00:00:00"'),
        ("date", b'"soon"'),
    ],
)
def test_what_is_not_of_the_type_is_refused(kind: str, content: bytes) -> None:
    with pytest.raises(ValueError, match="expected "):
        Parameter(kind, "null").text(content)


@pytest.mark.parametrize("kind", ["array<int>", "binary", "a int", "timestamp_ntz", "no type"])
def test_only_single_values_are_parameters(kind: str) -> None:
    with pytest.raises(ConfigError):
        Parameter(kind, "null").ddl  # noqa: B018


def test_the_last_good_value_stays_and_no_value_is_the_default() -> None:
    kept, refused = DECLARED.fold({}, [(b"limit", b"5"), (b"limit", b"x"), (b"mode", b'"lax"')])
    assert kept == {"limit": "5.00", "mode": "lax"}
    assert refused == ["parameter limit: expected JSON of decimal(10,2), found x"]
    assert DECLARED.values(kept) == {"limit": Decimal(5), "mode": "lax", "is_on": False}
    assert DECLARED.fold(kept, [(b"mode", None), (b"other", b"x"), (None, b"y")]) == (
        {"limit": "5.00"},
        [],
    )


def test_what_is_kept_and_no_longer_fits_is_as_if_it_had_never_been_set() -> None:
    kept = {"limit": "many", "gone": "1", "is_on": "yes"}
    assert DECLARED.fold(kept, []) == ({}, [])
    assert DECLARED.values(kept) == {"limit": Decimal(100), "mode": "strict", "is_on": False}
    # A processor takes texts that SQL would not: what is kept is written as both take it.
    assert DECLARED.fold({"limit": "1_0"}, []) == ({"limit": "10.00"}, [])


class Marks(Processor):
    key = "card"
    output = "what string, lim bigint"

    def on_records(self, key: Any, records: Any) -> Iterator[Any]:
        for each in records:
            self.timers.at(each.at + timedelta(seconds=60))
            yield "record", self.parameters["limit"]

    def on_timer(self, key: Any, at: datetime, name: str) -> Iterator[Any]:
        yield "timer", self.parameters["limit"]


class Writes(Marks):
    def on_records(self, key: Any, records: Any) -> Iterator[Any]:
        self.parameters["limit"] = 0  # type: ignore[index]
        yield "record", 0


def harness(kind: type[Processor], when: When = "arrival") -> ProcessorHarness:
    columns = "card string, at timestamp"
    return ProcessorHarness(
        kind, columns, event_time="at", lateness="0 s", when=when, parameters={"limit": 1}
    )


START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("when", ["arrival", "watermark"])
def test_a_timer_has_the_value_of_its_own_batch(when: When) -> None:
    run = harness(Marks, when)
    run.send({"card": "a", "at": START})
    run.advance(START + timedelta(seconds=1))
    run.parameters["limit"] = 2
    run.advance(START + timedelta(seconds=100))
    assert [(row["what"], row["lim"]) for row in run.rows] == [("record", 1), ("timer", 2)]


def test_a_processor_cannot_keep_state_in_them() -> None:
    with pytest.raises(RecordError, match="does not support item assignment"):
        harness(Writes).send({"card": "a", "at": START})


def test_the_source_that_carries_them_does_not_depend_on_the_order_of_the_file() -> None:
    assert carrier_of(["b", "a"]) == carrier_of(["a", "b"])
