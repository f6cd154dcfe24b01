"""Events and figures that a run reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from onceflow.protocol.ledger import HeadEntry


class Report(Protocol):
    """Told what happens in a run: a live panel, JSON lines, metrics."""

    def __call__(self, event: str, /, **facts: object) -> None:
        """One thing that happened; `event` is its kind."""


class Observer:
    """Receives figures as they come. This class drops them; override what you need.

    Called from several threads; must return at once and never raise.
    """

    def position(self, head: HeadEntry) -> None:
        """The newest position of the ledger: at the start, and after each batch."""

    def lag(self, records: Mapping[tuple[str, int], int]) -> None:
        """Records in each input partition that are not read yet."""

    def transaction(self, outcome: str, seconds: float) -> None:
        """A transaction ended.

        Args:
            outcome: committed, aborted, or unknown.
            seconds: until the broker answered.
        """
