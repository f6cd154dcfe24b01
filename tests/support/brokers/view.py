"""Views that the brokers of a cluster have of it, asked one by one.

The clients' own administration asks whichever broker they like, also one that they have merely
heard of. Here each question is one connection to one broker, with kafka-python's encoding.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeVar

from kafka.protocol.admin import (
    AlterPartitionReassignmentsRequest,
    DescribeQuorumRequest,
    ElectLeadersRequest,
)
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest, MetadataRequest
from kafka.protocol.parser import KafkaProtocol

T = TypeVar("T")

ASK_TIMEOUT_S = 2.0
"""A broker that lives answers in milliseconds; a frozen one never does."""
_RECEIVE_BYTES = 1 << 16
_ELECTION_MS = 1_000

Addresses = Mapping[int, str]
"""Node id -> `host:port` of each broker, whether it lives or not."""


@dataclass(frozen=True)
class Partition:
    """Who has it, by node id."""

    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True)
class View:
    """The whole cluster, as one broker sees it."""

    brokers: frozenset[int]
    partitions: Mapping[tuple[str, int], Partition]


def views(addresses: Addresses) -> Mapping[int, View]:
    """Node id -> what that broker says; without those that do not answer within a moment."""
    told = _ask_each(addresses, MetadataRequest[12](topics=None))
    return {node_id: _view(answer) for node_id, answer in told.items()}


def agreed(addresses: Addresses, topic: str, partition: int) -> Partition | None:
    """A partition, if all brokers that answer agree on it and its leader is one of them."""
    seen = views(addresses)
    told = {node_id: view.partitions.get((topic, partition)) for node_id, view in seen.items()}
    found = _unanimous(addresses, told)
    return found if found is not None and found.leader in seen else None


def agreed_coordinator(addresses: Addresses, key: str, kind: CoordinatorType) -> int | None:
    """Whom all brokers that answer name, if it is one of them. Creates what Kafka keeps it in."""
    question = FindCoordinatorRequest[4](key_type=kind.value, coordinator_keys=[key])
    return _named(addresses, question, lambda answer: answer.coordinators[0].node_id)


def agreed_controller(addresses: Addresses) -> int | None:
    """The leader of the quorum, if it answers; metadata does not tell clients who it is."""
    log = DescribeQuorumRequest.TopicData
    place = log(topic_name="__cluster_metadata", partitions=[log.PartitionData(partition_index=0)])
    question = DescribeQuorumRequest[1](topics=[place])
    return _named(addresses, question, lambda answer: answer.topics[0].partitions[0].leader_id)


def complaints(addresses: Addresses) -> list[str]:
    """Reasons why the cluster is not whole; none if each broker sees all in sync."""
    seen = views(addresses)
    found = [f"broker {node_id} does not answer" for node_id in addresses if node_id not in seen]
    for node_id, view in seen.items():
        missing = sorted(addresses.keys() - view.brokers)
        found += [f"broker {node_id} does not see broker {each}" for each in missing]
        found += [
            f"{topic}-{number} has {sorted(partition.in_sync)} in sync, says broker {node_id}"
            for (topic, number), partition in view.partitions.items()
            if set(partition.in_sync) != set(partition.replicas) or partition.leader < 0
        ]
    return found


def reassign(addresses: Addresses, topic: str, partition: int, replicas: Sequence[int]) -> None:
    """Ask for an order of replicas; the first is preferred as leader. May be refused in silence."""
    place = AlterPartitionReassignmentsRequest.ReassignableTopic
    wanted = place.ReassignablePartition(partition_index=partition, replicas=[*replicas])
    _ask_each(
        addresses,
        AlterPartitionReassignmentsRequest[0](
            timeout_ms=_ELECTION_MS, topics=[place(name=topic, partitions=[wanted])]
        ),
    )


def elect_preferred(addresses: Addresses, topic: str, partition: int) -> None:
    """Ask for the first replica to lead. May be refused in silence."""
    place = ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[partition])
    _ask_each(
        addresses,
        ElectLeadersRequest[2](election_type=0, topic_partitions=[place], timeout_ms=_ELECTION_MS),
    )


def _named(addresses: Addresses, question: Any, read: Callable[[Any], int]) -> int | None:
    told = {node_id: read(answer) for node_id, answer in _ask_each(addresses, question).items()}
    found = _unanimous(addresses, told)
    return found if found in told else None


def _unanimous(addresses: Addresses, told: Mapping[int, T]) -> T | None:
    """The answer of more than half of all brokers, unless one of them says something else.

    Any two majorities have a broker in common, so an answer is never older than the one before.
    """
    different = set(told.values())
    return different.pop() if len(different) == 1 and 2 * len(told) > len(addresses) else None


def _ask_each(addresses: Addresses, question: Any) -> Mapping[int, Any]:
    """Node id -> answer; without those that gave none within a moment."""
    # Side by side, so that each frozen one does not cost a time-out of its own.
    with ThreadPoolExecutor(len(addresses)) as threads:
        asked = {
            node_id: threads.submit(_ask, address, copy(question))
            for node_id, address in addresses.items()
        }
        told = {node_id: answer.result() for node_id, answer in asked.items()}
    return {node_id: answer for node_id, answer in told.items() if answer is not None}


def _ask(address: str, question: Any) -> Any:
    host, port = address.split(":")
    wire = KafkaProtocol(client_id="cluster-view")
    wire.send_request(question)
    with (
        suppress(OSError),
        socket.create_connection((host, int(port)), ASK_TIMEOUT_S) as connection,
    ):
        connection.sendall(wire.send_bytes())
        # Ends with the answer, the connection, or a silence.
        while received := connection.recv(_RECEIVE_BYTES):
            if answers := wire.receive_bytes(received):
                return answers[0][1]
    return None


def _view(answer: Any) -> View:
    return View(
        frozenset(broker.node_id for broker in answer.brokers),
        {
            (topic.name, each.partition_index): Partition(
                each.leader_id, tuple(each.replica_nodes), tuple(each.isr_nodes)
            )
            for topic in answer.topics
            for each in topic.partitions
        },
    )
