"""Reads files of strangers: regular ones, of bounded size, and no others."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from onceflow.errors import ConfigError

MAX_PIPELINE_BYTES = 256 * 1024
"""Far more than anybody writes by hand. Reading YAML takes seconds per megabyte."""
MAX_SCHEMA_BYTES = 1024 * 1024
"""Avro schemas are made by programs, and may be longer."""


def require_inside(path: Path, folder: Path) -> None:
    """Refuse a file that lies elsewhere, also if a link leads there.

    Raises:
        ConfigError: it does.
    """
    try:
        is_inside = path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # a link that leads to itself
        is_inside = False
    if not is_inside:
        raise ConfigError(
            "the file lies outside of the folder",
            subject=str(path),
            expected=f"a file in {folder}, and no link that leads out of it",
        )


def read_text(path: Path, max_bytes: int) -> str:
    """Read a regular file in UTF-8. Never waits: a pipe or a device is refused.

    Raises:
        ConfigError: there is no such file, or it is none that may be read.
    """
    try:
        # Opening a pipe would wait for a writer.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(file, "rb") as opened:
            facts = os.fstat(file)
            if not stat.S_ISREG(facts.st_mode):
                raise _unreadable(path, "a folder, a pipe or a device", expected="a regular file")
            content = opened.read(max_bytes + 1)
    except OSError as error:
        raise _unreadable(path, error.strerror or type(error).__name__) from error
    if len(content) > max_bytes:
        raise _unreadable(path, "more", expected=f"at most {max_bytes} bytes")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"a byte that is none at position {error.start}"
        raise _unreadable(path, found, expected="a text in UTF-8") from error


def _unreadable(path: Path, found: str, expected: str = "") -> ConfigError:
    return ConfigError(
        "cannot read the file",
        subject=str(path),
        expected=expected or "a file that can be read",
        found=found,
    )
