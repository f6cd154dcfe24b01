"""Looks at a gateway from outside: its topics, its group, its claims, and what instances say."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError
from urllib.request import urlopen

from onceflow.clock import Clock
from onceflow.contracts.connector import Broker, Connection, Connector, OpenTransaction
from onceflow.errors import ConfigError
from onceflow.gateway.model import Gateway
from onceflow.gateway.trust import authorities
from onceflow.observe.facts import InputFacts
from onceflow.observe.looking import REACH_TIMEOUT_S, Looking
from onceflow.observe.survey import inputs_of, transactions_in
from onceflow.protocol.identity import gateway_group, gateway_keys_topic, gateway_owners_topic
from onceflow_connectors.kafka.gateway.owners import Owner, OwnerBoard

READY_TIMEOUT_S = 3.0
"""For an instance to say whether it is ready."""
MAX_ANSWER_BYTES = 64 * 1024

T = TypeVar("T")


@dataclass(frozen=True)
class Said:
    """The answer of an instance about itself.

    Args:
        failure: why it says nothing; empty if it does.
        waits_for: what it is not ready for; empty if it is ready.
        refused: posts of the last minutes that it has not taken, by status.
    """

    failure: str = ""
    waits_for: str = ""
    refused: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class GatewayFacts:
    """A gateway at one moment.

    Args:
        missing: topics that may be posted to and do not exist.
        short: topics with fewer replicas in sync than a write needs, and how many there are.
        has_run: whether its own topics exist.
        instances: that have joined its group; None if that could not be seen.
        owners: whose the newest claim of each slot is; None if no instance has claimed it.
        said: what each of the owners says, by its address.
        keys: the partitions of remembered keys, read to their ends.
        transactions: open ones in these partitions.
        blind: what could not be seen, and why.
    """

    at_ms: int
    gateway: Gateway
    missing: Sequence[str] = ()
    short: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    has_run: bool = True
    instances: int | None = None
    owners: Mapping[int, Owner | None] = field(default_factory=dict)
    said: Mapping[str, Said] = field(default_factory=dict)
    keys: Sequence[InputFacts] = ()
    transactions: Sequence[OpenTransaction] = ()
    blind: Mapping[str, str] = field(default_factory=dict)

    @property
    def lag(self) -> None:
        """None: a gateway reads nothing."""

    @property
    def served(self) -> Sequence[int]:
        """Slots whose owner answers."""
        well = {address for address, said in self.said.items() if not said.failure}
        return [n for n, owner in self.owners.items() if owner and owner.address in well]

    @property
    def waiting(self) -> str:
        """The slots that are served, for people."""
        return f"{len(self.served)} of {self.gateway.remember.slots} slots have an owner"

    @property
    def refused(self) -> Mapping[int, int]:
        """Posts of the last minutes that no instance has taken, by status."""
        found: dict[int, int] = {}
        for said in self.said.values():
            for status, count in said.refused.items():
                found[status] = found.get(status, 0) + count
        return found


@contextmanager
def opened_survey(
    gateway: Gateway,
    connector: Connector,
    connection: Connection,
    clock: Clock,
    ca_file: str | None = None,
) -> Iterator[GatewaySurvey]:
    """Open a survey of a gateway.

    Raises:
        DeadlineError: no broker answers.
        ConfigError: the authorities of other instances cannot be used.
    """
    found = authorities(Path(ca_file) if ca_file else None)
    trusted = found if isinstance(found, ssl.SSLContext) else None
    owners = OwnerBoard(gateway_owners_topic(gateway.name), connection, Owner("", ""))
    with closing(connector.broker(connection)) as broker, closing(owners):
        # A question about a topic waits much longer for brokers that are not there.
        broker.brokers(clock.within(REACH_TIMEOUT_S))
        yield GatewaySurvey(gateway, broker, owners, clock, trusted)


@dataclass
class GatewaySurvey(Looking):
    """One look. What cannot be seen is named. Writes nothing."""

    gateway: Gateway
    broker: Broker
    board: OwnerBoard
    clock: Clock
    trusted: ssl.SSLContext | None = None
    blind: dict[str, str] = field(default_factory=dict)

    def facts(self) -> GatewayFacts:
        """Look."""
        name = self.gateway.name
        unknown: tuple[Sequence[str], Mapping[str, tuple[int, int]]] = ((), {})
        missing, short = self.attempt("topics", self._topics, unknown)
        has_run = self.attempt("claims", lambda: self._has_topic(gateway_owners_topic(name)), True)
        owners: Mapping[int, Owner | None] = {}
        keys: Sequence[InputFacts] = ()
        if has_run:
            owners = self.attempt("claims", self._owners, owners)
            keys = self.attempt("remembered keys", self._keys, keys)
        addresses = {owner.address for owner in owners.values() if owner}
        return GatewayFacts(
            at_ms=self.clock.unix_ms(),
            gateway=self.gateway,
            missing=missing,
            short=short,
            has_run=has_run,
            instances=self.attempt(
                "instances",
                lambda: self.broker.group_members(gateway_group(name), self.deadline()),
                None,
            ),
            owners=owners,
            said={address: said_by(address, self.trusted) for address in sorted(addresses)},
            keys=keys,
            transactions=self.attempt(
                "transactions", lambda: transactions_in(self.broker, keys, self.deadline()), ()
            ),
            blind=self.blind,
        )

    def _topics(self) -> tuple[Sequence[str], Mapping[str, tuple[int, int]]]:
        """Topics that do not exist, and those that take no record."""
        missing: list[str] = []
        short: dict[str, tuple[int, int]] = {}
        for name in self.gateway.topics:
            found = self.broker.topic(name, self.deadline())
            if found is None:
                missing.append(name)
                continue
            at_least = int(found.config.get("min.insync.replicas", "1"))
            if found.in_sync < at_least:
                short[name] = found.in_sync, at_least
        return missing, short

    def _has_topic(self, name: str) -> bool:
        return self.broker.topic_id(name, self.deadline()) is not None

    def _owners(self) -> Mapping[int, Owner | None]:
        self.board.refresh(self.deadline())
        return {n: self.board.owner_of(n) for n in range(self.gateway.remember.slots)}

    def _keys(self) -> Sequence[InputFacts]:
        topic = gateway_keys_topic(self.gateway.name)
        offsets = self.broker.offsets(topic, self.deadline())
        ends = {partition: stable for partition, (_, stable, _) in offsets.items()}
        return [*inputs_of(self.broker, self.gateway.name, topic, ends, self.deadline())]


def said_by(address: str, trusted: ssl.SSLContext | None) -> Said:
    """Ask an instance whether it is ready."""
    if not address.startswith(("http://", "https://")):
        return Said(failure=f"{address} is not an address of HTTP")
    url = f"{address}/readyz"
    try:
        with urlopen(url, timeout=READY_TIMEOUT_S, context=trusted) as answer:  # noqa: S310  checked
            return _said(answer.read(MAX_ANSWER_BYTES))
    except HTTPError as error:  # not ready
        with error:
            return _said(error.read(MAX_ANSWER_BYTES))
    except (OSError, HTTPException, ValueError) as error:
        return Said(failure=f"{url} does not answer: {error}")


def _said(body: bytes) -> Said:
    try:
        fields = json.loads(body)
        refused = {int(status): int(count) for status, count in fields["refused"].items()}
        return Said(waits_for=str(fields["waits_for"]), refused=refused)
    except (AttributeError, KeyError, TypeError, ValueError):
        return Said(failure="the answer to /readyz is not that of a gateway of this version")


def fields_of(facts: GatewayFacts) -> dict[str, Any]:
    """Summarise as plain data: for `status`.

    Raises:
        ConfigError: it has never run.
    """
    if not facts.has_run:
        then = "run it once"
        raise ConfigError("this gateway has never run", subject=facts.gateway.name, then=then)
    return {
        "gateway": facts.gateway.name,
        "guarantee": str(facts.gateway.guarantee()),
        "instances": facts.instances,
        "slots": {n: owner.address if owner else None for n, owner in facts.owners.items()},
        "not_ready": {
            address: said.failure or said.waits_for
            for address, said in facts.said.items()
            if said.failure or said.waits_for
        },
        "refused": {str(status): count for status, count in facts.refused.items()},
        "not_seen": dict(facts.blind),
    }
