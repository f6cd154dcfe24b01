"""Starts Spark's JVM: `bin/spark-submit` of our Spark home, which PySpark calls with all settings.

Spark's own launcher first runs another JVM, which only puts this command line together. And it asks
for the module `jdk.incubator.vector`, which a small Java does not have and any other one warns of;
nothing but Spark's machine learning uses it.

Runs as a file, without the installed packages, so that Python starts in 20 ms.
"""

from __future__ import annotations

import os
import secrets
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

WORKER_PYTHON = "python-of-workers"
"""Program of our Spark home that starts Python for Spark on this machine; see `spark_home.py`."""
PLANNERS = "onceflow.runtime.spark.planners"
FORKS_QUIETLY = ("-W", "ignore::DeprecationWarning:__main__")
"""Python 3.12 warns of forks with threads: OpenBLAS and Arrow start some, and know of forks."""
PLANNERS_ADDRESS = "ONCEFLOW_PLANNERS"
"""Variable with the name of the abstract socket on which `PLANNERS` listens, and a secret. Where
containers share a network, one of the same user sees the name, and does not see the variable."""
MAIN = "org.apache.spark.deploy.SparkSubmit"
MAIN_SETTING = "spark.onceflow.main"
"""A setting with another class to start. Only `runtime/state/bare_jvm.py` has it."""
NOT_NEEDED = "--add-modules=jdk.incubator.vector"
_OPENED = {
    "java.base": "java.lang java.lang.invoke java.lang.reflect java.io java.net java.nio java.util "
    "java.util.concurrent java.util.concurrent.atomic jdk.internal.ref sun.nio.ch sun.nio.cs "
    "sun.security.action sun.util.calendar",
    "java.security.jgss": "sun.security.krb5",
}
MODULE_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(
        f"--add-opens={module}/{package}=ALL-UNNAMED"
        for module, packages in _OPENED.items()
        for package in packages.split()
    ),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)
"""As Spark's `JavaModuleOptions`, without `NOT_NEEDED`."""


def command_line(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """The command that starts the JVM."""
    conf = _settings(arguments)
    java_options = ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions")
    class_path = [
        conf.get("spark.driver.extraClassPath"),
        environment.get("SPARK_CONF_DIR"),
        f"{environment['SPARK_HOME']}/jars/*",
        environment.get("HADOOP_CONF_DIR"),
        # Last, as Spark has it. See `java/s3_jars.py`.
        environment.get("SPARK_DIST_CLASSPATH"),
    ]
    return [
        f"{environment['JAVA_HOME']}/bin/java",
        "-cp",
        os.pathsep.join(filter(None, class_path)),
        *MODULE_OPTIONS,
        *(option for name in java_options for option in shlex.split(conf.get(name, ""))),
        # Last: the heap has one setting, whatever the options say.
        f"-Xmx{conf.get('spark.driver.memory', '1g')}",
        conf.get(MAIN_SETTING, MAIN),
        *arguments,
    ]


def variables(arguments: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of the JVM, and through it of the workers."""
    libraries = [
        _settings(arguments).get("spark.driver.extraLibraryPath"),
        environment.get("LD_LIBRARY_PATH"),
    ]
    changed = {
        # Equal strings must have equal hashes in all workers: Spark partitions by them.
        "PYTHONHASHSEED": "0",
        # Spark wants to know it where it starts executors itself.
        "SPARK_SCALA_VERSION": "2.13",
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries)),
    }
    return {**environment, **{name: value for name, value in changed.items() if value}}


def _settings(arguments: Sequence[str]) -> dict[str, str]:
    pairs = (value.partition("=") for flag, value in pairwise(arguments) if flag == "--conf")
    return {name: value for name, _, value in pairs}


def _start_planners() -> str:
    """Start `planners.py` next to the JVM that this process becomes; return how to reach it."""
    name, secret = f"onceflow-{secrets.token_hex(16)}", secrets.token_hex(16)
    address = f"{name} {secret}"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\0{name}")
    listener.listen()
    watched, ours = os.pipe()
    passed = (listener.fileno(), watched)
    subprocess.Popen(
        [sys.executable, *FORKS_QUIETLY, "-m", PLANNERS, *map(str, passed)],
        stdin=subprocess.DEVNULL,
        pass_fds=passed,
        env={**os.environ, "PYTHONHASHSEED": "0", PLANNERS_ADDRESS: address},
    )
    # Java closes it in all that it starts. So it is closed when the JVM ends, and only then.
    os.set_inheritable(ours, True)
    return address


def main() -> None:
    """Become the JVM: PySpark watches this process and holds its standard input."""
    arguments = sys.argv[1:]
    command = command_line(arguments, os.environ)
    program = Path(command[0])
    if not program.is_file():
        sys.exit(f"onceflow: there is no Java at {program}")
    environment = variables(arguments, os.environ)
    if environment.get("PYSPARK_PYTHON") == f"{environment['SPARK_HOME']}/{WORKER_PYTHON}":
        environment[PLANNERS_ADDRESS] = _start_planners()
    os.execve(program, command, environment)  # noqa: S606  no shell


if __name__ == "__main__":
    main()
