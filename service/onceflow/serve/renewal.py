"""Notices that the files with certificates and secrets of this process were renewed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from onceflow.clock import Clock
from onceflow.settings import files_digest

LOOK_INTERVAL_S = 5.0
"""Between two looks. Kubernetes itself brings a renewed Secret into a pod within about a minute."""


class Renewal:
    """Looks at files now and then.

    What is being written is not taken for renewed: two looks must find the same.
    """

    def __init__(self, files: Sequence[Path], clock: Clock) -> None:
        self._files = files
        self._clock = clock
        self._used = self._last = self._digest()
        self._next_s = clock.monotonic_s() + LOOK_INTERVAL_S

    def is_due(self) -> bool:
        """Whether they hold something else than at the start, or than when this was last true."""
        if not self._files or self._clock.monotonic_s() < self._next_s:
            return False
        self._next_s = self._clock.monotonic_s() + LOOK_INTERVAL_S
        before, self._last = self._last, self._digest()
        is_settled = self._last is not None and self._last == before
        if not is_settled or self._last == self._used:
            return False
        self._used = self._last
        return True

    def _digest(self) -> str | None:
        """None while one of them cannot be read."""
        is_whole = all(file.is_file() for file in self._files)
        return files_digest(self._files) if is_whole else None
