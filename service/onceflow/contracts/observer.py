"""What a run tells of itself besides its report: figures that only programs want."""

from __future__ import annotations

from collections.abc import Mapping

from onceflow.protocol.ledger import HeadEntry


class Observer:
    """Told figures as they come. This one drops them; whoever wants them derives from it.

    Called from several threads; must return at once and never raise.
    """

    def position(self, head: HeadEntry) -> None:
        """The newest position of the ledger: at the start, and after each batch."""

    def lag(self, records: Mapping[tuple[str, int], int]) -> None:
        """Records that each partition of the input has beyond the position."""

    def transaction(self, outcome: str, seconds: float) -> None:
        """A transaction ended.

        Args:
            outcome: committed, aborted, or unknown.
            seconds: what the broker took to answer.
        """
