"""What Spark says, in our words."""

from __future__ import annotations

from onceflow.errors import RetriableError
from onceflow.runtime.spark_errors import from_text


def test_a_full_disk_passes() -> None:
    error = from_text("[STREAM_FAILED] Query a: java.io.IOException: No space left on device")
    assert isinstance(error, RetriableError)
    assert "make room" in error.then
