"""A kind of target as the delivery file sees it, and how it is found: by the key of its block.

A package adds a kind by an entry point of the group `onceflow.targets`. The name of the entry point
is the key in the file; it points to a `TargetBlock`, which says what may stand below that key and
makes the target.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from onceflow.clock import Clock, SystemClock
from onceflow.columns import Columns
from onceflow.contracts.block import Block
from onceflow.contracts.connector import Connection
from onceflow.contracts.kinds import find_kind, installed
from onceflow.contracts.target import Sender, Target
from onceflow.errors import Fault
from onceflow.protocol.guarantee import Guarantee

ENTRY_POINT_GROUP = "onceflow.targets"


@dataclass(frozen=True)
class TargetSpec:
    """Everything that a target needs besides its own block.

    Args:
        delivery: name of the delivery.
        columns: of the rows; none for a target that takes records as they came.
        folder: of the delivery file, which relative names are relative to.
        topics: that the delivery reads.
        connection: to the brokers of these topics.
    """

    delivery: str
    columns: Columns
    folder: Path
    topics: tuple[str, ...] = ()
    connection: Connection = field(default_factory=lambda: Connection(""))
    clock: Clock = field(default_factory=SystemClock)


class TargetBlock(Block):
    """The block of a target in a delivery file. Derive one for each kind of target.

    Its fields are the keys that the user may write, each with a description. Unknown keys are
    refused.

    Attributes:
        takes: `rows` of values, the same as a `table` of Arrow, which is several times as fast, or
            `records` as they came; then `schema` only says which ones to reject.
    """

    takes: ClassVar[Literal["rows", "table", "records"]] = "rows"

    def target(self, spec: TargetSpec) -> Target:
        """Make the target. Connects to nothing before its first use."""
        raise NotImplementedError

    def faults(self, columns: Columns) -> Iterator[tuple[str, Fault]]:
        """Find what does not fit the columns: key of this block, and what is wrong with it."""
        yield from ()

    def guarantee(self) -> Guarantee:
        """Compute what is promised about each record, from the topic to the target."""
        raise NotImplementedError

    def describe(self) -> str:
        """Say in a few words where records go."""
        raise NotImplementedError

    def topics_elsewhere(self, topics: Sequence[str]) -> Sequence[str]:
        """Topics of another cluster that the records of these topics go to; none by default."""
        return ()

    @property
    def creates_topics(self) -> bool:
        """Whether it creates those that do not exist."""
        return False

    @property
    def refuses_letters(self) -> str:
        """Why it cannot take a record later than those after it; empty if it can."""
        return ""

    @property
    def required_columns(self) -> frozenset[str]:
        """Columns that may not be null, besides those that the file declares so."""
        return frozenset()

    @property
    def deletes_by(self) -> tuple[str, ...]:
        """Columns that a record without a value deletes by; empty: it is rejected."""
        return ()


class SenderBlock(TargetBlock):
    """The block of a receiver that keeps no position: the delivery keeps it in a topic.

    Before records are sent for the first time, the intent to do so is committed; after the answers,
    the position. So a record is sent again only if its answer was lost, in the same batch.
    """

    takes = "records"

    def sender(self, spec: TargetSpec) -> Sender:
        """Make the sender. Connects to nothing before its first use."""
        raise NotImplementedError

    @property
    def key_lifetime_ms(self) -> int | None:
        """How long the receiver recognises a record; None if forever, or not at all."""
        return None


def installed_targets() -> Sequence[str]:
    """Names of the kinds that are installed. Imports none of them."""
    return installed(ENTRY_POINT_GROUP)


def find_target(kind: str) -> type[TargetBlock]:
    """Import the block of a kind.

    Raises:
        ConfigError: no such kind is installed, or what is installed does not work.
    """
    return find_kind(ENTRY_POINT_GROUP, "target", kind, TargetBlock)
