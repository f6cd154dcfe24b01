"""SIGTERM and SIGINT become a drain; a second signal stops at once, which is safe too."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


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
