"""A process that cannot close ends all the same, with the code that it would have ended with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from onceflow.app import Application, RunOptions
from onceflow.clock import SystemClock
from onceflow.contracts.connector import Connection, find_connector
from onceflow.errors import FencedError, OnceflowError
from onceflow.pipeline.file.loader import load_pipeline
from onceflow.run import Surroundings
from onceflow.runtime.spark.session import SessionSettings
from tests.support.jobs.views import ViewsJob

HANGS = """\
import threading
from onceflow.errors import FencedError
from onceflow.serve.ending import end_within
end_within({error}, 0.2)
threading.Event().wait({then_s})
"""


def ended(error: str, then_s: float = 60) -> subprocess.CompletedProcess[str]:
    program = HANGS.format(error=error, then_s=then_s)
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)


@pytest.mark.parametrize(
    ("error", "code"),
    [("None", 0), ("FencedError('taken over')", FencedError.exit_code), ("ValueError('x')", 70)],
)
def test_a_process_that_hangs_ends_and_tells_where(error: str, code: int) -> None:
    done = ended(error)
    assert done.returncode == code
    assert "in wait" in done.stderr
    assert "closing took longer than 0.2 s" in done.stderr
    assert "taken over" in done.stderr or "Fenced" not in error


def test_a_process_that_ends_by_itself_is_left_alone() -> None:
    done = ended("FencedError('taken over')", then_s=0)
    assert (done.returncode, done.stderr) == (0, "")


def test_it_is_told_before_anything_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No broker listens at the address, so the run fails at its first look."""
    told: list[BaseException | None] = []
    around = Surroundings(
        connector=find_connector("kafka"),
        connection=Connection("127.0.0.1:1"),
        session=SessionSettings(),
        clock=SystemClock(),
        report=lambda event, /, **facts: None,
        before_close=told.append,
    )
    job = ViewsJob("127.0.0.1:1", tmp_path)
    application = Application(load_pipeline(job.write_file()), RunOptions(), around)
    monkeypatch.setattr("onceflow.run.open_session", None)
    with pytest.raises(OnceflowError) as caught:
        application.run()
    assert told == [caught.value]
