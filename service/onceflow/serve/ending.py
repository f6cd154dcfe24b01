"""How a process ends: it drains on SIGTERM and SIGINT, and does not hang when clients do.

A second signal stops at once, which is safe too: what is committed stays, and what is open can
never be committed. A process that hangs would not be restarted.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer
from types import FrameType

from onceflow.errors import exit_code_of

_SIGNALS = (signal.SIGTERM, signal.SIGINT)

CLOSE_TIMEOUT_S = 90.0
"""Longer than a renewal of a lane without an answer; closing usually takes a second."""


@contextmanager
def drain_on_signals(request_drain: Callable[[], None]) -> Iterator[None]:
    """Call `request_drain` at the first signal; restore the default for the next one.

    `request_drain` runs inside a signal handler: it may set an event and nothing more. A call into
    the JVM could collide with the one that was interrupted.
    """
    previous = {number: signal.getsignal(number) for number in _SIGNALS}

    def on_signal(number: int, frame: FrameType | None) -> None:
        request_drain()
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_DFL)

    for number in _SIGNALS:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def end_within(error: BaseException | None, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
    """Call when the end is decided and closing begins: the process ends by itself, or is ended.

    After `timeout_s` it is ended at once, with the stack of every thread on stderr and the message
    and exit code of the error. None is a good end.
    """
    timer = Timer(timeout_s, _end, [error, timeout_s])
    timer.daemon = True
    timer.start()


def _end(error: BaseException | None, timeout_s: float) -> None:
    faulthandler.dump_traceback(all_threads=True)
    told = f"onceflow: {error}\n" if error is not None else ""
    late = f"onceflow: closing took longer than {timeout_s:g} s; ended, no record is lost\n"
    sys.stderr.write(told + late)
    sys.stderr.flush()
    os._exit(exit_code_of(error))
