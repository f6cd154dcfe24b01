"""Everything about brokers and topics that can be known before a start. Writes nothing.

What would break the guarantee is refused; what only weakens it is a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from onceflow.clock import Deadline
from onceflow.contracts.connector import Broker, TopicInfo, TopicSpec
from onceflow.errors import NEW_GENERATION, ConfigError, Fault
from onceflow.protocol.identity import consumer_group, ledger_topic
from onceflow.protocol.ledger import SinkState
from onceflow.runtime.topics.topic_settings import (
    LETTER_OVERHEAD_BYTES,
    MAX_BYTES_CONFIG,
    MIN_LETTER_BYTES,
    Cluster,
    durability_warnings,
    letter_warnings,
    max_bytes,
    timestamp_warnings,
)

DEFAULT_PARTITIONS = 4
TRANSACTION_STATE = "__transaction_state"
"""Kafka's own topic, made for the first transaction, for which it takes enough brokers."""


@dataclass(frozen=True)
class TopicNeeds:
    """The topics and settings that a pipeline needs.

    Args:
        pipeline: name.
        inputs: source topics that are named one by one (not by pattern).
        output: the sink's topic.
        letters: topics of dead letters, written in the same transactions.
        partitions: of the output, as the user wants it; None for "as it is".
        recorded: the output as the ledger has it; None before the first start of a lineage.
        transaction_timeout_ms: how long a transaction may stay open.
    """

    pipeline: str
    inputs: Sequence[str]
    output: str
    letters: Sequence[str]
    partitions: int | None
    recorded: SinkState | None
    transaction_timeout_ms: int


@dataclass(frozen=True)
class PreflightReport:
    """The result of a look at brokers and topics.

    Args:
        partitions: of the output topic, existing or to be created.
        topic_id: of the output topic; None if it is to be created.
        max_batch_bytes: largest record batch that each of the written topics takes.
    """

    partitions: int
    topic_id: str | None
    max_batch_bytes: int
    create: tuple[TopicSpec, ...]
    warnings: tuple[Fault, ...]


def preflight(broker: Broker, needs: TopicNeeds, deadline: Deadline) -> PreflightReport:
    """Look at brokers and topics.

    Raises:
        ConfigError: something would break the guarantee; lists every fault.
        DeadlineError: no broker answers.
    """
    cluster = Cluster(broker.brokers(deadline), broker.broker_config(deadline))
    names = [*needs.inputs, needs.output, *needs.letters, ledger_topic(needs.pipeline)]
    topics = {name: broker.topic(name, deadline) for name in names}
    output = topics[needs.output]
    faults = _timeout_faults(cluster.config, needs)
    faults += _log_faults(broker, cluster, deadline)
    faults += _input_faults(topics, needs)
    faults += _group_faults(broker, needs, deadline)
    faults += _output_faults(output, needs)
    if faults:
        raise ConfigError(f"pipeline {needs.pipeline} cannot start", faults=tuple(faults))
    recorded = needs.recorded.partitions if needs.recorded else None
    existing = output.partitions if output else None
    partitions = recorded or existing or needs.partitions or DEFAULT_PARTITIONS
    letter_bytes = LETTER_OVERHEAD_BYTES + max(
        max_bytes(topics[name]) for name in (*needs.inputs, needs.output)
    )
    create = [] if output else [cluster.new_topic(needs.output, partitions, {})]
    letter_config = {MAX_BYTES_CONFIG: str(max(letter_bytes, MIN_LETTER_BYTES))}
    create += [cluster.new_topic(t, 1, letter_config) for t in needs.letters if topics[t] is None]
    return PreflightReport(
        partitions,
        output.topic_id if output else None,
        min(max_bytes(topics[name]) for name in (needs.output, *needs.letters)),
        tuple(create),
        tuple(_warnings(topics, needs, cluster, letter_bytes)),
    )


def _warnings(
    topics: Mapping[str, TopicInfo | None], needs: TopicNeeds, cluster: Cluster, letter_bytes: int
) -> Iterator[Fault]:
    for name in (needs.output, *needs.letters, ledger_topic(needs.pipeline)):
        topic = topics[name]
        if topic is None:
            yield from cluster.creation_warnings(name)
            continue
        yield from durability_warnings(topic, cluster.alive)
        if name in (needs.output, *needs.letters):
            yield from timestamp_warnings(topic)
        if name in needs.letters:
            yield from letter_warnings(topic, letter_bytes)
        if name == needs.output:
            yield from _output_warnings(topic, needs.recorded)


def _output_warnings(output: TopicInfo, recorded: SinkState | None) -> Iterator[Fault]:
    if "compact" in output.config.get("cleanup.policy", ""):
        yield Fault(
            "the output topic is compacted: consumers will see gaps in the sequences",
            where=output.name,
            suggestion="Let them report gaps only, or use cleanup.policy=delete.",
        )
    if recorded is not None and output.partitions > recorded.partitions:
        yield Fault(
            f"the output topic has {output.partitions} partitions: nothing is written to those from"
            f" {recorded.partitions} on",
            where=output.name,
            expected=f"{recorded.partitions}, as recorded in the ledger; keys would move otherwise",
            suggestion="Leave it so, or write to all of them by a new generation.",
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


def _log_faults(broker: Broker, cluster: Cluster, deadline: Deadline) -> list[Fault]:
    """As `transaction_faults`, unless there were transactions: missing brokers will come back."""
    faults = transaction_faults(cluster.config, cluster.alive)
    try:
        return faults if faults and broker.topic_id(TRANSACTION_STATE, deadline) is None else []
    except ConfigError:
        return []  # We may not look at that topic, so it is not known to be missing.


def _timeout_faults(config: Mapping[str, str], needs: TopicNeeds) -> list[Fault]:
    longest_ms = int(config.get("transaction.max.timeout.ms", needs.transaction_timeout_ms))
    if needs.transaction_timeout_ms <= longest_ms:
        return []
    return [
        Fault(
            f"the broker allows transactions of {longest_ms} ms",
            where="transaction.max.timeout.ms",
            expected=f"at least {needs.transaction_timeout_ms}, as `transaction_timeout` says",
            suggestion="Lower `transaction_timeout`, or raise the broker's setting.",
        )
    ]


def _input_faults(topics: Mapping[str, TopicInfo | None], needs: TopicNeeds) -> list[Fault]:
    faults = [
        Fault(
            "the topic does not exist",
            where=name,
            suggestion="Create it, or correct the name. If it was read before and all of it was,"
            " name it under `retired` of the source.",
        )
        for name in needs.inputs
        if topics[name] is None
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


def _output_faults(output: TopicInfo | None, needs: TopicNeeds) -> list[Fault]:
    recorded = needs.recorded
    if recorded is not None and recorded.topic != needs.output:
        return [
            Fault(
                f"this pipeline writes to {recorded.topic}",
                where=needs.output,
                suggestion=f"Keep its topic, or {NEW_GENERATION}.",
            )
        ]
    if output is not None:
        return [*_identity_faults(output, needs), *_partition_faults(output, needs)]
    if recorded is not None:
        return [
            Fault(
                "the output topic is gone, although the ledger says it was written",
                where=needs.output,
                suggestion=f"Restore it, or {NEW_GENERATION}.",
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
            suggestion=f"To write it again, {NEW_GENERATION}.",
        )
    ]


def _partition_faults(output: TopicInfo, needs: TopicNeeds) -> list[Fault]:
    recorded = needs.recorded.partitions if needs.recorded else None
    wanted = needs.partitions
    if recorded is not None and output.partitions < recorded:
        return [
            Fault(
                f"the output topic has {output.partitions} partitions",
                where=output.name,
                expected=f"{recorded}, as recorded in the ledger; keys would move otherwise",
                suggestion=f"Restore the topic, or {NEW_GENERATION}.",
            )
        ]
    if recorded is not None and wanted not in {None, recorded}:
        return [
            Fault(
                f"sink.kafka.partitions is {wanted}",
                where=output.name,
                expected=f"{recorded}, as recorded in the ledger; keys would move otherwise",
                suggestion=f"Correct the file, or {NEW_GENERATION}.",
            )
        ]
    if recorded is None and wanted not in {None, output.partitions}:
        return [
            Fault(
                f"the output topic has {output.partitions} partitions",
                where=output.name,
                expected=f"{wanted}, as in sink.kafka.partitions",
                suggestion="Correct the file, or create another topic.",
            )
        ]
    return []
