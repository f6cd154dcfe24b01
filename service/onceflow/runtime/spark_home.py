"""A Spark home beside PySpark's own, from which a service starts in a third of the time.

It holds links to PySpark's `bin` and `jars`, and differs in three things:

- It has no `python/lib/pyspark.zip`. Spark puts that first on its workers' path, and Python
  compiles whatever it imports from a zip anew: 1 s instead of 0.2 s for each of the five processes
  that a start needs. Without it they import the installed PySpark, the one that the driver runs.
- It may hold an archive of Spark's classes (class-data sharing, JEP 350), written by
  `record_classes.py`: loading and checking fourteen thousand classes is most of what a start does.
  The JVM ignores an archive that does not fit its own version or jars.
- It has a Python for workers that forgets a jar which Spark puts on their path as well. Python
  reads the directory of such a file first: 60 ms, for each of those processes.

Nothing needs it: where it cannot be made, such as on a read-only disk, starts are slower. A
`SPARK_HOME` that is set is left alone. It lies in the Python environment and goes with it.
"""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from tempfile import NamedTemporaryFile

import pyspark

VARIABLE = "SPARK_HOME"
WORKER_PYTHON = "python-of-workers"
WORKER_VARIABLE = "PYSPARK_PYTHON"
_LINKS = ("bin", "jars")
_WORKER_PYTHON = """\
#!/bin/sh
IFS=:
set -f
kept=
for entry in $PYTHONPATH; do
  case $entry in *.jar) ;; *) kept=$kept${{kept:+:}}$entry ;; esac
done
PYTHONPATH=$kept exec {python} "$@"
"""
_SILENT = "-Xlog:disable -Xlog:all=error:stderr"
"""HotSpot warns of each class that it cannot archive, and of an archive that does not fit."""


def spark_home() -> Path:
    """Where it is, for this Python environment. May not exist."""
    return Path(sys.prefix) / "var" / "onceflow" / f"spark-{version('pyspark')}"


def use_spark_home(*, is_local: bool) -> None:
    """Make it if need be, and let the JVM that this process starts use it.

    Args:
        is_local: whether workers run on this machine, and find what is in it, too.
    """
    # A JVM of a quarter of a second, which only says how to start the other one.
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    python = Path(sys.executable)
    if VARIABLE not in os.environ:
        home = spark_home()
        with suppress(OSError):
            make_spark_home(home)
            os.environ[VARIABLE] = str(home)
            python = home / WORKER_PYTHON if is_local else python
    os.environ.setdefault(WORKER_VARIABLE, str(python))


def make_spark_home(home: Path) -> None:
    """Make the links and the Python for workers; they may be there.

    Raises:
        OSError: the place cannot be written.
    """
    installed = Path(pyspark.__file__).parent
    home.mkdir(parents=True, exist_ok=True)
    for name in _LINKS:
        with suppress(FileExistsError):
            (home / name).symlink_to(installed / name)
    script = home / WORKER_PYTHON
    text = _WORKER_PYTHON.format(python=shlex.quote(sys.executable))
    if not script.exists() or script.read_text() != text:
        # In one step: another process may be starting it.
        with NamedTemporaryFile("w", dir=home, delete=False) as unfinished:
            unfinished.write(text)
        Path(unfinished.name).chmod(0o755)
        Path(unfinished.name).replace(script)


def class_archive() -> Path:
    """The archive of classes. May not exist."""
    return spark_home() / "classes.jsa"


def sharing_options() -> str:
    """Options with which a JVM uses the archive; none if there is no archive."""
    archive = class_archive()
    return f"-XX:SharedArchiveFile={archive} {_SILENT}" if archive.is_file() else ""


def recording_options(archive: Path) -> str:
    """Options with which a JVM writes an archive when it ends."""
    return f"-XX:ArchiveClassesAtExit={archive} {_SILENT}"
