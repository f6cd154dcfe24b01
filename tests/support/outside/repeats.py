"""Records of a pipeline with repeats, for readers that are to leave those out."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from confluent_kafka import Producer

from tests.support.outside.history import Written

HEADER = struct.Struct(">BBHIIIQQ")
PARTITIONS = 2

Numbered = tuple[int, str, int, int]
"""Partition, value, lineage and sequence; sequence 0 for a record without a header."""

BEFORE: Sequence[Numbered] = [
    *((0, f"a{n}", 7, n) for n in (1, 2, 3, 2, 3, 4)),
    (0, "foreign", 0, 0),
    *((1, f"b{n}", 7, n) for n in (1, 1, 2)),
    (0, "foreign", 0, 0),
]
AFTER: Sequence[Numbered] = [
    *((0, f"a{n}", 7, n) for n in (3, 4, 5)),
    *((1, f"b{n}", 7, n) for n in (2, 3)),
    *((1, f"c{n}", 8, n) for n in (1, 2, 1)),
]
ONCE = {0: ["a1", "a2", "a3", "a4", "foreign", "foreign"], 1: ["b1", "b2"]}
ONCE_AFTER = {0: [*ONCE[0], "a5"], 1: [*ONCE[1], "b3", "c1", "c2"]}


def write(bootstrap_servers: str, topic: str, records: Sequence[Numbered]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0})
    for partition, value, lineage, sequence in records:
        header = HEADER.pack(1, 0, lineage, 99, 1, 5, sequence, sequence)
        headers: dict[str, str | bytes | None] = {"onceflow": header} if sequence else {}
        producer.produce(topic, value, str(partition), partition, headers=headers)
    assert producer.flush(30) == 0


def values(records: Sequence[Written]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for each in records:
        found.setdefault(int(each.key or b""), []).append((each.value or b"").decode())
    return found
