"""What each error code of librdkafka and of the brokers tells about the world.

Names, not numbers: `KafkaError.name()` gives them. Local codes begin with an underscore. A test
fails when the library knows a code that is missing here.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto


class Nature(Enum):
    """What a code tells about the world."""

    PASSING = auto()
    """Passes by itself: the same call may succeed a moment later."""
    FENCED = auto()
    """This producer is not, or no longer, the newest of its transactional id."""
    RECORD = auto()
    """This very record is not acceptable and never will be."""
    REFUSED = auto()
    """Stays so until an operator changes a setting, a permission or a topic."""
    GONE = auto()
    """What was to be read does not exist any more, or is damaged."""
    BROKEN = auto()
    """This client or transaction is beyond use; a fresh one may do better. Codes that the table
    lacks count as this."""
    FOREIGN = auto()
    """Belongs to requests that we never make, or is no error at all."""


_NO_REASON = ""
_GROUP_IN_USE = "a consumer has joined the group that belongs to the pipeline; it must leave"

REASONS: Mapping[Nature, Mapping[str, str]] = {
    Nature.PASSING: {
        "_FAIL": _NO_REASON,
        "_TRANSPORT": _NO_REASON,
        "_RESOLVE": "name servers fail for moments; a wrong name is caught at the start",
        "_MSG_TIMED_OUT": _NO_REASON,
        "_ALL_BROKERS_DOWN": "they may be restarting",
        "_TIMED_OUT": _NO_REASON,
        "_TIMED_OUT_QUEUE": _NO_REASON,
        "_QUEUE_FULL": _NO_REASON,
        "_ISR_INSUFF": _NO_REASON,
        "_WAIT_COORD": _NO_REASON,
        "_WAIT_CACHE": _NO_REASON,
        "_IN_PROGRESS": _NO_REASON,
        "_PREV_IN_PROGRESS": _NO_REASON,
        "_CONFLICT": "an earlier transactional call of this client has not come back yet",
        "_OUTDATED": _NO_REASON,
        "_INTR": _NO_REASON,
        "_PARTIAL": _NO_REASON,
        "_RETRY": _NO_REASON,
        "_NOENT": "no leader is known now; whoever needs to know asks whether the topic exists",
        "_UNKNOWN_BROKER": _NO_REASON,
        "_DESTROY_BROKER": "a connection was dropped, not the client",
        "UNKNOWN_TOPIC_OR_PART": "right after a creation or a start, metadata lags behind",
        "UNKNOWN_TOPIC_ID": "metadata lags behind; a topic made anew is found by its id elsewhere",
        "INCONSISTENT_TOPIC_ID": "as UNKNOWN_TOPIC_ID",
        "LEADER_NOT_AVAILABLE": _NO_REASON,
        "NOT_LEADER_FOR_PARTITION": _NO_REASON,
        "REQUEST_TIMED_OUT": _NO_REASON,
        "BROKER_NOT_AVAILABLE": _NO_REASON,
        "REPLICA_NOT_AVAILABLE": _NO_REASON,
        "NETWORK_EXCEPTION": _NO_REASON,
        "COORDINATOR_LOAD_IN_PROGRESS": _NO_REASON,
        "COORDINATOR_NOT_AVAILABLE": "also while the transaction log lacks brokers to live on",
        "NOT_COORDINATOR": _NO_REASON,
        "NOT_CONTROLLER": _NO_REASON,
        "UNKNOWN_CONTROLLER_ID": _NO_REASON,
        "NOT_ENOUGH_REPLICAS": _NO_REASON,
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND": "it was appended; idempotence makes a retry harmless",
        "REBALANCE_IN_PROGRESS": _NO_REASON,
        "CONCURRENT_TRANSACTIONS": "the transaction before is still being ended",
        "KAFKA_STORAGE_ERROR": "another replica becomes leader",
        "REASSIGNMENT_IN_PROGRESS": _NO_REASON,
        "FETCH_SESSION_ID_NOT_FOUND": _NO_REASON,
        "INVALID_FETCH_SESSION_EPOCH": _NO_REASON,
        "LISTENER_NOT_FOUND": "the leader is starting and has not published its address yet",
        "FENCED_LEADER_EPOCH": _NO_REASON,
        "UNKNOWN_LEADER_EPOCH": _NO_REASON,
        "OFFSET_NOT_AVAILABLE": "a new leader does not know its high watermark yet",
        "PREFERRED_LEADER_NOT_AVAILABLE": _NO_REASON,
        "ELIGIBLE_LEADERS_NOT_AVAILABLE": _NO_REASON,
        "UNSTABLE_OFFSET_COMMIT": "offsets of a transaction that is not decided yet",
        "THROTTLING_QUOTA_EXCEEDED": _NO_REASON,
        "REBOOTSTRAP_REQUIRED": _NO_REASON,
    },
    Nature.FENCED: {
        "_FENCED": _NO_REASON,
        "INVALID_PRODUCER_EPOCH": "also after the transaction's time-out, which raises the epoch",
        "PRODUCER_FENCED": _NO_REASON,
        "INVALID_PRODUCER_ID_MAPPING": "the id expired and may have been taken up by a newer one",
    },
    Nature.RECORD: {
        "_UNKNOWN_PARTITION": _NO_REASON,
        "_KEY_SERIALIZATION": _NO_REASON,
        "_VALUE_SERIALIZATION": _NO_REASON,
        "_KEY_DESERIALIZATION": _NO_REASON,
        "_VALUE_DESERIALIZATION": _NO_REASON,
        "INVALID_MSG_SIZE": _NO_REASON,
        "MSG_SIZE_TOO_LARGE": "over message.max.bytes of the client, or, with all the records that"
        " travelled in the same batch (batch.size), over max.message.bytes of the topic",
        "RECORD_LIST_TOO_LARGE": "larger than segment.bytes of the topic",
        "INVALID_TIMESTAMP": "the batch's clock is outside of what the topic takes: raise its"
        " message.timestamp.before.max.ms or message.timestamp.after.max.ms, and start again; a"
        " replay has the same clock",
        "INVALID_RECORD": "a compacted topic refuses a record without a key",
    },
    Nature.REFUSED: {
        "_UNKNOWN_TOPIC": "missing for longer than metadata takes to spread",
        "_INVALID_ARG": "a client property is unknown or has an impossible value",
        "_SSL": _NO_REASON,
        "_UNKNOWN_PROTOCOL": _NO_REASON,
        "_NOT_IMPLEMENTED": _NO_REASON,
        "_AUTHENTICATION": _NO_REASON,
        "_UNSUPPORTED_FEATURE": "the brokers are too old",
        "OFFSET_METADATA_TOO_LARGE": _NO_REASON,
        "TOPIC_EXCEPTION": _NO_REASON,
        "INVALID_REQUIRED_ACKS": _NO_REASON,
        "ILLEGAL_GENERATION": _GROUP_IN_USE,
        "UNKNOWN_MEMBER_ID": _GROUP_IN_USE,
        "FENCED_INSTANCE_ID": _GROUP_IN_USE,
        "FENCED_MEMBER_EPOCH": _GROUP_IN_USE,
        "STALE_MEMBER_EPOCH": _GROUP_IN_USE,
        "INCONSISTENT_GROUP_PROTOCOL": _GROUP_IN_USE,
        "INVALID_GROUP_ID": _NO_REASON,
        "INVALID_COMMIT_OFFSET_SIZE": _NO_REASON,
        "TOPIC_AUTHORIZATION_FAILED": _NO_REASON,
        "GROUP_AUTHORIZATION_FAILED": _NO_REASON,
        "CLUSTER_AUTHORIZATION_FAILED": _NO_REASON,
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": _NO_REASON,
        "DELEGATION_TOKEN_AUTHORIZATION_FAILED": _NO_REASON,
        "DELEGATION_TOKEN_AUTH_DISABLED": _NO_REASON,
        "DELEGATION_TOKEN_EXPIRED": _NO_REASON,
        "DELEGATION_TOKEN_NOT_FOUND": _NO_REASON,
        "DELEGATION_TOKEN_OWNER_MISMATCH": _NO_REASON,
        "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED": _NO_REASON,
        "INVALID_PRINCIPAL_TYPE": _NO_REASON,
        "PRINCIPAL_DESERIALIZATION_FAILURE": _NO_REASON,
        "SASL_AUTHENTICATION_FAILED": _NO_REASON,
        "UNSUPPORTED_SASL_MECHANISM": _NO_REASON,
        "ILLEGAL_SASL_STATE": _NO_REASON,
        "SECURITY_DISABLED": _NO_REASON,
        "UNACCEPTABLE_CREDENTIAL": _NO_REASON,
        "UNSUPPORTED_VERSION": _NO_REASON,
        "UNSUPPORTED_FOR_MESSAGE_FORMAT": _NO_REASON,
        "UNSUPPORTED_COMPRESSION_TYPE": _NO_REASON,
        "MISMATCHED_ENDPOINT_TYPE": "the address is a controller's, not a broker's",
        "UNSUPPORTED_ENDPOINT_TYPE": "the address is a controller's, not a broker's",
        "TOPIC_ALREADY_EXISTS": _NO_REASON,
        "TOPIC_DELETION_DISABLED": _NO_REASON,
        "INVALID_PARTITIONS": _NO_REASON,
        "INVALID_REPLICATION_FACTOR": _NO_REASON,
        "INVALID_REPLICA_ASSIGNMENT": _NO_REASON,
        "INVALID_CONFIG": _NO_REASON,
        "INVALID_REQUEST": _NO_REASON,
        "POLICY_VIOLATION": _NO_REASON,
        "RESOURCE_NOT_FOUND": _NO_REASON,
        "GROUP_ID_NOT_FOUND": _NO_REASON,
        "NON_EMPTY_GROUP": _NO_REASON,
        "GROUP_SUBSCRIBED_TO_TOPIC": _NO_REASON,
        "INVALID_TRANSACTION_TIMEOUT": "transaction.timeout.ms exceeds the broker's limit",
    },
    Nature.GONE: {
        "_BAD_MSG": _NO_REASON,
        "_BAD_COMPRESSION": _NO_REASON,
        "_AUTO_OFFSET_RESET": "the offset does not exist, and we never jump to another",
        "_LOG_TRUNCATION": _NO_REASON,
        "OFFSET_OUT_OF_RANGE": _NO_REASON,
        "INVALID_MSG": "the checksum does not fit",
    },
    Nature.BROKEN: {
        "_DESTROY": _NO_REASON,
        "_CRIT_SYS_RESOURCE": _NO_REASON,
        "_FS": _NO_REASON,
        "_STATE": "the transaction has already failed, or the call is out of order",
        "_UNDERFLOW": _NO_REASON,
        "_PURGE_QUEUE": _NO_REASON,
        "_PURGE_INFLIGHT": _NO_REASON,
        "_FATAL": "stands for the client's fatal error, which `begin_transaction` tells",
        "_INCONSISTENT": "records failed; the delivery reports tell why",
        "_GAPLESS_GUARANTEE": _NO_REASON,
        "_INVALID_DIFFERENT_RECORD": "another record of the same request is at fault",
        "UNKNOWN": "a broker failed in a way that it could not name",
        "OUT_OF_ORDER_SEQUENCE_NUMBER": "records of this transaction were lost on the way",
        "DUPLICATE_SEQUENCE_NUMBER": _NO_REASON,
        "UNKNOWN_PRODUCER_ID": "the broker has forgotten the producer; its sequence is void",
        "INVALID_TXN_STATE": "the coordinator has ended the transaction, this way or that",
        "TRANSACTION_ABORTABLE": _NO_REASON,
        "TRANSACTION_COORDINATOR_FENCED": "the coordinator is old, not this producer",
        "OPERATION_NOT_ATTEMPTED": "another partition of the same request was refused",
    },
    Nature.FOREIGN: {
        # Local: events and misuse of calls that we do not make.
        "_PARTITION_EOF": _NO_REASON,
        "_NODE_UPDATE": _NO_REASON,
        "_UNKNOWN_GROUP": _NO_REASON,
        "_EXISTING_SUBSCRIPTION": _NO_REASON,
        "_ASSIGN_PARTITIONS": _NO_REASON,
        "_REVOKE_PARTITIONS": _NO_REASON,
        "_NO_OFFSET": _NO_REASON,
        "_READ_ONLY": _NO_REASON,
        "_INVALID_TYPE": _NO_REASON,
        "_MAX_POLL_EXCEEDED": _NO_REASON,
        "_NOT_CONFIGURED": _NO_REASON,
        "_APPLICATION": _NO_REASON,
        "_ASSIGNMENT_LOST": _NO_REASON,
        "_NOOP": _NO_REASON,
        "NO_ERROR": _NO_REASON,
        # Between brokers and controllers, elections and reassignments.
        "STALE_CTRL_EPOCH": _NO_REASON,
        "STALE_BROKER_EPOCH": _NO_REASON,
        "LOG_DIR_NOT_FOUND": _NO_REASON,
        "ELECTION_NOT_NEEDED": _NO_REASON,
        "NO_REASSIGNMENT_IN_PROGRESS": _NO_REASON,
        "INCONSISTENT_VOTER_SET": _NO_REASON,
        "INVALID_UPDATE_VERSION": _NO_REASON,
        "FEATURE_UPDATE_FAILED": _NO_REASON,
        "INVALID_REGISTRATION": _NO_REASON,
        "INVALID_VOTER_KEY": _NO_REASON,
        "DUPLICATE_VOTER": _NO_REASON,
        "VOTER_NOT_FOUND": _NO_REASON,
        "DUPLICATE_RESOURCE": _NO_REASON,
        # Members of groups: nobody of ours ever joins one here.
        "INVALID_SESSION_TIMEOUT": _NO_REASON,
        "MEMBER_ID_REQUIRED": _NO_REASON,
        "GROUP_MAX_SIZE_REACHED": _NO_REASON,
        "UNRELEASED_INSTANCE_ID": _NO_REASON,
        "UNSUPPORTED_ASSIGNOR": _NO_REASON,
        "INVALID_REGULAR_EXPRESSION": _NO_REASON,
        # Telemetry, share groups, Kafka Streams.
        "UNKNOWN_SUBSCRIPTION_ID": _NO_REASON,
        "TELEMETRY_TOO_LARGE": _NO_REASON,
        "INVALID_RECORD_STATE": _NO_REASON,
        "SHARE_SESSION_NOT_FOUND": _NO_REASON,
        "INVALID_SHARE_SESSION_EPOCH": _NO_REASON,
        "SHARE_SESSION_LIMIT_REACHED": _NO_REASON,
        "FENCED_STATE_EPOCH": _NO_REASON,
        "STREAMS_INVALID_TOPOLOGY": _NO_REASON,
        "STREAMS_INVALID_TOPOLOGY_EPOCH": _NO_REASON,
        "STREAMS_TOPOLOGY_FENCED": _NO_REASON,
    },
}
"""Nature -> name -> why, where the name does not speak for itself."""

NATURES: Mapping[str, Nature] = {
    name: nature for nature, names in REASONS.items() for name in names
}
"""Name -> nature."""
