"""Lines of a log: one JSON object each, of whom they are."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from onceflow.cli.shared.logs import JsonLines, log_libraries_as_json
from tests.support.clock import ManualClock


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_lines_say_which_pipeline_run_and_batch() -> None:
    stream, clock = io.StringIO(), ManualClock()
    lines = JsonLines(clock, stream, pipeline="views")
    lines("owner", run_id="r-1", token=3)
    lines("batch", batch_id=7, records=2)
    lines("failed", text={"no broker"})
    found = lines_of(stream.getvalue())
    assert [(line["event"], line["level"], line.get("batch")) for line in found] == [
        ("owner", "info", None),
        ("batch", "info", 7),
        ("failed", "error", 7),
    ]
    assert found[-1]["text"] == "{'no broker'}", "what JSON does not know is text"
    assert {(line["pipeline"], line["run"], line["ts"]) for line in found} == {
        ("views", "r-1", clock.unix_ms())
    }


@pytest.fixture
def root_logger() -> Iterator[None]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield
    root.handlers, root.level = before, level


@pytest.mark.usefixtures("root_logger")
def test_libraries_log_in_the_same_form(capsys: pytest.CaptureFixture[str]) -> None:
    log_libraries_as_json(ManualClock())
    logging.getLogger("library").info("unheard")
    logging.getLogger("library").warning("beware of %s", "this")
    (line,) = lines_of(capsys.readouterr().out)
    assert line["event"] == "beware of this"
    assert (line["logger"], line["level"]) == ("library", "warning")
    assert line["ts"] == ManualClock().unix_ms()
