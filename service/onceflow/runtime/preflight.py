"""Everything about brokers and topics that can be known before a start. Writes nothing.

What would break the guarantee is refused; what only weakens it is a warning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onceflow.clock import Deadline
from onceflow.contracts.connector import Broker, TopicInfo, TopicSpec
from onceflow.errors import ConfigError, Fault
from onceflow.protocol.identity import consumer_group
from onceflow.protocol.ledger import SinkState

MIN_DURABLE_REPLICATION = 2
DEFAULT_PARTITIONS = 4
MAX_BYTES_CONFIG = "max.message.bytes"
TRANSACTION_STATE = "__transaction_state"
"""Kafka's own topic, made for the first transaction, for which it takes enough brokers."""


@dataclass(frozen=True)
class TopicNeeds:
    """What a pipeline needs of the brokers.

    Args:
        pipeline: name.
        inputs: source topics that are named one by one (not by pattern).
        output: the sink's topic.
        beside: topics that are written in the same transactions: dead letters.
        partitions: of the output, as the user wants it; None for "as it is".
        recorded: the output as the ledger has it; None before the first start of a lineage.
        transaction_timeout_ms: how long a transaction may stay open.
    """

    pipeline: str
    inputs: Sequence[str]
    output: str
    beside: Sequence[str]
    partitions: int | None
    recorded: SinkState | None
    transaction_timeout_ms: int


@dataclass(frozen=True)
class PreflightReport:
    """What was found.

    Args:
        partitions: of the output topic, existing or to be created.
        topic_id: of the output topic; None if it is to be created.
        max_batch_bytes: largest request that the output topic takes; None for the default.
        create: topics that are missing.
        warnings: what weakens the guarantee.
    """

    partitions: int
    topic_id: str | None
    max_batch_bytes: int | None
    create: tuple[TopicSpec, ...]
    warnings: tuple[Fault, ...]


def preflight(broker: Broker, needs: TopicNeeds, deadline: Deadline) -> PreflightReport:
    """Look at brokers and topics.

    Raises:
        ConfigError: something would break the guarantee; lists every fault.
        DeadlineError: nobody answers.
    """
    alive = broker.brokers(deadline)
    config = broker.broker_config(deadline)
    faults = _timeout_faults(config, needs)
    faults += _log_faults(broker, config, alive, deadline)
    faults += _input_faults(broker, needs, deadline)
    faults += _group_faults(broker, needs, deadline)
    output = broker.topic(needs.output, deadline)
    partitions = output.partitions if output else needs.partitions or DEFAULT_PARTITIONS
    if needs.recorded is not None and needs.recorded.topic != needs.output:
        faults.append(
            Fault(
                f"this pipeline writes to {needs.recorded.topic}",
                where=needs.output,
                suggestion="Keep its topic, or start a new generation on a new checkpoint.",
            )
        )
    elif output is not None:
        faults += [*_identity_faults(output, needs), *_partition_faults(output, needs)]
    elif needs.recorded is not None:
        faults.append(
            Fault(
                "the output topic is gone, although the ledger says it was written",
                where=needs.output,
                suggestion="Restore it, or start a new generation.",
            )
        )
    if faults:
        raise ConfigError(f"pipeline {needs.pipeline} cannot start", faults=tuple(faults))
    warnings = tuple(_durability_warnings(output, alive)) if output else ()
    missing = [TopicSpec(t, 1) for t in needs.beside if broker.topic_id(t, deadline) is None]
    create = missing if output else [TopicSpec(needs.output, partitions), *missing]
    limit = output.config.get(MAX_BYTES_CONFIG) if output else None
    return PreflightReport(
        partitions,
        output.topic_id if output else None,
        int(limit) if limit else None,
        tuple(create),
        warnings,
    )


def transaction_faults(config: Mapping[str, str], alive: int) -> list[Fault]:
    """Settings of a broker under which no transaction can ever begin."""
    return [
        Fault(
            f"{config[name]} with {alive} broker(s): no transaction can ever begin",
            where=name,
            expected=f"at most {alive}",
            suggestion="Change the broker's setting, or start more brokers.",
        )
        for name in ("transaction.state.log.replication.factor", "transaction.state.log.min.isr")
        if int(config.get(name, "1")) > alive
    ]


def _log_faults(
    broker: Broker, config: Mapping[str, str], alive: int, deadline: Deadline
) -> list[Fault]:
    """As `transaction_faults`, unless there were transactions: missing brokers will come back."""
    faults = transaction_faults(config, alive)
    try:
        return faults if faults and broker.topic_id(TRANSACTION_STATE, deadline) is None else []
    except ConfigError:
        return []  # We may not look at that topic; then nobody says that it is not there.


def _timeout_faults(config: Mapping[str, str], needs: TopicNeeds) -> list[Fault]:
    longest_ms = int(config.get("transaction.max.timeout.ms", needs.transaction_timeout_ms))
    if needs.transaction_timeout_ms <= longest_ms:
        return []
    return [
        Fault(
            f"the broker allows transactions of {longest_ms} ms",
            where="transaction.max.timeout.ms",
            expected=f"at least {needs.transaction_timeout_ms}",
        )
    ]


def _input_faults(broker: Broker, needs: TopicNeeds, deadline: Deadline) -> list[Fault]:
    faults = [
        Fault(
            "the topic does not exist",
            where=name,
            suggestion="Create it, or correct the name.",
        )
        for name in needs.inputs
        if broker.topic(name, deadline) is None
    ]
    if needs.output in needs.inputs:
        faults.append(Fault("a pipeline cannot write to a topic that it reads", where=needs.output))
    return faults


def _group_faults(broker: Broker, needs: TopicNeeds, deadline: Deadline) -> list[Fault]:
    group = consumer_group(needs.pipeline)
    if members := broker.group_members(group, deadline):
        return [
            Fault(
                f"{members} consumer(s) have joined the group that shows the pipeline's position",
                where=group,
                suggestion="Give those consumers a group of their own.",
            )
        ]
    return []


def _identity_faults(output: TopicInfo, needs: TopicNeeds) -> list[Fault]:
    if needs.recorded is None or needs.recorded.topic_id in {"", output.topic_id}:
        return []
    return [
        Fault(
            "the output topic was deleted and created again: what was committed is gone",
            where=output.name,
            expected=f"topic id {needs.recorded.topic_id}, as recorded in the ledger",
            suggestion="Write it anew by a new generation on a new checkpoint.",
        )
    ]


def _partition_faults(output: TopicInfo, needs: TopicNeeds) -> list[Fault]:
    recorded, wanted = needs.recorded and needs.recorded.partitions, needs.partitions
    if recorded is not None and output.partitions != recorded:
        return [
            Fault(
                f"the output topic has {output.partitions} partitions",
                where=output.name,
                expected=f"{recorded}, as recorded in the ledger; keys would move otherwise",
                suggestion="Restore the topic, or start a new generation.",
            )
        ]
    if wanted is not None and output.partitions != wanted:
        return [
            Fault(
                f"the output topic has {output.partitions} partitions",
                where=output.name,
                expected=f"{wanted}, as in sink.kafka.partitions",
                suggestion="Correct the file, or create another topic.",
            )
        ]
    return []


def _durability_warnings(output: TopicInfo, alive: int) -> list[Fault]:
    warnings = []
    if "compact" in output.config.get("cleanup.policy", ""):
        warnings.append(
            Fault(
                "the output topic is compacted: consumers will see gaps in the sequences",
                where=output.name,
                suggestion="Let them report gaps only, or use cleanup.policy=delete.",
            )
        )
    if alive < MIN_DURABLE_REPLICATION:
        return warnings
    if output.replication < MIN_DURABLE_REPLICATION:
        warnings.append(
            Fault("one replica: a lost disk loses acknowledged output", where=output.name)
        )
    elif int(output.config.get("min.insync.replicas", "1")) < MIN_DURABLE_REPLICATION:
        warnings.append(
            Fault(
                "min.insync.replicas is 1: acknowledged output can be lost with one broker",
                where=output.name,
                expected="2 or more",
            )
        )
    if output.config.get("unclean.leader.election.enable") == "true":
        warnings.append(
            Fault("unclean leader election may lose committed output", where=output.name)
        )
    return warnings
