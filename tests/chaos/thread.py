"""The proxy for code without an event loop: it runs in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Self, TypeVar

from tests.chaos.proxy import Cut, Proxy
from tests.chaos.rules import Rule, RunningRule

T = TypeVar("T")

CALL_TIMEOUT_S = 30.0
"""For the proxy's thread to obey an order; to send what was held may take a while."""


class ChaosProxy:
    """A proxy that runs while this object is entered.

    Args:
        bootstrap_servers: `host:port` of some brokers, comma separated. Plaintext only.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = ""
        """Addresses of the proxy, one for each broker that ran at the start, comma separated."""
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

    @property
    def delivered(self) -> int:
        """How many held requests a broker took after their client had gone."""
        return self._entered().delivered

    def add(self, rule: Rule) -> RunningRule:
        """Obey a rule from now on, after those before it."""
        running = RunningRule(rule, self)
        self.run(lambda proxy: proxy.arm(running))
        return running

    def cut(self, *, broker: int | None = None, is_silent: bool = False) -> None:
        """Close connections and refuse new ones, until `heal`.

        Args:
            broker: node id; None for all.
            is_silent: leave connections open, old and new, and let nothing through.
        """
        self.run(lambda proxy: proxy.cut(Cut(broker, is_silent)))

    def heal(self) -> None:
        """End a cut. Silent connections go on where they were."""
        self.run(lambda proxy: proxy.heal())

    def run(self, work: Callable[[Proxy], Coroutine[None, None, T]]) -> T:
        """Have the proxy's own thread do something, and wait for it.

        Raises:
            TimeoutError: it takes too long. It goes on.
        """
        proxy = self._entered()
        assert self._loop is not None
        future = asyncio.run_coroutine_threadsafe(work(proxy), self._loop)
        return future.result(CALL_TIMEOUT_S)

    def _entered(self) -> Proxy:
        if self._proxy is None:
            raise RuntimeError("the chaos proxy is not entered")
        return self._proxy

    async def _main(self, started: Future[Proxy]) -> None:
        proxy = Proxy(self._brokers)
        self._loop = asyncio.get_running_loop()
        try:
            self.bootstrap_servers = await proxy.open()
            started.set_result(proxy)
            await self._stop.wait()
        except BaseException as error:  # the caller that entered hears of it  # noqa: BLE001
            started.set_exception(error)
        finally:
            await proxy.close()
