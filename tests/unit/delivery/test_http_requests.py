"""Pure decisions of the sender `http`: keys, requests, who waits for whom, what answers mean."""

from __future__ import annotations

import random
import re
import ssl
from collections.abc import Sequence
from dataclasses import replace
from unittest.mock import Mock

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey
from hypothesis import given
from hypothesis import strategies as st

from onceflow.contracts.record import Record
from onceflow.errors import ConfigError, CorruptionError, OutcomeUnknownError, RetriableError
from onceflow.protocol.record import HEADER_NAME, Flag, RecordHeader
from onceflow_connectors.http.keys import MAX_CHARACTERS, record_key, request_key
from onceflow_connectors.http.names import origin_of, shown_url
from onceflow_connectors.http.outcomes import failure_of
from onceflow_connectors.http.requests import Request, chain, grouped
from onceflow_connectors.http.statuses import MAX_RETRY_AFTER_S, retry_after_s

NOW_MS = 1_700_000_000_000
HEADER = RecordHeader(
    Flag(0), 0xABC, generation=2, plan_tag=0xFF, batch_id=9, sequence=41, lineage=3
)


def record(n: int = 0, key: bytes | None = b"k", partition: int = 0) -> Record:
    return Record("views", partition, n, 500 + n, key, b"v")


def of_pipeline(header: RecordHeader, partition: int = 0, topic: str = "views") -> Record:
    return Record(topic, partition, 77, 500, b"k", b"v", ((HEADER_NAME, header.pack()),))


# --- keys -------------------------------------------------------------------------------------


def test_the_key_of_a_record_says_where_it_is_in_the_history_of_its_pipeline() -> None:
    assert record_key("d", of_pipeline(HEADER, 6)) == "d/00000abc/3/6/000000ff/41"
    assert record_key("d", record(12)) == "d/views/0/12/512"


def test_a_record_that_is_written_or_read_again_has_the_same_key() -> None:
    once = record_key("d", of_pipeline(HEADER))
    again = of_pipeline(HEADER)._replace(offset=99, timestamp_ms=501)
    assert record_key("d", again) == once
    flagged = replace(HEADER, flags=Flag.LAST_OF_BATCH | Flag.AT_LEAST_ONCE)
    assert record_key("d", of_pipeline(flagged)) == once


def test_other_records_have_other_keys() -> None:
    ours = [
        of_pipeline(HEADER),
        of_pipeline(HEADER, partition=1),
        of_pipeline(replace(HEADER, sequence=42)),
        of_pipeline(replace(HEADER, lineage=4)),
        of_pipeline(replace(HEADER, pipeline_tag=0xABD)),
        of_pipeline(replace(HEADER, plan_tag=0xFE)),
    ]
    foreign = [
        record(12),
        record(13),
        record(12, partition=1),
        record(12)._replace(topic="clicks"),
        record(12)._replace(timestamp_ms=1),
    ]
    keys = {record_key(name, each) for name in ("d", "e") for each in (*ours, *foreign)}
    assert len(keys) == 2 * (len(ours) + len(foreign))


@given(st.lists(st.integers(0, 9), min_size=1), st.lists(st.integers(0, 9), min_size=1))
def test_requests_have_the_same_key_exactly_if_they_have_the_same_records(
    one: list[int], other: list[int]
) -> None:
    keys = [request_key("d", [record(n) for n in numbers]) for numbers in (one, other)]
    assert (keys[0] == keys[1]) == (one == other)


def test_keys_are_short_enough_and_need_no_escapes() -> None:
    for topic in ("t" * 249, "a.b_c-D"):
        key = record_key("d" * 63, record(2**62)._replace(topic=topic))
        assert len(key) <= MAX_CHARACTERS
        assert re.fullmatch(r"[A-Za-z0-9._/-]+", key)


def test_a_header_that_cannot_be_read_is_not_passed_over() -> None:
    with pytest.raises(CorruptionError):
        record_key("d", record()._replace(headers=((HEADER_NAME, b"?"),)))


# --- requests ---------------------------------------------------------------------------------


def sizes(requests: Sequence[Request]) -> list[int]:
    return [len(each.indices) for each in requests]


@given(st.integers(0, 30), st.integers(1, 7))
def test_every_record_is_in_one_request_in_order(count: int, most: int) -> None:
    records = [record(n) for n in range(count)]
    among = [n for n in range(count) if n % 4]
    requests = grouped(records, among, most, ())
    assert [n for each in requests for n in each.indices] == among
    assert all(size == most for size in sizes(requests)[:-1])


@given(st.integers(1, 5), st.integers(0, 20), st.integers(1, 5), st.integers(0, 3))
def test_a_request_whose_answer_was_lost_is_made_again_as_it_was(
    most: int, start: int, size: int, dropped: int
) -> None:
    records = [record(n) for n in range(30)]
    lost = tuple(("views", 0, n) for n in range(start, start + size))
    again = grouped(records, range(30), most, [lost])
    assert lost in [each.places for each in again]
    rest = [n for n in range(30) if n >= dropped]
    if dropped <= start:
        assert lost in [each.places for each in grouped(records, rest, most, [lost])]
    else:
        assert lost not in [each.places for each in grouped(records, rest, most, [lost])]


@given(st.text("abc", max_size=30), st.integers(1, 4), st.randoms(use_true_random=False))
def test_requests_are_sent_in_order_of_their_keys_whatever_ends_first(
    keys: str, most: int, chance: random.Random
) -> None:
    records = [record(n, key.encode()) for n, key in enumerate(keys)]
    requests = grouped(records, range(len(records)), most, ())
    ready, sent = chain(requests, "key"), list[int]()
    while ready:
        request = ready.pop(chance.randrange(len(ready)))
        sent += request.indices
        for follower in request.followers:
            follower.waits_for -= 1
            if not follower.waits_for:
                ready.append(follower)
    assert sorted(sent) == [*range(len(records))]
    for key in "abc":
        of_key = [n for n in sent if keys[n] == key]
        assert of_key == sorted(of_key)


def test_order_decides_who_waits() -> None:
    records = [
        record(n, key, partition)
        for n, (key, partition) in enumerate(
            [(b"a", 0), (b"a", 1), (None, 0), (None, 0), (b"b", 1), (b"a", 0)]
        )
    ]
    waiting = {
        order: [each.indices[0] for each in requests if each.waits_for]
        for order in ("key", "partition", "none")
        for requests in [grouped(records, range(6), 1, ())]
        if chain(requests, order)
    }
    assert waiting == {"key": [3, 5], "partition": [2, 3, 4, 5], "none": []}


# --- answers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120),
        (" 7 ", 7),
        ("999999999999", MAX_RETRY_AFTER_S),
        ("Tue, 14 Nov 2023 22:13:50 GMT", 30),
        ("Tue, 14 Nov 2023 22:13:10 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_RETRY_AFTER_S),
        ("-3", 0),
        ("1e3", 0),
        ("\u0661", 0),
        ("", 0),
    ],
)
def test_how_long_a_receiver_asks_to_be_left_alone(header: str, seconds: float) -> None:
    assert retry_after_s(header, NOW_MS) == seconds


@given(st.text(max_size=40))
def test_no_text_breaks_that(header: str) -> None:
    assert 0 <= retry_after_s(header, NOW_MS) <= MAX_RETRY_AFTER_S


def test_addresses_are_shown_without_what_may_be_secret() -> None:
    assert shown_url("https://h:1/p?token=x") == "https://h:1/p"
    assert origin_of("https://h:1/p?token=x#y") == "https://h:1"
    for url in ("https://user:x@h/", "/relative", "https://[", "", "https://h\x07/"):
        assert origin_of(url) == ""


def handshake_error(reason: str) -> Exception:
    error = ssl.SSLError(1, reason)
    error.reason = reason
    return aiohttp.ClientConnectorSSLError(Mock(ConnectionKey), error)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (handshake_error("TLSV13_ALERT_CERTIFICATE_REQUIRED"), ConfigError),
        (handshake_error("SSLV3_ALERT_HANDSHAKE_FAILURE"), ConfigError),
        (handshake_error("WRONG_VERSION_NUMBER"), ConfigError),
        (handshake_error("TLSV1_ALERT_INTERNAL_ERROR"), RetriableError),
        (handshake_error("UNEXPECTED_EOF_WHILE_READING"), RetriableError),
        (
            aiohttp.ClientConnectorError(Mock(ConnectionKey), OSError(111, "refused")),
            RetriableError,
        ),
        (aiohttp.ConnectionTimeoutError(), RetriableError),
        (aiohttp.ServerDisconnectedError(), OutcomeUnknownError),
        (aiohttp.ClientPayloadError("secret"), OutcomeUnknownError),
        (TimeoutError(), OutcomeUnknownError),
        (ConnectionResetError(104, "reset"), OutcomeUnknownError),
    ],
)
def test_an_error_without_an_answer_is_named_by_what_follows(
    error: Exception, kind: type[Exception]
) -> None:
    found = failure_of(error, "HTTP", 500)
    assert type(found) is kind
    assert "secret" not in str(found)
