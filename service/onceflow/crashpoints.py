"""Named places at which a test can kill or freeze this process (protocol, section 8).

A crash point costs one look at a module variable. Arm it by the environment, e.g.
`ONCEFLOW_CRASH_POINT=after_commit:kill:3`: at the third arrival the process kills itself with
SIGKILL (`kill`), freezes itself with SIGSTOP (`stop`), or holds this thread alone
(`hold`). Before that it writes the point's name into the file named by `ONCEFLOW_CRASH_PROOF`,
so that a test can tell that its fault fired.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from onceflow.errors import ConfigError

ENVIRONMENT_VARIABLE = "ONCEFLOW_CRASH_POINT"
PROOF_VARIABLE = "ONCEFLOW_CRASH_PROOF"


class CrashPoint(StrEnum):
    """Every place at which a crash leaves a different mixture of durable and lost effects."""

    AFTER_OFFSET_LOG = "after_offset_log"
    BEFORE_CLAIM = "before_claim"
    AFTER_CLAIM = "after_claim"
    MID_FENCE = "mid_fence"
    AFTER_FENCE = "after_fence"
    AFTER_HEAD_READ = "after_head_read"
    BEFORE_BEGIN = "before_begin"
    MID_ASK = "mid_ask"
    MID_PRODUCE = "mid_produce"
    BEFORE_HEAD = "before_head"
    BEFORE_COMMIT = "before_commit"
    COMMIT_UNKNOWN = "commit_unknown"
    AFTER_COMMIT = "after_commit"
    AFTER_SPARK_COMMIT = "after_spark_commit"
    LANE_REINIT = "lane_reinit"
    MID_FORK = "mid_fork"
    AFTER_EFFECT = "after_effect"
    BEFORE_OFFSET_COMMIT = "before_offset_commit"


HOLD_S = 600.0
"""Longer than any test waits."""
_ARMING = re.compile(r"(?P<point>\w+)(:(?P<action>kill|stop|hold)(:(?P<arrivals>\d+))?)?")
_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "hold": None}


@dataclass
class _Armed:
    point: CrashPoint
    signal: signal.Signals | None
    arrivals_left: int


def _parse(text: str | None) -> _Armed | None:
    if not text:
        return None
    found = _ARMING.fullmatch(text)
    if found is None or found["point"] not in {*CrashPoint}:
        raise ConfigError(
            "unreadable crash point",
            subject=ENVIRONMENT_VARIABLE,
            expected="POINT[:kill|stop|hold[:ARRIVALS]]",
            found=text,
        )
    action, arrivals = found["action"] or "kill", found["arrivals"] or 1
    return _Armed(CrashPoint(found["point"]), _SIGNALS[action], int(arrivals))


_armed = _parse(os.environ.get(ENVIRONMENT_VARIABLE))


def reach(point: CrashPoint) -> None:
    """Kill, freeze or hold if this point is armed and its count of arrivals is reached."""
    if _armed is None or _armed.point is not point:
        return
    _armed.arrivals_left -= 1
    if _armed.arrivals_left == 0:
        if proof := os.environ.get(PROOF_VARIABLE):
            Path(proof).write_text(point.value)
        if _armed.signal is None:
            threading.Event().wait(HOLD_S)
            return
        # To this thread: a signal to the process may reach another first, and this one goes on for
        # long enough to send what it must not.
        signal.pthread_kill(threading.get_ident(), _armed.signal)
