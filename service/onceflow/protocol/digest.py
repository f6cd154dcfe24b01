"""Content digest of a batch: equal digests mean that a replay computed the same rows."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from typing import TypeAlias

Row: TypeAlias = tuple[int, bytes | None, bytes | None]
"""Output partition, key, value."""

_PREFIX = struct.Struct(">iii")
_NULL_LENGTH = -1


def _length(data: bytes | None) -> int:
    return _NULL_LENGTH if data is None else len(data)


class RunningDigest:
    """The digest of a batch whose rows arrive one by one, in sorted order."""

    def __init__(self) -> None:
        self._content = hashlib.sha256()

    def add(self, row: Row) -> None:
        """Take in the next row."""
        partition, key, value = row
        self._content.update(_PREFIX.pack(partition, _length(key), _length(value)))
        self._content.update(key or b"")
        self._content.update(value or b"")

    def hexdigest(self) -> str:
        """The digest of the rows so far, in hexadecimal."""
        return self._content.hexdigest()


def digest_of(sorted_rows: Iterable[Row]) -> str:
    """SHA-256 over length-prefixed rows, in hexadecimal.

    Each row is hashed as partition, key length and value length (int32 big-endian, -1 for null),
    then key and value. Guaranteed: two sequences have equal digests only if they are equal row by
    row. Not guaranteed: independence of order; sort by (partition, key, value) first.
    """
    digest = RunningDigest()
    for row in sorted_rows:
        digest.add(row)
    return digest.hexdigest()
