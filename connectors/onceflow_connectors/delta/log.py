"""The log of a table on disk: what the library does not do for it to survive a power cut.

The library writes an entry under another name and links it to its own, so a process that dies
leaves whole entries only. But it syncs nothing: after a power cut the newest entries may be empty,
cut off or full of zeros. A batch counts as written only after `Log.sync`, so such an entry was
never answered for, and is set aside; the rows come again, as their position is in the same entry.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from onceflow.errors import CorruptionError

_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")
_NEWEST = "_last_checkpoint"
ASIDE = ".unfinished"


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, survive a power cut."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


class Log:
    """The folder `_delta_log` of one table."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._next = 0
        self._inode = 0

    def recover(self) -> None:
        """Set aside unfinished files, and begin to `sync` after the newest checkpoint.

        Raises:
            CorruptionError: an entry is damaged and a later one is not.
        """
        self._next, self._inode = 0, 0
        if not self._folder.is_dir():
            return
        self._inode = self._folder.stat().st_ino
        self._check_checkpoints()
        self._next = (self._newest_checkpoint() or -1) + 1
        entries = self._entries()
        while entries and not _is_whole(entries[-1]):
            self._set_aside(entries.pop())
        for entry in entries:
            if not _is_whole(entry):
                raise CorruptionError(
                    "an entry of the table's log is damaged",
                    subject=str(entry),
                    expected="lines of JSON",
                    found=f"something else, and later entries up to {entries[-1].name}",
                    then="nothing was written; restore the table from a backup",
                )

    def sync(self) -> None:
        """Make all entries, and the newest checkpoint, survive a power cut."""
        begin = self._next
        while (entry := self._entry(self._next)).exists():
            sync(entry)
            self._next += 1
        if self._next != begin:
            sync(self._folder)
            if begin == 0:
                # The folder itself may be new.
                sync(self._folder.parent)

    def sync_checkpoint(self) -> None:
        """Make the newest checkpoint survive a power cut."""
        newest = self._newest_checkpoint()
        if newest is not None:
            sync(self._folder / f"{newest:020}.checkpoint.parquet")
            sync(self._folder / _NEWEST)
            sync(self._folder)

    def is_same(self) -> bool:
        """Whether it is the folder of the last `recover`, or there was none."""
        try:
            return self._folder.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def _entry(self, version: int) -> Path:
        return self._folder / f"{version:020}.json"

    def _entries(self) -> list[Path]:
        """Those after the newest checkpoint, in order."""
        found = (_ENTRY.fullmatch(each.name) for each in self._folder.iterdir())
        versions = sorted(int(each[1]) for each in found if each)
        return [self._entry(version) for version in versions if version >= self._next]

    def _newest_checkpoint(self) -> int | None:
        try:
            return int(json.loads((self._folder / _NEWEST).read_bytes())["version"])
        except FileNotFoundError:
            return None

    def _check_checkpoints(self) -> None:
        """Set an unfinished checkpoint aside. Entries are kept until it was synced."""
        newest = self._folder / _NEWEST
        try:
            self._newest_checkpoint()
        except (ValueError, KeyError, TypeError):
            self._set_aside(newest)
        for file in sorted(self._checkpoints(), reverse=True):
            if _is_parquet(file):
                break
            self._set_aside(file)
            if newest.exists():
                self._set_aside(newest)

    def _checkpoints(self) -> Iterator[Path]:
        for each in self._folder.iterdir():
            if _CHECKPOINT.fullmatch(each.name):
                yield each

    def _set_aside(self, file: Path) -> None:
        file.replace(file.with_name(file.name + ASIDE))
        sync(self._folder)


def _is_whole(entry: Path) -> bool:
    try:
        lines = entry.read_bytes().splitlines()
        return bool(lines) and all(isinstance(json.loads(line), dict) for line in lines)
    except ValueError:
        return False


def _is_parquet(file: Path) -> bool:
    try:
        for _ in pq.ParquetFile(file).iter_batches():
            pass
    except pa.ArrowException:
        return False
    except OSError as error:
        if error.errno is not None:
            raise
        return False  # Arrow's error for content that cannot be read
    return True
