"""Answers with an error, made from the request alone or from the broker's own answer. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict

from tests.chaos.codec import Message
from tests.chaos.messages import Cluster, Request, Response, write_response

Path = tuple[str, ...]

_ERROR_PLACES: Mapping[str, tuple[Path, ...]] = {
    "Produce": (("topics", "partitions"),),
    "Metadata": (("topics",),),
    "FindCoordinator": ((), ("coordinators",)),
    "InitProducerId": ((),),
    "AddPartitionsToTxn": (("topics", "partitions"), ("transactions", "topics", "partitions")),
    "AddOffsetsToTxn": ((),),
    "EndTxn": ((),),
    "TxnOffsetCommit": (("topics", "partitions"),),
}
"""Where answers have their error codes. A version has one of the places."""

REFUSABLE = frozenset(_ERROR_PLACES)
"""Names of the apis that can be answered with an error."""

_REQUEST_FIELDS = frozenset({"topics", "transactions", "key", "keys"})


def refuse(request: Request, code: int, cluster: Cluster) -> bytes:
    """An answer with an error, as if the broker had given it.

    Args:
        request: to answer; of an api in REFUSABLE.
        code: Kafka's number of the error.
        cluster: goes into an answer that tells the brokers.

    Raises:
        FrameError: the request is of a version that the proxy does not know.
    """
    asked = request.fields(_REQUEST_FIELDS)
    make = _ANSWERS.get(request.api)
    answer = make(asked, cluster) if make else {}
    _mark(answer, _ERROR_PLACES[request.api], code)
    return write_response(request, answer)


def refuse_instead(request: Request, frame: bytes, code: int) -> bytes:
    """The broker's answer, with an error in it.

    Raises:
        FrameError: the request is of a version that the proxy does not know.
    """
    response = Response(request, frame)
    _mark(response.message, _ERROR_PLACES[request.api], code)
    return response.frame()


def _mark(answer: Message, places: Sequence[Path], code: int) -> None:
    for path in places:
        for struct in _structs(answer, path):
            struct["error_code"] = code


def _structs(message: Message, path: Path) -> Iterator[Message]:
    if not path:
        yield message
        return
    for inner in message.get(path[0]) or ():
        yield from _structs(inner, path[1:])


def _partitions(asked: Message, cluster: Cluster) -> Message:
    """The same topics and partitions as in the request, on both levels that may hold them."""
    transactions = asked.get("transactions") or ()
    return {
        "topics": _topics(asked),
        "transactions": [{**each, "topics": _topics(each)} for each in transactions],
    }


def _topics(asked: Message) -> list[Message]:
    return [
        {**topic, "partitions": [{"index": _index(p)} for p in topic["partitions"] or ()]}
        for topic in asked.get("topics") or ()
    ]


def _index(partition: Message | int) -> int:
    return partition if isinstance(partition, int) else int(partition["index"])


def _coordinators(asked: Message, cluster: Cluster) -> Message:
    return {"coordinators": [{"key": key} for key in asked.get("keys") or ()]}


def _metadata(asked: Message, cluster: Cluster) -> Message:
    return {
        "brokers": [asdict(node) for node in cluster.nodes],
        "cluster_id": cluster.cluster_id,
        "controller_id": cluster.controller_id,
        "topics": asked.get("topics") or (),
    }


_ANSWERS: Mapping[str, Callable[[Message, Cluster], Message]] = {
    "Produce": _partitions,
    "Metadata": _metadata,
    "FindCoordinator": _coordinators,
    "AddPartitionsToTxn": _partitions,
    "TxnOffsetCommit": _partitions,
}
"""What an answer holds besides its error, if anything."""
