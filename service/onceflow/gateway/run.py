"""Builds the parts of one gateway, and runs it until it is to end."""

from __future__ import annotations

import asyncio
import math
import ssl
import sys
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from onceflow.clock import Clock
from onceflow.contracts.connector import Broker, Connection, Connector
from onceflow.contracts.observer import Report
from onceflow.errors import ConfigError, CorruptionError, Fault, OnceflowError, RecordError
from onceflow.gateway.callers import Callers
from onceflow.gateway.forwarding import Forwarder
from onceflow.gateway.memory import Memory
from onceflow.gateway.model import Gateway
from onceflow.gateway.posts import (
    OVERHEAD_BYTES,
    Answer,
    Door,
    KeyOf,
    accepted,
    problem,
)
from onceflow.gateway.server import Desk, Observed, Post, Server
from onceflow.gateway.slots import Fate, KeyedPost, Slot
from onceflow.gateway.trust import authorities
from onceflow.ports import GatewayServer
from onceflow.protocol.identity import gateway_group
from onceflow_connectors.kafka.admin.administration import Administration
from onceflow_connectors.kafka.gateway.membership import Hooks, Membership
from onceflow_connectors.kafka.gateway.owners import Owner, OwnerBoard
from onceflow_connectors.kafka.gateway.plain import PlainWriter
from onceflow_connectors.kafka.gateway.slot import Part, Place, SlotWriter
from onceflow_connectors.kafka.gateway.topics import KeyTopics, prepare_topics, require_same_topic

LOOK_UP_TIMEOUT_S = 30.0
"""For one round of look-ups at the brokers."""
REFRESH_S = 1.0
"""How often it is read who owns which slot."""
REFRESH_TIMEOUT_S = 5.0
LEAVE_TIMEOUT_S = 5.0
"""For the running transaction of a slot that is given to another instance."""
DRAIN_TIMEOUT_S = 15.0
"""For posts that wait when the gateway is to end."""
CLOSE_TIMEOUT_S = 15.0
STOP_LOOK_S = 0.1
INTERVAL_S = 0.008
"""Between the beginnings of two transactions of an instance: posts that come meanwhile share the
second. Each costs 1 to 2 ms of processor time, and 3 to 6 at the brokers, whatever it carries."""
SWITCH_S = 0.0005
"""How long a thread computes while another waits to. A slot waits a dozen times in a transaction;
with Python's 5 ms, a busy loop would make it three times as long."""
BACKLOG = 1024
BATCH_BYTES = 1_000_000
"""librdkafka's own limit of what travels together."""


class Stop(Protocol):
    """Tells when to end; `threading.Event` is one."""

    def is_set(self) -> bool:
        """Whether to end."""


def _nothing(status: int, records: int, seconds: float) -> None:
    """Ignore an answer: nothing watches this run."""


@dataclass(frozen=True)
class Around:
    """The process that a gateway runs in, and what it lends it.

    Args:
        server: where it answers, and whom.
        stop: set to end after the posts that wait.
        observed: told each answer.
        started: told the running gateway, for figures.
        refused: tells posts of the last minutes that were not taken, by status.
    """

    connector: Connector
    connection: Connection
    server: GatewayServer
    clock: Clock
    report: Report
    stop: Stop
    observed: Observed = _nothing
    started: Callable[[Instance], None] = lambda instance: None
    refused: Callable[[], Mapping[int, int]] = dict


def run_gateway(gateway: Gateway, around: Around) -> None:
    """Answer posts until a drain is asked for.

    Raises:
        ConfigError: a topic does not exist, no broker answers, the port is taken.
        CorruptionError: what is remembered cannot be read, or was deleted.
    """
    with ExitStack() as stack:
        broker = around.connector.broker(around.connection)
        stack.callback(broker.close)
        deadline = around.clock.within(LOOK_UP_TIMEOUT_S)
        broker.brokers(deadline)
        largest = _largest_records(gateway, broker, around.clock)
        remember = gateway.remember
        topics = prepare_topics(gateway.name, remember.slots, remember.for_ms, broker, deadline)
    doors = {
        name: Door(name, block, gateway.limits.records, largest[name])
        for name, block in gateway.topics.items()
    }
    batch_bytes = str(min(BATCH_BYTES, *largest.values()))
    properties = {"batch.size": batch_bytes, **around.connection.properties}
    connection = replace(around.connection, properties=properties)
    instance = Instance(gateway, replace(around, connection=connection), topics, doors)
    sys.setswitchinterval(SWITCH_S)
    asyncio.run(instance.run())


def _largest_records(gateway: Gateway, broker: Broker, clock: Clock) -> Mapping[str, int]:
    """Bytes of a record that each topic takes.

    Raises:
        ConfigError: lists the topics that do not exist.
    """
    deadline = clock.within(LOOK_UP_TIMEOUT_S)
    found = {name: broker.topic(name, deadline) for name in gateway.topics}
    missing = tuple(Fault("the topic does not exist", name) for name, t in found.items() if not t)
    if missing:
        then = "nothing was started; create them, or correct the names"
        raise ConfigError("topics are missing", subject=gateway.name, faults=missing, then=then)
    return {
        name: int(topic.config["max.message.bytes"]) - OVERHEAD_BYTES
        for name, topic in found.items()
        if topic is not None
    }


@dataclass
class Instance:
    """One running instance of a gateway. Made and used in one thread, but where it says otherwise.

    Args:
        around: its connection has what the producers need.
    """

    gateway: Gateway
    around: Around
    topics: KeyTopics
    doors: Mapping[str, Door]
    _slots: dict[int, Slot] = field(default_factory=dict)
    _done: deque[tuple[asyncio.Future[Answer], Answer]] = field(default_factory=deque)
    _failure: OnceflowError | None = None
    _refresh_at_s: float = -math.inf

    async def run(self) -> None:
        """Answer until it is to end, or cannot go on.

        Raises:
            OnceflowError: why it cannot.
        """
        self._loop = asyncio.get_running_loop()
        self._desk = self._make_desk()
        http = Server(self._desk.handle)
        listener = await self._listen(http)
        port = listener.sockets[0].getsockname()[1]
        around = self.around
        me = Owner(uuid.uuid4().hex, around.server.address_for_others(port))
        self._administration = Administration(around.connection)
        self._board = OwnerBoard(self.topics.owners, around.connection, me)
        timeout_s = self.gateway.limits.answer_within_ms / 1000
        self._plain = PlainWriter(around.connection, timeout_s, self._wake)
        membership = self._make_membership()
        await listener.start_serving()
        guarantee = str(self.gateway.guarantee())
        where = {"address": around.server.address, "port": port, "advertised": me.address}
        around.report("running", gateway=self.gateway.name, guarantee=guarantee, **where)
        around.started(self)
        membership.start()
        try:
            while not around.stop.is_set() and self._failure is None:
                await asyncio.sleep(STOP_LOOK_S)
            await self._drain(listener)
        finally:
            await asyncio.to_thread(membership.close, CLOSE_TIMEOUT_S)
            await asyncio.to_thread(self._plain.close)
            await asyncio.to_thread(self._board.close)
            await asyncio.to_thread(self._administration.close)
            await self._desk.forwarder.close()
            await http.shutdown(1.0)
        if self._failure is not None:
            raise self._failure

    def figures(self) -> Mapping[str, float]:
        """How full it is. From any thread."""
        slots = [*self._slots.values()]
        return {
            "keys": sum(len(slot.memory) for slot in slots),
            "slots": sum(slot.is_serving for slot in slots),
            "unowned_slots": len(self._unowned()),
            "in_flight_bytes": self._desk.in_flight_bytes,
        }

    def _make_desk(self) -> Desk:
        server, limits = self.around.server, self.gateway.limits
        tokens = Path(server.tokens_file) if server.tokens_file else None
        ca_file = Path(server.ca_file) if server.ca_file else None
        authorities(ca_file)
        return Desk(
            doors=self.doors,
            callers=Callers(tokens, self.around.clock),
            limits=limits,
            write=self._write,
            owner_of=self._owner_of,
            forwarder=Forwarder(ca_file, limits.answer_within_ms / 1000),
            waits_for=self._waits_for,
            clock=self.around.clock,
            observed=self.around.observed,
            refused=self.around.refused,
            failed=self._told,
        )

    def _told(self, error: Exception) -> None:
        self.around.report("warning", text=f"a post has failed: {error!r}")

    def _make_membership(self) -> Membership:
        return Membership(
            gateway_group(self.gateway.name),
            self.topics.keys,
            self.around.connection,
            self.gateway.takeover_after_ms,
            Hooks(
                gained=self._gained,
                lost=self._lost,
                tick=self._refresh,
                warn=lambda text: self.around.report("warning", text=text),
            ),
        )

    async def _listen(self, http: Server) -> asyncio.Server:
        server = self.around.server
        try:
            return await self._loop.create_server(
                http,
                server.address,
                server.port,
                ssl=_tls(server),
                backlog=BACKLOG,
                start_serving=False,
            )
        except OSError as error:
            raise ConfigError(
                "cannot listen",
                subject=f"{server.address} port {server.port}",
                expected="an address of this machine and a free port",
                found=error.strerror or str(error),
            ) from error

    async def _drain(self, listener: asyncio.Server) -> None:
        """Let in no more, and wait a while for the posts that are being answered."""
        self.around.report("draining")
        self._desk.is_ending = True
        listener.close()
        deadline = self.around.clock.within(DRAIN_TIMEOUT_S)
        while self._desk.posts and not deadline.is_over:
            await asyncio.sleep(STOP_LOOK_S)

    def _write(self, post: Post, waiter: asyncio.Future[Answer]) -> bool:
        if post.key is None:
            return self._write_plain(Part(post.topic, post.records), waiter)
        slot = self._slots.get(post.key.slot(self.gateway.remember.slots))
        if slot is None:
            return False
        deadline = self.around.clock.within(self.gateway.limits.answer_within_ms / 1000)
        return slot.submit(
            KeyedPost(post.key, post.topic, post.records, post.size_bytes, deadline, waiter)
        )

    def _write_plain(self, part: Part, waiter: asyncio.Future[Answer]) -> bool:
        def settled(places: Sequence[Place], error: OnceflowError | None) -> None:
            answer = accepted(part.topic, places) if error is None else _failed(error)
            self._done.append((waiter, answer))

        try:
            self._plain.write(part, settled)
        except BufferError:
            return False
        return True

    def _owner_of(self, key: KeyOf) -> str | None:
        slot = key.slot(self.gateway.remember.slots)
        owner = self._board.owner_of(slot)
        return None if owner is None or self._board.is_mine(slot) else owner.address

    def _waits_for(self) -> str:
        unowned = self._unowned()
        return f"owners of slots {', '.join(map(str, unowned))}" if unowned else ""

    def _unowned(self) -> Sequence[int]:
        mine = {number for number, slot in [*self._slots.items()] if slot.is_serving}
        numbers = range(self.gateway.remember.slots)
        return [
            number
            for number in numbers
            if number not in mine
            and (self._board.owner_of(number) is None or self._board.is_mine(number))
        ]

    def _gained(self, number: int) -> None:
        """Take a slot. In the thread of the membership."""
        around, remember = self.around, self.gateway.remember
        writer = SlotWriter(
            self.gateway.name, number, self.topics, around.connection, self._board, around.clock
        )
        memory = Memory(remember.for_ms, -(-remember.at_most // remember.slots))
        slot = Slot(
            number,
            writer,
            memory,
            around.clock,
            around.report,
            self._settle,
            self._fail,
            lambda: INTERVAL_S * len(self._slots),
        )
        self._slots[number] = slot
        slot.start()

    def _lost(self, number: int) -> None:
        """Leave a slot. In the thread of the membership, which the next owner waits for."""
        slot = self._slots.pop(number, None)
        if slot is not None:
            slot.end(LEAVE_TIMEOUT_S)
            self.around.report("slot_left", slot=number)

    def _refresh(self) -> None:
        """Read who owns which slot, once in a while. In the thread of the membership."""
        now_s = self.around.clock.monotonic_s()
        if now_s < self._refresh_at_s:
            return
        self._refresh_at_s = now_s + REFRESH_S
        try:
            deadline = self.around.clock.within(REFRESH_TIMEOUT_S)
            require_same_topic(self.topics, self._administration, deadline)
            self._board.refresh(deadline)
        except CorruptionError as error:
            self._fail(error)
        except OnceflowError as error:
            self.around.report("warning", text=str(error))

    def _settle(self, fates: Sequence[Fate]) -> None:
        """Answer posts with keys. From the threads of slots."""
        if fates:
            self._done.extend((post.waiter, answer) for post, answer in fates)
            self._wake()

    def _fail(self, error: OnceflowError) -> None:
        """Note why this process must not go on. From the threads of slots."""
        self._failure = self._failure or error

    def _wake(self) -> None:
        """Let the loop answer those whose fate is known. From any thread."""
        self._loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        while self._done:
            waiter, answer = self._done.popleft()
            if not waiter.done():
                waiter.set_result(answer)


def _failed(error: OnceflowError) -> Answer:
    """The answer to a post without a key that was not written as a whole."""
    detail = f"{error.what}: {error.found}; some of the post may be written"
    return problem(422, detail) if isinstance(error, RecordError) else problem(503, detail, 1)


def _tls(server: GatewayServer) -> ssl.SSLContext | None:
    if server.certificate_file is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(server.certificate_file, server.key_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            "the gateway's certificate cannot be used",
            subject=server.certificate_file,
            expected="PEM files with a certificate and its key",
            found=getattr(error, "strerror", None) or type(error).__name__,
        ) from error
    return context
