"""The messages that the proxy looks into, as tables. Pure.

Each is as Kafka 4.3 defines it, with the older versions that clients still use. All other messages
pass unread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.chaos.codec import Array, Blob, Field, Form, Number, Struct, Text, Uuid

_BOOL, _INT8, _INT16, _INT32, _INT64 = (Number(code) for code in "?bhiq")
_TEXT, _UUID, _RECORDS = Text(), Uuid(), Blob()
_INT32S = Array(_INT32)


@dataclass(frozen=True)
class Schema:
    """Request and response of one api.

    Args:
        newest: the last version that the structs describe.
        flexible_since: first version with varints and tagged fields.
        request: None where only the answer matters.
        response: None where only the request matters.
    """

    newest: int
    flexible_since: int
    request: Struct | None
    response: Struct

    def form(self, version: int) -> Form:
        """How that version is written."""
        return Form(version, is_flexible=version >= self.flexible_since)


def _list(*fields: Field) -> Array:
    return Array(Struct(*fields))


def _nodes(since: int = 0, tag: int | None = None) -> Field:
    """Where brokers are that a client should know."""
    node = _list(
        Field("node_id", _INT32),
        Field("host", _TEXT),
        Field("port", _INT32),
        Field("rack", _TEXT),
    )
    return Field("node_endpoints", node, since, tag=tag)


_LEADER = Struct(Field("leader_id", _INT32), Field("leader_epoch", _INT32))
_THROTTLE = Field("throttle_time_ms", _INT32)
_THROTTLE_1 = Field("throttle_time_ms", _INT32, since=1)
_ERROR = Field("error_code", _INT16)
_PRODUCER = (Field("producer_id", _INT64), Field("producer_epoch", _INT16))
_TOPIC_OR_ID = (Field("name", _TEXT, until=12, default=""), Field("topic_id", _UUID, since=13))

_PRODUCE = Schema(
    newest=13,
    flexible_since=9,
    request=Struct(
        Field("transactional_id", _TEXT, since=3),
        Field("acks", _INT16),
        Field("timeout_ms", _INT32),
        Field(
            "topics",
            _list(
                *_TOPIC_OR_ID,
                Field("partitions", _list(Field("index", _INT32), Field("records", _RECORDS))),
            ),
        ),
    ),
    response=Struct(
        Field(
            "topics",
            _list(
                *_TOPIC_OR_ID,
                Field(
                    "partitions",
                    _list(
                        Field("index", _INT32),
                        _ERROR,
                        Field("base_offset", _INT64, default=-1),
                        Field("log_append_time_ms", _INT64, since=2, default=-1),
                        Field("log_start_offset", _INT64, since=5, default=-1),
                        Field(
                            "record_errors",
                            _list(Field("batch_index", _INT32), Field("message", _TEXT)),
                            since=8,
                            default=(),
                        ),
                        Field("error_message", _TEXT, since=8),
                        Field("current_leader", _LEADER, since=10, tag=0),
                    ),
                ),
            ),
        ),
        _THROTTLE_1,
        _nodes(since=10, tag=0),
    ),
)

_FETCH = Schema(
    newest=18,
    flexible_since=12,
    request=None,
    response=Struct(
        _THROTTLE_1,
        Field("error_code", _INT16, since=7),
        Field("session_id", _INT32, since=7),
        Field(
            "topics",
            _list(
                *_TOPIC_OR_ID,
                Field(
                    "partitions",
                    _list(
                        Field("index", _INT32),
                        _ERROR,
                        Field("high_watermark", _INT64),
                        Field("last_stable_offset", _INT64, since=4),
                        Field("log_start_offset", _INT64, since=5),
                        Field(
                            "aborted_transactions",
                            _list(Field("producer_id", _INT64), Field("first_offset", _INT64)),
                            since=4,
                        ),
                        Field("preferred_read_replica", _INT32, since=11),
                        Field("records", _RECORDS),
                    ),
                ),
            ),
        ),
        _nodes(since=16, tag=0),
    ),
)

_METADATA = Schema(
    newest=13,
    flexible_since=9,
    request=Struct(
        Field(
            "topics",
            _list(Field("topic_id", _UUID, since=10), Field("name", _TEXT)),
        ),
        Field("allow_auto_topic_creation", _BOOL, since=4),
        Field("include_cluster_operations", _BOOL, since=8, until=10),
        Field("include_topic_operations", _BOOL, since=8),
    ),
    response=Struct(
        Field("throttle_time_ms", _INT32, since=3),
        Field(
            "brokers",
            _list(
                Field("node_id", _INT32),
                Field("host", _TEXT),
                Field("port", _INT32),
                Field("rack", _TEXT, since=1),
            ),
        ),
        Field("cluster_id", _TEXT, since=2),
        Field("controller_id", _INT32, since=1, default=-1),
        Field(
            "topics",
            _list(
                _ERROR,
                Field("name", _TEXT),
                Field("topic_id", _UUID, since=10),
                Field("is_internal", _BOOL, since=1),
                Field(
                    "partitions",
                    _list(
                        _ERROR,
                        Field("index", _INT32),
                        Field("leader_id", _INT32),
                        Field("leader_epoch", _INT32, since=7),
                        Field("replicas", _INT32S),
                        Field("in_sync_replicas", _INT32S),
                        Field("offline_replicas", _INT32S, since=5),
                    ),
                    default=(),
                ),
                Field("operations", _INT32, since=8, default=-(2**31)),
            ),
        ),
        Field("cluster_operations", _INT32, since=8, until=10, default=-(2**31)),
        Field("error_code", _INT16, since=13),
    ),
)

_FIND_COORDINATOR = Schema(
    newest=6,
    flexible_since=3,
    request=Struct(
        Field("key", _TEXT, until=3),
        Field("key_type", _INT8, since=1),
        Field("keys", Array(_TEXT), since=4),
    ),
    response=Struct(
        _THROTTLE_1,
        Field("error_code", _INT16, until=3),
        Field("error_message", _TEXT, since=1, until=3),
        Field("node_id", _INT32, until=3, default=-1),
        Field("host", _TEXT, until=3, default=""),
        Field("port", _INT32, until=3, default=-1),
        Field(
            "coordinators",
            _list(
                Field("key", _TEXT),
                Field("node_id", _INT32, default=-1),
                Field("host", _TEXT, default=""),
                Field("port", _INT32, default=-1),
                _ERROR,
                Field("error_message", _TEXT),
            ),
            since=4,
        ),
    ),
)

_API_VERSIONS = Schema(
    # Whatever comes after these fields is left as it is, so that no version is too new.
    newest=2**15 - 1,
    flexible_since=3,
    request=None,
    response=Struct(
        _ERROR,
        Field(
            "apis",
            _list(
                Field("api_key", _INT16),
                Field("min_version", _INT16),
                Field("max_version", _INT16),
            ),
        ),
        is_open=True,
    ),
)

_INIT_PRODUCER_ID = Schema(
    newest=6,
    flexible_since=2,
    request=Struct(Field("transactional_id", _TEXT)),
    response=Struct(
        _THROTTLE,
        _ERROR,
        Field("producer_id", _INT64, default=-1),
        Field("producer_epoch", _INT16),
        Field("ongoing_producer_id", _INT64, since=6, default=-1),
        Field("ongoing_producer_epoch", _INT16, since=6, default=-1),
    ),
)

_TXN_TOPICS = _list(Field("name", _TEXT), Field("partitions", _INT32S))
_TXN_RESULTS = _list(
    Field("name", _TEXT),
    Field("partitions", _list(Field("index", _INT32), _ERROR)),
)
_ADD_PARTITIONS_TO_TXN = Schema(
    newest=5,
    flexible_since=3,
    request=Struct(
        Field(
            "transactions",
            _list(
                Field("transactional_id", _TEXT),
                *_PRODUCER,
                Field("verify_only", _BOOL),
                Field("topics", _TXN_TOPICS),
            ),
            since=4,
        ),
        Field("transactional_id", _TEXT, until=3),
        Field("producer_id", _INT64, until=3),
        Field("producer_epoch", _INT16, until=3),
        Field("topics", _TXN_TOPICS, until=3),
    ),
    response=Struct(
        _THROTTLE,
        Field("error_code", _INT16, since=4),
        Field(
            "transactions",
            _list(Field("transactional_id", _TEXT), Field("topics", _TXN_RESULTS)),
            since=4,
        ),
        Field("topics", _TXN_RESULTS, until=3),
    ),
)

_ADD_OFFSETS_TO_TXN = Schema(
    newest=4,
    flexible_since=3,
    request=Struct(Field("transactional_id", _TEXT)),
    response=Struct(_THROTTLE, _ERROR),
)

_END_TXN = Schema(
    newest=5,
    flexible_since=3,
    request=Struct(Field("transactional_id", _TEXT), *_PRODUCER, Field("is_committed", _BOOL)),
    response=Struct(
        _THROTTLE,
        _ERROR,
        Field("producer_id", _INT64, since=5, default=-1),
        Field("producer_epoch", _INT16, since=5, default=-1),
    ),
)

_TXN_OFFSET_COMMIT = Schema(
    newest=5,
    flexible_since=3,
    request=Struct(
        Field("transactional_id", _TEXT),
        Field("group_id", _TEXT),
        *_PRODUCER,
        Field("generation_id", _INT32, since=3),
        Field("member_id", _TEXT, since=3),
        Field("group_instance_id", _TEXT, since=3),
        Field(
            "topics",
            _list(
                Field("name", _TEXT),
                Field(
                    "partitions",
                    _list(
                        Field("index", _INT32),
                        Field("offset", _INT64),
                        Field("leader_epoch", _INT32, since=2),
                        Field("metadata", _TEXT),
                    ),
                ),
            ),
        ),
    ),
    response=Struct(_THROTTLE, Field("topics", _TXN_RESULTS)),
)

_DESCRIBE_CLUSTER = Schema(
    newest=2,
    flexible_since=0,
    request=None,
    response=Struct(
        _THROTTLE,
        _ERROR,
        Field("error_message", _TEXT),
        Field("endpoint_type", _INT8, since=1),
        Field("cluster_id", _TEXT),
        Field("controller_id", _INT32),
        Field(
            "brokers",
            _list(
                Field("node_id", _INT32),
                Field("host", _TEXT),
                Field("port", _INT32),
                Field("rack", _TEXT),
                Field("is_fenced", _BOOL, since=2),
            ),
        ),
        Field("operations", _INT32),
    ),
)

_ERROR_AND_MESSAGE = (_ERROR, Field("error_message", _TEXT))
_SHARE_FETCH = Schema(
    newest=2,
    flexible_since=0,
    request=None,
    response=Struct(
        _THROTTLE,
        *_ERROR_AND_MESSAGE,
        Field("acquisition_lock_timeout_ms", _INT32),
        Field(
            "topics",
            _list(
                Field("topic_id", _UUID),
                Field(
                    "partitions",
                    _list(
                        Field("index", _INT32),
                        *_ERROR_AND_MESSAGE,
                        Field("acknowledge_error_code", _INT16),
                        Field("acknowledge_error_message", _TEXT),
                        Field("current_leader", _LEADER),
                        Field("records", _RECORDS),
                        Field(
                            "acquired",
                            _list(
                                Field("first_offset", _INT64),
                                Field("last_offset", _INT64),
                                Field("delivery_count", _INT16),
                            ),
                        ),
                    ),
                ),
            ),
        ),
        _nodes(),
    ),
)

_SHARE_ACKNOWLEDGE = Schema(
    newest=2,
    flexible_since=0,
    request=None,
    response=Struct(
        _THROTTLE,
        *_ERROR_AND_MESSAGE,
        Field("acquisition_lock_timeout_ms", _INT32, since=2),
        Field(
            "topics",
            _list(
                Field("topic_id", _UUID),
                Field(
                    "partitions",
                    _list(
                        Field("index", _INT32),
                        *_ERROR_AND_MESSAGE,
                        Field("current_leader", _LEADER),
                    ),
                ),
            ),
        ),
        _nodes(),
    ),
)

SCHEMAS: Mapping[str, Schema] = {
    "Produce": _PRODUCE,
    "Fetch": _FETCH,
    "Metadata": _METADATA,
    "FindCoordinator": _FIND_COORDINATOR,
    "ApiVersions": _API_VERSIONS,
    "InitProducerId": _INIT_PRODUCER_ID,
    "AddPartitionsToTxn": _ADD_PARTITIONS_TO_TXN,
    "AddOffsetsToTxn": _ADD_OFFSETS_TO_TXN,
    "EndTxn": _END_TXN,
    "TxnOffsetCommit": _TXN_OFFSET_COMMIT,
    "DescribeCluster": _DESCRIBE_CLUSTER,
    "ShareFetch": _SHARE_FETCH,
    "ShareAcknowledge": _SHARE_ACKNOWLEDGE,
}
"""By the name of the api."""
