"""A Spark home of our own, from which a service starts in a third of the time.

It holds a link to PySpark's `jars`, and differs from PySpark's own in these things:

- Its `bin/spark-submit` is `launch.py`: one JVM instead of two, on a Java of any size.
- It has no `python/lib/pyspark.zip`. Spark puts that first on its workers' path, and Python
  compiles all that it imports from a zip again: 1 s instead of 0.2 s for each of the five processes
  that a start needs. Without it they import the installed PySpark, the one that the driver runs.
- It may hold an archive of Spark's classes for each Java, written by `record_classes.py`: loading
  and checking fourteen thousand classes is most of what a start does.
- It has a Python for workers that forgets a jar which Spark puts on their path as well. Python
  reads the directory of such a file first: 60 ms, for each of those processes. It starts our
  daemon for PySpark's (`worker_daemon.py`), and has what plans a source forked (`planners.py`).

It is in the Python environment and goes with it. Where that cannot be written, such as on a
read-only disk, it is a temporary folder, without archives. A `SPARK_HOME` that is set is left
alone: Spark then starts in its own way, which needs a whole JDK.
"""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import sys
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import NamedTemporaryFile, mkdtemp

from onceflow.errors import ConfigError
from onceflow.java import classes
from onceflow.java.choice import Java
from onceflow.java.s3_jars import use_s3_jars
from onceflow.runtime.spark import launch, planner_start
from onceflow.runtime.spark.planners import RUNNER

VARIABLE = "SPARK_HOME"
WORKER_VARIABLE = "PYSPARK_PYTHON"
DAEMON = "onceflow.runtime.spark.worker_daemon"
"""Forks Python workers in place of `pyspark.daemon`."""
STARTER = "pyspark.sql.streaming.transform_with_state_driver_worker"
"""Declares the state of a processor when a query starts, and prints what it does."""
_SUBMIT = """\
#!/bin/sh
exec {python} -I -S {program} "$@"
"""
_WORKER_PYTHON = """\
#!/bin/sh
IFS=:
set -f
kept=
for entry in $PYTHONPATH; do
  case $entry in *.jar) ;; *) kept=$kept${{kept:+:}}$entry ;; esac
done
export PYTHONPATH=$kept
case $2 in
  pyspark.daemon) shift 2; set -- -m {daemon} "$@" ;;
  {starter}) exec {python} "$@" >/dev/null ;;
  {runner}) [ -z "${address}" ] || set -- -I -S {start} {address} "$@" ;;
esac
exec {python} "$@"
"""
"""Spark asks for PySpark's daemon by name where it plans, whatever the settings say."""
_EXECUTOR_JAVA = """\
#!/bin/sh
for option do
  shift
  [ "$option" = {not_needed} ] || set -- "$@" "$option"
done
exec {java} "$@"
"""
"""Executors are started by Spark's own command line; see `launch.py`."""


def spark_home() -> Path:
    """Where it is, for this Python environment. May not exist."""
    return Path(sys.prefix) / "var" / "onceflow" / f"spark-{version('pyspark')}"


def use_spark_home(*, is_local: bool) -> None:
    """Make it if need be, and let the JVM that this process starts use it.

    Its workers use it, too, if they run on this machine (`is_local`).

    Raises:
        ConfigError: there is no PySpark.
    """
    python = Path(sys.executable)
    if VARIABLE not in os.environ:
        home = _made_home()
        os.environ[VARIABLE] = str(home)
        python = home / launch.WORKER_PYTHON if is_local else python
    os.environ.setdefault(WORKER_VARIABLE, str(python))
    use_s3_jars()


def make_spark_home(home: Path) -> None:
    """Make all that is in it but the archives; it may be there.

    Raises:
        ConfigError: there is no PySpark.
        OSError: the place cannot be written.
    """
    jars, programs = home / "jars", home / "bin"
    if programs.is_symlink():
        # Of a revision that used Spark's own programs.
        programs.unlink(missing_ok=True)
    programs.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        jars.symlink_to(_installed_spark() / "jars")
    python, program = shlex.quote(sys.executable), shlex.quote(launch.__file__)
    _write_program(programs / "spark-submit", _SUBMIT.format(python=python, program=program))
    worker = _WORKER_PYTHON.format(
        python=python,
        daemon=DAEMON,
        runner=RUNNER,
        starter=STARTER,
        start=shlex.quote(planner_start.__file__),
        address=launch.PLANNERS_ADDRESS,
    )
    _write_program(home / launch.WORKER_PYTHON, worker)


def java_of_executors(java: Java) -> Path:
    """A Java home for the executors that Spark starts on this machine.

    To be called after `use_spark_home`. In a Spark home of the user, it is the Java itself.
    """
    spark = Path(os.environ[VARIABLE])
    if not (spark / launch.WORKER_PYTHON).is_file():
        return java.home
    home = spark / classes.archive_name("java", java).removesuffix(".jsa")
    (home / "bin").mkdir(parents=True, exist_ok=True)
    program = shlex.quote(str(java.executable))
    _write_program(
        home / "bin" / "java",
        _EXECUTOR_JAVA.format(not_needed=launch.NOT_NEEDED, java=program),
    )
    return home


def class_archive(java: Java) -> Path:
    """The archive of Spark's classes for one Java. May not exist."""
    return spark_home() / classes.archive_name("classes", java)


def sharing_options(java: Java) -> str:
    """Options with which Spark's JVM uses the archive; none if there is no archive."""
    return shlex.join(classes.sharing_options(class_archive(java)))


def _made_home() -> Path:
    home = spark_home()
    try:
        make_spark_home(home)
    except OSError:
        home = Path(mkdtemp(prefix="onceflow-spark-"))
        atexit.register(shutil.rmtree, home, ignore_errors=True)
        make_spark_home(home)
    return home


def _installed_spark() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigError("PySpark is missing", then="Run `pip install 'onceflow[service]'`")
    return Path(spec.origin).parent


def _write_program(file: Path, text: str) -> None:
    if file.is_file() and file.read_text() == text:
        return
    # In one step: another process may be starting it.
    with NamedTemporaryFile("w", dir=file.parent, delete=False) as unfinished:
        unfinished.write(text)
    Path(unfinished.name).chmod(0o755)
    Path(unfinished.name).replace(file)
