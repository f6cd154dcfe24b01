"""A delivery by HTTP to a receiver of the tests, its records, and what arrived of them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onceflow.columns import NO_COLUMNS
from onceflow.contracts.record import Record
from onceflow.contracts.target import Answers, Sender
from onceflow.contracts.target_block import TargetSpec
from onceflow.protocol.record import HEADER_NAME, Flag, RecordHeader
from onceflow_connectors.http.block import HttpBlock
from onceflow_connectors.http.sender import HttpSender
from tests.support.clock import ManualClock
from tests.support.sites.receiver import Receiver, Seen

LIFETIME_S = 3600.0
KEYS = {"idempotency": {"lifetime": "1 hour"}}


@dataclass
class Bench:
    """A delivery, and what has arrived since it began."""

    receiver: Receiver
    folder: Path
    name: str = field(default_factory=lambda: f"to-shop-{uuid.uuid4().hex[:8]}")
    clock: ManualClock = field(default_factory=ManualClock)
    open: list[Sender] = field(default_factory=list)
    probes_before: int = 0

    def __post_init__(self) -> None:
        self.receiver.obey()
        self.probes_before = len(self.receiver.probes())

    def sender(self, **block: Any) -> Sender:
        given = {"url": self.receiver.url, "timeout": "20 seconds", **block}
        spec = TargetSpec(self.name, NO_COLUMNS, self.folder)
        sender = HttpSender(HttpBlock.model_validate(given), spec, self.clock)
        self.open.append(sender)
        return sender

    @property
    def requests(self) -> list[Seen]:
        """Those of this delivery."""
        found = self.receiver.requests()
        return [each for each in found if each.headers["onceflow-delivery"] == self.name]

    @property
    def bodies(self) -> list[str]:
        return [each.body.decode() for each in self.requests]

    @property
    def stored(self) -> list[str]:
        bodies = {each.number: each.body.decode() for each in self.requests}
        numbers = [e["number"] for e in self.receiver.events() if e["event"] == "stored"]
        return [bodies[number] for number in numbers if number in bodies]

    @property
    def probes(self) -> list[Seen]:
        return self.receiver.probes()[self.probes_before :]

    def close(self) -> None:
        for sender in self.open:
            sender.close()


def record(
    n: int, key: str | None = None, value: bytes | None = None, partition: int = 0
) -> Record:
    """A foreign record, whose value is `key:n`."""
    value = f"{key}:{n}".encode() if value is None else value
    return Record("views", partition, n, 1000 + n, None if key is None else key.encode(), value)


def records(text: str) -> list[Record]:
    """One for each letter, which is its key."""
    return [record(n, key) for n, key in enumerate(text)]


def sequenced(n: int, plan_tag: int = 7) -> Record:
    header = RecordHeader(Flag(0), 0xABCDEF01, 3, plan_tag, 12, n, lineage=5)
    return record(n, "k")._replace(headers=((HEADER_NAME, header.pack()),))


def acknowledged(*indices: int) -> Answers:
    return Answers(frozenset(indices), {}, None)
