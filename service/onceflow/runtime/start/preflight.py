"""Everything about brokers and topics that can be known before a start. Writes nothing.

What would break the guarantee is refused; what only weakens it is a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from onceflow.clock import Deadline
from onceflow.contracts.connector import Broker, TopicInfo, TopicSpec
from onceflow.errors import NEW_GENERATION, ConfigError, Fault
from onceflow.pipeline.file.model import Pipeline
from onceflow.pipeline.file.sink import KafkaSink
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
CENTURY_MS = 3_155_760_000_000
CONTROL_CONFIG = {"cleanup.policy": "compact", "delete.retention.ms": str(CENTURY_MS)}
"""Of a topic of parameters: the newest change of each stays, also one that removes its value."""
TRANSACTION_STATE = "__transaction_state"
"""Kafka's own topic, made for the first transaction, for which it takes enough brokers."""


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


def preflight(
    broker: Broker,
    pipeline: Pipeline,
    recorded: SinkState | None,
    transaction_timeout_ms: int,
    deadline: Deadline,
) -> PreflightReport:
    """Look at brokers and topics; nothing is `recorded` before a lineage first starts.

    Raises:
        ConfigError: something would break the guarantee; lists every fault.
        DeadlineError: no broker answers.
    """
    sink, letters = pipeline.sink.kafka, pipeline.letter_topics
    controls = pipeline.control_topics
    cluster = Cluster(broker.brokers(deadline), broker.broker_config(deadline))
    names = [*pipeline.named_inputs, *pipeline.reference_topics, *controls, sink.topic, *letters]
    names.append(ledger_topic(pipeline.name))
    topics = {name: broker.topic(name, deadline) for name in names}
    output = topics[sink.topic]
    faults = (
        *_timeout_faults(cluster.config, transaction_timeout_ms),
        *_log_faults(broker, cluster, deadline),
        *_input_faults(topics, pipeline),
        *_group_faults(broker, pipeline.name, deadline),
        *_output_faults(output, sink, recorded),
        *(fault for name in controls if (fault := control_fault(topics[name]))),
    )
    if faults:
        raise ConfigError(f"pipeline {pipeline.name} cannot start", faults=faults)
    existing = recorded or output
    partitions = existing.partitions if existing else sink.partitions or DEFAULT_PARTITIONS
    letter_bytes = LETTER_OVERHEAD_BYTES + max(
        max_bytes(topics[name]) for name in (*pipeline.named_inputs, sink.topic)
    )
    create = [] if output else [cluster.new_topic(sink.topic, partitions, {})]
    letter_config = {MAX_BYTES_CONFIG: str(max(letter_bytes, MIN_LETTER_BYTES))}
    create += [cluster.new_topic(t, 1, letter_config) for t in letters if topics[t] is None]
    create += [cluster.new_topic(t, 1, CONTROL_CONFIG) for t in controls if topics[t] is None]
    return PreflightReport(
        partitions,
        output.topic_id if output else None,
        min(max_bytes(topics[name]) for name in (sink.topic, *letters)),
        tuple(create),
        tuple(_warnings(topics, pipeline, recorded, cluster, letter_bytes)),
    )


def control_fault(topic: TopicInfo | None) -> Fault | None:
    """Find whether a topic of parameters can be used; one that does not exist yet can."""
    if topic is None or topic.partitions == 1:
        return None
    return Fault(
        f"the topic of parameters has {topic.partitions} partitions",
        where=topic.name,
        expected="1, so that changes have an order",
        suggestion="Name another topic; it is created as it must be.",
    )


def _warnings(
    topics: Mapping[str, TopicInfo | None],
    pipeline: Pipeline,
    recorded: SinkState | None,
    cluster: Cluster,
    letter_bytes: int,
) -> Iterator[Fault]:
    output, letters = pipeline.sink.kafka.topic, pipeline.letter_topics
    controls = pipeline.control_topics
    for name in (output, *letters, *controls, ledger_topic(pipeline.name)):
        topic = topics[name]
        if topic is None:
            yield from cluster.creation_warnings(name)
            continue
        yield from durability_warnings(topic, cluster.alive)
        if name in (output, *letters):
            yield from timestamp_warnings(topic)
        if name in letters:
            yield from letter_warnings(topic, letter_bytes)
        if name in controls:
            yield from _control_warnings(topic)
        if name == output:
            yield from _output_warnings(topic, recorded)
    for name in pipeline.reference_topics:
        topic = topics[name]
        if topic is not None and topic.config.get("cleanup.policy", "compact") != "compact":
            yield Fault(
                "the topic of a reference is not compacted: rows vanish from it with their age",
                where=name,
                expected="cleanup.policy=compact",
                suggestion="Change the setting of the topic.",
            )


def _control_warnings(topic: TopicInfo) -> Iterator[Fault]:
    """A change that is gone before the pipeline has read it is as if it had never been made."""
    for name, expected in CONTROL_CONFIG.items():
        found = topic.config.get(name, "")
        is_kept = found == expected if name == "cleanup.policy" else int(found or 0) >= CENTURY_MS
        if not is_kept:
            yield Fault(
                f"{name} of the topic of parameters is {found or 'unknown'}: a pipeline that is"
                " down for long may miss changes",
                where=topic.name,
                expected=expected,
                suggestion=f"Set {name}={expected}.",
            )


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


def _timeout_faults(config: Mapping[str, str], timeout_ms: int) -> Iterator[Fault]:
    longest_ms = int(config.get("transaction.max.timeout.ms", timeout_ms))
    if timeout_ms > longest_ms:
        yield Fault(
            f"the broker allows transactions of {longest_ms} ms",
            where="transaction.max.timeout.ms",
            expected=f"at least {timeout_ms}, as `transaction_timeout` says",
            suggestion="Lower `transaction_timeout`, or raise the broker's setting.",
        )


def _input_faults(topics: Mapping[str, TopicInfo | None], pipeline: Pipeline) -> Iterator[Fault]:
    for name in pipeline.named_inputs:
        if topics[name] is None:
            yield Fault(
                "the topic does not exist",
                where=name,
                suggestion="Create it, or correct the name. If it was read before and all of it"
                " was, name it under `retired` of the source.",
            )
    for name in pipeline.reference_topics:
        if topics[name] is None:
            suggestion = "Create it, compacted, or correct the name."
            yield Fault("the topic of a reference does not exist", name, suggestion=suggestion)
    if (output := pipeline.sink.kafka.topic) in pipeline.named_inputs:
        yield Fault("a pipeline cannot write to a topic that it reads", where=output)


def _group_faults(broker: Broker, pipeline: str, deadline: Deadline) -> Iterator[Fault]:
    group = consumer_group(pipeline)
    if members := broker.group_members(group, deadline):
        yield Fault(
            f"{members} consumer(s) have joined the group that shows the pipeline's position",
            where=group,
            suggestion="Give those consumers a group of their own.",
        )


def _output_faults(
    output: TopicInfo | None, sink: KafkaSink, recorded: SinkState | None
) -> Iterator[Fault]:
    if recorded is None:
        if output is not None and sink.partitions not in {None, output.partitions}:
            yield Fault(
                f"the output topic has {output.partitions} partitions",
                where=output.name,
                expected=f"{sink.partitions}, as in sink.kafka.partitions",
                suggestion="Correct the file, or create another topic.",
            )
    elif recorded.topic != sink.topic:
        yield Fault(
            f"this pipeline writes to {recorded.topic}",
            where=sink.topic,
            suggestion=f"Keep its topic, or {NEW_GENERATION}.",
        )
    elif output is None:
        yield Fault(
            "the output topic is gone, although the ledger says it was written",
            where=sink.topic,
            suggestion=f"Restore it, or {NEW_GENERATION}.",
        )
    else:
        yield from _changes(output, sink, recorded)


def _changes(output: TopicInfo, sink: KafkaSink, recorded: SinkState) -> Iterator[Fault]:
    """Name each difference from what the ledger has recorded."""
    if recorded.topic_id not in {"", output.topic_id}:
        yield Fault(
            "the output topic was deleted and created again: what was committed is gone",
            where=output.name,
            expected=f"topic id {recorded.topic_id}, as recorded in the ledger",
            suggestion=f"To write it again, {NEW_GENERATION}.",
        )
    expected = f"{recorded.partitions}, as recorded in the ledger; keys would move otherwise"
    if output.partitions < recorded.partitions:
        yield Fault(
            f"the output topic has {output.partitions} partitions",
            where=output.name,
            expected=expected,
            suggestion=f"Restore the topic, or {NEW_GENERATION}.",
        )
    elif sink.partitions not in {None, recorded.partitions}:
        yield Fault(
            f"sink.kafka.partitions is {sink.partitions}",
            where=output.name,
            expected=expected,
            suggestion=f"Correct the file, or {NEW_GENERATION}.",
        )
