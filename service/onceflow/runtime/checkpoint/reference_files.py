"""The versions of references that a replay may need, each in a file that its SHA-256 names."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from onceflow.runtime.checkpoint.files import CheckpointFiles

FOLDER = "references"
SPARED_MS = 120_000
"""A file this young may be of a batch that is not in the offset log yet."""


def reference_folder(location: str) -> str:
    """Where the files of a checkpoint are."""
    return f"{location}/{FOLDER}"


class ReferenceFiles:
    """Those of one checkpoint."""

    def __init__(self, files: CheckpointFiles) -> None:
        self._files = files

    def write(self, rows: bytes) -> str:
        """Keep rows, from before a batch names them. Returns their name.

        Written again if they are there, so that they are young.
        """
        name = hashlib.sha256(rows).hexdigest()
        self._files.write_alone(_file(name), rows)
        return name

    def read(self, name: str) -> bytes | None:
        """The rows of this name; None if they are not there, or damaged."""
        found = self._files.read_unverified(_file(name))
        intact = found is not None and hashlib.sha256(found).hexdigest() == name
        return found if intact else None

    def sweep(self, needed: Collection[str], now_ms: int) -> None:
        """Remove what no planned batch needs, but for what is young."""
        spared = {_file(name) for name in needed}
        for file in self._files.written_before(FOLDER, now_ms - SPARED_MS):
            if file not in spared:
                self._files.delete_file(file)


def _file(name: str) -> str:
    return f"{FOLDER}/{name}.arrow"
