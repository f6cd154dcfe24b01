"""Messages of Spark, in our words."""

from __future__ import annotations

import pytest

from onceflow.errors import CorruptionError, RecordError, RetriableError
from onceflow.runtime.spark.errors import CANNOT_LOAD, from_text, innermost, over_budget

CHANGELOG = "file:/data/ck/state/0/0/23_9cd34e59-1be5-4afa-b2c9-6549e9c9b8eb.changelog"


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("Query a: java.io.IOException: No space left on device", "make room"),
        ("Task 0 failed: java.lang.OutOfMemoryError: Java heap space", "spark.driver_memory"),
    ],
)
def test_a_full_disk_and_a_full_memory_may_be_tried_again(text: str, advice: str) -> None:
    error = from_text(f"[STREAM_FAILED] {text}")
    assert isinstance(error, RetriableError)
    assert advice in error.expected + error.then


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (
            f"x: An error\nCaused by: java.io.Odd: File {CHANGELOG} does not exist\n\tat a",
            CHANGELOG,
        ),
        (f"Checksum error: {CHANGELOG} at 0 exp: 781929184 got: -408371680", CHANGELOG),
        (
            "reading 's3a://b/ck/state/0/_metadata/metadata'",
            "s3a://b/ck/state/0/_metadata/metadata",
        ),
        ("Failed to read log file /ck/offsets/7. Malformed", "/ck/offsets/7"),
        ("[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred", ""),
    ],
)
def test_a_failure_on_a_file_of_the_checkpoint_names_it(text: str, path: str) -> None:
    error = from_text(text)
    assert isinstance(error, CorruptionError)
    assert (error.what, error.subject.partition(" ")[0]) == (CANNOT_LOAD, path)
    assert "backup" in error.then
    assert "\n" not in str(error)


def test_a_changelog_may_be_named_wrongly_by_the_commit_log() -> None:
    error = from_text(f"File {CHANGELOG} does not exist")
    assert error is not None
    assert error.subject.endswith("(named by commits/22)")


def test_the_checkpoints_location_alone_is_no_file_of_it() -> None:
    assert from_text("ForeachBatchSink, [checkpointLocation=/data/ck], Append") is None


@pytest.mark.parametrize(
    "text",
    [
        "[STREAM_FAILED] x\nCaused by: java.lang.ArithmeticException: long overflow\n\tat y",
        "Caused by: [DIVIDE_BY_ZERO] Division by zero. Use `try_divide`. SQLSTATE: 22012",
        "Caused by: [CAST_INVALID_INPUT] The value 'many' cannot be cast. SQLSTATE: 22018 == SQL",
    ],
)
def test_a_value_that_the_query_cannot_use_is_bad_input_and_no_fault_of_ours(text: str) -> None:
    error = from_text(text)
    assert isinstance(error, RecordError)
    assert "try_cast" in error.then


def test_an_advice_for_a_batch_that_is_too_large_is_one_that_can_help() -> None:
    """The ranges of a batch are fixed before it runs: another limit changes the next one only."""
    error = over_budget(100, "200 bytes")
    before, _, after = error.then.partition("max_records_per_batch")
    assert "larger spark.max_result_bytes" in before
    assert "batches after it" in after


def test_the_innermost_cause_is_kept() -> None:
    text = "[CANNOT_LOAD_STATE_STORE] a\nCaused by: b: c\n\tat x\nCaused by: d: corrupted\n\tat y"
    error = from_text(text)
    assert error is not None
    assert error.found == "d: corrupted"


def test_without_a_cause_the_exception_itself_is_told_and_not_the_end_of_its_stack() -> None:
    text = (
        "An error occurred while calling None.x.\n: java.lang.X: port 1 is refused\n\tat y\n\tat z"
    )
    assert innermost(text) == "java.lang.X: port 1 is refused"
    assert innermost("only a line") == "only a line"
