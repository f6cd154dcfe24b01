"""Ends a process whose clients do not let go.

Nothing is lost by not waiting: what is committed stays, and what is open can never be committed.
But a process that hangs is not restarted.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from threading import Timer

from onceflow.errors import exit_code_of

CLOSE_TIMEOUT_S = 90.0
"""Longer than a renewal of a lane without an answer; closing usually takes a second."""


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
