"""A kind of target as a package of a user: a sender whose receiver is a file that keeps everything.

Found by its entry point. The receiver does not recognise records: what comes twice is there twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from onceflow.contracts.record import Record
from onceflow.contracts.target import Answers
from onceflow.contracts.target_block import SenderBlock, TargetSpec
from onceflow.contracts.values import DurationMs
from onceflow.errors import RetriableError
from onceflow.protocol.guarantee import Guarantee, Level

KIND = "receiver"


def install(folder: Path) -> None:
    """Make `folder` hold the metadata of a distribution that offers this kind."""
    metadata = folder / "file_sender-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: file-sender\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(
        f"[onceflow.targets]\n{KIND} = tests.support.fakes.file_sender:ReceiverBlock\n"
    )


class ReceiverBlock(SenderBlock):
    """A file. Each call appends a line with the partition and offsets of its records."""

    path: str = Field(description="The file.")
    answers: int = Field(default=1_000_000, description="Records of a call that are answered.")
    key_lifetime: DurationMs | None = Field(default=None, description="As `key_lifetime_ms`.")

    def sender(self, spec: TargetSpec) -> FileSender:
        return FileSender(spec.folder / self.path, self.answers)

    def guarantee(self) -> Guarantee:
        return Guarantee(Level.AT_LEAST_ONCE, "from the topic to the file")

    def describe(self) -> str:
        return f"file {self.path}"

    @property
    def key_lifetime_ms(self) -> int | None:
        return self.key_lifetime


class FileSender:
    """Implements `contracts.target.Sender`."""

    def __init__(self, path: Path, answers: int) -> None:
        self._path = path
        self._answers = answers

    def check(self) -> None:
        """A file takes everything."""

    def probe(self) -> None:
        """A file is always well."""

    def send(self, records: Sequence[Record], attempt: int) -> Answers:
        call = {
            "process": os.getpid(),
            "partition": records[0].partition,
            "offsets": [record.offset for record in records],
            "values": [(record.value or b"").decode() for record in records],
        }
        with self._path.open("ab", buffering=0) as file:
            file.write(json.dumps(call).encode() + b"\n")
        answered = min(self._answers, len(records))
        is_whole = answered == len(records)
        failure = None if is_whole else RetriableError("the receiver does not answer")
        return Answers(frozenset(range(answered)), {}, failure)

    def close(self) -> None:
        """Nothing is held."""
