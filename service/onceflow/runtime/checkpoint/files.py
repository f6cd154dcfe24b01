"""The files of a checkpoint, wherever it is: read with their checksums, written as a whole."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import pyarrow.fs as pafs

from onceflow.errors import NEW_GENERATION, CorruptionError
from onceflow.runtime.checkpoint.hadoop_checksum import checksum_name, checksum_of, is_intact
from onceflow.runtime.spark.errors import disk_is_full
from onceflow.runtime.spark.s3_files import SCHEME, open_s3, s3_error

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _told(
    method: Callable[Concatenate[CheckpointFiles, _P], _R],
) -> Callable[Concatenate[CheckpointFiles, _P], _R]:
    """Raise our own error for what an object store refuses, or does not answer."""

    @wraps(method)
    def call(self: CheckpointFiles, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return method(self, *args, **kwargs)
        except OSError as error:
            if self.is_on_s3 and (ours := s3_error(str(error), self.location)):
                raise ours from error
            raise

    return call


class CheckpointFiles:
    """Files by their path below the location.

    Attributes:
        has_checksums: whether Hadoop keeps one next to each file here.
        is_on_s3: whether each request may fail, and a file is there as a whole or not at all.

    Raises:
        ConfigError: of an object store: no such bucket, or the keys are refused. From any method.
        RetriableError: no server answers. From any method.
    """

    def __init__(self, location: str, conf: Mapping[str, str]) -> None:
        self.location = location
        self.is_on_s3 = location.startswith(SCHEME)
        self._files, self._root = open_s3(location, conf) if self.is_on_s3 else _open(location)
        self.has_checksums = isinstance(self._files, pafs.LocalFileSystem)

    def path(self, name: str) -> str:
        """Where a file is, in a user's words."""
        return f"{self.location}/{name}"

    @_told
    def exists(self, name: str) -> bool:
        """Whether there is a file of this name."""
        found: pafs.FileInfo = self._files.get_file_info(f"{self._root}/{name}")
        return bool(found.type == pafs.FileType.File)

    @_told
    def names(self, folder: str) -> Sequence[str]:
        """Every file below a folder; none if there is no such folder."""
        selector = pafs.FileSelector(f"{self._root}/{folder}", allow_not_found=True, recursive=True)
        found = self._files.get_file_info(selector)
        return [info.path.removeprefix(f"{self._root}/") for info in found if info.is_file]

    @_told
    def written_before(self, folder: str, at_ms: int) -> Sequence[str]:
        """Files in a folder that were written before an instant, by the clock of the storage."""
        selector = pafs.FileSelector(f"{self._root}/{folder}", allow_not_found=True)
        found = self._files.get_file_info(selector)
        return [
            f"{folder}/{info.base_name}"
            for info in found
            if info.is_file and (info.mtime_ns or 0) < at_ms * 1_000_000
        ]

    @_told
    def numbers(self, log: str) -> Sequence[int]:
        """The numbers that files of a log have for names."""
        selector = pafs.FileSelector(f"{self._root}/{log}", allow_not_found=True)
        names = [info.base_name for info in self._files.get_file_info(selector)]
        return [int(name) for name in names if name.isdigit()]

    @_told
    def copy(self, name: str, to: CheckpointFiles) -> None:
        """Copy a file as it is, within one file system.

        Raises:
            CorruptionError: it vanished.
        """
        to._make_folder_of(name)
        try:
            self._files.copy_file(f"{self._root}/{name}", f"{to._root}/{name}")
        except OSError as error:
            if self.exists(name):
                raise
            raise self.damaged(name, "try again: the pipeline goes on meanwhile") from error

    def can_copy(self, to: CheckpointFiles) -> bool:
        """Whether both are of one file system."""
        return bool(self._files.equals(to._files))

    @_told
    def delete(self) -> None:
        """Remove everything."""
        with suppress(FileNotFoundError):
            self._files.delete_dir(self._root)

    def read(self, name: str, cure: str = "") -> str | None:
        """The content of a file; None if there is none.

        Raises:
            CorruptionError: its checksum contradicts it.
        """
        content = self.read_unverified(name)
        if content is None:
            return None
        checksum = self.read_unverified(checksum_name(name)) if self.has_checksums else None
        # There is none after a crash between two renames, and in a copy without hidden files.
        if checksum is not None and not is_intact(content, checksum):
            raise self.damaged(name, cure)
        return content.decode(errors="replace")

    def read_json(self, name: str) -> Mapping[str, Any] | None:
        """The content of a file that holds one JSON object; None if there is none.

        Raises:
            CorruptionError: it holds anything else, or its checksum contradicts it.
        """
        text = self.read(name)
        if text is None:
            return None
        try:
            value = json.loads(text)
        except ValueError as error:
            raise self.damaged(name) from error
        if not isinstance(value, dict):
            raise self.damaged(name)
        return value

    @_told
    def read_unverified(self, name: str) -> bytes | None:
        """The content of a file, whatever its checksum says; None if there is none."""
        if not self.exists(name):
            return None
        with self._files.open_input_stream(f"{self._root}/{name}") as stream:
            return bytes(stream.readall())

    def write(self, name: str, text: str) -> None:
        """Replace a file as a whole. Hadoop's checksum of the old content must not outlive it."""
        self._delete_checksum(name)
        self.write_alone(name, text.encode())
        if self.has_checksums:
            self.write_alone(checksum_name(name), checksum_of(text.encode()))

    @_told
    def delete_file(self, name: str) -> None:
        """Remove a file, and Hadoop's checksum of it."""
        self._files.delete_file(f"{self._root}/{name}")
        self._delete_checksum(name)

    def _delete_checksum(self, name: str) -> None:
        if self.exists(checksum_name(name)):
            self._files.delete_file(f"{self._root}/{checksum_name(name)}")

    @_told
    def write_alone(self, name: str, content: bytes) -> None:
        """Replace a file as a whole, and give it no checksum.

        Raises:
            RetriableError: the disk is full.
        """
        folder = self._make_folder_of(name)
        base = name.rpartition("/")[2]
        unfinished = f"{folder}/{base}" if self.is_on_s3 else f"{folder}/.{base}.tmp"
        try:
            with self._files.open_output_stream(unfinished) as stream:
                stream.write(content)
            if not self.is_on_s3:
                self._files.move(unfinished, f"{folder}/{base}")
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise disk_is_full() from error

    def _make_folder_of(self, name: str) -> str:
        folder = f"{self._root}/{name}".rpartition("/")[0]
        # S3 has none; what is made there instead is a file that no reader needs.
        if not self.is_on_s3:
            self._files.create_dir(folder, recursive=True)
        return folder

    def damaged(self, name: str, cure: str = "") -> CorruptionError:
        """The refusal of a checkpoint for one of its files; a `cure` beats a new generation."""
        return CorruptionError(
            "a file of the checkpoint is missing or damaged",
            subject=self.path(name),
            expected="what Spark wrote, and a checksum next to it that agrees",
            then="halting; restore it from a backup with its checksum, or "
            + (cure or NEW_GENERATION),
        )


def _open(location: str) -> tuple[pafs.FileSystem, str]:
    if "://" in location or location.startswith("file:"):
        files, root = pafs.FileSystem.from_uri(location)
        return files, root.rstrip("/")
    return pafs.LocalFileSystem(), location.rstrip("/")
