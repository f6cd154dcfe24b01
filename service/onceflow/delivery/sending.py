"""Makes a target of a sender: keeps the position that the receiver does not keep.

Before records are sent for the first time, an intent is committed with the position: up to where,
and since when. After the answers, the position is committed, and closes the intent. So a start that
finds an open intent knows which records may be there already, and sends them again as they were
sent before: the same records of a partition, in a call of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from onceflow.clock import Clock, Deadline
from onceflow.contracts.connector import Place
from onceflow.contracts.positions import Positions
from onceflow.contracts.record import Record
from onceflow.contracts.target import Batch, Claim, Intent, Mark, Move, Sender
from onceflow.crashpoints import CrashPoint, reach
from onceflow.delivery.model import WhenKeyExpires
from onceflow.errors import RecordError

POSITION_TIMEOUT_S = 60.0
"""For one step of the positions."""


@dataclass
class _Try:
    """State of records of one partition that are under way. Records are named by their offsets."""

    intent: Intent
    attempts: int = 0
    acknowledged: set[int] = field(default_factory=set)
    refused: dict[int, str] = field(default_factory=dict)

    def is_open(self, record: Record) -> bool:
        return record.offset not in self.acknowledged and record.offset not in self.refused


class SendingTarget:
    """Implements `contracts.target.Target` on a sender.

    Guaranteed: a record whose answer has arrived is not sent again by this process, and after a
    crash only as a part of its batch; records never skip others of their partition that have no
    answer. What a repeated record does is up to the receiver.

    Args:
        key_lifetime_ms: how long the receiver recognises a record; None if forever, or not at all.
        when_key_expires: what happens to records without an answer after that time.
    """

    def __init__(
        self,
        sender: Sender,
        positions: Positions,
        clock: Clock,
        key_lifetime_ms: int | None,
        when_key_expires: WhenKeyExpires,
    ) -> None:
        self._sender = sender
        self._positions = positions
        self._clock = clock
        self._key_lifetime_ms = key_lifetime_ms
        self._when_key_expires = when_key_expires
        self._tries: dict[Place, _Try] = {}
        self._reached: dict[Place, int] = {}

    def check(self) -> None:
        """Look at both the receiver and the place of positions."""
        self._positions.check(self._deadline())
        self._sender.check()

    def probe(self) -> None:
        """Ask the receiver. Positions that cannot be written show at the next write."""
        self._sender.probe()

    def claim(self, place: Place) -> Claim:
        """Claim the position; forget what an older claim sent."""
        self._tries.pop(place, None)
        self._reached.pop(place, None)
        return self._positions.claim(place, self._deadline())

    def positions(self) -> Mapping[Place, Mark]:
        """Read the positions."""
        return self._positions.positions(self._deadline())

    def write(self, batch: Batch) -> None:
        """Send each partition's records in a call of their own, and move its position.

        Raises:
            RecordError: the receiver refuses records, which `refused` tells; or records without an
                answer are older than the receiver remembers. Others may have been sent.
        """
        for move, records in _parts(batch):
            place, end = move.claim.place, move.to.offset
            # A try that failed later may have brought this part to its end.
            if self._reached.get(place, -1) < end:
                self._send(move, records)
                self._positions.move(move, self._deadline())
                self._tries.pop(place, None)
                self._reached[place] = end

    def refused(self, batch: Batch) -> Mapping[int, str]:
        """Tell which records the receiver has refused. Sends nothing."""
        found = {}
        for n, record in enumerate(batch.records):
            tried = self._tries.get((record.topic, record.partition))
            if tried is not None and record.offset in tried.refused:
                found[n] = tried.refused[record.offset]
        return found

    def close(self) -> None:
        """Free both connections."""
        self._sender.close()
        self._positions.close()

    def _send(self, move: Move, records: Sequence[Record]) -> None:
        """Send what has no answer yet, until all have one."""
        place = move.claim.place
        tried = self._tries.get(place)
        if tried is None and records:
            tried = self._tries[place] = _Try(self._intended(move.claim, records[-1].offset + 1))
        if tried is None:
            return
        left = [record for record in records if tried.is_open(record)]
        if left:
            if tried.attempts or move.claim.intent is not None:
                self._require_fresh(place, left, tried.intent)
            reach(CrashPoint.MID_PRODUCE)
            tried.attempts += 1
            answers = self._sender.send(left, tried.attempts)
            tried.acknowledged.update(left[n].offset for n in answers.acknowledged)
            tried.refused |= {left[n].offset: why for n, why in answers.refused.items()}
            reach(CrashPoint.AFTER_EFFECT)
            if answers.failure is not None:
                raise answers.failure
        refused = [record for record in records if record.offset in tried.refused]
        if refused:
            why = tried.refused[refused[0].offset]
            raise RecordError("the receiver refused a record", subject=str(refused[0]), found=why)

    def _intended(self, claim: Claim, until: int) -> Intent:
        """The intent that is kept for these records: an earlier instance's, or a new one.

        A new one that replaces the other is as old: a part of its records may have been sent then.
        """
        if claim.intent is not None and claim.intent.until == until:
            return claim.intent
        now_ms = self._clock.unix_ms()
        since_ms = min(now_ms, claim.intent.since_ms) if claim.intent else now_ms
        intent = Intent(until, since_ms)
        self._positions.intend(claim, intent, self._deadline())
        return intent

    def _require_fresh(self, place: Place, left: Sequence[Record], intent: Intent) -> None:
        """Send nothing that the receiver may have seen and no longer recognises."""
        lifetime_ms = self._key_lifetime_ms
        if lifetime_ms is None or self._when_key_expires == "send":
            return
        if self._clock.unix_ms() - intent.since_ms < lifetime_ms:
            return
        since = datetime.fromtimestamp(intent.since_ms / 1000, UTC)
        raise RecordError(
            "records may have been sent, and the receiver no longer recognises them",
            subject=f"{place[0]}[{place[1]}], offsets {left[0].offset} to {left[-1].offset}",
            expected=f"an answer within {lifetime_ms / 1000:g} s of the first try",
            found=f"none since {since:%Y-%m-%d %H:%M:%S} UTC",
            then="nothing more was sent. Look at the receiver: if it lacks them, or may take them"
            " twice, start once with `retry: {when_key_expires: send}`",
        )

    def _deadline(self) -> Deadline:
        return self._clock.within(POSITION_TIMEOUT_S)


def _parts(batch: Batch) -> Iterator[tuple[Move, Sequence[Record]]]:
    """Each partition's records; first those of an intent, as they were sent before."""
    records_of: dict[Place, list[Record]] = {}
    for record in batch.records:
        records_of.setdefault((record.topic, record.partition), []).append(record)
    for move in batch.moves:
        records = records_of.get(move.claim.place, [])
        if move.via is None:
            yield move, records
            continue
        end = move.via.offset
        yield replace(move, to=move.via), [r for r in records if r.offset < end]
        if move.via != move.to:
            claim = replace(move.claim, mark=move.via, intent=None)
            yield Move(claim, move.to), [r for r in records if r.offset >= end]
