"""The checksum that Hadoop keeps of each local file `name`, in `.name.crc`.

Four bytes of magic, the length of a chunk, then the CRC-32 of each chunk, in network order. Hadoop
verifies it when Spark reads, and ignores one that is cut short. We verify it before that, so that a
start is refused before it stops another instance, and write it with what we write.
"""

from __future__ import annotations

import struct
import zlib

CHUNK_BYTES = 512
"""Hadoop's default, which Spark does not change."""
_MAGIC = b"crc\0"
_PREFIX = struct.Struct(">4sI")
_SUM = struct.Struct(">I")


def checksum_name(name: str) -> str:
    """Where the checksum of a file is, given the file's name or path."""
    folder, slash, base = name.rpartition("/")
    return f"{folder}{slash}.{base}.crc"


def checksum_of(content: bytes, chunk_bytes: int = CHUNK_BYTES) -> bytes:
    """The content of the checksum file that Hadoop writes for this content."""
    chunks = (content[i : i + chunk_bytes] for i in range(0, len(content), chunk_bytes))
    return _PREFIX.pack(_MAGIC, chunk_bytes) + b"".join(_SUM.pack(zlib.crc32(c)) for c in chunks)


def is_intact(content: bytes, checksum: bytes) -> bool:
    """Whether both are whole and belong together."""
    if len(checksum) < _PREFIX.size:
        return False
    magic, chunk_bytes = _PREFIX.unpack_from(checksum)
    return magic == _MAGIC and chunk_bytes > 0 and checksum == checksum_of(content, chunk_bytes)
