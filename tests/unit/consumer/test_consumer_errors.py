"""The table of error codes is complete: what a client library gains must be decided on."""

from __future__ import annotations

import inspect
from typing import Any

import kafka.errors
import pytest
from confluent_kafka import KafkaError

from onceflow.errors import (
    AbortableError,
    ConfigError,
    CorruptionError,
    FencedError,
    InvariantError,
    OnceflowError,
    RetriableError,
)
from onceflow_connectors.consumer import confluent, kafka_python
from onceflow_connectors.consumer.client import Subscription
from onceflow_connectors.consumer.kafka_python import code_of
from onceflow_connectors.error_codes import NAMES, NATURES, REASONS

CONFLUENT_CODES = {
    name: code
    for name, code in inspect.getmembers(KafkaError)
    if type(code) is int and name != "NO_ERROR"
}
PYTHON_ERRORS: list[Any] = [
    kind
    for _, kind in inspect.getmembers(kafka.errors, inspect.isclass)
    if issubclass(kind, kafka.errors.KafkaError)
]
PYTHON_CODES = {
    code_of(kind): kind.errno
    for kind in PYTHON_ERRORS
    if issubclass(kind, kafka.errors.BrokerResponseError) and kind.errno
}

UNDECIDED = """
    _PARTITION_EOF _EXISTING_SUBSCRIPTION _ASSIGN_PARTITIONS _REVOKE_PARTITIONS _NO_OFFSET
    _READ_ONLY _INVALID_TYPE _APPLICATION _NOOP
    STALE_CTRL_EPOCH STALE_BROKER_EPOCH LOG_DIR_NOT_FOUND ELECTION_NOT_NEEDED
    NO_REASSIGNMENT_IN_PROGRESS INCONSISTENT_VOTER_SET INVALID_UPDATE_VERSION FEATURE_UPDATE_FAILED
    INVALID_REGISTRATION INVALID_VOTER_KEY DUPLICATE_VOTER VOTER_NOT_FOUND DUPLICATE_RESOURCE
    DUPLICATE_BROKER_REGISTRATION BROKER_ID_NOT_REGISTERED INCONSISTENT_CLUSTER_ID
    INELIGIBLE_REPLICA NEW_LEADER_ELECTED SNAPSHOT_NOT_FOUND POSITION_OUT_OF_RANGE
    OFFSET_MOVED_TO_TIERED_STORAGE TRANSACTIONAL_ID_NOT_FOUND
    UNKNOWN_SUBSCRIPTION_ID TELEMETRY_TOO_LARGE INVALID_RECORD_STATE SHARE_SESSION_NOT_FOUND
    INVALID_SHARE_SESSION_EPOCH SHARE_SESSION_LIMIT_REACHED FENCED_STATE_EPOCH
    STREAMS_INVALID_TOPOLOGY STREAMS_INVALID_TOPOLOGY_EPOCH STREAMS_TOPOLOGY_FENCED
    """
"""Codes of requests that we never make, or of no error at all: they need no decision."""
UNDECIDED_CLASSES = {
    "IllegalArgumentError",
    "IllegalStateError",
    "InvalidReceiveError",
    "KafkaProtocolError",
    "NoOffsetForPartitionError",
    "TransactionAbortedError",
    "UnknownBrokerIdError",
}
"""Errors of producers, or ruled out by the order of our calls."""


def test_the_libraries_still_tell_their_codes() -> None:
    assert len(CONFLUENT_CODES) > 180
    assert len(PYTHON_CODES) > 120
    assert len(PYTHON_ERRORS) > 140


def test_every_code_of_the_libraries_was_decided_on() -> None:
    known = {*CONFLUENT_CODES, *PYTHON_CODES}
    assert known - set(NATURES) == {*UNDECIDED.split()}


def test_the_tables_name_no_code_that_the_libraries_lack() -> None:
    known = {*CONFLUENT_CODES, *PYTHON_CODES}
    assert {*NATURES, *REASONS} - known == set()


def test_no_code_has_two_natures() -> None:
    assert len(NATURES) == sum(len(names.split()) for names in NAMES.values())


def test_both_libraries_call_a_code_by_the_same_name() -> None:
    by_number = {code: name for name, code in CONFLUENT_CODES.items()}
    other = {
        name: by_number[number]
        for name, number in PYTHON_CODES.items()
        if number in by_number and by_number[number] != name
    }
    assert other == {}


def test_every_other_error_of_kafka_python_has_a_consequence() -> None:
    bases = {kafka.errors.KafkaError, kafka.errors.BrokerResponseError}
    unknown = {
        kind.__name__
        for kind in PYTHON_ERRORS
        if kind not in bases
        and not issubclass(kind, kafka.errors.BrokerResponseError)
        and not any(issubclass(kind, known) for known in kafka_python.LOCAL_ERRORS)
    }
    assert unknown == UNDECIDED_CLASSES


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ILLEGAL_GENERATION", AbortableError),
        ("UNKNOWN_MEMBER_ID", AbortableError),
        ("_MAX_POLL_EXCEEDED", AbortableError),
        ("REBALANCE_IN_PROGRESS", RetriableError),
        ("NOT_COORDINATOR", RetriableError),
        ("_TRANSPORT", RetriableError),
        ("FENCED_INSTANCE_ID", FencedError),
        ("_FATAL", FencedError),
        ("OFFSET_METADATA_TOO_LARGE", ConfigError),
        ("GROUP_AUTHORIZATION_FAILED", ConfigError),
        ("_AUTHENTICATION", ConfigError),
        ("INVALID_MSG", CorruptionError),
        ("PRODUCER_FENCED", InvariantError),
    ],
)
def test_an_error_of_librdkafka_becomes_ours(name: str, expected: type[OnceflowError]) -> None:
    error = confluent.mapped_error(KafkaError(CONFLUENT_CODES[name]), "it failed", "x")
    assert type(error) is expected
    assert str(error).startswith(f"it failed: x; found {name}: ")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (kafka.errors.UnknownMemberIdError(), AbortableError),
        (kafka.errors.CommitFailedError("not part of an active group"), AbortableError),
        (
            kafka.errors.CommitFailedError(kafka.errors.IllegalGenerationError()),
            AbortableError,
        ),
        (
            kafka.errors.CommitFailedError(kafka.errors.RebalanceInProgressError()),
            RetriableError,
        ),
        (kafka.errors.KafkaTimeoutError(), RetriableError),
        (kafka.errors.KafkaConnectionError(), RetriableError),
        (kafka.errors.OffsetMetadataTooLargeError(), ConfigError),
        (kafka.errors.FencedInstanceIdError(), FencedError),
        (kafka.errors.LogTruncationError({}), CorruptionError),
        (kafka.errors.IllegalStateError(), InvariantError),
        (kafka.errors.KafkaError(), InvariantError),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_error_of_kafka_python_becomes_ours(
    error: kafka.errors.KafkaError, expected: type[OnceflowError]
) -> None:
    with pytest.raises(OnceflowError) as caught, kafka_python.mapping_errors("it failed", "group"):
        raise error
    assert type(caught.value) is expected
    assert str(caught.value).startswith("it failed: group; found ")
    assert caught.value.__cause__ is error


def test_a_client_that_was_not_started_says_so() -> None:
    subscription = Subscription("127.0.0.1:1", "group", ["topic"], {})
    for client in (
        confluent.ConfluentClient(subscription),
        kafka_python.KafkaPythonClient(subscription),
    ):
        client.stop()
        with pytest.raises(InvariantError, match="was not started"):
            client.poll(0.0, 1)
