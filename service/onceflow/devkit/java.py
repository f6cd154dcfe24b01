"""Finds a Java that Spark and the broker can run on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onceflow.errors import ConfigError

OLDEST_VERSION = 17
"""Kafka 4 brokers and Spark 4 are compiled for it; older ones fail with a class file version."""
TESTED_VERSIONS = (17, 21)
ANSWER_TIMEOUT_S = 30
"""`java -version` takes 0.1 s; a cold disk or a loaded machine should not look like no Java."""

_CURE = "Install a JDK or JRE 17 or 21 and set JAVA_HOME to it, or put its `java` on PATH"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


@dataclass(frozen=True)
class Java:
    """A Java that can be used.

    Args:
        executable: path of the `java` program.
        version: feature release, e.g. 17.
    """

    executable: Path
    version: int


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """Find Java the way Spark does: `JAVA_HOME` if it is set, else the first `java` on `PATH`.

    Raises:
        ConfigError: there is none, or it is older than 17; names what was found and where.
    """
    executable = _executable(environment)
    version = _version(executable)
    if version < OLDEST_VERSION:
        raise ConfigError(
            "Java is too old",
            subject=str(executable),
            expected=f"Java {OLDEST_VERSION} or newer",
            found=f"Java {version}",
            then=_CURE,
        )
    return Java(executable, version)


def _executable(environment: Mapping[str, str]) -> Path:
    if home := environment.get("JAVA_HOME"):
        executable = Path(home) / "bin" / "java"
        if os.access(executable, os.X_OK):
            return executable
        raise ConfigError(
            "JAVA_HOME does not hold a Java", subject=home, expected=str(executable), then=_CURE
        )
    if found := shutil.which("java", path=environment.get("PATH", os.defpath)):
        return Path(found)
    raise ConfigError("Java is missing", expected="JAVA_HOME, or `java` on PATH", then=_CURE)


def _version(executable: Path) -> int:
    try:
        answer = subprocess.run(
            [executable, "-version"],
            check=False,
            capture_output=True,
            text=True,
            timeout=ANSWER_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(
            "Java does not run", subject=str(executable), found=str(error), then=_CURE
        ) from error
    text = answer.stderr + answer.stdout
    match = _VERSION.search(text)
    if match is None:
        raise ConfigError(
            "Java does not tell its version",
            subject=str(executable),
            expected='an answer with `version "17..."`',
            found=text.strip()[:200] or f"nothing, exit code {answer.returncode}",
            then=_CURE,
        )
    return int(match[1])
