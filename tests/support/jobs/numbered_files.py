"""The package of `examples/numbered-files`, installed as a user would, and files for it to read."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from onceflow.contracts.source_block import SourceBlock, find_source
from onceflow.testing.sources import Record

EXAMPLES = Path(__file__).parents[3] / "examples"
PACKAGE = EXAMPLES / "numbered-files"
KIND = "numbered-files"
LINES_PER_FILE = 3


def install(folder: Path, package: Path = PACKAGE) -> None:
    """Install a package into a folder, which then has to be on the path of Python."""
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(folder)]
    subprocess.run([*command, str(package)], check=True)


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """In this process, while the block lasts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield
    sys.modules.pop("onceflow_numbered_files", None)


class Files:
    """An origin of `onceflow.testing.sources`: a folder next to a pipeline file."""

    def __init__(self, folder: Path, partitions: int = 2) -> None:
        self.folder = folder
        self._next = dict.fromkeys(range(partitions), 0)
        for partition in self._next:
            self._of(partition).mkdir(parents=True)

    @property
    def block(self) -> SourceBlock:
        return find_source(KIND).model_validate({"folder": self.folder.name})

    def append(self, partition: int, records: Sequence[Record]) -> None:
        for start in range(0, len(records), LINES_PER_FILE):
            lines = [value + b"\n" for _, value in records[start : start + LINES_PER_FILE]]
            name = self._of(partition) / f"{self._next[partition]:012}"
            name.with_suffix(".new").write_bytes(b"".join(lines))
            name.with_suffix(".new").rename(name.with_suffix(".jsonl"))
            self._next[partition] += len(lines)

    def delete_before(self, partition: int, offset: int) -> None:
        for file in self._of(partition).glob("*.jsonl"):
            if int(file.stem) < offset:
                file.unlink()

    def add_partition(self) -> int:
        added = len(self._next)
        self._next[added] = 0
        self._of(added).mkdir()
        return added

    def _of(self, partition: int) -> Path:
        return self.folder / str(partition)
