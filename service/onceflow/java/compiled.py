"""Our Java sources, compiled once into a jar in the Python environment.

It is on the class path of Spark's JVMs, after Kafka's client, which some of the sources need. A jar
fits one state of the sources. Where it is missing, the first start of Spark makes it.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

from onceflow.errors import ConfigError
from onceflow.java.choice import Java

SOURCES = Path(__file__).with_name("src")
FOR_S3 = SOURCES / "onceflow" / "ConditionalFiles.java"
"""Needs the jars for S3, and is in a jar next to them: see `s3_jars.py`."""
KAFKA_LOCK = Path(__file__).parents[1] / "devkit" / "jarsets" / "kafka.sha256"
COMPILE_TIMEOUT_S = 120
"""Takes five seconds."""
_COMPILER = "org.codehaus.commons.compiler.samples.CompilerDemo"
"""The command line of Janino, which comes with Spark: a Java without `javac` will do."""
_FIRST_DAY = (1980, 1, 1, 0, 0, 0)
_KEPT = 2
"""One jar for each revision that is in use in turn."""


def environment_folder() -> Path:
    """Where files of this Python environment are made."""
    return Path(sys.prefix) / "var" / "onceflow"


def kafka_folder() -> Path:
    """Where the jars of Kafka's client are, for this Python environment. May not exist."""
    return environment_folder() / "kafka"


def jars_of_spark() -> Path:
    """The folder of the installed PySpark.

    Raises:
        ConfigError: there is none.
    """
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError("PySpark is missing", then="Run `pip install 'onceflow[service]'`")
    return Path(spec.origin).parent / "jars"


@cache
def compiled_jar(sources: Path = SOURCES) -> Path:
    """The jar that fits these sources, the installed Spark and Kafka's client. May not exist."""
    found = hashlib.sha256(version("pyspark").encode() + KAFKA_LOCK.read_bytes())
    for file in _files(sources):
        found.update(file.relative_to(sources).as_posix().encode())
        found.update(file.read_bytes())
    return environment_folder() / f"java-{found.hexdigest()[:16]}.jar"


@cache
def our_jar(java: Java) -> Path:
    """Make the jar if it is missing; for this process only where the environment is read-only.

    Raises:
        ConfigError: as `compile_ours`.
    """
    jar = compiled_jar()
    if not jar.is_file():
        try:
            compile_ours(java)
        except OSError:
            folder = mkdtemp(prefix="onceflow-java-")
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            jar = Path(folder) / jar.name
            _compile_into(jar, java)
    return jar


def compile_ours(java: Java) -> None:
    """Compile our sources, for all who load them from now on.

    Raises:
        ConfigError: there is no PySpark, or the compiler refuses the sources.
        OSError: the place cannot be written.
    """
    jar = compiled_jar()
    jar.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=jar.parent) as folder:
        unfinished = Path(folder) / jar.name
        _compile_into(unfinished, java)
        unfinished.replace(jar)
    found = sorted(jar.parent.glob("java-*.jar"), key=lambda file: -file.stat().st_mtime)
    for file in found[_KEPT:]:
        file.unlink(missing_ok=True)


def compile_to_jar(sources: Sequence[Path], folders: Sequence[Path], java: Java, jar: Path) -> None:
    """Compile sources with Spark's compiler; the same sources make the same jar, to the byte.

    Args:
        sources: that need nothing but one another and the jars.
        folders: of the jars; Spark's is one of them.
        java: to compile with.
        jar: to write.

    Raises:
        ConfigError: the compiler refuses the sources.
    """
    known = os.pathsep.join(str(file) for each in folders for file in sorted(each.glob("*.jar")))
    with TemporaryDirectory() as classes:
        command: list[str | Path] = [java.executable, "-cp", known, _COMPILER]
        command += ["-d", classes, "-classpath", known, *sources]
        found = _failure_of(command)
        files = sorted(Path(classes).rglob("*.class"))
        if found is not None or not files:
            raise ConfigError(
                "our Java sources cannot be compiled",
                subject=", ".join(file.name for file in sources),
                found=found or "no classes",
            )
        with zipfile.ZipFile(jar, "w") as archive:
            for file in files:
                name = file.relative_to(classes).as_posix()
                archive.writestr(zipfile.ZipInfo(name, _FIRST_DAY), file.read_bytes())


@contextmanager
def installed_at_once(folder: Path, what: str) -> Iterator[Path]:
    """Fill a folder next to it, which takes its place at the end: all is there, or nothing.

    Args:
        folder: of the environment.
        what: to install, for the message.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=folder.parent, prefix=".jars-") as unfinished:
            target = Path(unfinished) / folder.name
            target.mkdir()
            yield target
            shutil.rmtree(folder, ignore_errors=True)
            target.rename(folder)
    except OSError as error:
        raise ConfigError(
            f"{what} cannot be installed",
            subject=str(folder),
            expected="a folder that this user may write",
            found=str(error),
        ) from error


def _failure_of(command: Sequence[str | Path]) -> str | None:
    """The complaint of a compiler; None if it has none."""
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)[:300]
    return None if done.returncode == 0 else (done.stderr or done.stdout).strip()[:300]


def _compile_into(jar: Path, java: Java) -> None:
    compile_to_jar(_files(SOURCES), [jars_of_spark(), kafka_folder()], java, jar)


def _files(sources: Path) -> Sequence[Path]:
    return sorted(file for file in sources.rglob("*.java") if file != FOR_S3)
