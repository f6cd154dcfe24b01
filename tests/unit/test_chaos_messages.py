"""What the proxy reads and writes, beside what kafka-python makes of the same bytes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.apis import API_KEYS, ERROR_CODES
from tests.chaos.codec import Array, Blob, Cursor, Form, FrameError, Number, Text, varint
from tests.chaos.frames import (
    MAX_FRAME_BYTES,
    answered_id,
    frame_size,
    with_correlation_id,
    with_size,
)
from tests.chaos.messages import (
    Cluster,
    Node,
    Response,
    advertise,
    discovery_request,
    limit_versions,
    nodes,
    read_cluster,
    read_request,
    tells_addresses,
)
from tests.chaos.refusals import REFUSABLE, refuse, refuse_instead
from tests.chaos.schemas import SCHEMAS
from tests.support.chaos_messages import (
    CLIENT_ID,
    CORRELATION_ID,
    PORT,
    decoded,
    encoded,
    filled,
    versions,
)

SHARE_APIS = {"ShareFetch", "ShareAcknowledge"}
"""kafka-python does not know them."""
APIS = sorted(SCHEMAS.keys() - SHARE_APIS)
EVERY_VERSION = [(api, version) for api in APIS for version in versions(api)]
TRANSACTIONAL = {
    "Produce": 3,
    "InitProducerId": 0,
    "AddPartitionsToTxn": 0,
    "AddOffsetsToTxn": 0,
    "EndTxn": 0,
    "TxnOffsetCommit": 0,
}
"""Api -> first version that tells a transactional id."""
HERE = Node(7, "127.0.0.1", 40001)
CLUSTER = Cluster((HERE, Node(8, "127.0.0.1", 40002)), "cluster", 8)
CODE = ERROR_CODES["NOT_COORDINATOR"]


def error_codes(message: Any) -> Iterator[int]:
    """Every error code in an answer, wherever it stands."""
    if isinstance(message, Mapping):
        for name, value in message.items():
            if name in ("error_code", "partition_error_code"):
                yield value
            yield from error_codes(value)
    elif isinstance(message, list | tuple):
        for inner in message:
            yield from error_codes(inner)


def test_the_tables_go_as_far_as_the_newest_client() -> None:
    newest = {api: versions(api)[-1] for api in APIS if api != "ApiVersions"}

    assert {api: SCHEMAS[api].newest for api in newest} == newest


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_every_request_is_recognised(api: str, version: int) -> None:
    request = read_request(filled(f"{api}Request", version))

    assert request.api == api
    assert (request.header.api_version, request.header.api_key) == (version, API_KEYS[api])
    assert (request.header.correlation_id, request.header.client_id) == (CORRELATION_ID, CLIENT_ID)
    is_transactional = api in TRANSACTIONAL and version >= TRANSACTIONAL[api]
    ids = {"text of transactional_id"} if is_transactional else set()
    assert set(request.transactional_ids) == ids


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_every_answer_is_written_as_it_was_read(api: str, version: int) -> None:
    request = read_request(filled(f"{api}Request", version))
    frame = filled(f"{api}Response", version)

    assert Response(request, frame).frame() == frame


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
def test_a_torn_answer_is_refused(api: str, version: int) -> None:
    request = read_request(filled(f"{api}Request", version))
    frame = filled(f"{api}Response", version)

    # The list of versions ends where it ends: what follows is not looked at.
    torn = frame[:9] if api == "ApiVersions" else frame[:-1]
    with pytest.raises(FrameError):
        Response(request, torn)
    if api != "ApiVersions":
        with pytest.raises(FrameError):
            Response(request, frame + b"\0")


@pytest.mark.parametrize("version", versions("FindCoordinator"))
@pytest.mark.parametrize(("key_type", "expected"), [(0, ()), (1, ("mine",))])
def test_a_coordinator_is_asked_for_by_transactional_id(
    version: int, key_type: int, expected: tuple[str, ...]
) -> None:
    keys: dict[str, Any] = {"coordinator_keys": ["mine"]} if version >= 4 else {"key": "mine"}
    if version >= 1:
        keys["key_type"] = key_type

    request = read_request(encoded("FindCoordinatorRequest", version, keys))

    assert request.transactional_ids == (expected if version >= 1 else ())


@pytest.mark.parametrize("version", versions("Produce"))
def test_a_produce_request_without_acks_is_not_answered(version: int) -> None:
    silent = encoded("ProduceRequest", version, {"acks": 0, "topic_data": []})
    answered = encoded("ProduceRequest", version, {"acks": -1, "topic_data": []})

    assert not read_request(silent).is_answered
    assert read_request(answered).is_answered
    assert read_request(answered).transactional_ids == ()


TELLING = [
    (api, version)
    for api, version in EVERY_VERSION
    if api in ("Metadata", "FindCoordinator", "DescribeCluster")
    or (api == "Produce" and version >= 10)
    or (api == "Fetch" and version >= 16)
]


@pytest.mark.parametrize(("api", "version"), TELLING)
def test_every_address_is_replaced(api: str, version: int) -> None:
    request = read_request(filled(f"{api}Request", version))
    response = Response(request, filled(f"{api}Response", version))
    # A test of endpoint types is below; 7 is none of them.
    assert tells_addresses(request)
    assert {node.port for node in nodes(response)} == {PORT}

    advertise(response, {HERE.node_id: HERE})

    assert set(nodes(Response(request, response.frame()))) == {HERE}
    assert b"text of host" not in response.frame()
    # kafka-python finds them in the same places.
    as_seen = str(decoded(f"{api}Response", version, response.frame()))
    assert HERE.host in as_seen
    assert str(HERE.port) in as_seen


@pytest.mark.parametrize("api", sorted(SHARE_APIS))
def test_addresses_in_answers_to_share_consumers_are_replaced(api: str) -> None:
    schema = SCHEMAS[api]
    header = bytes([0, API_KEYS[api], 0, 2, 0, 0, 0, 5, 0, 1]) + b"c\0"
    message = {"node_endpoints": [{"node_id": 7, "host": "far", "port": 9}], "topics": []}
    request = read_request(header)
    frame = b"\0\0\0\5\0" + schema.response.write(message, schema.form(2))

    response = Response(request, frame)
    advertise(response, {HERE.node_id: HERE})

    assert nodes(Response(request, response.frame())) == (HERE,)


def test_a_broker_that_is_unknown_keeps_its_address() -> None:
    request = read_request(filled("MetadataRequest", 12))
    response = Response(request, filled("MetadataResponse", 12))

    advertise(response, {99: HERE})

    assert response.frame() == filled("MetadataResponse", 12)


def test_no_coordinator_has_no_address() -> None:
    request = read_request(encoded("FindCoordinatorRequest", 2, {"key": "mine", "key_type": 1}))
    nowhere = {"error_code": 15, "node_id": -1, "host": "", "port": -1}

    assert nodes(Response(request, encoded("FindCoordinatorResponse", 2, nowhere))) == ()


def test_controllers_are_not_taken_for_brokers() -> None:
    request = read_request(encoded("DescribeClusterRequest", 1, {}))
    node = {"broker_id": 7, "host": "controller", "port": 1}
    answer = {"endpoint_type": 2, "cluster_id": "c", "brokers": [node]}

    assert nodes(Response(request, encoded("DescribeClusterResponse", 1, answer))) == ()


@pytest.mark.parametrize("version", versions("ApiVersions"))
def test_versions_that_could_not_be_read_are_taken_from_the_broker(version: int) -> None:
    request = read_request(encoded("ApiVersionsRequest", version, {}))
    keys = [
        {"api_key": API_KEYS["EndTxn"], "min_version": 0, "max_version": 99},
        {"api_key": API_KEYS["Produce"], "min_version": 3, "max_version": 5},
        {"api_key": API_KEYS["Heartbeat"], "min_version": 0, "max_version": 99},
        {"api_key": API_KEYS["Metadata"], "min_version": 90, "max_version": 99},
    ]
    answer = encoded("ApiVersionsResponse", version, {"error_code": 0, "api_keys": keys})

    response = Response(request, answer)
    limit_versions(response)

    limited = decoded("ApiVersionsResponse", version, response.frame())
    newest = {api.api_key: api.max_version for api in limited.api_keys}
    assert newest == {26: SCHEMAS["EndTxn"].newest, 0: 5, 12: 99, 3: 99}


def test_a_broker_that_is_older_than_the_client_lists_its_versions_in_the_oldest_form() -> None:
    request = read_request(encoded("ApiVersionsRequest", 4, {}))
    keys = [{"api_key": 18, "min_version": 0, "max_version": 3}]
    frame = encoded("ApiVersionsResponse", 0, {"error_code": 35, "api_keys": keys})

    response = Response(request, frame)
    limit_versions(response)

    assert response.frame() == frame


REFUSABLE_VERSIONS = [(api, v) for api, v in EVERY_VERSION if api in REFUSABLE]


@pytest.mark.parametrize(("api", "version"), REFUSABLE_VERSIONS)
def test_a_request_is_refused_in_the_brokers_place(api: str, version: int) -> None:
    request = read_request(filled(f"{api}Request", version))

    frame = refuse(request, CODE, CLUSTER)

    assert answered_id(frame) == CORRELATION_ID
    answer = decoded(f"{api}Response", version, frame)
    codes = set(error_codes(answer.to_dict()))
    assert CODE in codes
    # Only the errors of a whole answer, beside those of its parts, may be none.
    assert codes <= {CODE, 0}


@pytest.mark.parametrize("version", versions("Produce"))
def test_a_refused_produce_request_names_every_partition(version: int) -> None:
    topic = {"topic_id": _uuid(4)} if version >= 13 else {"name": "views"}
    partitions = [{"index": index, "records": b"abc"} for index in (0, 5)]
    asked = {"acks": -1, "topic_data": [{**topic, "partition_data": partitions}]}
    request = read_request(encoded("ProduceRequest", version, asked))

    answer = decoded("ProduceResponse", version, refuse(request, CODE, CLUSTER))

    (of_topic,) = answer.responses
    assert (of_topic.topic_id if version >= 13 else of_topic.name) in (_uuid(4), "views")
    found = {p.index: p.error_code for p in of_topic.partition_responses}
    assert found == {0: CODE, 5: CODE}


def _uuid(number: int) -> uuid.UUID:
    return uuid.UUID(int=number)


@pytest.mark.parametrize("version", versions("Metadata"))
def test_a_refused_look_up_still_tells_the_brokers(version: int) -> None:
    asked: dict[str, Any] = {"topics": [{"name": "views"}]}
    request = read_request(encoded("MetadataRequest", version, asked))

    answer = decoded("MetadataResponse", version, refuse(request, CODE, CLUSTER))

    assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [
        (n.node_id, n.host, n.port) for n in CLUSTER.nodes
    ]
    assert [(t.name, t.error_code) for t in answer.topics] == [("views", CODE)]


@pytest.mark.parametrize(("api", "version"), REFUSABLE_VERSIONS)
def test_an_answer_becomes_an_error(api: str, version: int) -> None:
    request = read_request(filled(f"{api}Request", version))
    frame = filled(f"{api}Response", version)
    assert CODE not in set(error_codes(decoded(f"{api}Response", version, frame).to_dict()))

    changed = refuse_instead(request, frame, CODE)

    answer = decoded(f"{api}Response", version, changed)
    assert CODE in set(error_codes(answer.to_dict()))
    assert len(changed) == len(frame)


def test_an_unknown_api_is_read_as_far_as_its_client() -> None:
    request = read_request(b"\x7f\x00\x00\x09\x00\x00\x00\x05\x00\x02me anything")

    assert (request.api, request.header.client_id, request.schema) == ("", "me", None)
    assert request.transactional_ids == ()
    assert request.is_answered


def test_a_version_to_come_is_read_as_far_as_its_client() -> None:
    newest = SCHEMAS["EndTxn"].newest + 1
    frame = bytes([0, 26, 0, newest, 0, 0, 0, 5, 0, 2]) + b"me\xff\xff"

    request = read_request(frame)

    assert (request.api, request.header.client_id, request.schema) == ("EndTxn", "me", None)
    assert not tells_addresses(request)
    with pytest.raises(FrameError):
        refuse(request, CODE, CLUSTER)


@pytest.mark.parametrize("frame", [b"", b"\0\x1a\0\1", b"\0\x1a\0\1\0\0\0\1\0\x09short"])
def test_what_is_no_request_is_refused(frame: bytes) -> None:
    with pytest.raises(FrameError):
        read_request(frame)


def test_a_correlation_id_is_replaced_and_nothing_else() -> None:
    frame = filled("EndTxnRequest", 4)

    changed = with_correlation_id(frame, -(2**31))

    assert read_request(changed).header.correlation_id == -(2**31)
    assert with_correlation_id(changed, CORRELATION_ID) == frame


@pytest.mark.parametrize("size", [-1, MAX_FRAME_BYTES + 1])
def test_a_frame_has_a_bounded_size(size: int) -> None:
    with pytest.raises(FrameError, match="at most"):
        frame_size(size.to_bytes(4, signed=True))


def test_a_frame_goes_out_with_its_size() -> None:
    sent = with_size(b"abc")

    assert (frame_size(sent[:4]), sent[4:]) == (3, b"abc")


def test_brokers_are_found_by_a_request_for_no_topic() -> None:
    request = discovery_request()
    brokers = [{"node_id": 1, "host": "a", "port": 9}, {"node_id": 2, "host": "b", "port": 8}]
    answer = {"brokers": brokers, "cluster_id": "c", "controller_id": 2, "topics": []}
    version = request.header.api_version

    assert decoded("MetadataRequest", version, request.frame).topics == []
    found = read_cluster(request, encoded("MetadataResponse", version, answer))
    assert found == Cluster((Node(1, "a", 9), Node(2, "b", 8)), "c", 2)


@given(st.integers(min_value=0, max_value=2**32 - 1))
def test_varints_are_read_as_written(value: int) -> None:
    assert Cursor(varint(value)).varint() == value


@given(st.lists(st.none() | st.text(max_size=300), max_size=200), st.booleans())
def test_arrays_of_text_are_read_as_written(values: list[str | None], is_flexible: bool) -> None:
    form = Form(0, is_flexible=is_flexible)
    kind = Array(Text())

    assert kind.read(Cursor(kind.write(values, form)), form) == values


@pytest.mark.parametrize("is_flexible", [True, False])
@pytest.mark.parametrize("kind", [Array(Number("i")), Blob()])
def test_nothing_is_not_the_same_as_empty(kind: Array | Blob, is_flexible: bool) -> None:
    form = Form(0, is_flexible=is_flexible)

    assert kind.read(Cursor(kind.write(None, form)), form) is None
    assert kind.read(Cursor(kind.write(b"", form)), form) in (b"", [])


@given(st.binary(max_size=64))
def test_any_bytes_are_an_answer_or_refused(data: bytes) -> None:
    request = read_request(filled("MetadataRequest", 12))

    with suppress(FrameError):
        Response(request, data)
