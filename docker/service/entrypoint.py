#!/usr/bin/env python3
"""Entry point of the image: `onceflow`, or the driver or executor that Spark on Kubernetes wants.

Spark gives its pods one word, and everything else as variables. The process replaces itself by the
program, so signals reach the program.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from onceflow.java.choice import find_java
from onceflow.java.classes import sharing_options
from onceflow.java.kafka_jars import class_path
from onceflow.java.s3_jars import CLASS_PATH_VARIABLE, use_s3_jars
from onceflow.pipeline.allow_list.settings import JAVA_OPTIONS
from onceflow.runtime.spark.home import spark_home
from onceflow.runtime.spark.launch import NOT_NEEDED

EXECUTOR = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
LEFTOVERS = "LEFTOVER_EXECUTORS"
"""Selects executors of earlier starts; set by the chart for a driver that makes them itself."""
IS_KUBERNETES = "-Dspark.master=k8s://driver"
"""Spark reads the secret from a file only if its master looks so (`SecurityManager`). Executors
get the real one later, from the driver, which asks for the secret first."""
EXTRA_CLASS_PATH = "SPARK_CLASSPATH"
"""Has `spark.executor.extraClassPath`, to which the driver added our jars."""
JAVA_OPTION = re.compile(r"SPARK_JAVA_OPT_(\d+)")
FACTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}
"""Arguments of an executor, and the variables in which Spark gives them."""


def command_for(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The command that these arguments of the container stand for."""
    match arguments:
        case ["executor", *_]:
            return _executor(environment)
        case ["driver", *rest]:
            address = environment["SPARK_DRIVER_BIND_ADDRESS"]
            bind = ["--conf", f"spark.driver.bindAddress={address}", "--deploy-mode", "client"]
            return [f"{_spark_home()}/bin/spark-submit", *bind, *rest]
        case _:
            return ["onceflow", *arguments]


def _executor(environment: Mapping[str, str]) -> list[str]:
    heap = environment["SPARK_EXECUTOR_MEMORY"]
    settings = environment.get("SPARK_CONF_DIR", "/opt/spark/conf")
    facts = [text for flag, name in FACTS.items() for text in (flag, environment[name])]
    heap_options = [f"-Xms{heap}", f"-Xmx{heap}"]
    options = [_logging(), IS_KUBERNETES, *_java_options(environment), *heap_options]
    # Ours and Spark's come first, as in the archive of classes: Java would not take it otherwise.
    jars = [
        environment.get(EXTRA_CLASS_PATH, ""),
        f"{spark_home()}/jars/*",
        settings,
        environment.get(CLASS_PATH_VARIABLE, ""),
    ]
    return ["java", *_sharing(), *options, "-cp", ":".join(filter(None, jars)), EXECUTOR, *facts]


def _sharing() -> Sequence[str]:
    """Those for the archive that the image has for its Java; a driver's own is the same."""
    return [option for file in spark_home().glob("*.jsa") for option in sharing_options(file)]


def _logging() -> str:
    """As the driver: Spark by itself logs at `info`, as text. A user's option comes after it."""
    file = _package("onceflow") / "runtime" / "spark" / "log4j2.properties"
    return f"-Dlog4j2.configurationFile={file}"


def _java_options(environment: Mapping[str, str]) -> list[str]:
    """In their order, which counts where one of them is given twice.

    Without the one that makes each start of Java print a warning; see `launch.py`.
    """
    found = {
        int(match[1]): value
        for name, value in environment.items()
        if (match := JAVA_OPTION.fullmatch(name))
    }
    return [found[number] for number in sorted(found) if found[number] != NOT_NEEDED]


def _spark_home() -> Path:
    """The folder of the installed PySpark."""
    return _package("pyspark")


def _package(name: str) -> Path:
    """Folder of an installed package, which is not imported for it: that may take a second."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        sys.exit(f"onceflow: {name} is not installed in this image")
    return Path(spec.origin).parent


def _delete_leftovers(selector: str) -> None:
    # Only where they are needed: executors start sooner without.
    from onceflow.cli.shared.logs import JsonLines  # noqa: PLC0415
    from onceflow.clock import SystemClock  # noqa: PLC0415
    from onceflow.serve.leftovers import delete_leftovers  # noqa: PLC0415

    delete_leftovers(selector, JsonLines(SystemClock()))


def main() -> None:
    """Become the command."""
    if selector := os.environ.get(LEFTOVERS):
        _delete_leftovers(selector)
    use_s3_jars()
    command = command_for(sys.argv[1:], os.environ)
    if command[0] != "onceflow":
        os.environ["SPARK_HOME"] = str(_spark_home())
        # Of a driver, whose JVM is there before our Python, which gives its own these options.
        os.environ["SPARK_SUBMIT_OPTS"] = f"{_logging()} {JAVA_OPTIONS}"
        jars = [class_path(find_java()), os.environ.get(CLASS_PATH_VARIABLE)]
        os.environ[CLASS_PATH_VARIABLE] = os.pathsep.join(filter(None, jars))
    os.execvp(command[0], command)  # noqa: S606  nothing is left to a shell


if __name__ == "__main__":
    main()
