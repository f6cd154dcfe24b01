"""What the proxy reads in messages, and the addresses that it writes into them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.chaos.apis import API_KEYS, API_NAMES, ERROR_CODES
from tests.chaos.codec import Cursor, Form, FrameError, Message, Struct
from tests.chaos.frames import (
    RequestHeader,
    request_header,
    skip_tags,
    write_request_header,
    write_response_header,
)
from tests.chaos.schemas import SCHEMAS, Schema

TRANSACTION_KEY = 1
"""Key type of FindCoordinator for transactional ids."""
CONTROLLERS = 2
"""Endpoint type of DescribeCluster whose nodes are no brokers."""
NO_ACKS = 0
DISCOVERY_VERSION = 4
"""Of Metadata: brokers know it since 1.0."""
CLIENT_ID = "onceflow-chaos"
"""Of the proxy's own requests."""

_IDENTIFYING = frozenset(
    {"transactional_id", "acks", "transactions", "key", "key_type", "keys"},
)
"""Fields of requests that tell their transactional ids, and whether an answer comes."""
_TELLS_ADDRESSES: Mapping[str, int] = {
    "Produce": 10,
    "Fetch": 16,
    "Metadata": 0,
    "FindCoordinator": 0,
    "DescribeCluster": 0,
    "ShareFetch": 0,
    "ShareAcknowledge": 0,
}
"""Api -> first version whose answers may tell where brokers are."""
_NODE_LISTS = ("brokers", "coordinators", "node_endpoints")


@dataclass(frozen=True)
class Node:
    """A broker and where it is.

    Args:
        node_id: as Kafka knows it.
        host: where clients reach it.
        port: at that host.
    """

    node_id: int
    host: str
    port: int


@dataclass(frozen=True)
class Cluster:
    """What one must know to answer in place of a broker.

    Args:
        nodes: every broker.
        cluster_id: as Kafka knows it.
        controller_id: a node id; -1 if it is unknown.
    """

    nodes: tuple[Node, ...]
    cluster_id: str | None
    controller_id: int


@dataclass(frozen=True)
class Request:
    """A request as far as the proxy reads it.

    Args:
        frame: all of its bytes, without the size before them.
        header: what it begins with.
        api: Kafka's name; empty for one that is unknown.
        transactional_ids: which it is about.
        is_answered: whether the broker answers it.
    """

    frame: bytes
    header: RequestHeader
    api: str
    transactional_ids: tuple[str, ...] = ()
    is_answered: bool = True

    @property
    def schema(self) -> Schema | None:
        """How to read it and its answer; None if the proxy knows no such api or version."""
        known = SCHEMAS.get(self.api)
        return known if known and self.header.api_version <= known.newest else None

    @property
    def form(self) -> Form:
        """How it is written, if there is a schema."""
        if self.schema is None:
            raise FrameError(f"no schema of {self.api} in version {self.header.api_version}")
        return self.schema.form(self.header.api_version)

    def fields(self, names: frozenset[str]) -> Message:
        """The body as far as the last of these fields; nothing if there is no schema of it."""
        if self.schema is None or self.schema.request is None:
            return {}
        cursor = Cursor(self.frame, self.header.size)
        if self.form.is_flexible:
            skip_tags(cursor)
        return self.schema.request.read_first(cursor, self.form, names)


def read_request(frame: bytes) -> Request:
    """Read a request; one of an unknown api or version only as far as its client id.

    Raises:
        FrameError: these bytes are no request.
    """
    header = request_header(frame)
    request = Request(frame, header, API_NAMES.get(header.api_key, ""))
    first = request.fields(_IDENTIFYING)
    is_answered = first.get("acks") != NO_ACKS
    return Request(frame, header, request.api, tuple(_transactional_ids(first)), is_answered)


def _transactional_ids(first: Message) -> Iterator[str]:
    if first.get("transactional_id") is not None:
        yield first["transactional_id"]
    for transaction in first.get("transactions") or ():
        yield transaction["transactional_id"]
    if first.get("key_type") == TRANSACTION_KEY:
        yield from first.get("keys") or [first.get("key", "")]


def tells_addresses(request: Request) -> bool:
    """Whether its answer may tell where brokers are, and the proxy can read it."""
    since = _TELLS_ADDRESSES.get(request.api)
    return since is not None and request.schema is not None and request.header.api_version >= since


class Response:
    """An answer, opened for reading and writing.

    Args:
        request: what it answers.
        frame: all of its bytes, without the size before them.

    Raises:
        FrameError: it is no answer to that request, or there is no schema of it.
    """

    def __init__(self, request: Request, frame: bytes) -> None:
        self._request = request
        self._form = _response_form(request, frame)
        cursor = Cursor(frame)
        cursor.take(len(write_response_header(0, is_flexible=False)))
        if _has_flexible_header(request):
            skip_tags(cursor)
        self.message = _struct(request).read(cursor, self._form)
        if cursor.rest:
            raise FrameError(f"{cursor.rest} bytes too many in an answer to {request.api}")

    def frame(self) -> bytes:
        """Its bytes, as the message is now."""
        return write_response(self._request, self.message, self._form)


def write_response(request: Request, message: Message, form: Form | None = None) -> bytes:
    """An answer to that request.

    Raises:
        FrameError: there is no schema of it.
    """
    header = write_response_header(
        request.header.correlation_id, is_flexible=_has_flexible_header(request)
    )
    return header + _struct(request).write(message, form or request.form)


def _struct(request: Request) -> Struct:
    if request.schema is None:
        raise FrameError(f"no schema of {request.api} in version {request.header.api_version}")
    return request.schema.response


def _has_flexible_header(request: Request) -> bool:
    # So that a client can read the answer before it knows which versions the broker has.
    return request.api != "ApiVersions" and request.form.is_flexible


def _response_form(request: Request, frame: bytes) -> Form:
    """As the request's, but a broker that does not know its version lists its own in the oldest."""
    unsupported = ERROR_CODES["UNSUPPORTED_VERSION"].to_bytes(2)
    if request.api == "ApiVersions" and frame[4:6] == unsupported:
        return Form(version=0, is_flexible=False)
    return request.form


def nodes(response: Response) -> tuple[Node, ...]:
    """Every broker whose address the answer gives to the client."""
    return tuple(
        Node(place["node_id"], place["host"], place["port"])
        for place in _addresses(response.message)
    )


def advertise(response: Response, known: Mapping[int, Node]) -> None:
    """Put other addresses in place of those that the answer gives.

    Args:
        response: is changed.
        known: by node id. Brokers that are not in it keep their addresses.
    """
    for place in _addresses(response.message):
        node = known.get(place["node_id"])
        if node is not None:
            place["host"], place["port"] = node.host, node.port


def _addresses(message: Message) -> Iterator[Message]:
    if message.get("endpoint_type") == CONTROLLERS:
        return
    places = [place for name in _NODE_LISTS for place in message.get(name) or ()]
    if "host" in message:  # of FindCoordinator, before it took several keys
        places.append(message)
    # An unknown coordinator has an id and a port of -1.
    yield from (place for place in places if place["host"] and place["port"] >= 0)


def limit_versions(response: Response) -> None:
    """Take from a broker's versions those whose addresses and ids the proxy could not read."""
    for api in response.message["apis"] or ():
        schema = SCHEMAS.get(API_NAMES.get(api["api_key"], ""))
        if schema is not None and api["max_version"] > schema.newest >= api["min_version"]:
            api["max_version"] = schema.newest


def discovery_request() -> Request:
    """Asks for every broker, and for no topic."""
    schema = SCHEMAS["Metadata"]
    form = schema.form(DISCOVERY_VERSION)
    header = write_request_header(
        API_KEYS["Metadata"], form.version, 0, CLIENT_ID, is_flexible=form.is_flexible
    )
    body = schema.request.write({"topics": []}, form) if schema.request else b""
    return read_request(header + body)


def read_cluster(request: Request, frame: bytes) -> Cluster:
    """What the answer to `discovery_request` says.

    Raises:
        FrameError: it is no such answer.
    """
    response = Response(request, frame)
    message = response.message
    return Cluster(nodes(response), message["cluster_id"], message["controller_id"])
