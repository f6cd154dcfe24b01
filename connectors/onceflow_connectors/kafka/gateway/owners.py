"""Who owns which slot: claims in a topic, the newest of a slot counts.

To take a slot is to claim it, to fence its transactional ids, and then to read what it holds. An
instance that was replaced may initialise an id later than that. It then looks here, where the claim
is older than its fence, and finds that it was replaced. So a claim is written before anything is
fenced, and this is read after every initialisation.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from onceflow.clock import Deadline
from onceflow.contracts.connector import Connection
from onceflow.contracts.sink import OutputRecord
from onceflow.errors import CorruptionError, FencedError, RetriableError
from onceflow.protocol.ledger import canonical_json
from onceflow_connectors.kafka.admin.administration import HIGH_WATERMARK, LOG_START, Administration
from onceflow_connectors.kafka.admin.reading import CommittedReader
from onceflow_connectors.kafka.sink.appender import KafkaAppender

PARTITION = 0
VERSION = 1


@dataclass(frozen=True)
class Owner:
    """An instance of a gateway.

    Args:
        run_id: of the process, a new one at each start.
        address: under which other instances reach it, as a URL.
    """

    run_id: str
    address: str


class OwnerBoard:
    """The claims of all slots of a gateway. For many threads at once.

    Args:
        topic: that holds the claims.
        me: this instance.
    """

    def __init__(self, topic: str, connection: Connection, me: Owner) -> None:
        self._topic = topic
        self._me = me
        self._administration = Administration(connection)
        self._reader = CommittedReader(connection)
        self._appender = KafkaAppender(connection)
        self._read_to: int | None = None
        self._owners: dict[int, Owner] = {}
        self._lock = threading.Lock()

    def owner_of(self, slot: int) -> Owner | None:
        """The owner as of the last look; asks no broker."""
        return self._owners.get(slot)

    def is_mine(self, slot: int) -> bool:
        """Whether the newest claim of a slot is ours, as of the last look."""
        return self._owners.get(slot) == self._me

    def owners(self) -> Mapping[int, Owner]:
        """Every owner as of the last look."""
        return dict(self._owners)

    def claim(self, slot: int, deadline: Deadline) -> None:
        """Write our claim to a slot.

        Raises:
            OnceflowError: as `contracts.sink.Appender.append`; it may have been written.
        """
        fields = {"v": VERSION, "run": self._me.run_id, "address": self._me.address}
        record = OutputRecord(PARTITION, str(slot).encode(), canonical_json(fields).encode())
        with self._lock:
            self._appender.append(self._topic, [record], deadline)

    def require(self, slot: int, deadline: Deadline) -> None:
        """Look whether a slot is still ours.

        Raises:
            FencedError: the newest claim is another's.
            OnceflowError: as `refresh`.
        """
        self.refresh(deadline)
        if not self.is_mine(slot):
            owner = self.owner_of(slot)
            raise FencedError(
                "another instance owns this slot",
                subject=f"slot {slot} of {self._topic}",
                expected=f"a claim of run {self._me.run_id}",
                found=f"one of run {owner.run_id}" if owner else "none",
                then="posts with these keys are sent on to it",
            )

    def refresh(self, deadline: Deadline) -> None:
        """Read every claim that was written before this call.

        Raises:
            RetriableError: the topic is gone.
            DeadlineError: no answer in time.
            CorruptionError: a claim cannot be read.
        """
        place = (self._topic, PARTITION)
        with self._lock:
            ends = self._administration.offsets([place], HIGH_WATERMARK, deadline)
            if ends is None:
                raise RetriableError("the topic of claims is gone", subject=self._topic)
            end = ends[place].offset
            if self._read_to is None:
                starts = self._administration.offsets([place], LOG_START, deadline)
                self._read_to = starts[place].offset if starts else 0
            for message in self._reader.read(*place, (self._read_to, end), deadline):
                self._take(message.key(), message.value())
            self._read_to = max(self._read_to, end)

    def close(self) -> None:
        """Close connections."""
        self._reader.close()
        self._administration.close()
        self._appender.close()

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        try:
            slot, fields = int(key or b""), json.loads(value or b"")
            if fields["v"] == VERSION:
                self._owners[slot] = Owner(str(fields["run"]), str(fields["address"]))
                return
        except (KeyError, TypeError, ValueError):
            pass
        raise CorruptionError(
            "a claim cannot be read",
            subject=f"{self._topic}, key {(key or b'')[:40]!r}",
            expected=f"version {VERSION}",
            found=repr((value or b"")[:80]),
            then="nothing was written; use the version of Onceflow that wrote it",
        )
