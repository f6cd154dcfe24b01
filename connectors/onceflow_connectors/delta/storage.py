"""Where the files of a table are, on disk or in a bucket, apart from what the library writes."""

from __future__ import annotations

import configparser
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import obstore
from obstore.exceptions import AlreadyExistsError
from obstore.store import S3Store

from onceflow.errors import ConfigError
from onceflow_connectors.delta.block import S3, DeltaBlock, StorageBlock
from onceflow_connectors.delta.log import Log, sync

OWN_FOLDER = "_onceflow"
"""Programs that know Delta pass over what begins so, also when they remove old files."""
_MAX_CREDENTIALS_BYTES = 64 * 1024
_ONE_REQUEST_BYTES = 64 * 1024 * 1024
_TIMES = {"timeout": "30s", "connect_timeout": "5s"}
_RETRIES = 3
_RETRY_S = 20


class Storage(Protocol):
    """The folder of one table. Names are relative to it.

    Every method may raise one of `failures.FAILURES`.

    Attributes:
        uri: of the table, for the library.
    """

    uri: str

    def options(self) -> Mapping[str, str]:
        """Settings for the library. They hold secrets."""

    def check(self) -> None:
        """Try whether it can be written.

        Raises:
            ConfigError: it cannot keep what the delivery promises.
        """

    def put(self, name: str, content: bytes) -> None:
        """Write a file as a whole. It survives a power cut when this returns."""

    def get(self, name: str) -> bytes | None:
        """Read a file; None if there is none."""

    def delete(self, name: str) -> None:
        """Remove a file, if there is one."""

    def names(self, folder: str) -> Sequence[str]:
        """Names of the files in a folder of our own and below it."""

    def recover(self) -> None:
        """Set aside what a power cut has left unfinished in the log.

        Raises:
            CorruptionError: the log is damaged otherwise.
        """

    def sync_log(self) -> None:
        """Make every commit that is in the log survive a power cut."""

    def sync_checkpoint(self) -> None:
        """Make the newest checkpoint of the log survive a power cut."""

    def is_same(self) -> bool:
        """Whether the log is still the one of the last `recover`, as far as can be seen."""


class Disk:
    """Implements `Storage` in a folder of a disk that this machine has mounted."""

    def __init__(self, folder: Path) -> None:
        self.uri = str(folder)
        self._folder = folder
        self._log = Log(folder / "_delta_log")

    def options(self) -> Mapping[str, str]:
        return {}

    def check(self) -> None:
        name = f"{OWN_FOLDER}/check-{uuid.uuid4()}"
        self.put(name, b"")
        self.delete(name)

    def put(self, name: str, content: bytes) -> None:
        file = self._folder / name
        _make(file.parent)
        unfinished = file.with_name(f"{file.name}.{uuid.uuid4()}.unfinished")
        try:
            with unfinished.open("xb") as opened:
                opened.write(content)
                opened.flush()
                os.fsync(opened.fileno())
            unfinished.replace(file)
        except OSError:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
            raise
        sync(file.parent)

    def get(self, name: str) -> bytes | None:
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def delete(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)

    def names(self, folder: str) -> Sequence[str]:
        found = (self._folder / folder).rglob("*")
        return [each.relative_to(self._folder).as_posix() for each in found if each.is_file()]

    def recover(self) -> None:
        self._log.recover()

    def sync_log(self) -> None:
        self._log.sync()

    def sync_checkpoint(self) -> None:
        self._log.sync_checkpoint()

    def is_same(self) -> bool:
        return self._log.is_same()


class Bucket:
    """Implements `Storage` below a prefix of an S3 bucket. What was answered is durable there."""

    def __init__(self, path: str, block: StorageBlock, folder: Path) -> None:
        self.uri = path
        self._block = block
        self._folder = folder
        self._opened: S3Store | None = None

    def options(self) -> Mapping[str, str]:
        return {
            **self._settings(),
            **_TIMES,
            "aws_conditional_put": "etag",
            "allow_http": str(self._block.allow_http).lower(),
            "max_retries": str(_RETRIES),
            "retry_timeout": f"{_RETRY_S}s",
        }

    def check(self) -> None:
        self._opened = None  # with keys that may be others
        name = f"{OWN_FOLDER}/conditional-writes"
        is_refused = False
        for _ in range(2):
            try:
                obstore.put(self._store, name, b"", mode="create")
            except AlreadyExistsError:
                is_refused = True
        if not is_refused:
            raise ConfigError(
                "the store ignores conditions of writes",
                subject=self.uri,
                expected="that it refuses to create an object that exists (If-None-Match)",
                found="that it was created twice",
                then="nothing was written to the table; two instances would overwrite each other's"
                " commits there, so use another store",
            )

    def put(self, name: str, content: bytes) -> None:
        is_large = len(content) > _ONE_REQUEST_BYTES
        obstore.put(self._store, name, content, use_multipart=is_large)

    def get(self, name: str) -> bytes | None:
        try:
            return bytes(obstore.get(self._store, name).bytes())
        except FileNotFoundError:
            return None

    def delete(self, name: str) -> None:
        with suppress(FileNotFoundError):
            obstore.delete(self._store, name)

    def names(self, folder: str) -> Sequence[str]:
        return [each["path"] for part in obstore.list(self._store, folder) for each in part]

    def recover(self) -> None:
        """A store has whole objects only."""

    def sync_log(self) -> None:
        """They are durable already."""

    def sync_checkpoint(self) -> None:
        """It is durable already."""

    def is_same(self) -> bool:
        return True

    @property
    def _store(self) -> S3Store:
        if self._opened is None:
            bucket, _, prefix = self.uri.removeprefix(S3).partition("/")
            settings: Any = self._settings()
            options: Any = {**_TIMES, "allow_http": self._block.allow_http}
            self._opened = S3Store(
                bucket,
                prefix=prefix or None,
                config=settings,
                client_options=options,
                retry_config={"max_retries": _RETRIES},
            )
        return self._opened

    def _settings(self) -> dict[str, str]:
        block = self._block
        found = {"aws_endpoint": block.endpoint, "aws_region": block.region}
        settings = {name: value for name, value in found.items() if value is not None}
        if block.credentials_file is not None:
            settings.update(_credentials(self._folder / block.credentials_file))
        return settings


def storage_of(block: DeltaBlock, folder: Path) -> Storage:
    """The storage of a table, whose relative names are relative to `folder`."""
    if block.is_remote:
        return Bucket(block.path, block.storage or StorageBlock(), folder)
    return Disk((folder / block.path).absolute())


def _make(folder: Path) -> None:
    """Create a folder so that it survives a power cut."""
    missing = [*_missing(folder)]
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        sync(each.parent)


def _missing(folder: Path) -> Iterator[Path]:
    for each in (folder, *folder.parents):
        if each.exists():
            return
        yield each


def _credentials(file: Path) -> Iterator[tuple[str, str]]:
    """Read the keys. No error shows any of them."""
    parser = configparser.ConfigParser(interpolation=None)
    subject, found = str(file), "other content"
    try:
        with file.open("rb") as opened:
            parser.read_string(opened.read(_MAX_CREDENTIALS_BYTES).decode())
        section = parser["default"]
        yield "aws_access_key_id", section["aws_access_key_id"]
        yield "aws_secret_access_key", section["aws_secret_access_key"]
    except OSError as error:
        found = error.strerror or "an error"
    except (UnicodeDecodeError, KeyError, configparser.Error):
        pass
    else:
        if token := section.get("aws_session_token"):
            yield "aws_session_token", token
        return
    raise ConfigError(
        "cannot read `credentials_file`",
        subject=subject,
        expected="`aws_access_key_id = ...` and `aws_secret_access_key = ...` below `[default]`",
        found=found,
    )
