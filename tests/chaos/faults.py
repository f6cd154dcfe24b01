"""What is to go wrong now: the rules in their order, what they hold, and which wires are cut."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from onceflow.clock import Clock, Deadline
from onceflow.errors import DeadlineError
from tests.chaos.messages import Request
from tests.chaos.rules import Rule, Side, Traffic

MAX_HELD = 1000
"""Messages that one rule holds; a connection that brings more is closed."""


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
    """A rule, how often it acted, and what it holds. Counts may be read from any thread.

    Args:
        rule: what it does.
    """

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.held: deque[Held] = deque()
        self._skipped = 0
        self._fired = 0
        self._changed = threading.Condition()

    @property
    def fired(self) -> int:
        """How often it matched and acted."""
        with self._changed:
            return self._fired

    def takes(self, traffic: Traffic) -> bool:
        """Whether it acts on this message; counts."""
        if not self.rule.matches(traffic):
            return False
        with self._changed:
            if self._skipped < self.rule.skip:
                self._skipped += 1
                return False
            if self.rule.times is not None and self._fired >= self.rule.times:
                return False
            self._fired += 1
            self._changed.notify_all()
        return True

    def wait_fired(self, times: int, timeout_s: float, clock: Clock) -> None:
        """Block this thread until it has acted so often.

        Raises:
            DeadlineError: it did not in time.
        """
        deadline = Deadline.after(clock, timeout_s)
        with self._changed:
            while self._fired < times:
                if deadline.is_over:
                    raise DeadlineError(
                        "the rule did not act",
                        subject=self.rule.name or repr(self.rule),
                        expected=f"{times} times within {timeout_s:g} s",
                        found=f"{self._fired}",
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

    def choose(self, traffic: Traffic) -> ArmedRule | None:
        """The first rule that acts on this message, which is counted there."""
        return next((armed for armed in self.rules if armed.takes(traffic)), None)

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
