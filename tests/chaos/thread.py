"""The proxy for code without an event loop: it runs in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self, TypeVar

from onceflow.clock import Clock, SystemClock
from onceflow.errors import DeadlineError, InvariantError
from tests.chaos.faults import ArmedRule, Cut
from tests.chaos.proxy import Counts, Proxy
from tests.chaos.rules import Rule

T = TypeVar("T")

CALL_TIMEOUT_S = 30.0
"""For the proxy's thread to do as it is told; to send what was held may take a while."""


@dataclass(frozen=True)
class _Running:
    """What its thread has made.

    Args:
        proxy: runs in the loop.
        loop: of the thread.
        stop: ends the thread.
        addresses: where it listens.
    """

    proxy: Proxy
    loop: asyncio.AbstractEventLoop
    stop: asyncio.Event
    addresses: str


class RunningRule:
    """A rule that a proxy obeys.

    Args:
        armed: what the proxy knows of it.
        proxy: that obeys it.
    """

    def __init__(self, armed: ArmedRule, proxy: ChaosProxy) -> None:
        self._armed = armed
        self._proxy = proxy

    @property
    def rule(self) -> Rule:
        """What it does."""
        return self._armed.rule

    @property
    def fired(self) -> int:
        """How often it matched and acted. What it holds counts from the start."""
        return self._armed.fired

    @property
    def held(self) -> int:
        """How many messages it holds now."""
        return len(self._armed.held)

    def wait_fired(self, times: int = 1, timeout_s: float = 30.0) -> None:
        """Wait until it has acted so often since it was added.

        Raises:
            DeadlineError: it did not in time.
        """
        self._armed.wait_fired(times, timeout_s, self._proxy.clock)

    def release(self) -> None:
        """Let what is held go on, in order, and return when it has; later matches are held again.

        A request whose client has gone is sent on a new connection, and its answer is discarded.

        Raises:
            DeadlineError: it could not be sent in time. The proxy goes on trying.
        """
        self._proxy.run(lambda proxy: proxy.release(self._armed))

    def remove(self) -> None:
        """End it. What it holds goes on, as with `release`.

        Raises:
            DeadlineError: it could not be sent in time. The proxy goes on trying.
        """
        self._proxy.run(lambda proxy: proxy.disarm(self._armed))


class ChaosProxy:
    """A proxy that runs while this object is entered.

    Args:
        bootstrap_servers: `host:port` of some brokers, comma separated. Plaintext only.
        rules: to obey from the start.
        clock: to wait with.
    """

    def __init__(
        self, bootstrap_servers: str, rules: Sequence[Rule] = (), clock: Clock | None = None
    ) -> None:
        self.clock = clock or SystemClock()
        self._brokers = bootstrap_servers
        self._first_rules = tuple(rules)
        self._rules: list[RunningRule] = []
        self._thread: threading.Thread | None = None
        self._running: _Running | None = None
        self._counts = Counts()
        self._addresses = ""

    def __enter__(self) -> Self:
        """Start it.

        Raises:
            ConfigError: no broker answers.
        """
        started: Future[_Running] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._main(started)), name="onceflow-chaos"
        )
        self._thread.start()
        try:
            self._running = started.result()
            self._counts = self._running.proxy.counts
            self._addresses = self._running.addresses
        except BaseException:
            self._thread.join()
            raise
        for rule in self._first_rules:
            self.add(rule)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every connection; what is held is lost.

        Raises:
            InvariantError: the proxy met what it was not made for.
        """
        running, self._running = self._running, None
        if running is None or self._thread is None:
            return
        running.loop.call_soon_threadsafe(running.stop.set)
        self._thread.join()
        if running.proxy.failures and error is None:
            raise InvariantError("the chaos proxy failed") from running.proxy.failures[0]

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of the proxy, one for each broker that ran at the start, comma separated."""
        return self._addresses

    @property
    def rules(self) -> tuple[RunningRule, ...]:
        """Every rule that was ever added, with its count."""
        return tuple(self._rules)

    @property
    def counts(self) -> Counts:
        """What happened besides the rules; also known when the proxy has ended."""
        return replace(self._counts)

    def add(self, rule: Rule) -> RunningRule:
        """Obey a rule from now on, after those before it."""

        async def arm(proxy: Proxy) -> ArmedRule:
            return proxy.arm(rule)

        running = RunningRule(self.run(arm), self)
        self._rules.append(running)
        return running

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

        async def mend(proxy: Proxy) -> None:
            proxy.heal()

        self.run(mend)

    def run(self, work: Callable[[Proxy], Coroutine[None, None, T]]) -> T:
        """Have the proxy's own thread do something, and wait for it.

        Raises:
            DeadlineError: it takes too long. It goes on.
        """
        if self._running is None:
            raise InvariantError("the chaos proxy is not entered")
        future = asyncio.run_coroutine_threadsafe(work(self._running.proxy), self._running.loop)
        try:
            return future.result(CALL_TIMEOUT_S)
        except TimeoutError as error:
            raise DeadlineError(
                "the chaos proxy is not done", expected=f"an end within {CALL_TIMEOUT_S:g} s"
            ) from error

    async def _main(self, started: Future[_Running]) -> None:
        proxy = Proxy(self._brokers)
        stop = asyncio.Event()
        try:
            await proxy.open()
            addresses = ",".join(f"{node.host}:{node.port}" for node in proxy.cluster.nodes)
            started.set_result(_Running(proxy, asyncio.get_running_loop(), stop, addresses))
            await stop.wait()
        except BaseException as error:  # whoever entered hears of it  # noqa: BLE001
            started.set_exception(error)
        finally:
            await proxy.close()
