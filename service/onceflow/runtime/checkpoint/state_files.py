"""Finds files of the state that are damaged, or copies of others.

What Spark loads it verifies, but often says no more than that a stream is corrupted. So once it
has failed, `find_damage` looks at every file: does its checksum agree, can it be read to its end,
and is it the version that its name says? Before a start that would cost too much.

What Spark does not notice is an older file, with its checksum, under the name of a newer one.
`find_copy` does, and reads checksums only.

Layout (`RocksDBFileManager`): `state/<operator>/<partition>/` holds changelogs
`<version>_<id>.changelog`, snapshots `<version>_<id>.zip`, and tables of rows that snapshots name.
"""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from onceflow.runtime.checkpoint.hadoop_checksum import checksum_name, is_intact

_VERSIONED = re.compile(r"(?:.*/)?(?P<version>\d+)_[^/]+\.(?P<kind>changelog|zip)")
_BLOCK = struct.Struct("<8sBIII")
"""Of lz4-java: magic, method and level, packed length, plain length, checksum."""
_MAGIC = b"LZ4Block"
_IS_PACKED = 0x20
_END = b"\xff\xff\xff\xff"
_END_OF_LINEAGE = {b"\x00\x02v3": _END, b"\x00\x02v4": b"\x00"}
"""Ends of the two formats that name the versions before. Stores of processors have the second."""


def find_damage(names: Sequence[str], read: Callable[[str], bytes | None]) -> Iterator[str]:
    """The files below `state` that are damaged, newest versions first."""
    for name in sorted(names, key=version_of, reverse=True):
        content = read(name)
        if content is None or name.endswith(".crc"):
            continue
        checksum = read(checksum_name(name))
        if not (checksum is None or is_intact(content, checksum)) or not _is_sound(name, content):
            yield name


def find_copy(names: Sequence[str], read: Callable[[str], bytes | None]) -> str | None:
    """A file that a start loads, with the content of an older version: no two are alike.

    Two files of one version may be: a batch that is computed again writes it again.

    Returns:
        The newest one, or None.
    """
    versioned = sorted((n for n in names if _VERSIONED.fullmatch(n)), key=version_of)
    snapshots = {_store(name): version_of(name) for name in versioned if name.endswith(".zip")}
    seen: dict[tuple[str, bytes], int] = {}
    found = None
    for name in versioned:
        checksum, store, version = read(checksum_name(name)), _store(name), version_of(name)
        if checksum and seen.setdefault((store, checksum), version) != version:
            is_loaded = version >= snapshots.get(store, 0)
            found = name if is_loaded else found
    return found


def _store(name: str) -> str:
    return name.rpartition("/")[0]


def version_of(name: str) -> int:
    """Version of the state; 0 for a file that has none."""
    match = _VERSIONED.fullmatch(name)
    return int(match["version"]) if match else 0


def _is_sound(name: str, content: bytes) -> bool:
    match = _VERSIONED.fullmatch(name)
    if not content:
        return False
    try:
        if match and match["kind"] == "zip":
            return zipfile.ZipFile(io.BytesIO(content)).testzip() is None
        if match and content.startswith(_MAGIC):
            return _is_changelog_of(int(match["version"]), _unpacked(content))
    except (zipfile.BadZipFile, ValueError, KeyError, TypeError, OSError, struct.error):
        return False
    return True


def _is_changelog_of(version: int, plain: bytes) -> bool:
    """It ends where the writer ended it, and names the version before it."""
    form, size, rest = plain[:4], plain[4:6], plain[6:]
    if form not in _END_OF_LINEAGE:
        return plain.endswith(_END)
    lineage = json.loads(rest[: int.from_bytes(size, "big")])
    is_next = not lineage or lineage[-1]["version"] == version - 1
    return rest.endswith(_END_OF_LINEAGE[form]) and is_next


def _unpacked(content: bytes) -> bytes:
    codec, plain, place = pa.Codec("lz4_raw"), bytearray(), 0
    while place < len(content):
        _, method, packed, length, _ = _BLOCK.unpack_from(content, place)
        place += _BLOCK.size
        block = content[place : place + packed]
        place += packed
        is_packed = method & 0xF0 == _IS_PACKED and length > 0
        plain += codec.decompress(block, length, asbytes=True) if is_packed else block
    return bytes(plain)
