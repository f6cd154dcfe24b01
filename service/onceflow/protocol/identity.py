"""Names and identities of the protocol: everything that stays the same across restarts.

No name holds a uuid, an attempt, a host or a producer epoch: Kafka fences by name, so a successor
must use the same names as its predecessor.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NewType

from onceflow.errors import ConfigError

FencingToken = NewType("FencingToken", int)
"""Number of a take-over; orders drivers for people and messages. It decides nothing."""

DRIVER_SLOT = 0
"""The one writer slot that lives on the driver."""

OWNER_PARTITION = 0
"""Ledger partition of the key `owner`; kept apart so that an open lane cannot hide a claim."""

_RESERVED = frozenset({"reader"})
"""Readers of any pipeline ask about the group `onceflow.reader`; a pipeline of that name would
share it, and its rights."""
_INTERNAL_TOPICS = ("onceflow.", "__")
"""Prefixes of our own topics, such as ledgers, and of Kafka's."""
MAX_LINEAGE = 0xFFFF
"""Largest value of the 16 bits in a record header; 0 means unknown."""

_PIPELINE_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True, order=True)
class BatchKey:
    """Spark's identity of a micro-batch. `batch_id` alone restarts at 0 on a new checkpoint."""

    query_id: str
    batch_id: int


@dataclass(frozen=True, order=True)
class LaneId:
    """One transactional id of a writer slot. Both numbers count from 0."""

    slot: int
    lane: int


@dataclass(frozen=True)
class Layout:
    """How many slots and lanes exist. The layout in the ledger never shrinks (protocol 3.1)."""

    slots: int
    lanes: int

    def covering(self, other: Layout) -> Layout:
        """The smallest layout that has every lane of both."""
        return Layout(max(self.slots, other.slots), max(self.lanes, other.lanes))

    def lane_ids(self) -> Iterator[LaneId]:
        """Every lane, slot by slot."""
        return (LaneId(s, n) for s in range(self.slots) for n in range(self.lanes))


def check_pipeline_name(name: str) -> str:
    """Return `name` if it is allowed in names of topics, groups and transactional ids.

    Raises:
        ConfigError: it is empty, longer than 63, holds other characters than [a-z0-9-], or is
            reserved.
    """
    if name in _RESERVED:
        raise ConfigError("the pipeline name `reader` is reserved", expected="another name")
    if not _PIPELINE_NAME.fullmatch(name):
        raise ConfigError(
            "unusable pipeline name",
            subject=repr(name),
            expected="1 to 63 of [a-z0-9-], beginning and ending with a letter or digit",
        )
    return name


def is_internal_topic(topic: str) -> bool:
    """Whether a topic of this name belongs to Onceflow or Kafka, not to a pipeline."""
    return topic.startswith(_INTERNAL_TOPICS)


def is_kafka_topic(name: str) -> bool:
    """Whether a source that names this reads a topic; what others read has a colon in its name."""
    return ":" not in name


def ledger_topic(pipeline: str) -> str:
    """Compacted topic with `owner` in partition 0 and slot s's `head` in partition 1 + s."""
    return f"onceflow.ledger.{pipeline}"


def pipeline_of_tag(tag: int, topics: Iterable[str]) -> str | None:
    """Find the pipeline with this tag among those whose ledgers are in `topics`."""
    prefix = ledger_topic("")
    names = (topic.removeprefix(prefix) for topic in topics if topic.startswith(prefix))
    return next((name for name in names if pipeline_tag(name) == tag), None)


def head_partition(slot: int) -> int:
    """Ledger partition that holds the `head` of a slot."""
    return 1 + slot


def owner_transactional_id(pipeline: str) -> str:
    """Transactional id for writing claims."""
    return f"onceflow.{pipeline}.owner"


def lane_transactional_id(pipeline: str, lane_id: LaneId) -> str:
    """Transactional id of one lane."""
    return f"onceflow.{pipeline}.s{lane_id.slot}.l{lane_id.lane}"


def resend_transactional_id(pipeline: str) -> str:
    """Transactional id for sending dead letters again."""
    return f"onceflow.{pipeline}.resend"


def resend_group(pipeline: str) -> str:
    """Group that shows how far dead letters were sent again. Nothing may join it."""
    return f"onceflow.{pipeline}.resend"


def consumer_group(pipeline: str) -> str:
    """Group that shows the source position to ordinary lag tools. Nothing may join it."""
    return f"onceflow.{pipeline}"


DELIVERIES_TOPIC = "onceflow.deliveries"
"""Compacted topic with the positions of deliveries whose targets keep none."""


def delivery_transactional_ids(delivery: str) -> str:
    """Prefix of all transactional ids of a delivery."""
    return f"onceflow-delivery.{delivery}."


def delivery_transactional_id(delivery: str, topic: str, partition: int) -> str:
    """Transactional id for what one delivery writes from one partition."""
    return f"{delivery_transactional_ids(delivery)}{topic}.{partition}"


def gateway_keys_topic(gateway: str) -> str:
    """Topic with the idempotency keys that a gateway remembers: a partition for each slot."""
    return f"onceflow.gateway.{gateway}.keys"


def gateway_owners_topic(gateway: str) -> str:
    """Compacted topic with the newest claim of each slot of a gateway, in one partition."""
    return f"onceflow.gateway.{gateway}.owners"


def gateway_transactional_ids(gateway: str) -> str:
    """Prefix of all transactional ids of a gateway."""
    return f"onceflow-gateway.{gateway}."


def gateway_transactional_id(gateway: str, slot: int, lane: int) -> str:
    """Transactional id of one lane of a gateway's slot."""
    return f"{gateway_transactional_ids(gateway)}s{slot}.l{lane}"


def gateway_group(gateway: str) -> str:
    """Group whose members share the slots of a gateway. It keeps no position."""
    return f"onceflow-gateway-{gateway}"


def bulletin_group(pipeline: str) -> str:
    """Group whose offsets carry bulletins as their metadata. Nothing may join it."""
    return f"onceflow.{pipeline}.bulletins"


def pipeline_tag(pipeline: str) -> int:
    """32-bit mark of a pipeline in record headers: crc32 of its UTF-8 name."""
    return zlib.crc32(pipeline.encode())


def lineage_of(run_id: str) -> int:
    """Draw the lineage of a registration, from 1 to 65,535.

    Two registrations of one pipeline draw the same number with a probability of 1 in 65,535.
    """
    return zlib.crc32(run_id.encode()) % MAX_LINEAGE + 1


def revision_of(generation: int, batch_id: int) -> int:
    """A number that rises with every batch of a pipeline, across restarts and generations.

    A double, and so a JSON number, holds it exactly up to generation 2^21 and batch 2^32.
    """
    return (generation << 32) + batch_id
