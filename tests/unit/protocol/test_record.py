"""The record header: its exact bytes, and what a reader does with bytes that are not one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.errors import CorruptionError
from onceflow.protocol.record import (
    FIRST_SEQUENCE,
    HEADER_BYTES,
    HEADER_NAME,
    VERSION,
    Flag,
    HeaderPacker,
    RecordHeader,
)

uint32 = st.integers(0, 2**32 - 1)
uint64 = st.integers(0, 2**64 - 1)
headers = st.builds(
    RecordHeader,
    flags=st.integers(0, 255).map(Flag),
    pipeline_tag=uint32,
    generation=uint32,
    plan_tag=uint32,
    batch_id=uint64,
    sequence=uint64,
    lineage=st.integers(0, 2**16 - 1),
)
SAMPLE = RecordHeader(
    flags=Flag.LAST_OF_BATCH | Flag.RETRACTION,
    pipeline_tag=0xAABBCCDD,
    generation=2,
    plan_tag=0x11223344,
    batch_id=7,
    sequence=258,
    lineage=0xBEEF,
)
# Written down by hand from the specification, not copied from a run.
SAMPLE_BYTES = bytes.fromhex(
    "01"  # version
    "05"  # flags: bits 0 and 2
    "beef"  # lineage
    "aabbccdd"  # pipeline tag
    "00000002"  # generation
    "11223344"  # plan tag
    "0000000000000007"  # batch id
    "0000000000000102"  # sequence
)


def test_the_wire_format_is_that_of_version_one() -> None:
    assert (HEADER_NAME, VERSION, HEADER_BYTES, FIRST_SEQUENCE) == ("onceflow", 1, 32, 1)
    assert SAMPLE.pack() == SAMPLE_BYTES
    assert RecordHeader.unpack(SAMPLE_BYTES) == SAMPLE


def test_flags_have_their_published_bits() -> None:
    assert [(flag.name, int(flag)) for flag in Flag] == [
        ("LAST_OF_BATCH", 1),
        ("LATE", 2),
        ("RETRACTION", 4),
        ("AT_LEAST_ONCE", 8),
        ("AT_MOST_ONCE", 16),
    ]


@given(headers)
def test_every_header_survives_packing(header: RecordHeader) -> None:
    assert RecordHeader.unpack(header.pack()) == header


@given(headers, st.integers(0, 255))
def test_a_batch_packer_writes_the_same_bytes(header: RecordHeader, split: int) -> None:
    packer = HeaderPacker(
        pipeline_tag=header.pipeline_tag,
        generation=header.generation,
        plan_tag=header.plan_tag,
        batch_id=header.batch_id,
        mode=header.flags & split,
        lineage=header.lineage,
    )
    assert packer.pack(header.flags & ~split, header.sequence) == header.pack()


def test_unknown_flags_are_kept() -> None:
    data = bytearray(SAMPLE_BYTES)
    data[1] = 0x81
    assert RecordHeader.unpack(bytes(data)).flags == Flag(0x81)


@given(st.binary(max_size=80).filter(lambda data: len(data) != HEADER_BYTES))
def test_a_header_of_another_length_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptionError, match=rf"expected 32 bytes; found {len(data)} bytes"):
        RecordHeader.unpack(data)


@given(st.integers(0, 255).filter(lambda version: version != VERSION))
def test_a_header_of_another_version_is_refused(version: int) -> None:
    with pytest.raises(CorruptionError, match=rf"found version {version}; upgrade this consumer"):
        RecordHeader.unpack(bytes([version]) + SAMPLE_BYTES[1:])
