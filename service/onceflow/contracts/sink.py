"""Contracts of the sink: incarnations of one transaction, a ledger, an appender.

The appender is for the delivery modes that write records outside a transaction. The product writes
output in no other way. Every implementation, fakes included, passes
`tests/support/contracts/sink.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from onceflow.clock import Deadline
from onceflow.protocol.ledger import HeadEntry, OwnerEntry


@dataclass(frozen=True, slots=True)
class OutputRecord:
    """One record to write, to an explicit partition.

    Args:
        value: None deletes the key on a compacted topic.
        header: packed record header, or None for ledger entries.
        timestamp_ms: None for the time of writing.
        more_headers: after `header`, in order; names may repeat.
    """

    partition: int
    key: bytes | None
    value: bytes | None
    header: bytes | None = None
    timestamp_ms: int | None = None
    more_headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Transaction:
    """Names the one transaction of an incarnation to clients that join it.

    Args:
        producer_epoch: another incarnation has a higher one, or another producer id.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Incarnation(Protocol):
    """One initialisation of one transactional id. Carries at most one transaction, then is dropped.

    No Python client speaks KIP-890, so a late EndTxn may end a *later* transaction of the same
    producer epoch; an epoch that has only one transaction is immune. A gateway has another one in
    it, where no request of the one before was sent again.
    """

    @property
    def transactional_id(self) -> str:
        """The id that this incarnation initialises."""

    def initialise(self, deadline: Deadline) -> None:
        """Fence every older incarnation of this id and wait until its transaction is decided.

        After it has returned, markers of every older transaction of the id are written. It does not
        prove that we are still the owner: read `owner` before anything else.

        Raises:
            DeadlineError: not done in time; the id may or may not have been fenced.
            FencedError: another incarnation was initialised at the same time.
            RetriableError: this incarnation failed; a fresh one may succeed.
            ConfigError: the broker refuses for good (authorisation, transaction time-out).
        """

    def begin(self) -> None:
        """Begin the one transaction. Local: nothing is sent, and no fence is noticed.

        Raises:
            InvariantError: not initialised, or this incarnation had its transaction.
        """

    def send(self, topic: str, records: Iterable[OutputRecord], deadline: Deadline) -> int:
        """Queue records in the transaction, waiting for room when the queue is full.

        Returns:
            How many were queued.

        Raises:
            AbortableError: the client or broker refused; abort and run the batch again.
            RecordError: a record can never be written (too large, no such partition). It may be
                one of an earlier call: what a broker refuses shows with delay, at `commit` at last.
            FencedError: a newer incarnation of the id exists.
            DeadlineError: no room in time. Abort.
        """

    def send_offsets(
        self, group: str, offsets: Mapping[tuple[str, int], int], deadline: Deadline
    ) -> None:
        """Commit `(topic, partition) -> next offset` for `group` within the transaction.

        Raises:
            AbortableError, FencedError, DeadlineError: as for `send`.
        """

    def commit(self, deadline: Deadline) -> None:
        """Commit. Returns only if the coordinator acknowledged; markers may land a little later.

        Kafka would commit a transaction without the records that it refused. So after any of
        `send` and `send_offsets` has raised, this is an InvariantError and sends nothing.

        Raises:
            FencedError: a newer incarnation exists. **The transaction may have been committed**:
                the answer can be that of a retried EndTxn.
            OutcomeUnknownError: no answer, or one that proves nothing.
            AbortableError: a record of the transaction failed; it was not committed. Abort.
            RecordError: the same, because a broker will never accept that record.
        """

    def abort(self, deadline: Deadline) -> None:
        """Abort, best effort: never raises for Kafka's answers. The next `initialise` decides."""

    def discard(self) -> None:
        """Free the client without waiting for the broker. Safe to call twice and at any point."""


class Appender(Protocol):
    """Writes records outside any transaction, without duplicates of its own making.

    It has no transactional id, so nothing fences it: a driver that was replaced may still be
    writing.
    """

    def append(self, topic: str, records: Iterable[OutputRecord], deadline: Deadline) -> int:
        """Write records and wait until every one is acknowledged by all replicas in sync.

        If it raises, each partition may have got some of its records: always the first ones, in
        order, perhaps only later. The next call begins with a fresh client.

        Returns:
            How many were written.

        Raises:
            RecordError: a record can never be written (too large, no such partition).
            AbortableError: the client or broker refused.
            DeadlineError: not everything was acknowledged in time.
        """

    def close(self) -> None:
        """Free the client without waiting for the broker. Safe to call twice and at any point."""


class Ledger(Protocol):
    """Reads the two entries. All reads are read_committed, from the leader.

    Not for several threads at once. Without a ledger topic every read returns nothing.
    """

    def create(self, partitions: int, deadline: Deadline) -> None:
        """Create the topic if it does not exist, compacted, with a week of history.

        Raises:
            ConfigError: it exists with fewer partitions or another cleanup policy.
        """

    def exists(self, deadline: Deadline) -> bool:
        """Whether the ledger's topic exists."""

    def read_owner(self, deadline: Deadline) -> OwnerEntry | None:
        """Return the newest `owner` up to the high watermark taken at the call.

        The high watermark, not the last stable offset: an open transaction of another process would
        hide our own last commit. Waits for transactions that are open or not yet marked.

        Raises:
            DeadlineError: still undecided at the end of the budget.
        """

    def read_head(self, slot: int, deadline: Deadline) -> HeadEntry | None:
        """Return the newest `head` of a slot, as `read_owner`."""

    def history(self, slot: int, deadline: Deadline) -> Iterator[HeadEntry]:
        """Every `head` still readable, oldest first."""

    def close(self) -> None:
        """Close connections."""
