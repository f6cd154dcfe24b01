"""Runs the Ivy that ships inside PySpark: the only way in which jars are fetched."""

from __future__ import annotations

import subprocess
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.progress import Progress

from onceflow.devkit.trust import trust_options
from onceflow.errors import ConfigError
from onceflow.java.choice import find_java

MAX_KEPT_LINES = 200
"""Ivy repeats every problem in a summary at its end; this holds the longest one seen."""

_FILE_PATTERN = "[artifact]-[revision](-[classifier]).[ext]"
_DOWNLOADED = "[SUCCESSFUL ]"


def resolve_with_ivy(definition: Path, folder: Path, count: int) -> None:
    """Resolve an Ivy file and put its jars into a folder, named `artifact-revision.jar`.

    Args:
        definition: the Ivy file; Ivy's settings are in the same folder.
        folder: exists.
        count: how many jars to expect, for the progress bar only.

    Raises:
        ConfigError: no Java, no PySpark, or not everything could be fetched.
    """
    java, settings = find_java(), definition.with_name("settings.xml")
    # A cache of Ivy's own would be a second copy that is not verified.
    with TemporaryDirectory(prefix="onceflow-ivy-") as cache:
        command: list[str | Path] = [java.executable, *trust_options(java, Path(cache))]
        command += ["-jar", _ivy_jar(), "-settings", settings, "-ivy", definition]
        command += ["-retrieve", str(folder / _FILE_PATTERN), "-cache", cache]
        _run(command, subject=definition.stem, count=count)


def _ivy_jar() -> Path:
    spark = find_spec("pyspark")
    folders = (spark.submodule_search_locations or []) if spark else []
    if found := [jar for folder in folders for jar in Path(folder).glob("jars/ivy-*.jar")]:
        return min(found)
    raise ConfigError(
        "fetching jars needs Ivy, which comes with PySpark",
        expected="an installed pyspark with jars/ivy-*.jar",
        then="Install onceflow[service]",
    )


def _run(command: list[str | Path], *, subject: str, count: int) -> None:
    lines: deque[str] = deque(maxlen=MAX_KEPT_LINES)
    with (
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process,
        _progress(subject, count) as progress,
    ):
        # Ends: every connection and read of Ivy has a time-out in its settings.
        for line in process.stdout or ():
            lines.append(line.strip())
            if _DOWNLOADED in line:
                progress.advance(progress.task_ids[0])
    if process.returncode != 0:
        raise ConfigError("Ivy could not fetch every jar", subject=subject, found=_complaint(lines))


@contextmanager
def _progress(subject: str, count: int) -> Iterator[Progress]:
    console = Console(stderr=True)
    console.print(f"Fetching the {subject} jars, once", highlight=False)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        progress.add_task("downloading", total=count or None)
        yield progress


def _complaint(lines: deque[str]) -> str:
    marks = ("not found", "unresolved", "exception", "failed", "timed out", "error")
    told = [line for line in lines if any(mark in line.lower() for mark in marks)]
    return "; ".join((told or list(lines))[-3:])
