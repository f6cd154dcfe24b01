"""Asks about a batch, and writes its records with their answers, as a target of deliveries.

Records, answers and position are one transaction, in the target that is inside of this one. What
happens before it is only asking: a crash forgets the answers, and the next start asks again.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from onceflow.clock import Clock
from onceflow.contracts.connector import Place
from onceflow.contracts.observer import Report
from onceflow.contracts.record import Record
from onceflow.contracts.target import Batch, Claim, Mark, Target, Values
from onceflow.enrichment.answers import NULL, Answer, require_room, with_answer
from onceflow.enrichment.asking import Asking, Failure, Inquiry
from onceflow.enrichment.cache import AnswerCache
from onceflow.enrichment.model import OnError, Order
from onceflow.errors import OutcomeUnknownError, RecordError, RetriableError

RecordPlace: TypeAlias = tuple[str, int, int]
"""Topic, partition and offset of a record."""


@dataclass(frozen=True)
class Terms:
    """The part of an enrichment file that says what to do with answers.

    Args:
        column: name of the field that the answer becomes.
        by: positions of the columns by whose values answers are remembered; None: by question.
        attempts: rounds in a row without any answer, after which `on_error` decides; None: never.
    """

    enrichment: str
    column: str
    order: Order
    on_error: OnError
    by: tuple[int, ...] | None = None
    attempts: int | None = None


@dataclass
class _Entry:
    """A record of the batch, and the question about it.

    Args:
        flaw: why the record cannot be written with any answer.
    """

    inquiry: Inquiry[Any]
    flaw: str = ""


class EnrichingTarget:
    """Implements `contracts.target.Target`.

    Guaranteed: an answer that has come is not asked for again by this process, as long as its batch
    is not written; and nothing is written before every question of the batch is settled.

    Args:
        inner: writes records and position in one step.
        cache: None if each question is asked.
    """

    def __init__(
        self,
        *,
        inner: Target,
        asking: Asking[Any],
        cache: AnswerCache | None,
        terms: Terms,
        clock: Clock,
        report: Report,
    ) -> None:
        self._inner = inner
        self._asking = asking
        self._cache = cache
        self._terms = terms
        self._clock = clock
        self._report = report
        self._entries: dict[RecordPlace, _Entry] = {}
        self._fruitless = 0
        """Rounds in a row in which the service answered nothing."""

    def check(self) -> None:
        """Look at the topics. The service is asked by the first question, or by `probe`."""
        self._inner.check()

    def probe(self) -> None:
        """Look at brokers and service; only at brokers once the service is given up."""
        self._inner.probe()
        if self._is_given_up:
            return
        try:
            self._asking.probe()
        except (RetriableError, OutcomeUnknownError):
            self._fruitless += 1
            if not self._is_given_up:
                raise

    def claim(self, place: Place) -> Claim:
        """Claim the position."""
        return self._inner.claim(place)

    def positions(self) -> Mapping[Place, Mark]:
        """Read the positions."""
        return self._inner.positions()

    def write(self, batch: Batch) -> None:
        """Ask what is open, and write once all is settled.

        Raises:
            RecordError: some records are to be rejected, which `refused` tells.
        """
        self._take(batch)
        self._settle()
        if any(self._rejection(entry) for entry in self._entries.values()):
            raise RecordError("some records have no answer", subject=self._terms.enrichment)
        self._inner.write(self._enriched(batch))
        self._entries = {}
        self._fruitless = 0

    def refused(self, batch: Batch) -> Mapping[int, str]:
        """Tell which records have no answer, or else are not taken by the topic. Asks nothing."""
        self._take(batch)
        reasons = {
            n: self._rejection(self._entries[_place_of(record)])
            for n, record in enumerate(batch.records)
        }
        found = {n: reason for n, reason in reasons.items() if reason}
        return found or self._inner.refused(self._enriched(batch))

    def close(self) -> None:
        """Free all connections."""
        self._asking.close()
        self._inner.close()

    @property
    def _is_given_up(self) -> bool:
        most = self._terms.attempts
        return most is not None and self._fruitless >= most

    def _take(self, batch: Batch) -> None:
        """Make a question of each record that has none yet, and forget those of other records."""
        places = {_place_of(record): n for n, record in enumerate(batch.records)}
        self._entries = {place: self._entries[place] for place in places & self._entries.keys()}
        # With a cache, equal questions of a batch are one.
        shared = {entry.inquiry.key: entry.inquiry for entry in self._entries.values()}
        cached = 0
        for place, n in places.items():
            if place in self._entries:
                continue
            entry = self._entries[place] = self._entry(batch.records[n], batch.rows[n])
            if self._cache is not None and not entry.inquiry.refusal:
                known = shared.setdefault(entry.inquiry.key, entry.inquiry)
                cached += known is not entry.inquiry or known.answer is not None
                entry.inquiry = known
        if cached:
            self._report("asked", asked=0, cached=cached, failed=0, in_flight=0, seconds=0.0)

    def _entry(self, record: Record, row: Values) -> _Entry:
        lane = _lane(record, self._terms.order)
        try:
            require_room(record.value or b"", self._terms.column)
        except ValueError as error:
            return _Entry(Inquiry(None, record, lane, refusal=str(error)), flaw=str(error))
        try:
            question = self._asking.service.question(record, row)
        except ValueError as error:
            return _Entry(Inquiry(None, record, lane, refusal=str(error)))
        if self._cache is None:
            return _Entry(Inquiry(question, record, lane))
        by = self._terms.by
        key: Hashable = question if by is None else tuple(row[n] for n in by)
        answer = self._cache.get(key, self._clock.monotonic_s())
        return _Entry(Inquiry(question, key, lane, answer and replace(answer, how="cached")))

    def _settle(self) -> None:
        """Ask until no question is open.

        Raises:
            RetriableError, OutcomeUnknownError: some are open and have not been given up.
        """
        inquiries = {id(entry.inquiry): entry.inquiry for entry in self._entries.values()}
        waiting = [each for each in inquiries.values() if each.is_open]
        if waiting and (failure := self._ask(waiting)) is not None:
            is_answered = any(not each.is_open for each in waiting)
            self._fruitless = 0 if is_answered else self._fruitless + 1
            if not self._is_given_up:
                raise failure
            for each in waiting:
                if each.is_open:
                    each.refusal = f"given up after {self._fruitless} tries: {failure}"
        elif waiting:
            self._fruitless = 0
        refused = [each for each in waiting if each.refusal]
        if refused and self._terms.on_error == "retry":
            why = refused[0].refusal
            for each in refused:
                each.refusal = ""
            raise RetriableError("the service refuses a question", found=why)

    def _ask(self, waiting: list[Inquiry[Any]]) -> Failure | None:
        found = self._asking.ask(waiting)
        self._report(
            "asked",
            asked=found.asked,
            cached=0,
            failed=found.failed,
            in_flight=found.in_flight,
            seconds=round(found.seconds, 3),
        )
        for each in waiting:
            if each.answer is not None and self._cache is not None:
                self._cache.put(each.key, each.answer, self._clock.monotonic_s())
        if found.error is not None:
            raise found.error
        return found.failure

    def _rejection(self, entry: _Entry) -> str:
        """Say why a record cannot be written; empty if it can."""
        return entry.flaw or (entry.inquiry.refusal if self._terms.on_error != "write_null" else "")

    def _enriched(self, batch: Batch) -> Batch:
        records = [self._with_answer(record) for record in batch.records]
        return Batch(records, (), batch.moves)

    def _with_answer(self, record: Record) -> Record:
        inquiry = self._entries[_place_of(record)].inquiry
        answer = inquiry.answer or Answer(NULL, self._clock.unix_ms(), "none", inquiry.refusal)
        value = with_answer(record.value or b"{}", self._terms.column, answer)
        headers = (*record.headers, answer.header(self._terms.enrichment))
        return record._replace(value=value, headers=headers)


def _place_of(record: Record) -> RecordPlace:
    return record.topic, record.partition, record.offset


def _lane(record: Record, order: Order) -> Hashable:
    match order:
        case "key":
            return record.topic, record.partition, record.key
        case "partition":
            return record.topic, record.partition
        case "none":
            return _place_of(record)
