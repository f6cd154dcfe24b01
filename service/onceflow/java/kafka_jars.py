"""Kafka's Java client in Spark's JVMs: a folder in the Python environment, on their class path.

It comes first there, before Spark's own jars and apart from the user's `spark.jars`, with our own
classes after it. So the driver and its executors have the same client, whatever a query brings.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from onceflow.errors import ConfigError
from onceflow.java.choice import Java
from onceflow.java.compiled import KAFKA_LOCK, installed_at_once, kafka_folder, our_jar

COMMAND = "onceflow fetch kafka"
"""Installs them."""


@cache
def locked() -> Mapping[str, str]:
    """Name of each jar, and its digest."""
    lines = KAFKA_LOCK.read_text(encoding="ascii").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def class_path(java: Java) -> str:
    """Kafka's client and our classes: the beginning of the class path of Spark's JVMs.

    Raises:
        ConfigError: a jar cannot be used, or our classes cannot be compiled.
    """
    require_kafka_jars()
    jars = [*(kafka_folder() / name for name in locked()), our_jar(java)]
    return os.pathsep.join(map(str, jars))


def require_kafka_jars() -> None:
    """Go on only if each is there, and is the one of the lock.

    Raises:
        ConfigError: names each one that is missing, damaged or of another version.
    """
    found = {file.name: file for file in kafka_folder().glob("*.jar")}
    faults = []
    for name, digest in locked().items():
        if name not in found:
            faults.append(f"no {name}")
        elif (actual := _sha256(found[name])) != digest:
            faults.append(f"{name} with sha256 {actual[:12]}... instead of {digest[:12]}...")
    others = sorted(found.keys() - locked().keys())
    if faults:
        raise ConfigError(
            "the jars of Kafka's client cannot be used",
            subject=str(kafka_folder()),
            expected=f"{', '.join(locked())}, as locked",
            found="; ".join([*faults, *others]),
            then=f"Spark was not started; run `{COMMAND}` once in this Python environment",
        )


def install(jars: Sequence[Path]) -> Path:
    """Put them where Spark's JVMs find them; return the folder, which is replaced as a whole.

    Args:
        jars: of the set `kafka`, verified.

    Raises:
        ConfigError: the folder cannot be written.
    """
    with installed_at_once(kafka_folder(), "the jars of Kafka's client") as folder:
        for jar in jars:
            (folder / jar.name).write_bytes(jar.read_bytes())
    return kafka_folder()


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
