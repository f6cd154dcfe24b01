"""Archives of classes: one for each Java and list of jars, and used only where there is one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from onceflow.java.choice import Java, JavaOrigin
from onceflow.java.classes import (
    archive_name,
    record_with,
    remove_old,
    sharing_options,
)

JAVA = Java(Path("/opt/java"), "21.0.8", JavaOrigin.NAMED)


def test_each_java_and_each_list_of_jars_has_an_archive_whoever_named_the_java() -> None:
    other_place = Java(Path("/opt/other"), "21.0.8", JavaOrigin.NAMED)
    other_release = Java(Path("/opt/java"), "21.0.9", JavaOrigin.NAMED)
    packaged = Java(JAVA.home, JAVA.release, JavaOrigin.PACKAGED)
    names = {archive_name("broker", java, "a.jar") for java in (JAVA, other_place, other_release)}
    assert len({*names, archive_name("broker", JAVA, "b.jar")}) == 4
    assert archive_name("broker", packaged, "a.jar") in names


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


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Make a Java whose answer to `-Xshare...` is a line of shell, and name it."""

    def make(answer: str) -> Path:
        home = tmp_path / "java"
        program = home / "bin" / "java"
        program.parent.mkdir(parents=True)
        told = f"    java.home = {home}\n    java.version = 21.0.8"
        program.write_text(
            f"#!/bin/sh\ncase $1 in -Xshare*) {answer};; *) cat <<'END'\n{told}\nEND\nesac\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(home))
        return home

    return make


def recorded() -> list[Path]:
    homes: list[Path] = []
    record_with(lambda java: homes.append(java.home))
    return homes


def test_a_java_without_an_archive_of_its_own_classes_writes_it_first(
    install: Callable[[str], Path], tmp_path: Path
) -> None:
    dumped = tmp_path / "dumped"
    home = install(f"case $1 in *:on) [ -e {dumped} ];; *:dump) >{dumped};; esac")

    assert recorded() == [home]
    assert dumped.exists()
    dumped.write_text("kept")
    assert recorded() == [home]
    assert dumped.read_text() == "kept"


def test_a_java_that_cannot_write_one_is_named_and_nothing_is_recorded(
    install: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    home = install("echo read-only >&2; exit 1")

    assert recorded() == []
    assert f"start slowly: {home} has no archive" in capsys.readouterr().err


def test_a_java_that_cannot_be_used_ends_the_recording_with_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(SystemExit, match="onceflow: JAVA_HOME does not hold a Java"):
        recorded()
