"""Records a history while faults happen."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from tests.faults.history.clients import Clock, system_clock, until
from tests.faults.history.final import await_ends, find_inputs, open_transactions, read_final
from tests.faults.history.model import (
    Attempt,
    Ends,
    Input,
    Isolation,
    OpenTransaction,
    Outcome,
    Place,
    Reader,
)
from tests.faults.history.pool import Pool
from tests.faults.history.producers import InputProducer, Inputs
from tests.faults.history.recorded import History
from tests.faults.history.watchers import Events, Places, ProbeLoop, ReaderLoop, new_reader

STOP_S = 30.0
"""A client's close waits for a broker that is gone, but not longer."""


class Recorder:
    """Watches an output topic and a ledger from outside, from `__enter__` to `quiesce`.

    Two readers, one of each isolation level, read everything from the beginning while it happens;
    a probe asks for the ends of all partitions twice a second. Topics may be created later, and
    may grow; a topic that is deleted and created again begins another history.

    Args:
        bootstrap_servers: of the brokers themselves, also where the product goes through a proxy.
        output_topic: of the pipeline.
        pipeline: its name; None: there is no ledger to read.
        keep_inputs: False: acknowledged inputs go to `on_ok` and are forgotten.
        on_ok: called for each acknowledged input, e.g. to fold it into an oracle.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        output_topic: str,
        pipeline: str | None = None,
        *,
        keep_inputs: bool = True,
        on_ok: Callable[[Input], None] | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._history = History(output_topic, pipeline)
        self._topics = [output_topic]
        if self._history.ledger_topic is not None:
            self._topics.append(self._history.ledger_topic)
        self._clock = clock
        self._events = Events(clock)
        self._inputs = Inputs(self._events, keep=keep_inputs, on_ok=on_ok)
        self._producers: list[InputProducer] = []
        self._pool = Pool()
        self._is_quiet = False
        self._stop = threading.Event()
        self._threads = ThreadPoolExecutor(3, thread_name_prefix="history")
        self._running: list[Future[None]] = []
        places = Places()
        self._probe = ProbeLoop(self._topics, places, self._events)
        self._readers = [
            ReaderLoop(new_reader(level), places, self._events, self._pool)
            for level in (Isolation.COMMITTED, Isolation.UNCOMMITTED)
        ]

    def __enter__(self) -> Self:
        runs = [self._probe.run, *(loop.run for loop in self._readers)]
        self._running = [
            self._threads.submit(run, self._bootstrap_servers, self._stop) for run in runs
        ]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._threads.shutdown()

    @property
    def readers(self) -> list[Reader]:
        """All readers so far; the committed one first."""
        return [loop.reader for loop in self._readers]

    def producer(self, topic: str) -> InputProducer:
        """Makes inputs that are found again, with their outcomes."""
        name = f"{topic}-{len(self._producers)}"
        producer = InputProducer(self._bootstrap_servers, topic, name, self._inputs)
        self._producers.append(producer)
        return producer

    def attempt(self, batch_id: int, run_id: str, outcome: Outcome) -> None:
        """Note what a driver says of its try to commit a batch."""
        self._history.attempts.append(
            Attempt(self._events.number(), self._events.now_s(), batch_id, run_id, outcome)
        )

    def quiesce(self, *, settle_s: float = 60.0, catch_up_s: float = 30.0) -> None:
        """Stop watching and read what is there in the end. Brokers must be whole again and drivers
        idle or gone.

        Args:
            settle_s: wait so long for open transactions; at least the transaction time-out of the
                drivers, or what they left behind counts as hung.
            catch_up_s: so long the readers may need to get to the end.

        Raises:
            TimeoutError: brokers did not answer. This says nothing about the product.
            KafkaException: a client gave up, as before.
        """
        for producer in self._producers:
            producer.flush(settle_s)
        goal = await_ends(self._bootstrap_servers, self._topics, self._clock, settle_s=settle_s)
        self._let_readers_reach(goal, catch_up_s)
        self._stop.set()
        for future in self._running:
            future.result(STOP_S)
        # Again, and after the readers: it must cover all that they saw.
        ends = await_ends(self._bootstrap_servers, self._topics, self._clock, settle_s=0)
        history = self._history
        history.final = read_final(self._bootstrap_servers, ends, self._pool, self._clock)
        history.transactions = open_transactions(
            self._bootstrap_servers, self._concerns, self._clock, settle_s=settle_s
        )
        # An input whose outcome is unknown either is in its topic, or it is not.
        unknown = {one.input_id: one.topic for one in self._inputs.unknown()}
        self._inputs.resolve(find_inputs(self._bootstrap_servers, unknown, self._clock))
        history.inputs = self._inputs.all()
        history.readers = self.readers
        history.probes = self._probe.probes
        self._is_quiet = True

    def history(self) -> History:
        """The recorded history, complete after `quiesce`.

        Raises:
            RuntimeError: before that, since checks would be silent.
        """
        if not self._is_quiet:
            raise RuntimeError("quiesce() must have returned before a history can be judged")
        return self._history

    def _let_readers_reach(self, goal: dict[Place, Ends], catch_up_s: float) -> None:
        for loop in self._readers:
            committed = loop.reader.isolation is Isolation.COMMITTED
            loop.reader.goal = {
                place: end.last_stable_offset if committed else end.high_watermark
                for place, end in goal.items()
            }

        def all_there() -> bool:
            ended = any(future.done() for future in self._running)
            return ended or all(
                loop.positions.get(place, 0) >= offset
                for loop in self._readers
                for place, offset in loop.reader.goal.items()
            )

        until(all_there, catch_up_s, self._clock, self._stop)

    def _concerns(self, transaction: OpenTransaction) -> bool:
        prefix = f"onceflow.{self._history.pipeline}."
        is_ours = self._history.pipeline is not None
        return (is_ours and transaction.transactional_id.startswith(prefix)) or any(
            topic in self._topics for topic, _ in transaction.places
        )
