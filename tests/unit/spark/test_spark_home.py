"""The Spark home from which Spark starts: quickly, and on a Java of any size."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from onceflow.java.choice import Java, JavaOrigin
from onceflow.runtime.spark import home as spark_home
from onceflow.runtime.spark.home import (
    class_archive,
    java_of_executors,
    make_spark_home,
    sharing_options,
    use_spark_home,
)

JAVA = Java(Path("/opt/java"), "21.0.8", JavaOrigin.NAMED)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's Spark home belongs; nothing is there yet."""
    place = tmp_path / "var" / "spark"
    monkeypatch.setattr(spark_home, "spark_home", lambda: place)
    # Set first, so that what the code under test sets is taken back.
    for name in ("SPARK_HOME", "PYSPARK_PYTHON"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return place


def test_it_leads_to_the_installed_spark_without_the_zip_that_workers_would_compile_again(
    home: Path,
) -> None:
    use_spark_home(is_local=True)
    assert os.environ["SPARK_HOME"] == str(home)
    assert (home / "jars").samefile(Path(pyspark.__file__).parent / "jars")
    assert not (home / "python" / "lib" / "pyspark.zip").exists()


def test_it_can_be_made_twice(home: Path) -> None:
    make_spark_home(home)
    make_spark_home(home)
    assert {file.name for file in home.iterdir()} == {"bin", "jars", "python-of-workers"}


def test_the_programs_of_an_earlier_revision_are_replaced(home: Path) -> None:
    installed = Path(pyspark.__file__).parent / "bin"
    home.mkdir(parents=True)
    (home / "bin").symlink_to(installed)
    make_spark_home(home)
    assert not (home / "bin").is_symlink()
    assert not (installed / "spark-submit").samefile(home / "bin" / "spark-submit")


def said_by(program: Path, *arguments: str) -> list[str]:
    done = subprocess.run([program, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def test_executors_here_do_without_the_module_that_a_small_java_lacks(
    home: Path, tmp_path: Path
) -> None:
    program = tmp_path / "a java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    program.chmod(0o755)
    use_spark_home(is_local=True)

    java = java_of_executors(Java(tmp_path / "a java", "21", JavaOrigin.NAMED)) / "bin" / "java"

    told = said_by(java, "-Xmx1g", "--add-modules=jdk.incubator.vector", "-Da=b c", "Main", "")
    assert told == ["-Xmx1g", "-Da=b c", "Main", ""]


def test_executors_of_a_spark_home_of_the_user_have_java_itself(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    use_spark_home(is_local=True)
    assert java_of_executors(JAVA) == JAVA.home
    assert list(tmp_path.iterdir()) == []


def test_workers_here_forget_the_jar_and_nothing_else(home: Path) -> None:
    use_spark_home(is_local=True)
    program = "import os, sys; print(os.environ['PYTHONPATH'], sys.prefix, *sys.argv[1:])"
    said = subprocess.run(
        [os.environ["PYSPARK_PYTHON"], "-c", program, "an argument"],
        env={"PYTHONPATH": "/a b/py4j.zip:/jars/spark-core.jar:/mine"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert said.stdout == f"/a b/py4j.zip:/mine {sys.prefix} an argument\n"


def test_workers_elsewhere_have_the_python_of_this_process(home: Path) -> None:
    use_spark_home(is_local=False)
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_what_the_user_names_is_left_alone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = {"SPARK_HOME": "/opt/spark", "PYSPARK_PYTHON": "/opt/python"}
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    use_spark_home(is_local=True)
    assert {name: os.environ[name] for name in named} == named
    assert not home.exists()


def test_where_nothing_can_be_written_it_is_a_temporary_folder(home: Path) -> None:
    home.parent.touch()
    use_spark_home(is_local=True)
    temporary = Path(os.environ["SPARK_HOME"])
    assert temporary != home
    assert (temporary / "jars").is_dir()
    assert os.access(temporary / "bin" / "spark-submit", os.X_OK)


def test_one_that_is_there_is_not_written_to_as_its_disk_may_be_read_only(home: Path) -> None:
    make_spark_home(home)
    before = [folder.stat().st_mtime_ns for folder in (home, home / "bin")]
    use_spark_home(is_local=True)
    assert os.environ["SPARK_HOME"] == str(home)
    assert [folder.stat().st_mtime_ns for folder in (home, home / "bin")] == before


def test_spark_is_told_of_an_archive_only_if_there_is_one_for_this_java(home: Path) -> None:
    make_spark_home(home)
    assert sharing_options(JAVA) == ""
    class_archive(JAVA).touch()
    assert str(class_archive(JAVA)) in sharing_options(JAVA)
    assert sharing_options(Java(JAVA.home, "17.0.15", JavaOrigin.NAMED)) == ""
