"""Reads a topic as a table, as it is now."""

from __future__ import annotations

from collections.abc import Sequence

from onceflow.clock import Deadline
from onceflow.contracts.connector import Broker
from onceflow.errors import ConfigError


def read_table(broker: Broker, topic: str, max_bytes: int, deadline: Deadline) -> Sequence[bytes]:
    """Return the value of the last committed record of each key, and of all without a key.

    A record without a value removes its key.

    Raises:
        ConfigError: the topic does not exist, or holds more than `max_bytes` of such values.
        DeadlineError: it could not be read in time.
    """
    offsets = broker.offsets(topic, deadline)
    if not offsets:
        raise ConfigError("the topic does not exist", subject=topic, then="nothing was written")
    ranges = {partition: (start, end) for partition, (start, end, _) in offsets.items()}
    rows: dict[object, bytes] = {}
    size = 0
    for record in broker.read(topic, ranges, deadline):
        place = (record.partition, record.offset) if record.key is None else record.key
        size -= len(rows.pop(place, b""))
        if record.value is not None:
            rows[place] = record.value
            size += len(record.value)
        if size > max_bytes:
            raise ConfigError(
                "the topic holds too much to be read as a table",
                subject=topic,
                expected=f"{max_bytes:,} bytes at most",
                then="nothing was written",
            )
    return [*rows.values()]
