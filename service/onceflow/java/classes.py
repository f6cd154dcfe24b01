"""Archives of classes, from which a JVM starts in less than half the time.

Class-data sharing (JEP 350): loading and checking thousands of classes is most of what a start
does. An archive fits one build of Java and one list of jars. The JVM ignores one that does not fit,
and nothing needs one: without it, starts are slower.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from onceflow.errors import OnceflowError
from onceflow.java.choice import Java, find_java

DUMP_TIMEOUT_S = 60
"""Archiving Java's own classes takes half a second."""
_SILENT = ("-Xlog:disable", "-Xlog:all=error:stderr")
"""HotSpot warns of each class that it cannot archive, and of an archive that does not fit."""


def archive_name(kind: str, java: Java, class_path: str = "") -> str:
    """Name of the file that holds the archive for one Java and one list of jars."""
    fits = hashlib.sha256(f"{java.home.resolve()} {java.release} {class_path}".encode())
    return f"{kind}-{fits.hexdigest()[:16]}.jsa"


def sharing_options(archive: Path) -> tuple[str, ...]:
    """Options with which a JVM uses an archive; none if there is no archive."""
    return (f"-XX:SharedArchiveFile={archive}", *_SILENT) if archive.is_file() else ()


def recording_options(archive: Path) -> tuple[str, ...]:
    """Options with which a JVM writes an archive when it ends."""
    return (f"-XX:ArchiveClassesAtExit={archive}", *_SILENT)


def record_with(record: Callable[[Java], None]) -> None:
    """Let `record` write an archive for the Java in use.

    It builds on an archive of Java's own classes. The packaged Java comes without that, so it is
    written first, where every JVM looks for it. If that fails, starts stay slow; all else works.

    Ends the process if there is no Java.
    """
    try:
        java = find_java()
    except OnceflowError as error:
        sys.exit(f"onceflow: {error}")
    if _run(java, "-Xshare:on", "-version").returncode != 0:
        done = _run(java, "-Xshare:dump", *_SILENT)
        if done.returncode != 0:
            found = (done.stderr or done.stdout).strip()[-200:]
            what = f"{java.home} has no archive of its own classes, and cannot write one: {found}"
            sys.stderr.write(f"onceflow: Spark and brokers will start slowly: {what}\n")
            return
    record(java)


def remove_old(archive: Path, kept: int) -> None:
    """Keep the newest archives of a kind, which are those that are used.

    Args:
        archive: one of them; the others are in the same folder.
        kept: how many.
    """
    kind = archive.name.rpartition("-")[0]
    found = sorted(archive.parent.glob(f"{kind}-*.jsa"), key=lambda file: -file.stat().st_mtime)
    for file in found[kept:]:
        file.unlink(missing_ok=True)


def _run(java: Java, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [java.executable, *options],
        check=False,
        capture_output=True,
        text=True,
        timeout=DUMP_TIMEOUT_S,
    )
