"""The proxy: a listener for each broker, and the sessions behind it. Runs in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tests.chaos.faults import ArmedRule, Cut, Faults, Held
from tests.chaos.link import BUFFER_BYTES, Link
from tests.chaos.messages import (
    Cluster,
    FrameError,
    Node,
    discovery_request,
    nodes,
    read_answer,
)
from tests.chaos.rules import Rule
from tests.chaos.session import Session

HOST = "127.0.0.1"
"""Where the proxy listens: for clients of this machine only."""
ANSWER_TIMEOUT_S = 10.0
"""For a broker to answer a request that the proxy itself has sent."""
SETTLE_STEPS = 10
"""Rounds of the event loop; one that is accepted, or aborted, is through after four."""


@dataclass
class Counts:
    """What happened besides the rules.

    Args:
        sessions: connections of clients that were joined to a broker.
        discarded: answers to released requests, and released answers, whose client had gone.
        undelivered: released requests that no broker took.
    """

    sessions: int = 0
    discarded: int = 0
    undelivered: int = 0


class Proxy:
    """Everything of one proxy. All methods run in its event loop.

    Args:
        bootstrap_servers: `host:port` of some brokers, comma separated. Plaintext.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self.faults = Faults()
        self.counts = Counts()
        self.failures: list[Exception] = []
        self._found = Cluster((), None, -1)
        self._brokers: dict[int, Node] = {}
        self._listeners: dict[int, asyncio.Server] = {}
        self._opening = asyncio.Lock()
        self._sessions: dict[Session, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False

    async def open(self) -> None:
        """Find the brokers and listen for each.

        Raises:
            ConnectionError: none of them answers.
        """
        self._found = await self._discovered()
        await self.advertised(self._found.nodes)

    async def close(self) -> None:
        """End every connection, listener and task. What is held is lost."""
        self._is_closing = True
        loop = asyncio.get_running_loop()
        for listener in self._listeners.values():
            # `Server.close` alone would leak a connection that is just being accepted.
            loop.remove_reader(listener.sockets[0].fileno())
        await _settle()
        for listener in self._listeners.values():
            listener.close()
        running = tuple(self._tasks)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await _settle()

    @property
    def cluster(self) -> Cluster:
        """As clients see it."""
        here = tuple(self._here(node_id) for node_id in sorted(self._listeners))
        return Cluster(here, self._found.cluster_id, self._found.controller_id)

    async def advertised(self, found: Sequence[Node]) -> Mapping[int, Node]:
        """Where clients reach these brokers through the proxy; listens for those that are new."""
        async with self._opening:
            for node in found:
                self._brokers[node.node_id] = node
                if node.node_id not in self._listeners:
                    self._listeners[node.node_id] = await self._listen(node.node_id)
        return {node.node_id: self._here(node.node_id) for node in found}

    def arm(self, rule: Rule) -> ArmedRule:
        """Obey a rule from now on, after those before it."""
        armed = ArmedRule(rule)
        self.faults.rules.append(armed)
        return armed

    async def disarm(self, armed: ArmedRule) -> None:
        """Forget a rule; what it holds goes on."""
        if armed in self.faults.rules:
            self.faults.rules.remove(armed)
        await self.release(armed)

    async def release(self, armed: ArmedRule) -> None:
        """Let what is held now go on, each after the one before it has arrived."""
        for _ in range(len(armed.held)):
            if armed.held:  # a delay may have ended meanwhile
                await self._let_go(armed.held.popleft())

    def keep(self, armed: ArmedRule, held: Held) -> None:
        """Remember what a rule holds, and let it go when its time has come."""
        armed.held.append(held)
        if armed.rule.delay_ms is not None:
            self._spawn(self._let_go_later(armed, held, armed.rule.delay_ms / 1000))

    def cut(self, cut: Cut) -> None:
        """Sever connections until `heal`."""
        self.faults.cut(cut)
        for session, task in self._sessions.items():
            if not cut.is_silent and cut.severs(session.node_id, session.client_id):
                task.cancel()

    def heal(self) -> None:
        """End every cut."""
        self.faults.heal()

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run something until it ends or the proxy does. An error is a failure of the proxy."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self.failures.append(error)

    def _here(self, node_id: int) -> Node:
        return Node(node_id, HOST, self._listeners[node_id].sockets[0].getsockname()[1])

    async def _listen(self, node_id: int) -> asyncio.Server:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if self._is_closing:
                writer.transport.abort()
                return
            task = self._spawn(self._serve(node_id, Link(reader, writer)))
            # One that is cancelled before its first step would leave the connection open.
            task.add_done_callback(lambda _: writer.transport.abort())

        return await asyncio.start_server(accept, HOST, 0, limit=BUFFER_BYTES)

    async def _serve(self, node_id: int, client: Link) -> None:
        try:
            await self._join(node_id, client)
        finally:
            await client.close()

    async def _join(self, node_id: int, client: Link) -> None:
        cut = self.faults.cut_of(node_id, None)
        if cut and not cut.is_silent:
            return
        try:
            broker = await self._connect(node_id)
        except OSError:
            return  # a client sees of a broker that is gone that its connection ends
        session = Session(self, node_id, client, broker)
        task = asyncio.current_task()
        if task is not None:
            self._sessions[session] = task
        self.counts.sessions += 1
        try:
            await session.run()
        finally:
            del self._sessions[session]

    async def _connect(self, node_id: int) -> Link:
        node = self._brokers[node_id]
        return await Link.to(node.host, node.port)

    async def _let_go_later(self, armed: ArmedRule, held: Held, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        with suppress(ValueError):  # it was released before
            armed.held.remove(held)
            await self._let_go(held)

    async def _let_go(self, held: Held) -> None:
        held.released.set()
        await held.left.wait()
        if held.is_sent:
            return
        if held.on == "response":
            self.counts.discarded += 1
        else:
            await self._deliver(held)

    async def _deliver(self, held: Held) -> None:
        """Send a request whose client has gone, as a network would that was only slow."""
        try:
            link = await self._connect(held.broker)
        except OSError:
            self.counts.undelivered += 1
            return
        try:
            await link.write(held.request.frame)
            if held.request.is_answered:
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    await link.read()
                self.counts.discarded += 1
        except (OSError, FrameError):
            self.counts.undelivered += 1
        finally:
            await link.close()

    async def _discovered(self) -> Cluster:
        reasons = []
        for address in self._bootstrap_servers.split(","):
            host, _, port = address.strip().rpartition(":")
            try:
                return await _ask(host.strip("[]"), int(port))
            except (OSError, ValueError) as error:  # of the network; of the port or the answer
                reasons.append(f"{address.strip()}: {str(error) or type(error).__name__}")
        raise ConnectionError(f"no broker answers without TLS and SASL: {'; '.join(reasons)}")


async def _settle() -> None:
    """Let connections that are just being accepted or aborted get to their end."""
    for _ in range(SETTLE_STEPS):
        await asyncio.sleep(0)


async def _ask(host: str, port: int) -> Cluster:
    """Which brokers there are.

    Raises:
        OSError: nobody answers.
        FrameError: who answers is no broker.
    """
    link = await Link.to(host, port)
    request = discovery_request()
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            await link.write(request.frame)
            answer = read_answer(request, await link.read())
            return Cluster(nodes(answer), answer.cluster_id, answer.controller_id)
    finally:
        await link.close()
