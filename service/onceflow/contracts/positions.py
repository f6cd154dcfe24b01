"""Contract of what keeps the positions of a delivery whose receiver keeps none.

Every position is moved under a claim. A claim fences: what an older claim still sends has no
effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from onceflow.clock import Deadline
from onceflow.contracts.connector import Place
from onceflow.contracts.target import Claim, Intent, Mark, Move


class Positions(Protocol):
    """The positions of one delivery. Not for several threads at once.

    Every method may raise RetriableError and DeadlineError: make the same call again. After an
    OutcomeUnknownError, too: what was written is recognised. ConfigError and CorruptionError stay
    until an operator acts: the brokers refuse, or a topic was deleted and created again.
    """

    def check(self, deadline: Deadline) -> None:
        """Create the place where positions are kept, if it is missing.

        Raises:
            ConfigError: it would lose positions.
        """

    def claim(self, place: Place, deadline: Deadline) -> Claim:
        """Become the one that moves the position of this partition, and read it.

        From then on, a call under an older claim changes nothing. An open intent stays open.
        """

    def positions(self, deadline: Deadline) -> Mapping[Place, Mark]:
        """The position of every partition of which something was written."""

    def intend(self, claim: Claim, intent: Intent, deadline: Deadline) -> None:
        """Keep an intent with the position, durably before it returns.

        Raises:
            AbortableError: another instance has claimed the partition; nothing was kept.
        """

    def move(self, move: Move, deadline: Deadline) -> None:
        """Move the position, and close the intent. Does nothing if the position is there already.

        Raises:
            AbortableError: another instance has claimed the partition; nothing was moved.
        """

    def close(self) -> None:
        """Close connections. Safe to call twice and at any point."""
