"""The proxy: a listener for each broker, and its sessions. Runs in an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.chaos.link import BUFFER_BYTES, EndedError, Link
from tests.chaos.messages import (
    FrameError,
    Node,
    Request,
    discovery_request,
    nodes,
    read_answer,
)
from tests.chaos.rules import Held, RunningRule, Side
from tests.chaos.session import Session

HOST = "127.0.0.1"
"""Where the proxy listens: for clients of this machine only."""
ANSWER_TIMEOUT_S = 10.0
"""For a broker to answer a request that the proxy itself has sent."""
SETTLE_STEPS = 10
"""Rounds of the event loop; one that is accepted, or aborted, is through after four."""


@dataclass(frozen=True)
class Cut:
    """Connections that are severed.

    Args:
        broker: node id; None for all.
        is_silent: whether they stay open and carry nothing, rather than being closed.
    """

    broker: int | None
    is_silent: bool

    def severs(self, node_id: int) -> bool:
        """Whether connections to a broker are among them."""
        return self.broker in (None, node_id)


class Proxy:
    """Everything of one proxy. All methods run in its event loop.

    Args:
        bootstrap_servers: `host:port` of some brokers, comma separated. Plaintext.

    Attributes:
        failures: what it was not made for.
        delivered: held requests that a broker took after their client had gone.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self.failures: list[Exception] = []
        self.delivered = 0
        self._bootstrap_servers = bootstrap_servers
        self._rules: list[RunningRule] = []
        self._cut: Cut | None = None
        self._healed = asyncio.Event()
        self._brokers: dict[int, Node] = {}
        self._listeners: dict[int, asyncio.Server] = {}
        self._opening = asyncio.Lock()
        self._serving: dict[asyncio.Task[None], int] = {}
        """Tasks of connections, with the node id of their broker."""
        self._is_closing = False

    async def open(self) -> str:
        """Find the brokers and listen for each.

        Returns:
            Addresses of the proxy, comma separated.

        Raises:
            ConnectionError: none of them answers.
        """
        here = await self.advertised(await self._discovered())
        return ",".join(f"{node.host}:{node.port}" for _, node in sorted(here.items()))

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
        running = tuple(self._serving)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await _settle()

    async def advertised(self, found: Sequence[Node]) -> Mapping[int, Node]:
        """Where clients reach these brokers through the proxy; listens for those that are new."""
        async with self._opening:
            for node in found:
                self._brokers[node.node_id] = node
                if node.node_id not in self._listeners:
                    self._listeners[node.node_id] = await self._listen(node.node_id)
        ports = {id_: each.sockets[0].getsockname()[1] for id_, each in self._listeners.items()}
        return {node.node_id: Node(node.node_id, HOST, ports[node.node_id]) for node in found}

    async def arm(self, running: RunningRule) -> None:
        """Obey a rule from now on, after those before it."""
        self._rules.append(running)

    async def disarm(self, running: RunningRule) -> None:
        """Forget a rule; what it holds goes on."""
        if running in self._rules:
            self._rules.remove(running)
        await self.release(running)

    async def release(self, running: RunningRule) -> None:
        """Let what is held now go on, each after the one before it has arrived."""
        for _ in range(len(running.held)):
            held = running.held.popleft()
            held.released.set()
            await held.left.wait()
            if not held.is_sent:
                await self._deliver(held)

    async def cut(self, cut: Cut) -> None:
        """Sever connections until `heal`, in place of those that are severed now."""
        self._cut = cut
        self._healed.clear()
        for task, node_id in self._serving.items():
            if not cut.is_silent and cut.severs(node_id):
                task.cancel()

    async def heal(self) -> None:
        """End a cut. Connections that were silent go on where they were."""
        self._cut = None
        self._healed.set()

    async def pass_cut(self, node_id: int) -> None:
        """Wait while a silent cut is in the way to a broker.

        Raises:
            EndedError: one that closes connections is.
        """
        while self._cut is not None and self._cut.severs(node_id):
            if not self._cut.is_silent:
                raise EndedError
            await self._healed.wait()

    def choose(self, on: Side, request: Request, broker: int) -> RunningRule | None:
        """The first rule that acts on this message, which is counted there."""
        return next((rule for rule in self._rules if rule.takes(on, request, broker)), None)

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._serving[task]
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self.failures.append(error)

    async def _listen(self, node_id: int) -> asyncio.Server:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if self._is_closing:
                writer.transport.abort()
                return
            task = asyncio.create_task(self._serve(node_id, Link(reader, writer)))
            self._serving[task] = node_id
            task.add_done_callback(self._done)
            # One that is cancelled before its first step would leave the connection open.
            task.add_done_callback(lambda _: writer.transport.abort())

        return await asyncio.start_server(accept, HOST, 0, limit=BUFFER_BYTES)

    async def _serve(self, node_id: int, client: Link) -> None:
        try:
            if self._cut is None or self._cut.is_silent or not self._cut.severs(node_id):
                broker = await self._connect(node_id)
                await Session(self, node_id, client, broker).run()
        except OSError:
            pass  # a client sees of a broker that is gone that its connection ends
        finally:
            await client.close()

    async def _connect(self, node_id: int) -> Link:
        node = self._brokers[node_id]
        return await Link.to(node.host, node.port)

    async def _deliver(self, held: Held) -> None:
        """Send a request whose client has gone, as a network would that was only slow."""
        try:
            link = await self._connect(held.broker)
        except OSError:
            return
        try:
            await _asked(link, held.request)
            self.delivered += 1
        except (OSError, FrameError):
            pass  # the broker did not take it
        finally:
            await link.close()

    async def _discovered(self) -> Sequence[Node]:
        reasons = []
        request = discovery_request()
        for address in self._bootstrap_servers.split(","):
            host, _, port = address.strip().rpartition(":")
            try:
                link = await Link.to(host.strip("[]"), int(port))
                try:
                    return nodes(read_answer(request, await _asked(link, request)))
                finally:
                    await link.close()
            except (OSError, ValueError) as error:  # of the network; of the port or the answer
                reasons.append(f"{address.strip()}: {str(error) or type(error).__name__}")
        raise ConnectionError(f"no broker answers without TLS and SASL: {'; '.join(reasons)}")


async def _asked(link: Link, request: Request) -> bytes:
    """The answer to a request of the proxy's own; empty if it has none."""
    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        await link.write(request.frame)
        return await link.read() if request.is_answered else b""


async def _settle() -> None:
    """Let connections that are just being accepted or aborted get to their end."""
    for _ in range(SETTLE_STEPS):
        await asyncio.sleep(0)
