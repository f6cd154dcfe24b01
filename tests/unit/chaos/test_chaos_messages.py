"""The proxy reads messages, and writes into them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka.protocol.api_key import ApiKey

from tests.chaos.messages import (
    ERROR_CODES,
    REFUSABLE,
    FrameError,
    Node,
    advertise,
    framed,
    limit_versions,
    message_class,
    nodes,
    read_answer,
    read_request,
    refused,
)

CORRELATION_ID = 77
HERE = Node(7, "127.0.0.1", 40001)
OLDEST = {"Produce": 3}
"""Versions below are unknown to brokers of today, and to kafka-python."""


def struct(name: str, /, **fields: Any) -> Any:
    """A part of a message, such as `FetchResponse.NodeEndpoint`."""
    message, *parts = name.split(".")
    found = message_class(message)
    for part in parts:
        found = getattr(found, part)
    return found(**fields)


def request(api: str, version: int, **fields: Any) -> Any:
    return read_request(framed(message_class(f"{api}Request")[version](**fields), CORRELATION_ID))


def answer(api: str, version: int, **fields: Any) -> bytes:
    return framed(message_class(f"{api}Response")[version](**fields), CORRELATION_ID)


def several() -> list[Any]:
    name = "AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction"
    return [struct(name, transactional_id=each, topics=[]) for each in "mn"]


@pytest.mark.parametrize(
    ("api", "version", "fields", "ids"),
    [
        ("EndTxn", 5, {"transactional_id": "m"}, ["m"]),
        ("Produce", 9, {"transactional_id": "m"}, ["m"]),
        ("Produce", 9, {"transactional_id": None}, []),
        ("AddPartitionsToTxn", 3, {"v3_and_below_transactional_id": "m"}, ["m"]),
        ("AddPartitionsToTxn", 5, {"transactions": several()}, ["m", "n"]),
        ("FindCoordinator", 1, {"key_type": 1, "key": "m"}, ["m"]),
        ("FindCoordinator", 6, {"key_type": 1, "coordinator_keys": ["m"]}, ["m"]),
        ("FindCoordinator", 6, {"key_type": 0, "coordinator_keys": ["m"]}, []),
    ],
)
def test_a_request_tells_its_transactional_ids(
    api: str, version: int, fields: dict[str, Any], ids: list[str]
) -> None:
    assert request(api, version, **fields).transactional_ids == ids


def test_a_produce_request_without_acks_is_not_answered() -> None:
    assert not request("Produce", 9, acks=0).is_answered
    assert request("Produce", 9, acks=-1).is_answered


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

    advertise(told, {7: HERE})

    assert nodes(read_answer(asked, told.encode(header=True))) == (HERE,)


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
    kind = "ApiVersionsResponse.ApiVersion"
    keys = [
        struct(kind, api_key=ApiKey[api], min_version=low, max_version=high)
        for api, (low, high) in offered.items()
    ]
    frame = answer("ApiVersions", version, api_keys=keys)
    told = read_answer(request("ApiVersions", version), frame)

    limit_versions(told)

    newest = [api.max_version for api in told.api_keys]
    assert newest == [message_class("EndTxnRequest").max_version, 5, 99, 99]


def test_a_broker_that_is_older_than_the_client_lists_its_versions_in_the_oldest_form() -> None:
    frame = answer("ApiVersions", 0, error_code=35, api_keys=[])

    assert read_answer(request("ApiVersions", 4), frame).encode(header=True) == frame


def well(api: str, version: int) -> dict[str, Any]:
    """Fields of an answer without error about one partition, as far as its api has any."""
    match api:
        case "Produce":
            name = "ProduceResponse.TopicProduceResponse"
            partition = struct(f"{name}.PartitionProduceResponse", index=5)
            return {"responses": [struct(name, name="t", partition_responses=[partition])]}
        case "FindCoordinator" if version > 3:
            return {"coordinators": [struct("FindCoordinatorResponse.Coordinator", key="m")]}
        case "AddPartitionsToTxn":
            name = "AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult"
            partition = struct(f"{name}.AddPartitionsToTxnPartitionResult", partition_index=5)
            topic = struct(name, name="t", results_by_partition=[partition])
            if version < 4:
                return {"results_by_topic_v3_and_below": [topic]}
            name = "AddPartitionsToTxnResponse.AddPartitionsToTxnResult"
            result = struct(name, transactional_id="m", topic_results=[topic])
            return {"results_by_transaction": [result], "results_by_topic_v3_and_below": []}
        case "TxnOffsetCommit":
            name = "TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic"
            partition = struct(f"{name}.TxnOffsetCommitResponsePartition", partition_index=5)
            return {"topics": [struct(name, name="t", partitions=[partition])]}
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
def test_an_answer_gets_one_error(api: str, version: int) -> None:
    asked, frame = request(api, version), answer(api, version, **well(api, version))

    told = read_answer(asked, refused(asked, frame, "NOT_COORDINATOR"))

    assert list(error_codes(told.to_dict())) == [ERROR_CODES["NOT_COORDINATOR"]]
    assert told.header.correlation_id == CORRELATION_ID
