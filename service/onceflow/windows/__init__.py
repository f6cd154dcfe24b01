"""Windows as processors: subclass one, and declare the results that its rows have."""

from onceflow.windows.count import CountWindow
from onceflow.windows.result import Result
from onceflow.windows.running import RunningTotals
from onceflow.windows.sliding import SlidingWindow
from onceflow.windows.state import StateWindow
from onceflow.windows.timer import TimerWindow

__all__ = [
    "CountWindow",
    "Result",
    "RunningTotals",
    "SlidingWindow",
    "StateWindow",
    "TimerWindow",
]
