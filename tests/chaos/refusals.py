"""Answers with an error, made from the request alone or from the broker's own answer. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from itertools import chain
from typing import Any

from tests.chaos.messages import Cluster, Request, framed, message_class, read_answer

REFUSABLE = frozenset(
    {
        "AddOffsetsToTxn",
        "AddPartitionsToTxn",
        "EndTxn",
        "FindCoordinator",
        "InitProducerId",
        "Metadata",
        "Produce",
        "TxnOffsetCommit",
    }
)
"""Apis that can be answered with an error."""


def refuse(request: Request, code: int, cluster: Cluster) -> bytes:
    """An answer with an error, as if the broker had given it.

    Args:
        request: to answer; of an api in REFUSABLE.
        code: Kafka's number of the error.
        cluster: goes into an answer that tells the brokers.
    """
    answer = _answer_to(request, cluster)
    _mark(request.api, answer, code)
    return framed(answer, request.header.correlation_id)


def refuse_instead(request: Request, frame: bytes, code: int) -> bytes:
    """The broker's answer, with an error in it.

    Raises:
        FrameError: the answer cannot be read.
    """
    answer = read_answer(request, frame)
    _mark(request.api, answer, code)
    return bytes(answer.encode(header=True))


def _answer_to(request: Request, cluster: Cluster) -> Any:
    """An answer without error about all that the request names."""
    body = request.body
    kind = message_class(f"{request.api}Response")
    fields: dict[str, Any] = {}
    match request.api:
        case "Produce":
            topic = kind.TopicProduceResponse
            fields["responses"] = [
                topic(
                    name=each.name,
                    topic_id=each.topic_id,
                    partition_responses=[
                        topic.PartitionProduceResponse(index=partition.index)
                        for partition in each.partition_data
                    ],
                )
                for each in body.topic_data
            ]
        case "Metadata":
            broker = kind.MetadataResponseBroker
            fields["brokers"] = [broker(**asdict(node)) for node in cluster.nodes]
            fields["cluster_id"] = cluster.cluster_id
            fields["controller_id"] = cluster.controller_id
            topic = kind.MetadataResponseTopic
            fields["topics"] = [
                topic(name=each.name, topic_id=each.topic_id) for each in body.topics or ()
            ]
        case "FindCoordinator":
            keys = body.coordinator_keys or ()
            fields["coordinators"] = [kind.Coordinator(key=key) for key in keys]
        case "AddPartitionsToTxn":
            of_transaction = kind.AddPartitionsToTxnResult
            fields["results_by_transaction"] = [
                of_transaction(
                    transactional_id=each.transactional_id,
                    topic_results=_partitions_of_txn(each.topics),
                )
                for each in body.transactions or ()
            ]
            older = body.v3_and_below_topics or ()
            fields["results_by_topic_v3_and_below"] = _partitions_of_txn(older)
        case "TxnOffsetCommit":
            topic = kind.TxnOffsetCommitResponseTopic
            partition = topic.TxnOffsetCommitResponsePartition
            fields["topics"] = [
                topic(
                    name=each.name,
                    partitions=[
                        partition(partition_index=one.partition_index) for one in each.partitions
                    ],
                )
                for each in body.topics
            ]
    return kind[body.API_VERSION](**fields)


def _partitions_of_txn(topics: Any) -> list[Any]:
    topic = message_class("AddPartitionsToTxnResponse").AddPartitionsToTxnTopicResult
    partition = topic.AddPartitionsToTxnPartitionResult
    return [
        topic(
            name=each.name,
            results_by_partition=[partition(partition_index=index) for index in each.partitions],
        )
        for each in topics
    ]


def _mark(api: str, answer: Any, code: int) -> None:
    places: Iterable[Any]
    match api:
        case "Produce":
            places = chain.from_iterable(each.partition_responses for each in answer.responses)
        case "Metadata":
            places = answer.topics
        case "FindCoordinator":
            places = answer.coordinators or [answer]
        case "AddPartitionsToTxn":
            topics = [
                *(answer.results_by_topic_v3_and_below or ()),
                *chain.from_iterable(
                    each.topic_results for each in answer.results_by_transaction or ()
                ),
            ]
            for place in chain.from_iterable(each.results_by_partition for each in topics):
                place.partition_error_code = code
            return
        case "TxnOffsetCommit":
            places = chain.from_iterable(each.partitions for each in answer.topics)
        case _:
            places = [answer]
    for place in places:
        place.error_code = code
