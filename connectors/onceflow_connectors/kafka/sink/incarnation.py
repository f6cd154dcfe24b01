"""One transactional producer for one transaction: `contracts.sink.Incarnation` on librdkafka."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from enum import Enum, auto
from functools import lru_cache, partial
from threading import Thread
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from onceflow.clock import Deadline
from onceflow.contracts.connector import Connection
from onceflow.contracts.sink import OutputRecord, Transaction
from onceflow.errors import DeadlineError, InvariantError, OnceflowError, require
from onceflow_connectors.kafka.client.failures import (
    CLIENT_ERRORS,
    Operation,
    describe,
    is_passing,
    kafka_error,
)
from onceflow_connectors.kafka.client.librdkafka import (
    Setting,
    Settings,
    open_client,
    producer_config,
)
from onceflow_connectors.kafka.sink.outbox import QUEUE, OnWritten, Outbox

TUNING: Mapping[str, Setting] = {**QUEUE, "transaction.timeout.ms": 60_000}
"""The user's properties go before them."""

REQUEST_TIMEOUT_MS = 10_000
"""Time limit for one request. The default of 60 s is longer than the budget of a transaction."""
RETRY_PAUSE_S = 0.02
"""Pause after a call that failed at once; librdkafka paces its own retries."""
COMMIT_LOOK_S = 0.5
"""How often a commit looks whether a record of the transaction was refused."""
LATE_ANSWER_S = 0.5
"""Extra time for a client that returns at its deadline."""
ABORT_TIMEOUT_S = 5.0
"""An abort is a courtesy to readers: the next initialisation ends the transaction anyway."""
STATISTICS_INTERVAL_MS = 20
"""Of a client that has to tell its producer id, which takes that long after it has one."""
IDENTITY_POLL_S = 0.005
MAX_GROUPS = 16
"""Groups whose metadata is kept: one for each pipeline of a process, with room."""


class _Stage(Enum):
    NEW = auto()
    READY = auto()
    OPEN = auto()
    COMMITTED = auto()
    USED = auto()
    """Ended, or something was refused: then a commit would succeed without it, so none is tried."""


class KafkaIncarnation:
    """Implements `contracts.sink.Incarnation` on one librdkafka producer.

    Args:
        is_reporting: whether `on_written` of `send` is called.
        is_shared: whether others may join its transaction.
    """

    def __init__(
        self,
        transactional_id: str,
        connection: Connection,
        *,
        is_reporting: bool = False,
        is_shared: bool = False,
    ) -> None:
        self._transactional_id = transactional_id
        self._connection = connection
        self._is_reporting = is_reporting
        self._is_shared = is_shared
        self._transaction: Transaction | None = None
        self._stage = _Stage.NEW
        self._outbox: Outbox | None = None

    @property
    def transactional_id(self) -> str:
        return self._transactional_id

    def initialise(self, deadline: Deadline) -> None:
        """Try again after passing errors, until the deadline."""
        self._leave(_Stage.NEW)
        self._outbox = Outbox(
            self._transactional_id,
            self.settings(),
            is_reporting=self._is_reporting,
            on_statistics=self._take_statistics if self._is_shared else None,
        )
        error = settle(self._outbox.client.init_transactions, deadline)
        if error is not None:
            what = "cannot initialise a transactional id"
            raise self._late_or_failed(error, Operation.INITIALISE, what, deadline)
        while self._is_shared and self._transaction is None:
            deadline.check("no producer id", subject=self._transactional_id)
            self._producer().poll(deadline.at_most_s(IDENTITY_POLL_S))
        self._stage = _Stage.READY

    def transaction(self) -> Transaction:
        """The transaction, for those who join it. Only of a shared one, and after `initialise`."""
        require(self._transaction is not None, "a shared incarnation that is initialised")
        assert self._transaction is not None  # noqa: S101  for the type checker only
        return self._transaction

    def begin(self) -> None:
        self._leave(_Stage.READY)
        try:
            self._producer().begin_transaction()
        except CLIENT_ERRORS as raised:
            error = kafka_error(raised)
            raise self._failure(error, Operation.PRODUCE, "cannot begin a transaction") from raised
        self._stage = _Stage.OPEN

    def send(
        self,
        topic: str,
        records: Iterable[OutputRecord],
        deadline: Deadline,
        on_written: OnWritten | None = None,
    ) -> int:
        self._leave(_Stage.OPEN)
        count = self._open_outbox().put(topic, records, deadline, on_written)
        self._stage = _Stage.OPEN
        return count

    def flush(self, deadline: Deadline) -> None:
        """Wait until every record of the transaction is acknowledged.

        Raises:
            AbortableError, FencedError, RecordError: one was refused.
            DeadlineError: not all are acknowledged in time.
        """
        self._leave(_Stage.OPEN)
        self._open_outbox().flush(deadline)
        self._stage = _Stage.OPEN

    def send_offsets(
        self, group: str, offsets: Mapping[tuple[str, int], int], deadline: Deadline
    ) -> None:
        """Take up to `LATE_ANSWER_S` longer than the deadline."""
        self._leave(_Stage.OPEN)
        # The client silently ignores offsets below zero.
        require(all(offset >= 0 for offset in offsets.values()), "offsets count from 0")
        send = partial(
            self._producer().send_offsets_to_transaction,
            [TopicPartition(topic, partition, n) for (topic, partition), n in offsets.items()],
            _group_metadata(group),
        )
        error = _settle_apart(send, deadline)
        if error is not None:
            what = f"cannot send offsets of group {group}"
            raise self._late_or_failed(error, Operation.SEND_OFFSETS, what, deadline)
        self._stage = _Stage.OPEN

    def commit(self, deadline: Deadline) -> None:
        self._leave(_Stage.OPEN)
        error = settle(self._commit_for, deadline)
        if error is not None:
            raise self._failure(error, Operation.COMMIT, "a commit did not succeed")
        self._stage = _Stage.COMMITTED

    def use_again(self) -> None:
        """Allow one more transaction.

        Only if no request of the one before was sent again: a copy could arrive late, and end the
        next transaction.
        """
        self._leave(_Stage.COMMITTED)
        self._stage = _Stage.READY

    def _commit_for(self, timeout_s: float) -> None:
        """Continue the commit for a while.

        The client does not give up a transaction of which a record was refused while others, sent
        after it to the same partition, wait for the abort (`WaitTxnAbort`). So we do.
        """
        try:
            self._producer().commit_transaction(min(timeout_s, COMMIT_LOOK_S))
        except CLIENT_ERRORS as raised:
            if is_passing(kafka_error(raised)):
                self._open_outbox().check()
            raise

    def abort(self, deadline: Deadline) -> None:
        """Take up to `ABORT_TIMEOUT_S`."""
        self._leave(_Stage.OPEN, _Stage.USED)
        with suppress(*CLIENT_ERRORS):
            self._producer().abort_transaction(deadline.at_most_s(ABORT_TIMEOUT_S))

    def discard(self) -> None:
        """Take about a millisecond, also when no broker answers."""
        outbox, self._outbox = self._outbox, None
        self._stage = _Stage.USED
        if outbox is not None:
            outbox.discard()

    def settings(self) -> Settings:
        insisted: dict[str, Setting] = {"transactional.id": self._transactional_id}
        if self._is_shared:
            insisted["statistics.interval.ms"] = STATISTICS_INTERVAL_MS
        settings = {**TUNING, **producer_config(self._connection, insisted)}
        transaction_timeout_ms = str(settings["transaction.timeout.ms"])
        if transaction_timeout_ms.isdecimal():
            # Offsets are sent with this time-out, whatever time-out the call is given. The client
            # refuses one that is longer than the transaction's.
            longest_ms = min(REQUEST_TIMEOUT_MS, int(transaction_timeout_ms))
            settings = {"socket.timeout.ms": longest_ms, **settings}
        return settings

    def _take_statistics(self, text: str) -> None:
        """Keep what the client says of its first initialisation: no other way tells it."""
        said = json.loads(text)["eos"]
        if self._transaction is None and said["txn_state"] == "Ready":
            identity = said["producer_id"], said["producer_epoch"]
            self._transaction = Transaction(self._transactional_id, *identity)

    def _leave(self, *stages: _Stage) -> None:
        """Begin a step: USED from now on, unless the step succeeds and sets the next stage."""
        require(
            self._stage in stages,
            "an incarnation carries one transaction, in order, and none after a failure",
            subject=self._transactional_id,
            found=f"stage {self._stage.name}",
        )
        self._stage = _Stage.USED

    def _open_outbox(self) -> Outbox:
        if self._outbox is None:
            raise InvariantError("no client any more", subject=self._transactional_id)
        return self._outbox

    def _producer(self) -> Producer:
        return self._open_outbox().client

    def _late_or_failed(
        self, error: KafkaError, operation: Operation, what: str, deadline: Deadline
    ) -> OnceflowError:
        if not is_passing(error):
            return self._failure(error, operation, what)
        return DeadlineError(
            what,
            subject=self._transactional_id,
            expected=f"done within {deadline.budget_s:g} s",
            found=describe(error),
        )

    def _failure(self, error: KafkaError, operation: Operation, what: str) -> OnceflowError:
        return self._open_outbox().failure(error, operation, what)


def settle(call: Callable[[float], object], deadline: Deadline) -> KafkaError | None:
    """Call, and again while the error is passing and time is left.

    Returns:
        The last error, or None when a call succeeded.
    """
    while True:
        try:
            call(deadline.remaining_s())
        except CLIENT_ERRORS as raised:
            error = kafka_error(raised)
        else:
            return None
        if deadline.is_over or not is_passing(error):
            return error
        deadline.clock.sleep(deadline.at_most_s(RETRY_PAUSE_S))


def _settle_apart(call: Callable[[float], object], deadline: Deadline) -> KafkaError | None:
    """As `settle`, for a call whose time-out the client may forget.

    Where the group's coordinator cannot be found, librdkafka waits for any broker's connection to
    change, forever if none does (librdkafka #5456, #5511). The client is then left to the thread
    that waits in it; both end with that wait, or with the process.

    Returns:
        As `settle`; `_TIMED_OUT` if the client did not come back.
    """
    end: Future[KafkaError | None] = Future()

    def run() -> None:
        try:
            end.set_result(settle(call, deadline))
        except BaseException as error:  # noqa: BLE001  raised where the result is waited for
            end.set_exception(error)

    Thread(target=run, name="send-offsets", daemon=True).start()
    try:
        return end.result(deadline.remaining_s() + LATE_ANSWER_S)
    except TimeoutError:
        return KafkaError(KafkaError._TIMED_OUT)  # noqa: SLF001  the client's constants look private


@lru_cache(maxsize=MAX_GROUPS)
def _group_metadata(group: str) -> Any:
    """Return what the client needs to name a group without being a member."""
    # Without an address the consumer connects to nothing.
    consumer = open_client(Consumer, {"group.id": group})
    try:
        return consumer.consumer_group_metadata()
    finally:
        consumer.close()
