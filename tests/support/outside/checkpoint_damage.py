"""Finds the files of a real checkpoint by what they are for, damages one, and puts it back.

Knows Spark's layout (4.2, RocksDB with changelogs, checkpoint format 2) from listings of real
checkpoints, not from the product. Each damage keeps what it replaced.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

AGE = 10
"""How many batches older the content is that a file is given as if from a backup."""
_STORE = "state/0/0"
_VERSION = re.compile(r"(?P<version>\d+)_[0-9a-f-]{36}\.(?:changelog|zip)")


class Damage(Enum):
    """Damage to a file."""

    DELETED = "deleted"
    HALF = "cut to half"
    EMPTY = "zero bytes"
    FLIPPED = "one bit flipped"
    FLIPPED_UNSEEN = "one bit flipped, checksum deleted"
    OLDER = "content of ten batches ago"


@dataclass(frozen=True)
class Target:
    """One file of a checkpoint.

    Args:
        older: the file of its kind that is AGE batches older, or the oldest there is; the file
            itself if there is one of its kind only.
        spared: bytes at the start in which no bit is flipped.
    """

    path: Path
    older: Path
    spared: int = 0


def checksum(path: Path) -> Path:
    """The file in which Hadoop keeps the checksums of `path`."""
    return path.parent / f".{path.name}.crc"


def of_checksum(target: Target) -> Target:
    """The checksum of a file, as a target of its own."""
    # Its first bytes hold the length of a chunk: a longer one means the same for a small file.
    return Target(checksum(target.path), checksum(target.older), spared=8)


@contextmanager
def damaged(target: Target, damage: Damage, bit: int) -> Iterator[None]:
    """Damage one file; put it and its checksum back at the end of the block.

    Args:
        bit: which bit is flipped, counted from what is not spared; larger numbers begin again.
    """
    before = _contents(target)
    if before[target.path] is None:
        raise AssertionError(f"there is no {target.path} to damage")
    _DAMAGES[damage](target, bit)
    after = _contents(target)
    try:
        yield
    finally:
        # A file that Spark has written again meanwhile stays.
        if _contents(target) == after:
            for path, content in before.items():
                _put(path, content)


def _contents(target: Target) -> Mapping[Path, bytes | None]:
    paths = (target.path, checksum(target.path))
    return {path: path.read_bytes() if path.exists() else None for path in paths}


def _put(path: Path, content: bytes | None) -> None:
    if content is None:
        path.unlink(missing_ok=True)
    else:
        path.write_bytes(content)


def _delete(target: Target, _: int) -> None:
    target.path.unlink()


def _empty(target: Target, _: int) -> None:
    target.path.write_bytes(b"")


def _halve(target: Target, _: int) -> None:
    content = target.path.read_bytes()
    target.path.write_bytes(content[: len(content) // 2])


def _flip(target: Target, bit: int) -> None:
    content = bytearray(target.path.read_bytes())
    place = 8 * target.spared + bit % (8 * (len(content) - target.spared))
    content[place // 8] ^= 1 << place % 8
    target.path.write_bytes(content)


def _flip_unseen(target: Target, bit: int) -> None:
    _flip(target, bit)
    checksum(target.path).unlink(missing_ok=True)


def _make_older(target: Target, _: int) -> None:
    target.path.write_bytes(target.older.read_bytes())
    beside = checksum(target.older)
    if beside.exists():
        checksum(target.path).write_bytes(beside.read_bytes())


_DAMAGES: Mapping[Damage, Callable[[Target, int], None]] = {
    Damage.DELETED: _delete,
    Damage.HALF: _halve,
    Damage.EMPTY: _empty,
    Damage.FLIPPED: _flip,
    Damage.FLIPPED_UNSEEN: _flip_unseen,
    Damage.OLDER: _make_older,
}


def targets(checkpoint: Path) -> Mapping[str, Target]:
    """Files to damage, by kind. Two of a kind differ in age."""
    return {**_singles(checkpoint), **_logged(checkpoint), **_state(checkpoint / _STORE)}


def _singles(checkpoint: Path) -> Mapping[str, Target]:
    places = {kind: checkpoint / kind for kind in ("onceflow.json", "metadata", "operators.json")}
    if is_of_processor(checkpoint):
        [places["processor's form"]] = (checkpoint / "processors").glob("*.json")
        # Spark writes them at each start, and reads the newest.
        metadata = (checkpoint / "state/0/_metadata/v2").iterdir()
        places["processor's metadata"] = max(_named(metadata), key=lambda file: int(file.name))
        schemas = (checkpoint / "state/0/_stateSchema/default").iterdir()
        places["processor's schema"] = max(_named(schemas), key=lambda file: file.name)
    else:
        places["operator metadata"] = checkpoint / "state/0/_metadata/metadata"
        places["state schema"] = checkpoint / _STORE / "_metadata/schema"
    return {kind: Target(path, path) for kind, path in places.items()}


def is_of_processor(checkpoint: Path) -> bool:
    """Whether the state is that of a processor."""
    return (checkpoint / "processors").exists()


def _named(files: Iterable[Path]) -> Iterator[Path]:
    return (file for file in files if not file.name.startswith("."))


def _logged(checkpoint: Path) -> Mapping[str, Target]:
    found = {}
    for log in ("offsets", "commits"):
        entries = [f for f in (checkpoint / log).iterdir() if f.name.isdigit()]
        entries.sort(key=lambda f: int(f.name))
        for age, title in ((1, "newest"), (2, "second newest"), (AGE, "old")):
            found[f"{log}, {title}"] = Target(
                entries[-age], entries[max(-age - AGE, -len(entries))]
            )
    return found


def _state(store: Path) -> Mapping[str, Target]:
    """The newest version is loaded from the newest snapshot and the changelogs after it."""
    logs = _versions(store, "changelog")
    snapshots = _versions(store, "zip")
    newest, base = max(logs), max(snapshots)
    if not base < newest - 1:
        raise AssertionError(f"no changelog between snapshot {base} and version {newest}")
    old_base = min(snapshots)
    tables, old_tables = _tables(snapshots[base]), _tables(snapshots[old_base])
    return {
        "changelog, newest": Target(logs[newest], logs[max(newest - AGE, min(logs))]),
        "changelog, second newest": Target(logs[newest - 1], logs[max(newest - AGE, min(logs))]),
        "changelog, old": Target(logs[old_base], logs[min(logs)]),
        "snapshot, newest": Target(snapshots[base], snapshots[old_base]),
        "snapshot, old": Target(snapshots[old_base], snapshots[old_base]),
        "table, newest": Target(store / "SSTs" / tables[-1], store / "SSTs" / old_tables[0]),
    }


def _versions(store: Path, suffix: str) -> dict[int, Path]:
    matches = ((f, _VERSION.fullmatch(f.name)) for f in store.glob(f"*.{suffix}"))
    return {int(match["version"]): f for f, match in matches if match}


def _tables(snapshot: Path) -> list[str]:
    """Files of sorted rows that a snapshot names; several snapshots share them."""
    with zipfile.ZipFile(snapshot) as file:
        listed = json.loads(file.read("metadata").partition(b"\n")[2])
    return sorted(table["dfsSstFileName"] for table in listed["sstFiles"])
