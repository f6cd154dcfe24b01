"""An archive of the broker's classes, from which it starts for half the CPU time.

Class-data sharing (JEP 350): loading and checking eight thousand classes is most of what a start
does. `record_broker_classes.py` writes the archive, beside the jars in the user's cache. Nothing
needs it: without one, or with one that does not fit, starts are merely slower.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from onceflow.devkit.java import Java
from onceflow.devkit.paths import cache_dir

_SILENT = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""HotSpot warns of each class that it cannot archive, and of an archive that does not fit."""


def class_archive(java: Java, class_path: str) -> Path:
    """Where the archive for one Java and one list of jars is. May not exist.

    The JVM itself ignores one whose jars or own version have changed since.
    """
    fits = hashlib.sha256(f"{java.executable.resolve()} {class_path}".encode()).hexdigest()[:16]
    return cache_dir() / "classes" / f"broker-{fits}.jsa"


def sharing_options(archive: Path) -> tuple[str, ...]:
    """Options with which a JVM uses the archive; none if there is no archive."""
    return (f"-XX:SharedArchiveFile={archive}", *_SILENT) if archive.is_file() else ()


def recording_options(archive: Path) -> tuple[str, ...]:
    """Options with which a JVM writes an archive when it ends."""
    return (f"-XX:ArchiveClassesAtExit={archive}", *_SILENT)
