"""The proxy for code without an event loop: it runs in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Self, TypeVar

from onceflow.clock import Clock, SystemClock
from tests.chaos.faults import ArmedRule, Cut
from tests.chaos.proxy import Counts, Proxy
from tests.chaos.rules import Rule

T = TypeVar("T")

CALL_TIMEOUT_S = 30.0
"""For the proxy's thread to do as it is told; to send what was held may take a while."""


class RunningRule:
    """A rule that a proxy obeys."""

    def __init__(self, armed: ArmedRule, proxy: ChaosProxy) -> None:
        self.rule = armed.rule
        self._armed = armed
        self._proxy = proxy

    @property
    def fired(self) -> int:
        """How often it matched and acted. What it holds counts from the start."""
        return self._armed.fired

    @property
    def held(self) -> int:
        """How many messages it holds now."""
        return len(self._armed.held)

    def wait_fired(self, times: int = 1, timeout_s: float = 30.0) -> None:
        """Wait until it has acted that often since it was added.

        Raises:
            DeadlineError: it did not in time.
        """
        self._armed.wait_fired(times, timeout_s, self._proxy.clock)

    def release(self) -> None:
        """Let what is held go on, in order, and return when it has; later matches are held again.

        A request whose client has gone is sent on a new connection, and its answer is discarded.

        Raises:
            TimeoutError: it could not be sent in time. The proxy goes on trying.
        """
        self._proxy.run(lambda proxy: proxy.release(self._armed))

    def remove(self) -> None:
        """End it. What it holds goes on, as with `release`.

        Raises:
            TimeoutError: it could not be sent in time. The proxy goes on trying.
        """
        self._proxy.run(lambda proxy: proxy.disarm(self._armed))


class ChaosProxy:
    """A proxy that runs while this object is entered.

    Args:
        bootstrap_servers: `host:port` of some brokers, comma separated. Plaintext only.
        clock: to wait with.
    """

    def __init__(self, bootstrap_servers: str, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self.bootstrap_servers = ""
        """Addresses of the proxy, one for each broker that ran at the start, comma separated."""
        self.counts = Counts()
        """What happened besides the rules; also known when the proxy has ended."""
        self._brokers = bootstrap_servers
        self._thread: threading.Thread | None = None
        self._proxy: Proxy | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()

    def __enter__(self) -> Self:
        """Start it.

        Raises:
            ConnectionError: no broker answers.
        """
        started: Future[Proxy] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._main(started)), name="onceflow-chaos"
        )
        self._thread.start()
        try:
            self._proxy = started.result()
        except BaseException:
            self._thread.join()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every connection; what is held is lost.

        Raises:
            RuntimeError: the proxy met what it was not made for.
        """
        proxy, self._proxy = self._proxy, None
        if proxy is None or self._thread is None or self._loop is None:
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if proxy.failures and error is None:
            raise RuntimeError("the chaos proxy failed") from proxy.failures[0]

    def add(self, rule: Rule) -> RunningRule:
        """Obey a rule from now on, after those before it."""

        async def arm(proxy: Proxy) -> ArmedRule:
            return proxy.arm(rule)

        return RunningRule(self.run(arm), self)

    def cut(
        self, *, broker: int | None = None, client_id: str | None = None, is_silent: bool = False
    ) -> None:
        """Close connections and refuse new ones, until `heal`.

        Args:
            broker: node id; None for all.
            client_id: pattern for the id of clients; None for all.
            is_silent: leave connections open, old and new, and let nothing through.
        """

        async def sever(proxy: Proxy) -> None:
            proxy.cut(Cut(broker, client_id, is_silent))

        self.run(sever)

    def heal(self) -> None:
        """End every cut. Silent connections go on where they were."""

        async def heal(proxy: Proxy) -> None:
            proxy.heal()

        self.run(heal)

    def run(self, work: Callable[[Proxy], Coroutine[None, None, T]]) -> T:
        """Have the proxy's own thread do something, and wait for it.

        Raises:
            TimeoutError: it takes too long. It goes on.
        """
        if self._proxy is None or self._loop is None:
            raise RuntimeError("the chaos proxy is not entered")
        future = asyncio.run_coroutine_threadsafe(work(self._proxy), self._loop)
        return future.result(CALL_TIMEOUT_S)

    async def _main(self, started: Future[Proxy]) -> None:
        proxy = Proxy(self._brokers)
        self._loop = asyncio.get_running_loop()
        try:
            await proxy.open()
            self.counts = proxy.counts
            self.bootstrap_servers = ",".join(
                f"{node.host}:{node.port}" for node in proxy.cluster.nodes
            )
            started.set_result(proxy)
            await self._stop.wait()
        except BaseException as error:  # whoever entered hears of it  # noqa: BLE001
            started.set_exception(error)
        finally:
            await proxy.close()
