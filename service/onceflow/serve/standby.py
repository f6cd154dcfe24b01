"""How an instance that stands by sees that the other one is gone.

By its bulletins, which a run posts about once a second from its claim on. They decide nothing: an
instance that was only slow is fenced like one that is dead, and ends with `FencedError`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from onceflow.clock import Clock
from onceflow.contracts.connector import BulletinBoard
from onceflow.errors import CorruptionError, OnceflowError
from onceflow.protocol.bulletin import END_KIND, RUNNING_KIND, Bulletin, Ending

PATIENCE_S = 5.0
"""Silence after which the other is taken for dead: a pause of its JVM should be shorter."""
LOOK_INTERVAL_S = 0.5
LOOK_TIMEOUT_S = 5.0


@dataclass
class Standby:
    """Watches one pipeline's board. Measures silence by its own clock."""

    board: BulletinBoard
    clock: Clock
    patience_s: float = PATIENCE_S
    _heard: str | None = None
    _heard_at_s: float | None = None

    def wait(self, is_over: Callable[[], bool]) -> str:
        """Look until the other is gone, or `is_over` says to give up.

        Returns:
            Why it is taken for gone, for people; empty if it is not.
        """
        while not is_over():
            if why := self.look():
                return why
            self.clock.sleep(LOOK_INTERVAL_S)
        return ""

    def look(self) -> str:
        """One look; returns as `wait`. A board that cannot be read tells neither way."""
        try:
            posted = self.board.read(self.clock.within(LOOK_TIMEOUT_S))
        except OnceflowError:
            self._heard_at_s = None
            return ""
        now_s, running = self.clock.monotonic_s(), posted.get(RUNNING_KIND, "")
        if self._heard_at_s is None or running != self._heard:
            self._heard, self._heard_at_s = running, now_s
        if _has_ended(running, posted.get(END_KIND, "")):
            return "it has ended"
        silence_s = now_s - self._heard_at_s
        is_gone = silence_s >= self.patience_s
        return f"nothing was heard of it for {silence_s:.1f} s" if is_gone else ""


def _has_ended(running: str, ending: str) -> bool:
    """Whether the newest end is that of the newest run."""
    try:
        return bool(running) and (
            Bulletin.from_json(running).run_id == Ending.from_json(ending).run_id
        )
    except CorruptionError:
        return False
