"""From records to requests: which records go together, and which requests wait for which. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import quote_from_bytes

from onceflow.contracts.record import Record
from onceflow_connectors.http.block import HttpBlock
from onceflow_connectors.http.keys import request_key

MAX_KEY_CHARACTERS = 4096
"""Of a record's key in a header. Many servers take 8 KiB of headers in all."""

Place: TypeAlias = tuple[str, int, int]
"""Topic, partition and offset of a record."""
Lane: TypeAlias = tuple[object, ...]
"""What records have in common that go one after the other."""


@dataclass(eq=False)
class Request:
    """Records that are sent in one request.

    Args:
        indices: of the records in the call, ascending.

    Attributes:
        waits_for: requests that must be settled before this one is sent.
        followers: requests that wait for this one.
    """

    indices: Sequence[int]
    records: Sequence[Record]
    waits_for: int = 0
    followers: list[Request] = field(default_factory=list)

    @property
    def places(self) -> tuple[Place, ...]:
        """Where its records are."""
        return tuple(place_of(record) for record in self.records)

    def halves(self) -> tuple[Request, Request]:
        """The same records, in order, in two requests."""
        middle = len(self.indices) // 2
        return (
            Request(self.indices[:middle], self.records[:middle]),
            Request(self.indices[middle:], self.records[middle:]),
        )


def place_of(record: Record) -> Place:
    """Where a record is."""
    return record.topic, record.partition, record.offset


def grouped(
    records: Sequence[Record], among: Sequence[int], most: int, cuts: Iterable[tuple[Place, ...]]
) -> list[Request]:
    """Put records into requests, in order.

    Args:
        records: of the call.
        among: indices of the records to send, ascending.
        most: records of one request.
        cuts: places of requests that have no answer yet. They are made again as they were, with the
            same bodies and the same keys.
    """
    earlier = {places[0]: places for places in cuts}
    requests: list[Request] = []
    at = 0
    while at < len(among):
        stop = at + 1
        places = earlier.get(place_of(records[among[at]]), ())
        again = among[at : at + len(places)]
        if places and tuple(place_of(records[n]) for n in again) == places:
            stop = at + len(places)
        else:
            end = min(at + most, len(among))
            while stop < end and place_of(records[among[stop]]) not in earlier:
                stop += 1
        indices = among[at:stop]
        requests.append(Request(indices, [records[n] for n in indices]))
        at = stop
    return requests


def chain(requests: Sequence[Request], order: str) -> list[Request]:
    """Let each request wait for those before it with which it shares a lane.

    Returns:
        Those that need not wait.
    """
    newest: dict[Lane, Request] = {}
    for request in requests:
        lanes = {lane for lane in (_lane(record, order) for record in request.records) if lane}
        before = {id(newest[lane]): newest[lane] for lane in lanes if lane in newest}
        request.waits_for = len(before)
        for other in before.values():
            other.followers.append(request)
        newest.update(dict.fromkeys(lanes, request))
    return [request for request in requests if not request.waits_for]


def _lane(record: Record, order: str) -> Lane:
    if order == "none":
        return ()
    place = (record.topic, record.partition)
    return (*place, record.key) if order == "key" else place


def unsendable(block: HttpBlock, record: Record) -> str:
    """Say why a record cannot be put into a request; empty if it can."""
    value = record.value
    if value is None:
        return "" if block.tombstones == "send" else "a record without a value (a tombstone)"
    if block.body == "ndjson" and (not value or b"\n" in value or b"\r" in value):
        return "not one line, which `body: ndjson` needs"
    if block.body == "json_array" and not _is_json(value):
        return "not JSON, which `body: json_array` needs"
    if block.key_header and len(_encoded_key(record)) > MAX_KEY_CHARACTERS:
        return f"a key of more than {MAX_KEY_CHARACTERS} characters, percent-encoded"
    return ""


def body_of(block: HttpBlock, request: Request) -> bytes:
    """Make the body. Depends on nothing but the values of the records and `body`."""
    values = [record.value or b"" for record in request.records]
    if block.body == "ndjson":
        return b"".join(value + b"\n" for value in values)
    if block.body == "json_array":
        return b"[" + b",".join(values) + b"]"
    return values[0]


def headers_of(
    block: HttpBlock, delivery: str, request: Request, attempt: int
) -> Mapping[str, str]:
    """Make the headers that are of this request alone.

    Raises:
        CorruptionError: a record has a header that cannot be read.
    """
    found = {block.attempt_header: str(attempt), "Onceflow-Delivery": delivery}
    if block.idempotency is not None:
        key = request_key(delivery, request.records)
        found[block.idempotency.header] = f'"{key}"' if block.idempotency.quoted else key
    if block.body is not None:
        return found | {"Onceflow-Records": str(len(request.records))}
    [record] = request.records
    found["Onceflow-Topic"] = record.topic
    found["Onceflow-Partition"] = str(record.partition)
    found["Onceflow-Offset"] = str(record.offset)
    if record.value is None:
        found["Onceflow-Tombstone"] = "true"
    if block.key_header is not None and record.key is not None:
        found[block.key_header] = _encoded_key(record)
    return found


def _encoded_key(record: Record) -> str:
    return quote_from_bytes(record.key or b"", safe="")


def _is_json(value: bytes) -> bool:
    try:
        json.loads(value.decode())
    except (ValueError, RecursionError):
        return False
    return True
