"""Why a delivery or an enrichment does not get on: from what can be seen to causes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum

from onceflow.delivery.survey import DeliveryFacts
from onceflow.errors import ConfigError
from onceflow.observe.diagnosis import (
    LAG_AFTER_S,
    QUIET_AFTER_MS,
    Diagnosis,
    Finding,
    eta_text,
    hung_transactions,
)
from onceflow.texts import span_text


class DeliveryCause(StrEnum):
    """Causes that can hold a delivery up, the most serious first."""

    TARGET_REFUSES = "target refuses"
    TARGET_DOWN = "target down"
    RETENTION = "retention"
    STOPPED = "not running"
    HUNG_TRANSACTION = "hung transaction"
    STUCK = "nothing is delivered"
    LAG = "lag"
    NO_INPUT = "no input"


def diagnose(facts: DeliveryFacts) -> list[Diagnosis]:
    """Every cause that applies, the most serious first. Empty: nothing holds it up."""
    causes = DeliveryCause
    return [Diagnosis(cause, *finding) for cause in causes for finding in _RULES[cause](facts)]


def _target_refuses(facts: DeliveryFacts) -> Iterator[Finding]:
    if isinstance(facts.failure, ConfigError):
        faults = tuple(str(fault) for fault in facts.failure.faults)
        told = faults or (str(facts.failure),)
        yield (
            f"the target does not take this {facts.carriage.kind}",
            told,
            "do what the message says",
        )


def _target_down(facts: DeliveryFacts) -> Iterator[Finding]:
    if facts.failure is not None and not isinstance(facts.failure, ConfigError):
        kind = facts.carriage.kind
        cure = f"bring it back; records wait in the topics, and the {kind} goes on by itself"
        yield "the target does not answer", (str(facts.failure),), cure


def _retention(facts: DeliveryFacts) -> Iterator[Finding]:
    soon, kind = [one for one in facts.forecasts if one.is_soon], facts.carriage.kind
    if not soon:
        return
    if min(one.left_s for one in soon) > 0:
        what = f"the topic's retention overtakes the {kind} if it stands still"
        cure = "keep records longer (`retention.ms` of the topic), or let it deliver faster"
    else:
        what = f"the topic's retention has overtaken the {kind}: records are gone"
        cure = (
            "`from: {on_gap: continue}` passes over them; or begin again under another name, in an"
            " empty target"
        )
    yield what, tuple(map(str, soon)), cure


def _stopped(facts: DeliveryFacts) -> Iterator[Finding]:
    if facts.instances == 0:
        told = f"no instance has joined the group {facts.carriage.group}"
        cure = "start it: it goes on where it stopped, or says why it cannot"
        yield f"the {facts.carriage.kind} is not running", (told, facts.waiting), cure


def _hung_transaction(facts: DeliveryFacts) -> Iterator[Finding]:
    return hung_transactions(facts.at_ms, facts.inputs, facts.transactions, facts.blind)


def _stuck(facts: DeliveryFacts) -> Iterator[Finding]:
    if facts.lag and facts.instances and facts.failure is None and facts.delivered_per_s == 0:
        worst = max(facts.inputs, key=lambda one: one.lag)
        told = f"most in {worst.name}: {worst.lag:,}, from offset {worst.position}"
        instances = f"{facts.instances} in the group {facts.carriage.group}"
        cure = (
            "read the events of its instances: `waiting` and `failed` have the reason. After a"
            " crash, its partitions are free again after `from: {takeover_after}`"
        )
        what = "records wait, instances are there, and nothing is delivered"
        yield what, (facts.waiting, told, f"instances: {instances}"), cure


def _lag(facts: DeliveryFacts) -> Iterator[Finding]:
    lag, rate, arrivals = facts.lag, facts.delivered_per_s, facts.arrivals_per_s or 0.0
    if not lag or not rate or lag / rate < LAG_AFTER_S:
        return
    worst = max(facts.inputs, key=lambda one: one.lag)
    told = (
        f"{lag:,} records wait, most in {worst.name}: {worst.lag:,}",
        f"delivers {rate:,.0f} records/s",
        f"{arrivals:,.0f} records/s come in",
    )
    cure = (
        "wait if it catches up; else start more instances, which share the partitions, or give it a"
        " larger `batch`"
    )
    when = eta_text(lag, rate, arrivals)
    yield f"the {facts.carriage.kind} is behind by {lag:,} records: {when}", told, cure


def _no_input(facts: DeliveryFacts) -> Iterator[Finding]:
    inputs = facts.inputs
    if not inputs or facts.lag or facts.arrivals_per_s or any(one.undecided for one in inputs):
        return
    newest_ms, name = max((one.newest_ms or 0, one.name) for one in inputs)
    age_ms = facts.at_ms - newest_ms
    if age_ms >= QUIET_AFTER_MS:
        age = span_text(age_ms / 1000)
        newest = f"the newest record, in {name}, is {age} old"
        evidence = "every partition is delivered to its end", newest if newest_ms else "no records"
        cure = "look at the pipeline that writes the topics: `onceflow why-stuck` with its name"
        yield "there is nothing to deliver", evidence, cure


_RULES: Mapping[DeliveryCause, Callable[[DeliveryFacts], Iterator[Finding]]] = {
    DeliveryCause.TARGET_REFUSES: _target_refuses,
    DeliveryCause.TARGET_DOWN: _target_down,
    DeliveryCause.RETENTION: _retention,
    DeliveryCause.STOPPED: _stopped,
    DeliveryCause.HUNG_TRANSACTION: _hung_transaction,
    DeliveryCause.STUCK: _stuck,
    DeliveryCause.LAG: _lag,
    DeliveryCause.NO_INPUT: _no_input,
}
