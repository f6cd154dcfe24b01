"""The two topics of a gateway: remembered keys, and who owns which slot.

The keys are not compacted. Each is written once as long as it is remembered, so compaction would
remove nothing; retention removes a key some time after it was forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from onceflow.clock import Deadline
from onceflow.contracts.connector import Broker, TopicInfo, TopicSpec
from onceflow.errors import ConfigError, CorruptionError, Fault, RetriableError
from onceflow.protocol.identity import gateway_keys_topic, gateway_owners_topic
from onceflow_connectors.kafka.admin.administration import Administration

MARGIN_MS = 3_600_000
"""How much longer than a gateway remembers a key Kafka keeps it: clocks differ."""
MIN_SEGMENT_MS = 600_000
SAFE: Mapping[str, str] = {"unclean.leader.election.enable": "false"}


@dataclass(frozen=True)
class KeyTopics:
    """The topics of a gateway, as they are.

    Args:
        keys_id: of the topic of keys; it changes when that is deleted and created again.
    """

    keys: str
    keys_id: str
    owners: str


def prepare_topics(
    gateway: str, slots: int, remember_ms: int, broker: Broker, deadline: Deadline
) -> KeyTopics:
    """Create the topics of a gateway, unless they exist.

    Raises:
        ConfigError: they exist and lose keys; or have another number of slots.
        RetriableError: they were created and are not visible yet.
    """
    specs = (_keys_spec(gateway, slots, remember_ms), _owners_spec(gateway))
    found = []
    for spec in specs:
        # Not without a look: to create needs a right of its own.
        if broker.topic_id(spec.name, deadline) is None:
            broker.create_topic(spec, deadline)
        topic = broker.topic(spec.name, deadline)
        if topic is None:
            raise RetriableError("a new topic is not visible yet", subject=spec.name)
        found.append(topic)
    faults = tuple(
        fault
        for spec, topic in zip(specs, found, strict=True)
        for fault in _faults(spec, topic, remember_ms)
    )
    if faults:
        then = "nothing was started"
        raise ConfigError("unusable topics of a gateway", subject=gateway, faults=faults, then=then)
    return KeyTopics(found[0].name, found[0].topic_id, found[1].name)


def require_same_topic(
    topics: KeyTopics, administration: Administration, deadline: Deadline
) -> None:
    """Look whether the topic of keys is still the one that this process knows.

    Raises:
        CorruptionError: it was deleted, with everything that is remembered.
        OnceflowError: the brokers do not answer, or refuse.
    """
    found = administration.topics([topics.keys], deadline).get(topics.keys)
    if found is None or found.topic_id != topics.keys_id:
        raise CorruptionError(
            "the topic of remembered keys was deleted",
            subject=topics.keys,
            expected=f"the topic with id {topics.keys_id}",
            found=f"id {found.topic_id}" if found else "no topic",
            then="stopping; posts that are repeated with their keys would be written again",
        )


def _keys_spec(gateway: str, slots: int, remember_ms: int) -> TopicSpec:
    config = {
        **SAFE,
        "cleanup.policy": "delete",
        "retention.ms": str(remember_ms + MARGIN_MS),
        # The segment that is written is never removed, and a start reads it.
        "segment.ms": str(max(MIN_SEGMENT_MS, remember_ms // 4)),
        "segment.bytes": str(64 * 1024 * 1024),
    }
    return TopicSpec(gateway_keys_topic(gateway), slots, config=config)


def _owners_spec(gateway: str) -> TopicSpec:
    config = {**SAFE, "cleanup.policy": "compact", "segment.bytes": str(16 * 1024 * 1024)}
    return TopicSpec(gateway_owners_topic(gateway), 1, config=config)


def _faults(spec: TopicSpec, found: TopicInfo, remember_ms: int) -> Iterator[Fault]:
    if found.partitions != spec.partitions:
        what = f"{found.partitions} partitions; keys would be looked for where they are not"
        suggestion = "Set `remember.slots` to that number, or give the gateway another name."
        yield Fault(what, found.name, None, f"{spec.partitions}, as many as slots", suggestion)
    policy = found.config.get("cleanup.policy")
    if policy != spec.config["cleanup.policy"]:
        what = f"cleanup.policy is {policy}"
        suggestion = "Change the setting of the topic."
        yield Fault(what, found.name, None, spec.config["cleanup.policy"], suggestion)
    kept_ms = int(found.config.get("retention.ms", -1))
    if "retention.ms" in spec.config and 0 <= kept_ms < remember_ms + MARGIN_MS:
        what = f"retention.ms is {kept_ms}, so keys are lost before they are to be forgotten"
        suggestion = "Raise the setting of the topic, or lower `remember.for`."
        yield Fault(what, found.name, None, f"{remember_ms + MARGIN_MS} or more", suggestion)
    kept_bytes = int(found.config.get("retention.bytes", -1))
    if "retention.ms" in spec.config and kept_bytes >= 0:
        what = f"retention.bytes is {kept_bytes}, so keys may be lost too early"
        yield Fault(what, found.name, None, "-1", "Change the setting of the topic.")
