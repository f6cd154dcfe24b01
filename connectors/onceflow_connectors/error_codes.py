"""One table of Kafka's error codes for every client: what each implies.

By name, as librdkafka's `KafkaError.name()` gives it. Names of librdkafka's own codes begin with an
underscore. A test fails when a client library knows a code that was not decided on.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto


class Nature(Enum):
    """The meaning of a code, whatever the call."""

    PASSING = auto()
    """Passes by itself: the same call may succeed a moment later."""
    FENCED = auto()
    """This producer is not, or no longer, the newest of its transactional id."""
    MEMBER = auto()
    """This client is not, or no longer, a member of the group. Members have the group's offsets."""
    RECORD = auto()
    """This very record is not acceptable and never will be."""
    REFUSED = auto()
    """Stays so until an operator changes a setting, a permission or a topic."""
    GONE = auto()
    """What was to be read does not exist any more, or is damaged."""
    BROKEN = auto()
    """This client or transaction is beyond use; a fresh one may do better. So is, to be on the safe
    side, one that met a code which no answer to our requests has."""


NAMES: Mapping[Nature, str] = {
    Nature.PASSING: """
        _FAIL _TRANSPORT _RESOLVE _MSG_TIMED_OUT _ALL_BROKERS_DOWN _TIMED_OUT _TIMED_OUT_QUEUE
        _QUEUE_FULL _ISR_INSUFF _WAIT_COORD _WAIT_CACHE _IN_PROGRESS _PREV_IN_PROGRESS _CONFLICT
        _OUTDATED _INTR _PARTIAL _RETRY _NOENT _UNKNOWN_BROKER _DESTROY_BROKER _NODE_UPDATE
        UNKNOWN_TOPIC_OR_PART UNKNOWN_TOPIC_ID INCONSISTENT_TOPIC_ID LEADER_NOT_AVAILABLE
        NOT_LEADER_FOR_PARTITION REQUEST_TIMED_OUT BROKER_NOT_AVAILABLE REPLICA_NOT_AVAILABLE
        NETWORK_EXCEPTION COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR
        NOT_CONTROLLER UNKNOWN_CONTROLLER_ID NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND
        REBALANCE_IN_PROGRESS MEMBER_ID_REQUIRED CONCURRENT_TRANSACTIONS KAFKA_STORAGE_ERROR
        REASSIGNMENT_IN_PROGRESS FETCH_SESSION_ID_NOT_FOUND INVALID_FETCH_SESSION_EPOCH
        FETCH_SESSION_TOPIC_ID_ERROR LISTENER_NOT_FOUND FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH
        OFFSET_NOT_AVAILABLE PREFERRED_LEADER_NOT_AVAILABLE ELIGIBLE_LEADERS_NOT_AVAILABLE
        UNSTABLE_OFFSET_COMMIT THROTTLING_QUOTA_EXCEEDED REBOOTSTRAP_REQUIRED""",
    Nature.FENCED: "_FENCED INVALID_PRODUCER_EPOCH PRODUCER_FENCED INVALID_PRODUCER_ID_MAPPING",
    Nature.MEMBER: """
        _MAX_POLL_EXCEEDED _ASSIGNMENT_LOST ILLEGAL_GENERATION UNKNOWN_MEMBER_ID
        FENCED_MEMBER_EPOCH STALE_MEMBER_EPOCH FENCED_INSTANCE_ID UNRELEASED_INSTANCE_ID""",
    Nature.RECORD: """
        _UNKNOWN_PARTITION _KEY_SERIALIZATION _VALUE_SERIALIZATION _KEY_DESERIALIZATION
        _VALUE_DESERIALIZATION INVALID_MSG_SIZE MSG_SIZE_TOO_LARGE RECORD_LIST_TOO_LARGE
        INVALID_TIMESTAMP INVALID_RECORD""",
    Nature.REFUSED: """
        _UNKNOWN_TOPIC _UNKNOWN_GROUP _INVALID_ARG _NOT_CONFIGURED _SSL _UNKNOWN_PROTOCOL
        _NOT_IMPLEMENTED _AUTHENTICATION _UNSUPPORTED_FEATURE
        OFFSET_METADATA_TOO_LARGE TOPIC_EXCEPTION INVALID_REQUIRED_ACKS INVALID_SESSION_TIMEOUT
        INCONSISTENT_GROUP_PROTOCOL UNSUPPORTED_ASSIGNOR INVALID_REGULAR_EXPRESSION
        INVALID_GROUP_ID GROUP_MAX_SIZE_REACHED INVALID_COMMIT_OFFSET_SIZE
        TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED
        TRANSACTIONAL_ID_AUTHORIZATION_FAILED DELEGATION_TOKEN_AUTHORIZATION_FAILED
        DELEGATION_TOKEN_AUTH_DISABLED DELEGATION_TOKEN_EXPIRED DELEGATION_TOKEN_NOT_FOUND
        DELEGATION_TOKEN_OWNER_MISMATCH DELEGATION_TOKEN_REQUEST_NOT_ALLOWED INVALID_PRINCIPAL_TYPE
        PRINCIPAL_DESERIALIZATION_FAILURE SASL_AUTHENTICATION_FAILED UNSUPPORTED_SASL_MECHANISM
        ILLEGAL_SASL_STATE SECURITY_DISABLED UNACCEPTABLE_CREDENTIAL UNSUPPORTED_VERSION
        UNSUPPORTED_FOR_MESSAGE_FORMAT UNSUPPORTED_COMPRESSION_TYPE MISMATCHED_ENDPOINT_TYPE
        UNSUPPORTED_ENDPOINT_TYPE TOPIC_ALREADY_EXISTS TOPIC_DELETION_DISABLED INVALID_PARTITIONS
        INVALID_REPLICATION_FACTOR INVALID_REPLICA_ASSIGNMENT INVALID_CONFIG INVALID_REQUEST
        POLICY_VIOLATION RESOURCE_NOT_FOUND GROUP_ID_NOT_FOUND NON_EMPTY_GROUP
        GROUP_SUBSCRIBED_TO_TOPIC INVALID_TRANSACTION_TIMEOUT""",
    Nature.GONE: """
        _BAD_MSG _BAD_COMPRESSION _AUTO_OFFSET_RESET _LOG_TRUNCATION OFFSET_OUT_OF_RANGE
        INVALID_MSG""",
    Nature.BROKEN: """
        _DESTROY _CRIT_SYS_RESOURCE _FS _STATE _UNDERFLOW _PURGE_QUEUE _PURGE_INFLIGHT _FATAL
        _INCONSISTENT _GAPLESS_GUARANTEE _INVALID_DIFFERENT_RECORD UNKNOWN
        OUT_OF_ORDER_SEQUENCE_NUMBER DUPLICATE_SEQUENCE_NUMBER UNKNOWN_PRODUCER_ID
        INVALID_TXN_STATE TRANSACTION_ABORTABLE TRANSACTION_COORDINATOR_FENCED
        OPERATION_NOT_ATTEMPTED""",
}

NATURES: Mapping[str, Nature] = {
    name: nature for nature, names in NAMES.items() for name in names.split()
}


def nature_of_code(name: str) -> Nature:
    """Return the nature of a code; BROKEN for each that the table does not name."""
    return NATURES.get(name, Nature.BROKEN)


_ADDRESS = "the address is a controller's, not a broker's"

REASONS: Mapping[str, str] = {
    "_RESOLVE": "name servers fail for moments; a wrong name is caught at the start",
    "_ALL_BROKERS_DOWN": "they may be restarting",
    "_CONFLICT": "an earlier transactional call of this client has not come back yet",
    "_NOENT": "no leader is known now, or the topic does not exist",
    "_DESTROY_BROKER": "a connection was dropped, not the client",
    "UNKNOWN_TOPIC_OR_PART": "right after a creation or a start, metadata lags behind",
    "UNKNOWN_TOPIC_ID": "metadata lags behind, or the topic was deleted and created again",
    "INCONSISTENT_TOPIC_ID": "as UNKNOWN_TOPIC_ID",
    "COORDINATOR_NOT_AVAILABLE": "also while the transaction log lacks brokers to live on",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": "it was appended; idempotence makes a retry harmless",
    "CONCURRENT_TRANSACTIONS": "the transaction before is still being ended",
    "KAFKA_STORAGE_ERROR": "another replica becomes leader",
    "LISTENER_NOT_FOUND": "the leader is starting and has not published its address yet",
    "OFFSET_NOT_AVAILABLE": "a new leader does not know its high watermark yet",
    "UNSTABLE_OFFSET_COMMIT": "offsets of a transaction that is not decided yet",
    "INVALID_PRODUCER_EPOCH": "also after the transaction's time-out, which raises the epoch",
    "INVALID_PRODUCER_ID_MAPPING": "the id expired, and a newer producer may have taken it up",
    "MSG_SIZE_TOO_LARGE": "over message.max.bytes of the client, or, with all the records that"
    " travelled in the same batch (batch.size), over max.message.bytes of the topic",
    "RECORD_LIST_TOO_LARGE": "larger than segment.bytes of the topic",
    "INVALID_TIMESTAMP": "the batch's clock is outside of what the topic takes: raise its"
    " message.timestamp.before.max.ms or message.timestamp.after.max.ms, and start again; a"
    " replay has the same clock",
    "INVALID_RECORD": "a compacted topic refuses a record without a key",
    "_UNKNOWN_TOPIC": "missing for longer than metadata takes to spread",
    "_INVALID_ARG": "a client property is unknown or has an impossible value",
    "_UNSUPPORTED_FEATURE": "the brokers are too old",
    **dict.fromkeys(
        (
            "ILLEGAL_GENERATION",
            "UNKNOWN_MEMBER_ID",
            "FENCED_INSTANCE_ID",
            "FENCED_MEMBER_EPOCH",
            "STALE_MEMBER_EPOCH",
            "INCONSISTENT_GROUP_PROTOCOL",
        ),
        "a consumer has joined the group that belongs to the pipeline; it must leave",
    ),
    "MISMATCHED_ENDPOINT_TYPE": _ADDRESS,
    "UNSUPPORTED_ENDPOINT_TYPE": _ADDRESS,
    "INVALID_TRANSACTION_TIMEOUT": "transaction.timeout.ms exceeds the broker's limit",
    "_AUTO_OFFSET_RESET": "the offset does not exist, and we never jump to another",
    "INVALID_MSG": "the checksum does not fit",
    "_STATE": "the transaction has already failed, or the call is out of order",
    "_FATAL": "stands for the client's fatal error, which `begin_transaction` tells",
    "_INCONSISTENT": "records failed; the delivery reports tell why",
    "_INVALID_DIFFERENT_RECORD": "another record of the same request is at fault",
    "UNKNOWN": "a broker failed in a way that it could not name",
    "OUT_OF_ORDER_SEQUENCE_NUMBER": "records of this transaction were lost on the way",
    "UNKNOWN_PRODUCER_ID": "the broker has forgotten the producer; its sequence is void",
    "INVALID_TXN_STATE": "the coordinator has ended the transaction, this way or that",
    "TRANSACTION_COORDINATOR_FENCED": "the coordinator is old, not this producer",
    "OPERATION_NOT_ATTEMPTED": "another partition of the same request was refused",
}
"""Why, where a name does not speak for itself. For pipelines; a consumer needs none."""
