"""The start of Spark's JVM: the command line of Spark's own launcher, less one module."""

from __future__ import annotations

import re
import subprocess
import zipfile
from pathlib import Path

import pyspark
import pytest

from onceflow.runtime.spark.launch import MAIN, MODULE_OPTIONS, NOT_NEEDED, command_line, variables

PLACES = {"JAVA_HOME": "/opt/java", "SPARK_HOME": "/opt/spark"}
CONF = "--conf"


def test_spark_is_started_by_one_jvm_with_all_that_pyspark_said() -> None:
    arguments = [CONF, "spark.app.name=a b", CONF, "spark.x=1=2", "pyspark-shell"]

    command = command_line(arguments, PLACES)

    assert command[:3] == ["/opt/java/bin/java", "-cp", "/opt/spark/jars/*"]
    assert command[-len(arguments) - 2 :] == ["-Xmx1g", MAIN, *arguments]


def test_the_module_options_are_those_of_the_installed_spark_but_one() -> None:
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-launcher_*.jar")
    with zipfile.ZipFile(jar) as classes:
        code = classes.read("org/apache/spark/launcher/JavaModuleOptions.class")
    # Each is a constant of the class; its length, in a byte, comes before it.
    written = re.findall(rb"\x01\x00.(-[-DX][\x21-\x7e]+)", code, re.DOTALL)
    theirs = {text.decode() for text in written}

    assert theirs == {*MODULE_OPTIONS, NOT_NEEDED}


def test_options_of_the_driver_come_in_spark_s_order_and_keep_their_quotes() -> None:
    arguments = [
        *(CONF, "spark.driver.extraJavaOptions=-Da='b c' -XX:+UseSerialGC"),
        *(CONF, "spark.driver.defaultJavaOptions=-Da=d"),
        *(CONF, "spark.driver.memory=3g"),
    ]

    command = command_line(arguments, PLACES)

    first = command.index("-Da=d")
    assert command[first : first + 4] == ["-Da=d", "-Da=b c", "-XX:+UseSerialGC", "-Xmx3g"]


def test_places_of_settings_and_further_jars_are_on_the_class_path() -> None:
    places = {**PLACES, "SPARK_CONF_DIR": "/etc/spark", "HADOOP_CONF_DIR": "/etc/hadoop"}
    places |= {"SPARK_DIST_CLASSPATH": "/s3/*"}

    command = command_line([CONF, "spark.driver.extraClassPath=/x.jar"], places)

    assert command[2] == "/x.jar:/etc/spark:/opt/spark/jars/*:/etc/hadoop:/s3/*"


@pytest.mark.parametrize(
    ("conf", "before", "expected"),
    [
        ("", {}, None),
        ("", {"LD_LIBRARY_PATH": "/b"}, "/b"),
        ("spark.driver.extraLibraryPath=/a", {"LD_LIBRARY_PATH": "/b"}, "/a:/b"),
    ],
    ids=["none", "of the user", "both"],
)
def test_libraries_are_found(conf: str, before: dict[str, str], expected: str | None) -> None:
    assert variables([CONF, conf], before).get("LD_LIBRARY_PATH") == expected


def test_all_workers_hash_alike() -> None:
    assert variables([], {"PYTHONHASHSEED": "random"})["PYTHONHASHSEED"] == "0"


def test_a_java_that_has_gone_is_named(tmp_path: Path) -> None:
    from onceflow.runtime.spark.home import make_spark_home  # noqa: PLC0415

    make_spark_home(tmp_path / "home")

    done = subprocess.run(
        [tmp_path / "home" / "bin" / "spark-submit", "pyspark-shell"],
        env={"JAVA_HOME": "/no/java", "SPARK_HOME": str(tmp_path)},
        check=False,
        capture_output=True,
        text=True,
    )

    assert (done.returncode, done.stderr) == (
        1,
        "onceflow: there is no Java at /no/java/bin/java\n",
    )
