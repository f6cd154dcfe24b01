"""The published formats, decoded by a few lines of their own: record header, `owner` and `head`."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from tests.faults.history.model import FinalPartition, Record
from tests.faults.history.recorded import History

HEADER = struct.Struct(">BBHIIIQQ")
VERSION = 1
Source: TypeAlias = tuple[str, str, str]
"""Name of the source, topic and partition, as the ledger spells them."""

Batch: TypeAlias = tuple[int, int]
"""Generation and batch_id."""


class Header(NamedTuple):
    """The header of one record of an output."""

    version: int
    flags: int
    lineage: int
    pipeline_tag: int
    generation: int
    plan_tag: int
    batch_id: int
    sequence: int


@dataclass(frozen=True)
class Owner:
    """A claim in the ledger."""

    offset: int
    token: int
    run_id: str


@dataclass(frozen=True)
class Head:
    """A committed batch in the ledger.

    Args:
        sequence: partition -> first and last of this batch; first is last + 1 if it has none.
        ranges: source -> first offset read, next to read.
        note: why an operator wrote it; empty for a batch.
    """

    place: str
    generation: int
    batch_id: int
    token: int
    run_id: str
    sequence: dict[int, tuple[int, int]]
    ranges: dict[Source, tuple[int, int]]
    note: str

    def __str__(self) -> str:
        return (
            f"head of batch {self.batch_id} generation {self.generation} by run {self.run_id}"
            f" token {self.token} at {self.place}"
        )


def header_of(record: Record) -> Header | None:
    """None if the record has none, or none of version 1: another producer wrote it."""
    if record.header is None or len(record.header) != HEADER.size:
        return None
    header = Header(*HEADER.unpack(record.header))
    return header if header.version == VERSION else None


def batch_of(header: Header) -> Batch:
    """Whose record it is."""
    return header.generation, header.batch_id


def own_records(history: History, partition: FinalPartition) -> Iterator[tuple[Record, Header]]:
    """Committed records of the pipeline in a partition, in the order of their offsets."""
    tag = None if history.pipeline is None else zlib.crc32(history.pipeline.encode())
    for record in partition.records:
        header = header_of(record)
        if header is not None and tag in {None, header.pipeline_tag}:
            yield record, header


def owners(history: History) -> list[Owner]:
    """Every committed claim, oldest first."""
    return [
        Owner(record.offset, fields["token"], fields["run_id"])
        for record, fields in _entries(history, b"owner")
    ]


def heads(history: History) -> list[Head]:
    """Every committed head, oldest first."""
    return [_head(record, fields) for record, fields in _entries(history, b"head")]


def _entries(history: History, key: bytes) -> list[tuple[Record, dict[str, Any]]]:
    return [
        (record, json.loads(record.value))
        for partition in history.ledger()
        for record in partition.records
        if record.key == key and record.value is not None
    ]


def _head(record: Record, fields: dict[str, Any]) -> Head:
    return Head(
        place=f"{record.topic}-{record.partition} offset {record.offset}",
        generation=fields["generation"],
        batch_id=fields["batch_id"],
        token=fields["token"],
        run_id=fields["run_id"],
        sequence={int(p): (r[0], r[1]) for p, r in fields["sink"]["sequence"].items()},
        ranges={
            (source, topic, partition): (r[0], r[1])
            for source, topics in fields["sources"].items()
            for topic, partitions in topics.items()
            for partition, r in partitions.items()
        },
        note=fields["note"],
    )
