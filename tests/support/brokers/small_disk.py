"""A disk that can be full: a small one in memory, for a broker's data or a checkpoint.

Only for child processes: containers have the disk of their engine.
"""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_CHUNK = bytes(1 << 16)
_MOUNT = 'mount -t tmpfs -o size="$0",mode=700 tmpfs "$1"'
_TIMEOUT_S = 30


@dataclass(frozen=True)
class SmallDisk:
    """A folder that holds a few megabytes."""

    folder: Path

    def fill(self) -> None:
        """Leave no byte free. What others delete after that is free for them."""
        with self._ballast.open("ab", buffering=0) as file:
            try:
                # Ends at the latest when the disk does.
                while True:
                    file.write(_CHUNK)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def free(self) -> None:
        """Give back what `fill` has taken."""
        self._ballast.unlink(missing_ok=True)

    @property
    def _ballast(self) -> Path:
        return self.folder / ".ballast"


@contextmanager
def small_disk(folder: Path, size_bytes: int = 32 << 20) -> Iterator[SmallDisk]:
    """A disk that exists while the context is entered.

    Root mounts it at `folder`. For others it is mounted in a user namespace, and its folder is a
    path below `/proc` that leads there.

    Args:
        size_bytes: of the disk. A broker's data needs 2 MB to start with.

    Raises:
        PermissionError: neither is allowed here.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = ["sh", "-ec", _MOUNT, str(size_bytes), str(folder)]
    mounted = subprocess.run(command, capture_output=True, check=False, timeout=_TIMEOUT_S)
    if mounted.returncode:
        with _in_namespace(folder, size_bytes) as disk:
            yield disk
        return
    try:
        yield SmallDisk(folder)
    finally:
        # Lazily: a process that is being killed may still have a file open.
        subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=_TIMEOUT_S)


@contextmanager
def _in_namespace(folder: Path, size_bytes: int) -> Iterator[SmallDisk]:
    # The mount lasts as long as a process in the namespace, which ends with its standard input.
    keep = f"{_MOUNT}; echo mounted; exec cat"
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", keep]
    with subprocess.Popen(
        [*command, str(size_bytes), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        answer = holder.stdout.readline()
        if answer != "mounted\n":
            raise PermissionError(
                errno.EPERM,
                f"a small disk needs root, or user namespaces for everybody ({answer.strip()})",
            )
        yield SmallDisk(Path(f"/proc/{holder.pid}/root{os.path.realpath(folder)}"))
