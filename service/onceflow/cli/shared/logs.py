"""Events as JSON lines on standard output, and what libraries log in the same form.

Spark's JVM writes to standard error by itself: errors only, as text.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Mapping
from typing import TextIO

from onceflow.clock import Clock

_LEVELS: Mapping[str, str] = {"failed": "error", "warning": "warning", "waiting": "warning"}
"""Events of more than everyday interest."""
_ONE_LINE = threading.Lock()


class JsonLines:
    """One JSON object per line: `ts` (unix milliseconds), `level`, `event` and the event's facts.

    From the claim on, each has the `run` that it is of, and from the first batch on the `batch`.
    Several threads may tell theirs, if they are of different pipelines. `named` is in each line,
    such as `pipeline="views"`.
    """

    def __init__(self, clock: Clock, stream: TextIO | None = None, **named: str) -> None:
        self._clock = clock
        self._stream = stream or sys.stdout
        self._bound: dict[str, object] = {kind: name for kind, name in named.items() if name}

    def __call__(self, event: str, /, **facts: object) -> None:
        """Write a line and flush it: a reader may be waiting for it."""
        if event == "owner":
            self._bound["run"] = facts.get("run_id")
        if "batch_id" in facts:
            self._bound["batch"] = facts["batch_id"]
        head = {"ts": self._clock.unix_ms(), "level": _LEVELS.get(event, "info"), "event": event}
        line = json.dumps({**head, **facts, **self._bound}, default=str)
        with _ONE_LINE:
            self._stream.write(f"{line}\n")
            self._stream.flush()


def log_libraries_as_json(clock: Clock) -> None:
    """Turn what libraries log at `warning` and above into such lines, too."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_AsJson(clock))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)


class _AsJson(logging.Formatter):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "ts": self._clock.unix_ms(),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)
