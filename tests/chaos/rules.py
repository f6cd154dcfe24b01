"""Rules: which messages, and what happens to them."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

from onceflow.clock import SystemClock
from onceflow.errors import DeadlineError
from tests.chaos.messages import API_NAMES, ERROR_CODES, REFUSABLE, Request

if TYPE_CHECKING:
    from tests.chaos.thread import ChaosProxy

Side = Literal["request", "response"]
Action = Literal["pass", "drop", "hold", "duplicate", "split", "close", "delay", "error", "slow"]

_NEEDS: Mapping[tuple[Side, Action], str | None] = {
    ("request", "pass"): None,
    ("request", "drop"): None,
    ("request", "hold"): None,
    ("request", "duplicate"): None,
    ("request", "split"): "chunk_bytes",
    ("response", "pass"): None,
    ("response", "drop"): None,
    ("response", "close"): None,
    ("response", "delay"): "delay_ms",
    ("response", "error"): "error",
    ("response", "slow"): "bytes_per_s",
}
"""All that can happen to a message, and the field of the rule that it needs."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Which messages, and what happens to them. A request and its answer are two messages.

    For each message the first rule that matches and is not used up acts, and no other.

    Args:
        on: the side that matches; a response matches by its request.
        action: `pass` only counts; `drop` leaves the connection open; `hold` waits for `release`;
            the second answer to a `duplicate` is hidden. What is held or delayed blocks what comes
            after it on the same connection. A held request whose client has gone is sent on a
            connection of its own, and its answer is discarded.
        api: Kafka's name. Default: any.
        transactional_id: pattern for a transactional id of the request. Default: any request.
        broker: node id. Default: any.
        times: how often to act at most. Default: always.

    Raises:
        ValueError: the rule could never act, or lacks what its action needs.
    """

    on: Side
    action: Action
    api: str | None = None
    transactional_id: str | None = None
    broker: int | None = None
    times: int | None = None
    delay_ms: int | None = None
    error: str | None = None
    bytes_per_s: int | None = None
    chunk_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.api is not None and self.api not in API_NAMES.values():
            raise ValueError(f"Kafka has no api {self.api}")
        if self.error is not None and self.error not in ERROR_CODES:
            raise ValueError(f"kafka-python knows no error {self.error}")
        if self.action == "error" and self.api not in REFUSABLE:
            raise ValueError(f"{self.api} cannot be answered with an error")
        if (self.on, self.action) not in _NEEDS:
            raise ValueError(f"`{self.action}` cannot happen to a {self.on}")
        needed = _NEEDS[self.on, self.action]
        if needed and getattr(self, needed) is None:
            raise ValueError(f"`{self.action}` needs `{needed}`")

    def matches(self, on: Side, request: Request, broker: int) -> bool:
        """Whether the rule is about a message."""
        pattern = self.transactional_id
        return (
            self.on == on
            and self.api in (None, request.api)
            and self.broker in (None, broker)
            and (
                pattern is None
                or any(fnmatchcase(each, pattern) for each in request.transactional_ids)
            )
        )


@dataclass
class Held:
    """A request that waits.

    Args:
        released: set when it may go on.
        left: set when its connection has sent it, or ended.
        is_sent: whether its connection has sent it.
    """

    request: Request
    broker: int
    released: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)
    is_sent: bool = False


class RunningRule:
    """A rule that a proxy obeys.

    Attributes:
        fired: how often it matched and acted. What it holds counts from the start.
        held: what it holds now.
    """

    def __init__(self, rule: Rule, proxy: ChaosProxy) -> None:
        self.rule = rule
        self.fired = 0
        self.held: deque[Held] = deque()
        self._proxy = proxy
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

    def wait_fired(self, times: int = 1, timeout_s: float = 30.0) -> None:
        """Wait until it has acted that often since it was added.

        Raises:
            DeadlineError: it did not in time.
        """
        deadline = SystemClock().within(timeout_s)
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

    def release(self) -> None:
        """Let what is held go on, in order, and return when it has; later matches are held again.

        Raises:
            TimeoutError: it could not be sent in time. The proxy goes on trying.
        """
        self._proxy.run(lambda proxy: proxy.release(self))

    def remove(self) -> None:
        """End it. What it holds goes on, as with `release`, whose errors it has."""
        self._proxy.run(lambda proxy: proxy.disarm(self))
