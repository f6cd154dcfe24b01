"""The Spark home that makes starts quick: used where it can be, and never needed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from onceflow.runtime import spark_home
from onceflow.runtime.spark_home import make_spark_home, sharing_options, use_spark_home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's Spark home belongs; nothing is there yet."""
    place = tmp_path / "var" / "spark"
    monkeypatch.setattr(spark_home, "spark_home", lambda: place)
    # Set first, so that what the code under test sets is taken back.
    for name in ("SPARK_HOME", "PYSPARK_PYTHON", "SPARK_LAUNCHER_OPTS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    return place


def test_it_leads_to_the_installed_spark(home: Path) -> None:
    use_spark_home(is_local=True)
    assert os.environ["SPARK_HOME"] == str(home)
    installed = Path(pyspark.__file__).parent
    assert (home / "bin" / "spark-submit").samefile(installed / "bin" / "spark-submit")
    assert (home / "jars").samefile(installed / "jars")


def test_it_hides_the_zip_that_workers_would_compile_anew(home: Path) -> None:
    use_spark_home(is_local=True)
    assert not (home / "python" / "lib" / "pyspark.zip").exists()


def test_it_can_be_made_twice(home: Path) -> None:
    make_spark_home(home)
    make_spark_home(home)
    assert {file.name for file in home.iterdir()} == {"bin", "jars", "python-of-workers"}


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


def test_a_python_of_the_user_is_left_alone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    use_spark_home(is_local=True)
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python"


def test_a_spark_home_of_the_user_is_left_alone(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    use_spark_home(is_local=True)
    assert os.environ["SPARK_HOME"] == "/opt/spark"
    assert not home.exists()


def test_where_nothing_can_be_written_spark_keeps_its_own_home(home: Path) -> None:
    home.parent.touch()
    use_spark_home(is_local=True)
    assert "SPARK_HOME" not in os.environ


def test_without_an_archive_the_jvm_is_told_nothing(home: Path) -> None:
    make_spark_home(home)
    assert sharing_options() == ""
    (home / "classes.jsa").touch()
    assert str(home / "classes.jsa") in sharing_options()
