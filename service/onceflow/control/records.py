"""Records and dead letters for the page. Only columns that the settings name are shown."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from onceflow.clock import Deadline
from onceflow.contracts.connector import Broker
from onceflow.contracts.record import Record
from onceflow.repair.dead_letters import Filed, fields_of
from onceflow.texts import on_one_line, text_of

MAX_RECORDS = 20
MAX_PARTITIONS = 20
"""The partitions with the newest records; each is read for at most `MAX_RECORDS`."""
MAX_TEXT = 200
"""Characters of a value."""
KEY = "_key"
"""Name of the key of a record in the settings."""


def newest_records(
    broker: Broker, topics: Collection[str], shown: Collection[str], deadline: Deadline
) -> Sequence[Mapping[str, Any]]:
    """The newest committed records of some topics together, newest first.

    Other columns than those to be `shown` do not even show their names.

    Raises:
        OnceflowError: the brokers do not answer, or refuse.
    """
    places = []
    for topic in topics:
        newest = broker.newest_timestamps(topic, deadline)
        for partition, (first, end, _) in broker.offsets(topic, deadline).items():
            start = max(first, end - MAX_RECORDS)
            places.append((newest.get(partition) or 0, topic, {partition: (start, end)}))
    places.sort(key=lambda place: place[0], reverse=True)
    found = [
        _fields(record, shown)
        for _, topic, ranges in places[:MAX_PARTITIONS]
        for record in broker.read(topic, ranges, deadline)
    ]
    found.sort(key=lambda record: (record["timestamp_ms"], record["offset"]), reverse=True)
    return found[:MAX_RECORDS]


def letter_fields(filed: Filed, shown: Collection[str]) -> Mapping[str, Any]:
    """A dead letter as plain data, with the columns of `newest_records` and names of headers."""
    _, letter = filed
    headers = [name for name, _ in letter.headers]
    content = {"headers": headers, **_content(letter.key, letter.value, shown)}
    return {name: told for name, told in fields_of(filed).items() if name != "value"} | content


def _fields(record: Record, shown: Collection[str]) -> Mapping[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **_content(record.key, record.value, shown),
    }


def _content(key: bytes | None, value: bytes | None, shown: Collection[str]) -> Mapping[str, Any]:
    columns = _columns(value)
    told = {name: _text(columns[name]) for name in sorted(shown) if name in columns}
    return {
        "key": _text(text_of(key)) if KEY in shown else None,
        "value_bytes": len(value or b""),
        "columns": told,
        "columns_not_shown": len(columns) - len(told),
    }


def _columns(value: bytes | None) -> Mapping[str, Any]:
    """Columns of a JSON object; none for anything else."""
    try:
        columns = json.loads(value or b"")
    except (ValueError, RecursionError):
        return {}
    return columns if isinstance(columns, dict) else {}


def _text(value: object) -> str | None:
    if value is None:
        return None
    return on_one_line(value if isinstance(value, str) else json.dumps(value))[:MAX_TEXT]
