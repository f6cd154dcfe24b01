"""Spark's JVM, the only one of this process: whether it has ended, how, and what follows."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from traceback import walk_tb
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from onceflow.errors import ConfigError, InvariantError, OnceflowError, RetriableError
from onceflow.runtime.spark.errors import innermost, text_of

ENDING_S = 10.0
"""For a JVM to end once it has closed its connections or stopped its context: its hooks take
seconds."""
MAX_EXIT_CODE = 128
"""Higher ones stand for a signal, by the convention of shells that Java follows."""

UNREACHABLE = (Py4JError, OSError)
"""What a call of a JVM raises that is gone."""
_WRONG_SETTINGS = ("IllegalArgumentException", "Could not parse Master URL")
"""Of what Spark raises at its start: the next start would end in the same way."""


def loss() -> RetriableError | None:
    """Why this process cannot use Spark any more; None if it can, or has not started it."""
    # No public way to any of these.
    process = _launched()
    if process is not None and process.poll() is not None:
        return _lost(process.returncode)
    context = SparkContext._active_spark_context  # noqa: SLF001
    java = getattr(context, "_jsc", None)
    if java is None:
        return None
    try:
        is_stopped = bool(java.sc().isStopped())
    except UNREACHABLE:
        is_stopped = True
    return _lost(_exit_code(process, ENDING_S)) if is_stopped else None


def require_spark() -> None:
    """Go on only if Spark can be used, or has not been started.

    Raises:
        RetriableError: as `loss` says.
    """
    if (lost := loss()) is not None:
        raise lost


@contextmanager
def losses_told() -> Iterator[None]:
    """Tell what fails inside as the loss of Spark, if it may come from that and Spark is lost.

    Raises:
        RetriableError: it is.
    """
    try:
        yield
    except Exception as error:
        if _may_be_a_loss(error) and (lost := loss()) is not None:
            raise lost from error
        raise


def stop(session: SparkSession) -> None:
    """End Spark. That it has ended already, or fails to, does not hide why it is ended.

    A session whose context was stopped before is left alone: PySpark would forget the context that
    runs now, and the JVM would refuse every further one.
    """
    process = _launched()
    # No public way.
    was_stopped = session.sparkContext._jsc is None  # noqa: SLF001
    if not was_stopped and (process is None or process.poll() is None):
        with suppress(*UNREACHABLE):
            session.stop()


def quiet_accumulators(session: SparkSession) -> None:
    """Keep PySpark from printing a traceback when the JVM ends: its callers get an error."""
    # No public way.
    server = session.sparkContext._accumulatorServer  # noqa: SLF001

    def handle_error(request: Any, address: Any) -> None:
        if not isinstance(sys.exc_info()[1], (EOFError, OSError)):
            type(server).handle_error(server, request, address)

    vars(server)["handle_error"] = handle_error


def start_error(error: Exception, master: str, java_home: Path) -> OnceflowError:
    """Translate an exception that PySpark raised when Spark was started."""
    process = _launched() or _launched_in_vain(error)
    # What Java raised has been told by a JVM that lives.
    code = _exit_code(process, 0 if isinstance(error, Py4JJavaError) else ENDING_S)
    text = f"{type(error).__name__}: {text_of(error)}"
    is_refused = isinstance(error, PySparkRuntimeError | FileNotFoundError | PermissionError)
    if code is not None and (_signal_of(code) or not is_refused):
        return _lost(code)
    if is_refused or any(mark in text for mark in _WRONG_SETTINGS):
        found = innermost(text) if code is None else f"Java ended with exit code {code}"
        return ConfigError(
            "Spark did not start",
            subject=master,
            expected=f"settings that Spark accepts, and those that Java at {java_home} accepts",
            found=found,
            then="`onceflow doctor` checks this machine",
        )
    return RetriableError(
        "Spark did not start",
        subject=master,
        found=innermost(text),
        then="nothing is lost; start again",
    )


def _launched() -> Popen[bytes] | None:
    """The JVM that PySpark has started and talks to."""
    process = getattr(SparkContext._gateway, "proc", None)  # noqa: SLF001
    return process if isinstance(process, Popen) else None


def _launched_in_vain(error: Exception) -> Popen[bytes] | None:
    """A JVM that ended before PySpark could talk to it, of which only a variable is left."""
    for frame, _ in walk_tb(error.__traceback__):
        if isinstance(process := frame.f_locals.get("proc"), Popen):
            return process
    return None


def _exit_code(process: Popen[bytes] | None, timeout_s: float) -> int | None:
    if process is None:
        return None
    with suppress(TimeoutExpired):
        return process.wait(timeout_s)
    return None


def _signal_of(code: int) -> int:
    """The signal that ended a process; 0 if none did."""
    return max(-code, code - MAX_EXIT_CODE, 0)


def _lost(code: int | None) -> RetriableError:
    if code is None:
        found = "it was stopped, or does not answer"
    elif number := _signal_of(code):
        found = f"its JVM was ended by signal {number}"
        if number == signal.SIGKILL:
            found += "; perhaps the machine or the container ran out of memory"
    else:
        found = f"its JVM ended with exit code {code}"
    return RetriableError("Spark has ended", found=found, then="nothing is lost; start again")


def _may_be_a_loss(error: Exception) -> bool:
    """Whether an error may hide the end of the JVM: not if it is our own and says what happened."""
    if isinstance(error, OnceflowError) and not isinstance(error, InvariantError):
        return isinstance(error.__cause__, (*UNREACHABLE, PySparkException))
    return True
