"""What is to go wrong now: the rules in their order, what they hold, and which wires are cut."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from onceflow.clock import Clock
from onceflow.errors import DeadlineError
from tests.chaos.messages import Request
from tests.chaos.rules import Rule, Side


@dataclass
class Held:
    """A message that waits.

    Args:
        on: which way it goes.
        request: itself, or what it answers.
        broker: node id of the broker it goes to, or comes from.
        released: set when it may go on.
        left: set when its connection has sent it, or ended.
        is_sent: whether its connection has sent it.
    """

    on: Side
    request: Request
    broker: int
    released: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    is_sent: bool = False


class ArmedRule:
    """A rule, how often it acted, and what it holds. The count may be read from any thread."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.held: deque[Held] = deque()
        self.fired = 0
        self._changed = threading.Condition()

    def takes(self, on: Side, request: Request, broker: int) -> bool:
        """Whether it acts on this message; counts."""
        is_used_up = self.rule.times is not None and self.fired >= self.rule.times
        if is_used_up or not self.rule.matches(on, request, broker):
            return False
        with self._changed:
            self.fired += 1
            self._changed.notify_all()
        return True

    def wait_fired(self, times: int, timeout_s: float, clock: Clock) -> None:
        """Block this thread until it has acted that often.

        Raises:
            DeadlineError: it did not in time.
        """
        deadline = clock.within(timeout_s)
        with self._changed:
            while self.fired < times:
                if deadline.is_over:
                    raise DeadlineError(
                        "the rule did not act",
                        subject=repr(self.rule),
                        expected=f"{times} times within {timeout_s:g} s",
                        found=f"{self.fired}",
                    )
                self._changed.wait(deadline.remaining_s())


@dataclass(frozen=True)
class Cut:
    """Connections that are severed.

    Args:
        broker: node id; None for all.
        client_id: pattern; None for all.
        is_silent: whether they stay open and carry nothing, rather than being closed.
    """

    broker: int | None
    client_id: str | None
    is_silent: bool

    def severs(self, broker: int, client_id: str | None) -> bool:
        """Whether a connection is one of them.

        Args:
            broker: at its other end.
            client_id: None before the client has said it.
        """
        if self.broker not in (None, broker):
            return False
        if self.client_id is None:
            return True
        return client_id is not None and fnmatchcase(client_id, self.client_id)


class Faults:
    """All of it. Lives in the proxy's own event loop."""

    def __init__(self) -> None:
        self.rules: list[ArmedRule] = []
        self._cuts: list[Cut] = []
        self._healed = asyncio.Event()

    def choose(self, on: Side, request: Request, broker: int) -> ArmedRule | None:
        """The first rule that acts on this message, which is counted there."""
        return next((armed for armed in self.rules if armed.takes(on, request, broker)), None)

    def cut(self, cut: Cut) -> None:
        """Sever what is described, until `heal`."""
        self._cuts.append(cut)
        self._healed.clear()

    def heal(self) -> None:
        """End every cut. Connections that were silent go on where they were."""
        self._cuts.clear()
        self._healed.set()

    def cut_of(self, broker: int, client_id: str | None) -> Cut | None:
        """The first cut that severs a connection; one that closes goes before a silent one."""
        severing = [cut for cut in self._cuts if cut.severs(broker, client_id)]
        return min(severing, key=lambda cut: cut.is_silent, default=None)

    async def healed(self) -> None:
        """Wait for `heal`."""
        await self._healed.wait()
