"""The messages that the proxy looks into, read and written with kafka-python. Pure."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka.errors import kafka_errors
from kafka.protocol.admin import cluster
from kafka.protocol.api_header import RequestHeader
from kafka.protocol.api_key import ApiKey
from kafka.protocol.consumer import fetch
from kafka.protocol.metadata import CoordinatorType, api_versions, find_coordinator, metadata
from kafka.protocol.producer import produce, transaction

CONTROLLERS = 2
"""Endpoint type of DescribeCluster for nodes other than brokers."""
DISCOVERY_VERSION = 4
"""Of Metadata: brokers know it since 1.0."""
CLIENT_ID = "onceflow-chaos"
"""Of the proxy's own requests."""

API_NAMES: Mapping[int, str] = {key.value: key.name for key in ApiKey}
ERROR_CODES: Mapping[str, int] = {kind.message: code for code, kind in kafka_errors.items()}
"""By kafka-python's names, which are Kafka's older ones for some."""
TELL_ADDRESSES = frozenset({"Produce", "Fetch", "Metadata", "FindCoordinator", "DescribeCluster"})
"""Apis whose answers may tell where brokers are."""
_TRANSACTIONS = frozenset(
    {"InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit"}
)
_ERRORS: Mapping[str, Sequence[str]] = {
    "AddOffsetsToTxn": (),
    "AddPartitionsToTxn": (
        "results_by_topic_v3_and_below.results_by_partition",
        "results_by_transaction.topic_results.results_by_partition",
    ),
    "EndTxn": (),
    "FindCoordinator": ("coordinators",),
    "InitProducerId": (),
    "Produce": ("responses.partition_responses",),
    "TxnOffsetCommit": ("topics.partitions",),
}
"""Where the answers of an api have their errors; in the answer itself if it has no such parts."""
REFUSABLE = frozenset(_ERRORS)
"""Apis that can be answered with an error."""
_READ = TELL_ADDRESSES | _TRANSACTIONS | {"ApiVersions"}
"""Apis that are looked into; all others pass unread."""
_MODULES = (api_versions, cluster, fetch, find_coordinator, metadata, produce, transaction)
_UNREADABLE = (struct.error, ValueError, IndexError)
"""Errors of kafka-python for bytes that it cannot decode."""


class FrameError(ValueError):
    """Bytes that are not such a message."""


@dataclass(frozen=True)
class Node:
    """A broker and where it is."""

    node_id: int
    host: str
    port: int


@dataclass(frozen=True)
class Request:
    """A request as far as the proxy reads it.

    Args:
        frame: all of its bytes, without the size before them.
        header: as kafka-python reads it.
        api: Kafka's name; empty for one that is unknown.
        body: as kafka-python reads it; None if the api or its version is not looked into.
    """

    frame: bytes
    header: Any
    api: str
    body: Any = None

    @property
    def transactional_ids(self) -> list[str]:
        """Transactional ids that it is about."""
        match self.api:
            case _ if self.body is None:
                return []
            case "FindCoordinator":
                is_transactional = self.body.key_type == CoordinatorType.TRANSACTION
                return (self.body.coordinator_keys or [self.body.key]) if is_transactional else []
            case "AddPartitionsToTxn":
                ids = [each.transactional_id for each in self.body.transactions or ()]
                return ids or [self.body.v3_and_below_transactional_id]
        found = getattr(self.body, "transactional_id", None)
        return [] if found is None else [found]

    @property
    def is_answered(self) -> bool:
        """Whether the broker answers it."""
        return self.body is None or bool(self.body.expect_response())


def message_class(name: str) -> Any:
    """A class of kafka-python, such as `EndTxnRequest`."""
    return next(getattr(module, name) for module in _MODULES if hasattr(module, name))


def framed(message: Any, correlation_id: int, client_id: str = CLIENT_ID) -> bytes:
    """The bytes of a message with its header.

    Args:
        correlation_id: of the request, also in its answer.
        client_id: goes into a request.
    """
    if message.is_request():
        message.with_header(correlation_id, client_id)
    else:
        message.with_header(correlation_id)
    return bytes(message.encode(header=True))


def read_request(frame: bytes) -> Request:
    """Read a request; one of an unknown api or version only as far as its client id.

    Raises:
        FrameError: these bytes are not a request.
    """
    try:
        header = RequestHeader.decode(io.BytesIO(frame))
        api = API_NAMES.get(header.request_api_key, "")
        version = header.request_api_version
        if api not in _READ or version > message_class(f"{api}Request").max_version:
            return Request(frame, header, api)
        body = message_class(f"{api}Request").decode(frame, version, header=True)
    except _UNREADABLE as error:
        raise FrameError("no request") from error
    return Request(frame, header, api, body)


def discovery_request() -> Request:
    """Asks for every broker, and for no topic."""
    return read_request(framed(metadata.MetadataRequest[DISCOVERY_VERSION](topics=[]), 0))


def read_answer(request: Request, frame: bytes) -> Any:
    """Read an answer with kafka-python.

    Raises:
        FrameError: it does not answer that request, or it has fields that kafka-python does not
            know and would leave out.
    """
    if request.body is None:
        raise FrameError(f"{request.api} is not read in this version")
    try:
        kind = message_class(f"{request.api}Response")
        answer = kind.decode(frame, request.body.API_VERSION, header=True)
    except _UNREADABLE as error:
        raise FrameError(f"no answer to {request.api}") from error
    if answer.encode(header=True) != frame:
        raise FrameError(f"an answer to {request.api} that cannot be written again as it was")
    return answer


def refused(request: Request, frame: bytes, error: str) -> bytes:
    """A broker's answer with an error in it.

    Raises:
        FrameError: the answer cannot be read.
    """
    answer = read_answer(request, frame)
    for place in _parts(answer, _ERRORS[request.api]) or [answer]:
        is_of_partition = hasattr(place, "partition_error_code")
        name = "partition_error_code" if is_of_partition else "error_code"
        setattr(place, name, ERROR_CODES[error])
    return bytes(answer.encode(header=True))


def _parts(answer: Any, paths: Sequence[str]) -> list[Any]:
    found = []
    for path in paths:
        parts = [answer]
        for name in path.split("."):
            parts = [inner for part in parts for inner in getattr(part, name) or ()]
        found += parts
    return found


def with_correlation_id(frame: bytes, correlation_id: int) -> bytes:
    """The same request under another correlation id."""
    return frame[:4] + correlation_id.to_bytes(4, signed=True) + frame[8:]


def answered_id(frame: bytes) -> int:
    """The correlation id of an answer."""
    return int.from_bytes(frame[:4], signed=True)


def nodes(answer: Any) -> tuple[Node, ...]:
    """Every broker whose address the answer tells."""
    return tuple(Node(_node_id(place), place.host, place.port) for place in _addresses(answer))


def advertise(answer: Any, known: Mapping[int, Node]) -> None:
    """Replace the addresses of the brokers that are known, by node id."""
    for place in _addresses(answer):
        if node := known.get(_node_id(place)):
            place.host, place.port = node.host, node.port


def _addresses(answer: Any) -> Iterator[Any]:
    if getattr(answer, "endpoint_type", None) == CONTROLLERS:
        return
    places = [answer]  # of FindCoordinator, before it took several keys
    for name in ("brokers", "coordinators", "node_endpoints"):
        places += getattr(answer, name, None) or ()
    # An unknown coordinator has an id and a port of -1.
    yield from (place for place in places if getattr(place, "host", "") and place.port >= 0)


def _node_id(place: Any) -> int:
    return int(place.broker_id if hasattr(place, "broker_id") else place.node_id)


def limit_versions(answer: Any) -> None:
    """Take from a broker's versions those that kafka-python could not read."""
    for api in answer.api_keys:
        name = API_NAMES.get(api.api_key)
        if name in _READ:
            newest = message_class(f"{name}Response").max_version
            if api.min_version <= newest:
                api.max_version = min(api.max_version, newest)
