"""What the proxy reads in messages, and what it writes into them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka.protocol.api_key import ApiKey

from tests.chaos.messages import (
    ERROR_CODES,
    Cluster,
    FrameError,
    Node,
    advertise,
    framed,
    limit_versions,
    message_class,
    nodes,
    read_answer,
    read_request,
)
from tests.chaos.refusals import REFUSABLE, refuse, refuse_instead

CORRELATION_ID = 77
CLUSTER = Cluster((Node(7, "127.0.0.1", 40001), Node(8, "127.0.0.1", 40002)), "cluster", 8)
CODE = ERROR_CODES["NOT_COORDINATOR"]
OLDEST = {"Produce": 3}
"""Versions below are unknown to brokers of today, and to kafka-python."""


def struct(name: str, /, **fields: Any) -> Any:
    """A part of a message, such as `FetchResponse.NodeEndpoint`."""
    message, part = name.split(".")
    return getattr(message_class(message), part)(**fields)


def request(api: str, version: int, **fields: Any) -> Any:
    return read_request(framed(message_class(f"{api}Request")[version](**fields), CORRELATION_ID))


def answer(api: str, version: int, **fields: Any) -> bytes:
    return framed(message_class(f"{api}Response")[version](**fields), CORRELATION_ID)


@pytest.mark.parametrize("version", [0, 3, 4, 5])
def test_a_request_tells_its_transactional_ids(version: int) -> None:
    name = "AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction"
    of_several = {"transactions": [struct(name, transactional_id=each, topics=[]) for each in "mn"]}
    fields = of_several if version > 3 else {"v3_and_below_transactional_id": "m"}

    assert request("EndTxn", version, transactional_id="m").transactional_ids == ["m"]
    assert request("Produce", version + 3, transactional_id="m").transactional_ids == ["m"]
    found = request("AddPartitionsToTxn", version, **fields).transactional_ids
    assert found == (["m", "n"] if version > 3 else ["m"])


@pytest.mark.parametrize("version", [1, 6])
def test_a_look_for_a_coordinator_tells_transactional_ids_and_no_groups(version: int) -> None:
    fields = {"coordinator_keys": ["m"]} if version > 3 else {"key": "m"}

    assert request("FindCoordinator", version, key_type=1, **fields).transactional_ids == ["m"]
    assert request("FindCoordinator", version, key_type=0, **fields).transactional_ids == []


def test_a_produce_request_without_acks_is_not_answered() -> None:
    assert not request("Produce", 9, acks=0).is_answered
    assert request("Produce", 9, acks=-1).is_answered


@pytest.mark.parametrize(
    "frame",
    [
        b"\x7f\x00\x00\x09\x00\x00\x00\x05\x00\x02me of an unknown api",
        b"\x00\x1a\x7f\x00\x00\x00\x00\x05\x00\x02me EndTxn of an unknown version",
    ],
)
def test_what_is_unknown_is_read_as_far_as_its_client(frame: bytes) -> None:
    found = read_request(frame)

    assert (found.header.client_id, found.body, found.transactional_ids) == ("me", None, [])
    assert found.is_answered


@pytest.mark.parametrize("frame", [b"", b"\0\x1a\0\1", b"\0\x1a\0\1\0\0\0\1\0\x09short"])
def test_what_is_no_request_is_refused(frame: bytes) -> None:
    with pytest.raises(FrameError):
        read_request(frame)


def far_away() -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Answers that tell the address of broker 7."""
    place = {"host": "far", "port": 9}
    for api, version in (("Produce", 10), ("Produce", 13), ("Fetch", 16), ("Fetch", 18)):
        endpoint = struct(f"{api}Response.NodeEndpoint", node_id=7, **place)
        yield api, version, {"responses": [], "node_endpoints": [endpoint]}
    for version in (0, 9, 13):
        broker = struct("MetadataResponse.MetadataResponseBroker", node_id=7, **place)
        yield "Metadata", version, {"brokers": [broker], "topics": []}
    yield "FindCoordinator", 3, {"node_id": 7, **place}
    coordinator = struct("FindCoordinatorResponse.Coordinator", key="m", node_id=7, **place)
    yield "FindCoordinator", 6, {"coordinators": [coordinator]}
    broker = struct("DescribeClusterResponse.DescribeClusterBroker", broker_id=7, **place)
    yield "DescribeCluster", 1, {"cluster_id": "c", "endpoint_type": 1, "brokers": [broker]}


@pytest.mark.parametrize(("api", "version", "fields"), list(far_away()))
def test_every_address_is_replaced(api: str, version: int, fields: dict[str, Any]) -> None:
    asked = request(api, version)
    told = read_answer(asked, answer(api, version, **fields))
    assert nodes(told) == (Node(7, "far", 9),)

    advertise(told, {8: CLUSTER.nodes[1]})
    assert nodes(told) == (Node(7, "far", 9),)
    advertise(told, {7: CLUSTER.nodes[0]})

    assert nodes(read_answer(asked, told.encode(header=True))) == CLUSTER.nodes[:1]


def test_what_has_no_address_of_a_broker_is_left_alone() -> None:
    nowhere = answer("FindCoordinator", 2, error_code=15, node_id=-1, host="", port=-1)
    assert nodes(read_answer(request("FindCoordinator", 2, key="m"), nowhere)) == ()

    node = struct("DescribeClusterResponse.DescribeClusterBroker", broker_id=7, host="c", port=1)
    controllers = answer("DescribeCluster", 1, endpoint_type=2, cluster_id="c", brokers=[node])
    assert nodes(read_answer(request("DescribeCluster", 1), controllers)) == ()


@pytest.mark.parametrize(
    "damage",
    [
        lambda frame: frame[:-1],
        lambda frame: frame + b"\0",
        # In place of "no tagged fields": one of a number that kafka-python does not know.
        lambda frame: frame[:-1] + b"\1\x63\1x",
    ],
)
def test_an_answer_that_could_not_be_written_as_it_was_is_refused(damage: Any) -> None:
    frame = answer("Metadata", 12, brokers=[], topics=[])

    read_answer(request("Metadata", 12), frame)
    with pytest.raises(FrameError):
        read_answer(request("Metadata", 12), damage(frame))


@pytest.mark.parametrize("version", [0, 3, 4])
def test_versions_that_could_not_be_read_are_taken_from_the_broker(version: int) -> None:
    offered = {"EndTxn": (0, 99), "Produce": (3, 5), "Heartbeat": (0, 99), "Metadata": (90, 99)}
    keys = [
        struct(
            "ApiVersionsResponse.ApiVersion", api_key=ApiKey[api], min_version=low, max_version=high
        )
        for api, (low, high) in offered.items()
    ]
    told = read_answer(
        request("ApiVersions", version), answer("ApiVersions", version, api_keys=keys)
    )

    limit_versions(told)

    newest = [api.max_version for api in told.api_keys]
    assert newest == [message_class("EndTxnRequest").max_version, 5, 99, 99]


def test_a_broker_that_is_older_than_the_client_lists_its_versions_in_the_oldest_form() -> None:
    frame = answer("ApiVersions", 0, error_code=35, api_keys=[])

    assert read_answer(request("ApiVersions", 4), frame).encode(header=True) == frame


def one_topic(api: str, version: int) -> dict[str, Any]:
    """Fields of a request about one partition, as far as its api has any."""
    match api:
        case "Produce":
            partition = struct("ProduceRequest.TopicProduceData")
            of = partition.PartitionProduceData(index=5, records=b"abc")
            partition.name, partition.partition_data = "t", [of]
            return {"acks": -1, "topic_data": [partition]}
        case "Metadata":
            return {"topics": [struct("MetadataRequest.MetadataRequestTopic", name="t")]}
        case "FindCoordinator":
            return {"coordinator_keys": ["m"]} if version > 3 else {"key": "m"}
        case "AddPartitionsToTxn":
            topic = struct(
                "AddPartitionsToTxnRequest.AddPartitionsToTxnTopic", name="t", partitions=[5]
            )
            name = "AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction"
            of_several = {"transactions": [struct(name, transactional_id="m", topics=[topic])]}
            return of_several if version > 3 else {"v3_and_below_topics": [topic]}
        case "TxnOffsetCommit":
            found = struct("TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic", name="t")
            found.partitions = [found.TxnOffsetCommitRequestPartition(partition_index=5)]
            return {"topics": [found]}
    return {}


def error_codes(message: Any) -> Iterator[int]:
    """Every error code in an answer that is one, wherever it is."""
    if isinstance(message, dict):
        for name, value in message.items():
            if name in ("error_code", "partition_error_code") and value:
                yield value
            yield from error_codes(value)
    elif isinstance(message, list):
        for inner in message:
            yield from error_codes(inner)


VERSIONS = [
    (api, version)
    for api in sorted(REFUSABLE)
    for version in range(OLDEST.get(api, 0), message_class(f"{api}Request").max_version + 1)
]


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_a_request_is_refused_with_one_error(api: str, version: int) -> None:
    asked = request(api, version, **one_topic(api, version))

    frame = refuse(asked, CODE, CLUSTER)

    told = read_answer(asked, frame)
    assert told.header.correlation_id == CORRELATION_ID
    assert list(error_codes(told.to_dict())) == [CODE]
    other = refuse_instead(asked, frame, CODE + 1)
    assert list(error_codes(read_answer(asked, other).to_dict())) == [CODE + 1]
    assert len(other) == len(frame)


def test_a_refused_look_up_still_tells_the_brokers() -> None:
    asked = request("Metadata", 12, **one_topic("Metadata", 12))

    assert nodes(read_answer(asked, refuse(asked, CODE, CLUSTER))) == CLUSTER.nodes
