"""From a key to a partition, as the clients of other languages do it, so that keys meet.

`crc32` is what librdkafka calls `consistent`; `murmur2` is what it calls `murmur2` and what Java's
producer does with a key. **A null key counts as an empty one**, as in librdkafka: all records
without a key go to one partition. (Java spreads them, which no replay could repeat.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from zlib import crc32

from onceflow.errors import ConfigError

_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_MULTIPLIER = 0x5BD1E995
_SIGN_BIT = 0x80000000


def murmur2(data: bytes) -> int:
    """32-bit MurmurHash2 with the seed of Kafka's Java client, as an unsigned number."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _MULTIPLIER & _MASK
        k = (k ^ k >> 24) * _MULTIPLIER & _MASK
        h = h * _MULTIPLIER & _MASK ^ k
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    h = (h ^ h >> 13) * _MULTIPLIER & _MASK
    return h ^ h >> 15


def partitions_of(partitioner: str, keys: Sequence[bytes | None], partitions: int) -> list[int]:
    """Return the partition of every key of a column, by a partitioner of `PARTITIONERS`.

    Raises:
        ConfigError: no such partitioner; lists those that are.
    """
    if partitioner not in PARTITIONERS:
        raise ConfigError(
            "unknown partitioner",
            subject=partitioner,
            expected=f"one of {', '.join(sorted(PARTITIONERS))}",
        )
    return PARTITIONERS[partitioner](keys, partitions)


def _by_crc32(keys: Sequence[bytes | None], partitions: int) -> list[int]:
    return [crc32(key or b"") % partitions for key in keys]


def _by_murmur2(keys: Sequence[bytes | None], partitions: int) -> list[int]:
    # About 1 us per four bytes in Python: hash each distinct key of the column once.
    positive = {key: murmur2(key or b"") & ~_SIGN_BIT for key in set(keys)}
    return [positive[key] % partitions for key in keys]


PARTITIONERS: Mapping[str, Callable[[Sequence[bytes | None], int], list[int]]] = {
    "crc32": _by_crc32,
    "murmur2": _by_murmur2,
}
"""Name in a pipeline file -> partitions of a column of keys."""
