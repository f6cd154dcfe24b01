"""Events as JSON lines on standard output, and what libraries log in the same form.

Spark's JVM writes to standard error by itself: errors only, as text.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO

import structlog
from structlog.types import Processor

from onceflow.clock import Clock

_LEVELS: Mapping[str, str] = {"failed": "error", "warning": "warning", "waiting": "warning"}
"""Events of more than everyday interest."""


class JsonLines:
    """One JSON object per line: `ts` (unix milliseconds), `level`, `event` and the event's facts.

    From the claim on, each has the `run` that it is of, and from the first batch on the `batch`.
    Several threads may tell theirs, if they are of different pipelines.

    Args:
        clock: dates the lines.
        stream: where they go.
        pipeline: of all of them; empty for what is of none.
    """

    def __init__(self, clock: Clock, stream: TextIO | None = None, pipeline: str = "") -> None:
        self._log = structlog.wrap_logger(
            structlog.PrintLogger(stream or sys.stdout),
            processors=[_dated(clock), structlog.processors.JSONRenderer(default=str)],
            wrapper_class=structlog.BoundLogger,
        )
        self._bound: dict[str, object] = {"pipeline": pipeline} if pipeline else {}

    def __call__(self, event: str, /, **facts: object) -> None:
        """Write a line and flush it: a reader may be waiting for it."""
        if event == "owner":
            self._bound["run"] = facts.get("run_id")
        if "batch_id" in facts:
            self._bound["batch"] = facts["batch_id"]
        self._log.msg(event, level=_LEVELS.get(event, "info"), **{**facts, **self._bound})


def log_libraries_as_json(clock: Clock) -> None:
    """What libraries of this process log at `warning` and above becomes such lines, too."""
    before: list[Processor] = [structlog.stdlib.add_logger_name, structlog.stdlib.add_log_level]
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*before, structlog.processors.format_exc_info, _dated(clock)],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.JSONRenderer(default=str),
        ],
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)


def _dated(clock: Clock) -> Processor:
    def date(_: Any, __: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        return {"ts": clock.unix_ms(), **line}

    return date
