"""Producers of inputs, each of which is found again: unique, and with its outcome."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.faults.history.model import Input, Outcome
from tests.faults.history.watchers import Events

ID_HEADER = "input"
MAX_WAITS = 600
"""For room in the producer's queue, each WAIT_S long: a minute without it is a fault of the test,
since messages leave the queue after MESSAGE_TIMEOUT_MS at the latest."""
WAIT_S = 0.1
MESSAGE_TIMEOUT_MS = 30_000
REFUSED = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.INVALID_RECORD,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
}
"""Errors after which a message is certainly not in the log. All others leave it open, also those
whose names sound definite."""


class Inputs:
    """Inputs of all producers, with their outcomes.

    Args:
        keep: False: inputs that were acknowledged are handed to `on_ok` and forgotten, so that an
            hour of load does not fill the memory.
        on_ok: called for each acknowledged input, on the thread of the producer that sent it.
    """

    def __init__(
        self, events: Events, *, keep: bool = True, on_ok: Callable[[Input], None] | None = None
    ) -> None:
        self.events = events
        self._keep = keep
        self._on_ok = on_ok
        self._lock = threading.Lock()
        self._settled: list[Input] = []
        self._pending: dict[str, Input] = {}

    def sent(self, one: Input) -> None:
        """It may be in the log from now on."""
        with self._lock:
            self._pending[one.input_id] = one

    def settle(self, one: Input) -> None:
        """Its outcome is what it says."""
        if one.outcome is Outcome.OK and self._on_ok is not None:
            self._on_ok(one)
        with self._lock:
            self._pending.pop(one.input_id, None)
            if self._keep or one.outcome is not Outcome.OK:
                self._settled.append(one)

    def pending(self, input_id: str) -> Input:
        """One that was sent."""
        with self._lock:
            return self._pending[input_id]

    def all(self) -> list[Input]:
        """Those that are kept, in the order in which they were sent; unsettled ones are unknown."""
        with self._lock:
            return sorted((*self._settled, *self._pending.values()), key=lambda one: one.index)

    def unknown(self) -> list[Input]:
        """Inputs whose outcome is unknown."""
        return [one for one in self.all() if one.outcome is Outcome.UNKNOWN]

    def resolve(self, found: Mapping[str, tuple[int, int]]) -> None:
        """Unknown ones whose id was found in the log, at partition and offset, are ok after all."""
        with self._lock:
            known, self._settled = self._settled, []
            known += self._pending.values()
            self._pending.clear()
        for one in known:
            if one.outcome is Outcome.UNKNOWN and one.input_id in found:
                partition, offset = found[one.input_id]
                self.settle(replace(one, outcome=Outcome.OK, partition=partition, offset=offset))
            else:
                self._settled.append(one)


class InputProducer:
    """Sends inputs to one topic. For one thread."""

    def __init__(self, bootstrap_servers: str, topic: str, name: str, inputs: Inputs) -> None:
        self.topic = topic
        self._name = name
        self._inputs = inputs
        self._count = 0
        # Idempotent: the order stays, and a request that is retried is not written twice.
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "message.timeout.ms": MESSAGE_TIMEOUT_MS,
                "log_level": 2,
            }
        )

    def send(
        self,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        partition: int = -1,
    ) -> str:
        """Send one input; returns its unique id, which is also its value if none is given.

        Values should be unique too, so that an output can be traced to its inputs.

        Raises:
            BufferError: no room in the queue for a minute.
        """
        self._count += 1
        input_id = f"{self._name}-{self._count}"
        events = self._inputs.events
        one = Input(
            events.number(),
            events.now_s(),
            input_id,
            self.topic,
            key,
            input_id.encode() if value is None else value,
            Outcome.UNKNOWN,
        )
        self._inputs.sent(one)
        for _ in range(MAX_WAITS):
            try:
                self._producer.produce(
                    self.topic,
                    one.value,
                    key,
                    partition=partition,
                    headers={ID_HEADER: input_id.encode()},
                    on_delivery=lambda error, message: self._settle(input_id, error, message),
                )
            except BufferError:
                self._producer.poll(WAIT_S)
            except KafkaException:  # refused at once: it was never queued
                self._inputs.settle(replace(one, outcome=Outcome.FAILED))
                return input_id
            else:
                self._producer.poll(0)
                return input_id
        self._inputs.settle(replace(one, outcome=Outcome.FAILED))
        raise BufferError(f"no room for input {input_id} to {self.topic}")

    def flush(self, timeout_s: float) -> int:
        """Wait for outcomes; returns how many are still open."""
        return self._producer.flush(timeout_s)

    def _settle(self, input_id: str, error: KafkaError | None, message: Message) -> None:
        one = self._inputs.pending(input_id)
        if error is None:
            settled = replace(
                one, outcome=Outcome.OK, partition=message.partition(), offset=message.offset()
            )
        elif error.code() in REFUSED:
            settled = replace(one, outcome=Outcome.FAILED)
        else:
            settled = one
        self._inputs.settle(settled)
