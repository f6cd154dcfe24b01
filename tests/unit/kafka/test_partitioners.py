"""Keys go where other clients send them. The vectors are those of Kafka's own tests and tools."""

from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.errors import ConfigError
from onceflow_connectors.kafka.sink.partitioners import PARTITIONERS, murmur2, partitions_of

# Of UtilsTest.testMurmur2 in Apache Kafka, as Java's signed numbers.
JAVA_HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
# Of librdkafka's own unit test of its murmur2 (tail lengths 0 to 3), and of the empty key.
LIBRDKAFKA_HASHES = {b"kafka": 0xD067CF64, b"giberish123456789": 0x8F552B0C, b"": 0x106E08D9}


def signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


@pytest.mark.parametrize("key", JAVA_HASHES)
def test_murmur2_is_that_of_java(key: bytes) -> None:
    assert signed(murmur2(key)) == JAVA_HASHES[key]


@pytest.mark.parametrize("key", LIBRDKAFKA_HASHES)
def test_murmur2_is_that_of_librdkafka(key: bytes) -> None:
    assert murmur2(key) == LIBRDKAFKA_HASHES[key]


def test_murmur2_partitions_by_the_positive_part_of_the_hash() -> None:
    keys = list(JAVA_HASHES)
    expected = [(JAVA_HASHES[key] & 0x7FFFFFFF) % 7 for key in keys]
    assert partitions_of("murmur2", keys, 7) == expected


def test_crc32_is_the_common_one() -> None:
    assert crc32(b"123456789") == 0xCBF43926  # the check value of the algorithm
    assert partitions_of("crc32", [b"123456789"], 1000) == [0xCBF43926 % 1000]


@pytest.mark.parametrize("partitioner", sorted(PARTITIONERS))
def test_a_null_key_counts_as_empty(partitioner: str) -> None:
    assert len(set(partitions_of(partitioner, [None, b"", None], 1000))) == 1


@given(
    partitioner=st.sampled_from(sorted(PARTITIONERS)),
    keys=st.lists(st.one_of(st.none(), st.binary(max_size=40))),
    partitions=st.integers(1, 1000),
)
def test_a_key_goes_to_one_existing_partition_whatever_its_company(
    partitioner: str, keys: list[bytes | None], partitions: int
) -> None:
    together = partitions_of(partitioner, keys, partitions)
    assert together == [partitions_of(partitioner, [key], partitions)[0] for key in keys]
    assert all(0 <= partition < partitions for partition in together)


def test_an_unknown_partitioner_is_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match="random; expected one of crc32, murmur2"):
        partitions_of("random", [b"key"], 4)
