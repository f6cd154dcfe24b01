"""Figures that a run reports to programs, such as metrics."""

from __future__ import annotations

from collections.abc import Mapping

from onceflow.protocol.ledger import HeadEntry


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
