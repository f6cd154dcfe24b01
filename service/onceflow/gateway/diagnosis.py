"""Why a gateway does not take posts: from what can be seen to causes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from http import HTTPStatus

from onceflow.gateway.survey import GatewayFacts
from onceflow.observe.diagnosis import Diagnosis, Finding, hung_transactions
from onceflow.protocol.identity import gateway_group

_CURES: Mapping[int, str] = {
    400: "the answers say what is wrong with the request",
    401: "give the clients a token whose hash is in `gateway.tokens_file`",
    403: "give the token the role `write`, and its name to `writers` of the topic",
    404: "name the topic in the gateway file, or correct the clients' path",
    408: "let the clients send their bodies faster",
    409: "the first post with this key is still under way: send it again later",
    413: "post less at once, or raise `limits: {body: ...}`",
    415: "send JSON or NDJSON, not compressed",
    422: "the answers say which record does not fit; a key used for another post is refused too",
    429: "send slower, raise `limits: {in_flight: ...}`, or start another instance",
    503: "look at the brokers; if keys have no room, raise `remember: {at_most: ...}`",
}


class GatewayCause(StrEnum):
    """Causes that can hold a gateway up, the most serious first."""

    TOPICS_MISSING = "topics missing"
    BROKERS_REFUSE = "brokers refuse"
    STOPPED = "not running"
    UNREACHABLE = "owner does not answer"
    UNOWNED = "slots without owner"
    HUNG_TRANSACTION = "hung transaction"
    NOT_READY = "not ready"
    REFUSED = "posts refused"
    NO_SLOT_FREE = "no slot free"


def diagnose(facts: GatewayFacts) -> list[Diagnosis]:
    """Every cause that applies, the most serious first. Empty: nothing holds it up."""
    causes = GatewayCause
    return [Diagnosis(cause, *finding) for cause in causes for finding in _RULES[cause](facts)]


def _topics_missing(facts: GatewayFacts) -> Iterator[Finding]:
    if facts.missing:
        told = tuple(f"there is no topic {name}" for name in facts.missing)
        yield "topics that may be posted to do not exist", told, "create them, or correct the names"


def _brokers_refuse(facts: GatewayFacts) -> Iterator[Finding]:
    for name, (in_sync, at_least) in facts.short.items():
        told = f"{in_sync} replicas in sync; min.insync.replicas is {at_least}"
        cure = "bring the missing brokers back, or lower it"
        yield f"the topic {name} takes no records", (told,), cure


def _stopped(facts: GatewayFacts) -> Iterator[Finding]:
    if facts.has_run and facts.instances != 0:
        return
    told = f"no instance has joined the group {gateway_group(facts.gateway.name)}"
    if not facts.has_run:
        told += "; it has never run"
    yield "the gateway is not running", (told,), "start it: it remembers the keys of before"


def _unreachable(facts: GatewayFacts) -> Iterator[Finding]:
    if not facts.instances:
        return
    for address, said in facts.said.items():
        if not said.failure:
            continue
        held = [str(n) for n, owner in facts.owners.items() if owner and owner.address == address]
        what = f"the instance that claimed slots {', '.join(held)} does not answer"
        cure = (
            "if it has ended, another instance takes them after `takeover_after`; if it lives,"
            " correct its `gateway.advertise`, or let others reach that address"
        )
        yield what, (said.failure,), cure


def _unowned(facts: GatewayFacts) -> Iterator[Finding]:
    free = [str(n) for n, owner in facts.owners.items() if owner is None]
    if facts.instances and free:
        told = f"no instance has claimed slots {', '.join(free)}", facts.waiting
        cure = "wait some seconds: instances claim them; else read the warnings of the instances"
        yield "posts with keys of some slots are answered 503", told, cure


def _hung_transaction(facts: GatewayFacts) -> Iterator[Finding]:
    return hung_transactions(facts.at_ms, facts.keys, facts.transactions, facts.blind)


def _not_ready(facts: GatewayFacts) -> Iterator[Finding]:
    for address, said in facts.said.items():
        if said.waits_for:
            waits = f"it waits for {said.waits_for}"
            keys = [one for one in facts.keys if one.high_watermark]
            read = tuple(f"{one.name} has {one.high_watermark:,} offsets to read" for one in keys)
            cure = (
                "wait: it reads the remembered keys of a slot before it takes posts with keys."
                " If it lasts, read its warnings"
            )
            yield f"the instance at {address} is not ready", (waits, *read), cure


def _refused(facts: GatewayFacts) -> Iterator[Finding]:
    for status, count in facts.refused.items():
        phrase = HTTPStatus(status).phrase if status in {*HTTPStatus} else "an error"
        told = f"answered so in the last minutes: {count:,} ({phrase})"
        cure = _CURES.get(status, "read the answers, and the warnings of the instances")
        yield f"posts are answered {status}", (told,), cure


def _no_slot_free(facts: GatewayFacts) -> Iterator[Finding]:
    slots = facts.gateway.remember.slots
    if facts.instances is not None and facts.instances > slots:
        told = f"{facts.instances} instances share {slots} slots"
        cure = "stop the others, unless they are to stand by or to take posts without keys"
        yield "some instances own no slot: they send posts with keys on to others", (told,), cure


_RULES: Mapping[GatewayCause, Callable[[GatewayFacts], Iterator[Finding]]] = {
    GatewayCause.TOPICS_MISSING: _topics_missing,
    GatewayCause.BROKERS_REFUSE: _brokers_refuse,
    GatewayCause.STOPPED: _stopped,
    GatewayCause.UNREACHABLE: _unreachable,
    GatewayCause.UNOWNED: _unowned,
    GatewayCause.HUNG_TRANSACTION: _hung_transaction,
    GatewayCause.NOT_READY: _not_ready,
    GatewayCause.REFUSED: _refused,
    GatewayCause.NO_SLOT_FREE: _no_slot_free,
}
