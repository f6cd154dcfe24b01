"""Turns errors of Spark into our own; the only place that does.

An exception that our code raises in a Python worker, or in the process that plans a source, comes
back as text inside an exception of Spark. Its class is found again by name, so that it keeps its
exit code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from onceflow import errors
from onceflow.errors import (
    NEW_GENERATION,
    ConfigError,
    CorruptionError,
    OnceflowError,
    RecordError,
    RetriableError,
)
from onceflow.runtime.spark.s3_files import SCHEME, s3_error

MAX_CAUSES = 10
"""Depth of a Java cause chain; a longer one is a loop."""

_OURS = re.compile(r"onceflow\.errors\.(?P<name>\w+): (?P<message>[^\n]+)")
_OVER_BUDGET = (
    "spark.driver.maxResultSize",
    # What an executor leaves of a single task's result that is larger than the budget.
    "TaskResultLost (result lost from block manager)",
)
_CONCURRENT = (
    # Where Spark looks before it writes, and where the write itself is refused.
    "CONCURRENT_STREAM_LOG_UPDATE",
    "Multiple streaming queries are concurrently using",
)
_NO_MEMORY = ("java.lang.OutOfMemoryError", "SparkOutOfMemoryError")
_DISK_FULL = "No space left on device"
CANNOT_LOAD = "Spark cannot load its checkpoint"
_CHECKPOINT_DAMAGED = (
    "CANNOT_LOAD_STATE_STORE",
    "STREAMING_CHECKPOINT_MISSING_METADATA_FILE",
    "Incomplete log file",
    "Log file was malformed",
    # Only in the stack: what it says itself is about JSON, or the end of a file.
    "StateSchemaCompatibilityChecker",
)
_CHECKPOINT_FILE = re.compile(
    r"(?P<path>[^\s'\"=,]*/(?:state/\d+/[^\s'\",;:)\]]+|(?:offsets|commits)/\d+))"
)
"""Spark's layout. What fails on a file of this shape, whatever it is, concerns the checkpoint."""
_CHANGELOG = re.compile(r"/(?P<version>\d+)_[^/]+\.changelog$")
"""Batch N makes version N + 1, and its entry of the commit log says under which id."""
_ON_S3 = re.compile(rf"{SCHEME}[^\s'\"=,;:)\]]+|org\.apache\.hadoop\.fs\.s3a\.")
_DATA_FAULT = re.compile(r"SQLSTATE: 22\w{3}|java\.lang\.ArithmeticException")
"""Class 22 of SQL's states is about values: overflow, a division by zero, what cannot be cast."""
_CAUSE = re.compile(r"Caused by: (?P<cause>[^\n]+)")
_TOPMOST = re.compile(r"^: (?P<cause>\S[^\n]+)", re.MULTILINE)
"""As Py4J begins a Java exception's own text, below its own line."""


class SharedCheckpointError(RetriableError):
    """Two drivers run on one checkpoint; `owner` tells which of them was taken over."""


@contextmanager
def translated_errors(max_result_bytes: int) -> Iterator[None]:
    """Turn what Spark raises inside the block into our own error, if its text names one.

    Raises:
        OnceflowError: the text names one of our errors, or a failure that we know by its text.
    """
    try:
        yield
    except Py4JJavaError as error:
        text = "\n".join([str(error), *_causes(error.java_exception)])
        if any(mark in text for mark in _OVER_BUDGET):
            raise over_budget(max_result_bytes, "more") from error
        ours = from_text(text)
        if ours is None:
            raise
        raise ours from error
    except PySparkException as error:
        ours = from_text(text_of(error))
        if ours is None:
            raise
        raise ours from error


def text_of(error: Exception) -> str:
    """Collect the text of an exception of Spark and of each of its causes.

    PySpark keeps the causes from its own text unless it is told to show all.
    """
    return f"{error}\n{getattr(error, '_stackTrace', '')}"


def _causes(error: Any) -> Iterator[str]:
    """The messages below a Java exception; the text of the topmost one often says nothing."""
    for _ in range(MAX_CAUSES):
        error = error.getCause()
        if error is None:
            return
        yield str(error.toString())


def from_text(text: str) -> OnceflowError | None:
    """Find our own error in a text of Spark's; None if the text names none."""
    if found := list(_OURS.finditer(text)):
        return _rebuilt(found[-1]["name"], found[-1]["message"])
    if any(mark in text for mark in _CONCURRENT):
        return SharedCheckpointError(
            "another driver wrote to this checkpoint",
            expected="one driver per checkpoint",
            then="ending; the ledger decides at the next start",
        )
    if on_s3 := _ON_S3.search(text):
        location = on_s3[0] if on_s3[0].startswith(SCHEME) else ""
        if (refused := s3_error(text, location)) is not None:
            return refused
    if _DISK_FULL in text:
        return disk_is_full()
    if any(mark in text for mark in _NO_MEMORY):
        return no_memory()
    paths = [match["path"] for match in _CHECKPOINT_FILE.finditer(text)]
    if _DATA_FAULT.search(text):
        return RecordError(
            "the query cannot compute a value",
            found=innermost(text),
            then="stopping; nothing of this batch was written; take such values out with WHERE, or"
            " use a function that gives null instead (try_cast, try_divide, try_to_timestamp), and"
            " start with --accept-change --reason",
        )
    if paths or any(mark in text for mark in _CHECKPOINT_DAMAGED):
        return cannot_load(paths[-1] if paths else "", innermost(text))
    return None


def no_memory() -> RetriableError:
    """Perhaps another pipeline has taken it."""
    return RetriableError(
        "Spark has run out of memory",
        expected="queries whose values fit into the heap (spark.driver_memory)",
        found="java.lang.OutOfMemoryError",
        then="nothing of this batch was written; make smaller values or batches, or raise it",
    )


def disk_is_full() -> RetriableError:
    """Make the error that asks the operator to make room."""
    return RetriableError(
        "a disk is full: the checkpoint's, or the one for Spark's own files",
        found=_DISK_FULL,
        then="ending; make room, and start again: nothing is lost",
    )


def cannot_load(path: str, found: str) -> CorruptionError:
    """Spark failed on a file of its checkpoint; the path is empty if Spark does not say which."""
    log = _CHANGELOG.search(path)
    return CorruptionError(
        CANNOT_LOAD,
        subject=f"{path} (named by commits/{int(log['version']) - 1})" if log else path,
        expected="what Spark wrote, and a checksum next to it that agrees",
        found=found,
        then=f"halting; restore the file from a backup with its checksum, or {NEW_GENERATION}",
    )


def innermost(text: str) -> str:
    """The last cause of a Java exception, or what there is."""
    found = [*_CAUSE.finditer(text)] or [*_TOPMOST.finditer(text)]
    causes = [match["cause"] for match in found]
    return (causes or text.strip().splitlines())[-1][:300]


def over_budget(max_result_bytes: int, found: str) -> ConfigError:
    """The output of one batch does not fit into the driver."""
    return ConfigError(
        "the output of one batch is larger than the driver's memory budget",
        expected=f"at most {max_result_bytes} bytes (spark.max_result_bytes)",
        found=found,
        then="nothing of this batch was written. Its input is fixed already: start again with a"
        " larger spark.max_result_bytes (and spark.driver_memory) to get past it, then lower"
        " max_records_per_batch for the batches after it",
    )


def _rebuilt(name: str, message: str) -> OnceflowError | None:
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, OnceflowError)):
        return None
    return kind(message)
