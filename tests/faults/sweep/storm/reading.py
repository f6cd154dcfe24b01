"""Reads topics to their end: the input for the oracle, everything for the evidence."""

from __future__ import annotations

import json
from pathlib import Path

from tests.faults.sweep.storm.workload import Counted
from tests.support.outside.history import stream_topic


def count_input(bootstrap_servers: str, topic: str) -> Counted:
    """Recount the windows of the input log."""
    counted = Counted()
    for record in stream_topic(bootstrap_servers, topic):
        assert record.value is not None
        counted.add(record.value)
    return counted


def dump(bootstrap_servers: str, topic: str, file: Path, isolation_level: str) -> None:
    """Write a topic as JSON lines: partition, offset, timestamp, key, value, header."""
    with file.open("w") as lines:
        for record in stream_topic(bootstrap_servers, topic, isolation_level):
            fields = {
                "partition": record.partition,
                "offset": record.offset,
                "timestamp": record.timestamp_ms,
                "key": _text(record.key),
                "value": _text(record.value),
                "header": None if record.header is None else record.header.hex(),
            }
            lines.write(json.dumps(fields) + "\n")


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")
