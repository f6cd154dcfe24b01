"""Archives of classes: one for each Java and list of jars, and used only where there is one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onceflow.errors import ConfigError
from onceflow.java.choice import Java, Origin
from onceflow.java.classes import (
    archive_name,
    archive_own_classes,
    remove_old,
    sharing_options,
)

JAVA = Java(Path("/opt/java"), "21.0.8", Origin.NAMED)


@pytest.mark.parametrize(
    "other",
    [
        archive_name("broker", Java(Path("/opt/other"), "21.0.8", Origin.NAMED), "a.jar"),
        archive_name("broker", Java(Path("/opt/java"), "21.0.9", Origin.NAMED), "a.jar"),
        archive_name("broker", JAVA, "b.jar"),
    ],
    ids=["place", "release", "jars"],
)
def test_another_java_or_another_jar_has_another_archive(other: str) -> None:
    assert archive_name("broker", JAVA, "a.jar") != other


def test_an_archive_does_not_depend_on_who_named_the_java() -> None:
    packaged = Java(JAVA.home, JAVA.release, Origin.PACKAGED)

    assert archive_name("broker", JAVA) == archive_name("broker", packaged)


def test_without_an_archive_the_jvm_is_told_nothing(tmp_path: Path) -> None:
    archive = tmp_path / "classes.jsa"
    assert sharing_options(archive) == ()

    archive.touch()

    assert f"-XX:SharedArchiveFile={archive}" in sharing_options(archive)


def test_the_newest_archives_of_a_kind_are_kept(tmp_path: Path) -> None:
    for age, name in enumerate(["broker-a.jsa", "classes-a.jsa", "broker-b.jsa", "broker-c.jsa"]):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 1_000 - age))

    remove_old(tmp_path / "broker-a.jsa", 2)

    left = {file.name for file in tmp_path.iterdir()}
    assert left == {"broker-a.jsa", "broker-b.jsa", "classes-a.jsa"}


def java_with(home: Path, script: str) -> Java:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return Java(home, "21", Origin.NAMED)


def test_a_java_that_has_an_archive_of_its_own_classes_keeps_it(tmp_path: Path) -> None:
    archive_own_classes(java_with(tmp_path, '[ "$1" = -Xshare:on ]'))


def test_a_java_without_one_writes_it(tmp_path: Path) -> None:
    proof = tmp_path / "dumped"

    archive_own_classes(java_with(tmp_path / "java", f'[ "$1" = -Xshare:dump ] && touch {proof}'))

    assert proof.exists()


def test_a_java_that_cannot_write_one_is_named(tmp_path: Path) -> None:
    java = java_with(tmp_path, "echo read-only >&2; exit 1")

    with pytest.raises(ConfigError, match="could not archive its own classes") as refused:
        archive_own_classes(java)

    assert (refused.value.subject, refused.value.found) == (str(tmp_path), "read-only")
