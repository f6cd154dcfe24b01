"""A server of objects on this machine, as S3 is one: versitygw, built by Go once and cached.

It keeps objects in a folder, honours conditions of writes, and refuses wrong keys.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow.fs as pafs

from onceflow.devkit.broker_start import free_ports
from onceflow.devkit.paths import cache_dir
from tests.support.eventually import eventually

BUCKET = "checkpoints"
SOURCES = Path(__file__).parent / "versitygw"
BUILD_TIMEOUT_S = 1800
ACCESS_KEY, SECRET_KEY = "the-key", "the-secret-of-tests"


def versitygw() -> Path:
    """The program; built if this version of it never was, which takes two minutes and more."""
    lock = (SOURCES / "go.mod").read_text()
    (version,) = (line.split()[1] for line in lock.splitlines() if "/versitygw v" in line)
    program = cache_dir() / f"versitygw-{version}"
    if not program.is_file():
        assert shutil.which("go"), "install Go 1.26 or newer"
        program.parent.mkdir(parents=True, exist_ok=True)
        unfinished = program.with_suffix(".unfinished")
        subprocess.run(
            ["go", "build", "-ldflags=-s -w", "-o", str(unfinished), "tool"],
            cwd=SOURCES,
            env={**os.environ, "CGO_ENABLED": "0"},
            check=True,
            timeout=BUILD_TIMEOUT_S,
        )
        unfinished.replace(program)
    return program


@dataclass
class ObjectStore:
    """A server that runs, unless it was stopped."""

    folder: Path
    host: str
    port: int
    process: subprocess.Popen[bytes] = field(init=False)

    @property
    def endpoint(self) -> str:
        return f"http://{self.host}:{self.port}"

    def conf(self, **changed: str) -> Mapping[str, str]:
        """Spark's settings for it; arguments are names of S3A's, with `_` for a dot."""
        settings = {
            "endpoint": self.endpoint,
            "endpoint.region": "us-east-1",
            "path.style.access": "true",
            "access.key": ACCESS_KEY,
            "secret.key": SECRET_KEY,
            **{name.replace("_", "."): value for name, value in changed.items()},
        }
        return {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()}

    def files(self) -> pafs.FileSystem:
        """As a stranger with its keys sees it."""
        return pafs.S3FileSystem(
            access_key=ACCESS_KEY,
            secret_key=SECRET_KEY,
            region="us-east-1",
            scheme="http",
            endpoint_override=f"{self.host}:{self.port}",
            allow_bucket_creation=True,
        )

    def start(self) -> None:
        address = f"{self.host}:{self.port}"
        command = [str(versitygw()), "--quiet", "--port", address, "posix", str(self.folder)]
        self.folder.mkdir(exist_ok=True)
        with (self.folder.with_suffix(".log")).open("ab") as log:
            self.process = subprocess.Popen(
                command,
                env={**os.environ, "ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY},
                stdout=log,
                stderr=log,
            )
        eventually(partial(_answers, self.files()), timeout_s=60)

    def stop(self) -> None:
        """At once, as a crash does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)


@contextmanager
def running_store(folder: Path, host: str = "127.0.0.1") -> Iterator[ObjectStore]:
    """A server with an empty bucket; its log and its objects are in the folder."""
    store = ObjectStore(folder / "objects", host, free_ports(1)[0])
    store.start()
    try:
        store.files().create_dir(BUCKET)
        yield store
    finally:
        store.stop()


def _answers(files: pafs.FileSystem) -> bool:
    try:
        files.get_file_info(BUCKET)
    except OSError:
        return False
    return True
