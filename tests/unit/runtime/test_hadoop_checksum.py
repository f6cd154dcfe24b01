"""The checksum of a local file, compared with one that Hadoop 3.5 wrote."""

from __future__ import annotations

import pytest

from onceflow.runtime.checkpoint.hadoop_checksum import (
    CHUNK_BYTES,
    checksum_name,
    checksum_of,
    is_intact,
)

CONTENT = (
    b'v1\n{"operatorInfo":{"operatorId":0,"operatorName":"stateStoreSave"},'
    b'"stateStoreInfo":[{"storeName":"default","numColsPrefixKey":0,"numPartitions":1}]}'
)
OF_HADOOP = bytes.fromhex("637263000000020076810a80")


def test_hadoop_writes_the_same() -> None:
    assert checksum_of(CONTENT) == OF_HADOOP


def test_each_chunk_has_a_sum_of_its_own() -> None:
    whole = checksum_of(bytes(CHUNK_BYTES) + b"x")
    assert whole == checksum_of(bytes(CHUNK_BYTES)) + checksum_of(b"x")[8:]


@pytest.mark.parametrize(
    ("content", "checksum"),
    [
        (CONTENT[:-1], OF_HADOOP),
        (b"", OF_HADOOP),
        (CONTENT.replace(b"v1", b"v3"), OF_HADOOP),
        (CONTENT, b""),
        (CONTENT, OF_HADOOP[:6]),
        (CONTENT, OF_HADOOP[:8]),
        (CONTENT, OF_HADOOP.replace(b"crc", b"crd")),
        (CONTENT, bytes.fromhex("637263000000000076810a80")),
        (CONTENT, OF_HADOOP + b"\0\0\0\0"),
    ],
)
def test_what_does_not_belong_together_is_not_intact(content: bytes, checksum: bytes) -> None:
    assert not is_intact(content, checksum)


def test_a_chunk_of_another_length_is_understood() -> None:
    assert is_intact(CONTENT, checksum_of(CONTENT, chunk_bytes=64))


@pytest.mark.parametrize(
    ("name", "expected"), [("metadata", ".metadata.crc"), ("offsets/7", "offsets/.7.crc")]
)
def test_it_is_a_hidden_file_beside(name: str, expected: str) -> None:
    assert checksum_name(name) == expected
