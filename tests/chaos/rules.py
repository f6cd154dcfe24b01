"""Rules: which messages, and what happens to them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from tests.chaos.messages import API_NAMES, ERROR_CODES, Request
from tests.chaos.refusals import REFUSABLE

Side = Literal["request", "response"]
Action = Literal["pass", "delay", "hold", "drop", "duplicate", "close", "error", "slow", "split"]

_NEEDS: Mapping[str, str] = {
    "delay": "delay_ms",
    "error": "error",
    "slow": "bytes_per_s",
    "split": "chunk_bytes",
}


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Which messages, and what happens to them. A request and its answer are two messages.

    For each message the first rule that matches and is not used up acts, and no other.

    Args:
        on: the side that matches; a response matches by its request.
        action: `pass` only counts; `hold` waits for `release`; `drop` leaves the connection open;
            `duplicate` of a request hides its second answer; `error` on a request does not ask the
            broker, on a response it replaces the broker's answer. What is held or delayed blocks
            what comes after it on the same connection. A held or delayed request whose client has
            gone is sent on a connection of its own, and its answer is discarded.
        api: Kafka's name. Default: any.
        transactional_id: pattern for a transactional id of the request. Default: any request.
        broker: node id. Default: any.
        times: how often to act at most. Default: always.
        delay_ms, error, bytes_per_s, chunk_bytes: what `delay`, `error`, `slow`, `split` need.

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
        needed = _NEEDS.get(self.action)
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
