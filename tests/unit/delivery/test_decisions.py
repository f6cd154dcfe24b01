"""Pure decisions of a delivery: delays, claims, and what a payload means."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.columns import parse_columns
from onceflow.contracts.target import Claim, Held, Mark, Move, is_unwritten
from onceflow.delivery.breaker import Breaker
from onceflow.delivery.decoding import Decoder
from onceflow.delivery.model import Rate, Retry
from onceflow.delivery.pace import Paces
from onceflow.errors import AbortableError, ConfigError, InvariantError

PLACE = ("views", 0)
CLAIM = Claim(PLACE, 3, Mark(10, "before"))
MOVE = Move(CLAIM, Mark(20, "after"))


@given(
    seed=st.integers(),
    delay=st.integers(1, 10_000),
    most=st.integers(10_000, 100_000),
    multiplier=st.floats(1, 100),
    jitter=st.floats(0, 1),
)
def test_delays_grow_to_their_bound_and_begin_again_after_a_success(
    seed: int, delay: int, most: int, multiplier: float, jitter: float
) -> None:
    given = {"delay": f"{delay} ms", "max_delay": f"{most} ms"}
    retry = Retry.model_validate({**given, "multiplier": multiplier, "jitter": jitter})
    breaker = Breaker(retry, Random(seed))
    planned = float(delay)
    for _ in range(20):
        found = breaker.fail()
        assert found is not None
        assert (1 - jitter) * planned - 1e-6 <= found * 1000 <= (1 + jitter) * planned + 1e-6
        planned = min(planned * multiplier, most)
    assert breaker.is_open
    breaker.succeed()
    assert not breaker.is_open
    assert (breaker.fail() or 0) * 1000 <= (1 + jitter) * delay + 1e-6


def test_deliveries_that_share_a_rate_keep_it_together() -> None:
    paces = Paces()
    rate = Rate(records_per_second=100, shared="crm")
    one, other = paces.of(rate), paces.of(rate)
    delays = [pace.delay_s(50, now_s=7.0) for pace in (one, other, one)]
    assert delays == [0, 0.5, 1]
    assert one.delay_s(1, now_s=60.0) == 0
    alone = paces.of(Rate(records_per_second=100))
    assert alone.delay_s(50, now_s=7.0) == alone.delay_s(1, now_s=7.5) == 0
    with pytest.raises(ConfigError, match="share a rate differ"):
        paces.of(Rate(records_per_second=200, shared="crm"))


def test_two_seeds_give_different_delays_and_one_seed_the_same() -> None:
    one, same, other = (Breaker(Retry(), Random(seed)).fail() for seed in (1, 1, 2))
    assert one == same != other


def test_a_batch_is_written_once_under_the_newest_claim_only() -> None:
    assert is_unwritten([MOVE], {PLACE: Held(3, 10)})
    assert not is_unwritten([MOVE], {PLACE: Held(3, 20)})
    for held in ({PLACE: Held(4, 10)}, {PLACE: Held(4, 20)}, {}):
        with pytest.raises(AbortableError):
            is_unwritten([MOVE], held)
    with pytest.raises(InvariantError, match="neither before nor after"):
        is_unwritten([MOVE], {PLACE: Held(3, 15)})


def test_the_first_batch_of_a_partition_has_no_position_before_it() -> None:
    first = Move(replace(CLAIM, mark=None), Mark(20, "after"))
    assert is_unwritten([first], {PLACE: Held(3, None)})
    assert not is_unwritten([first], {PLACE: Held(3, 20)})


def test_half_of_a_batch_is_a_bug() -> None:
    other = Move(replace(CLAIM, place=("views", 1)), Mark(20, "after"))
    with pytest.raises(InvariantError, match="a part of a batch"):
        is_unwritten([MOVE, other], {PLACE: Held(3, 20), ("views", 1): Held(3, 10)})


COLUMNS = parse_columns(
    "b BOOLEAN, i INT, n BIGINT, f DOUBLE, d DECIMAL(10,2), s STRING, x BINARY, day DATE,"
    " at TIMESTAMP, local TIMESTAMP_NTZ, tags ARRAY<STRING>, more STRUCT<a: INT>"
)
DECODER = Decoder(COLUMNS, frozenset({"n"}), ())


def test_a_payload_of_spark_becomes_values() -> None:
    payload = """{"b": true, "i": 1, "n": 9007199254740993, "f": "NaN", "d": 12345678.91, "s": "ä",
        "x": "AP8=", "day": "2026-11-27", "at": "2026-11-27T10:00:00.000+01:00",
        "local": "2026-11-27T10:00:00.5", "tags": ["a"], "more": {"a": 1}, "unknown": 3}"""
    b, i, n, f, d, s, x, day, at, local, tags, more = DECODER.row(payload.encode())
    assert (b, i, n, s, x) == (True, 1, 9007199254740993, "ä", b"\x00\xff")
    assert f != f  # noqa: PLR0124  NaN
    assert d == Decimal("12345678.91")
    assert day == date(2026, 11, 27)
    assert at == datetime(2026, 11, 27, 9, tzinfo=UTC)
    assert local == datetime(2026, 11, 27, 10, 0, 0, 500_000)  # noqa: DTZ001
    assert (json.loads(tags), json.loads(more)) == (["a"], {"a": 1})


def test_a_field_that_is_missing_is_null() -> None:
    assert DECODER.row(b'{"n": 1}') == (None, None, 1, *[None] * 9)


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"[1]", "expected a JSON object, found list"),
        (b"{", "expected JSON, found JSONDecodeError"),
        (b"\xff", "expected JSON, found UnicodeDecodeError"),
        (b"{}", "n: expected a value, found null"),
        (b'{"n": "1"}', "n: expected bigint, found str '1'"),
        (b'{"n": true}', "n: expected bigint, found bool True"),
        (b'{"n": 1, "i": 3000000000}', "i: expected int, found int 3000000000"),
        (b'{"n": 1, "d": 1.234}', "d: expected decimal(10,2)"),
        (b'{"n": 1, "at": "2026-11-27T10:00:00"}', "at: expected timestamp, found str"),
        (b'{"n": 1, "day": "27.11.2026"}', "day: expected date, found str"),
        (b'{"n": 1, "x": "*"}', "x: expected binary, found str"),
        (b'{"n": 1, "tags": {}}', "tags: expected array<string>, found dict"),
    ],
)
def test_a_payload_that_does_not_fit_says_why(payload: bytes, text: str) -> None:
    with pytest.raises(ValueError, match="^" + text.replace("(", r"\(").replace(")", r"\)")):
        DECODER.row(payload)


def test_a_record_without_a_value_deletes_by_its_key() -> None:
    columns = parse_columns("page STRING, n BIGINT, views INT")
    by_number = Decoder(columns, frozenset(), ("n",))
    assert by_number.deletion(b"42") == (None, 42, None)
    by_both = Decoder(columns, frozenset(), ("page", "n"))
    assert by_both.deletion(b'{"page": "/", "n": 42}') == ("/", 42, None)
    for decoder, key in ((by_number, b"x"), (by_both, b"42"), (by_both, b'{"n": 1}')):
        with pytest.raises(ValueError, match="key: expected"):
            decoder.deletion(key)
    with pytest.raises(ValueError, match="expected a key"):
        by_number.deletion(None)
    with pytest.raises(ValueError, match="a tombstone"):
        Decoder(columns, frozenset(), ()).deletion(b"42")
