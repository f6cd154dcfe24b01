"""Both error tables are complete: a code that a client library gains must be decided on."""

from __future__ import annotations

import inspect
from typing import Any

import kafka.errors
import pytest
from confluent_kafka import KafkaError, KafkaException

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
from onceflow_connectors.consumer.broker_errors import _CODES, BROKER_ERRORS
from onceflow_connectors.consumer.client import Subscription

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
    kind.errno: kind.__name__
    for kind in PYTHON_ERRORS
    if issubclass(kind, kafka.errors.BrokerResponseError) and kind.errno
}


def test_the_libraries_still_tell_their_codes() -> None:
    assert len(CONFLUENT_CODES) > 180
    assert len(PYTHON_CODES) > 120
    assert len(PYTHON_ERRORS) > 140


def test_every_code_of_librdkafka_has_a_consequence() -> None:
    unknown = {
        name: code
        for name, code in CONFLUENT_CODES.items()
        if code not in BROKER_ERRORS and name not in confluent.LOCAL_ERRORS
    }
    assert unknown == {}


def test_every_broker_code_of_kafka_python_has_a_consequence() -> None:
    assert {c: n for c, n in PYTHON_CODES.items() if c not in BROKER_ERRORS} == {}


def test_every_other_error_of_kafka_python_has_a_consequence() -> None:
    bases = {kafka.errors.KafkaError, kafka.errors.BrokerResponseError}
    unknown = [
        kind.__name__
        for kind in PYTHON_ERRORS
        if kind not in bases
        and not issubclass(kind, kafka.errors.BrokerResponseError)
        and not any(issubclass(kind, known) for known in kafka_python.LOCAL_ERRORS)
    ]
    assert unknown == []


def test_the_tables_name_nothing_that_does_not_exist() -> None:
    known = {*CONFLUENT_CODES.values(), *PYTHON_CODES}
    assert set(BROKER_ERRORS) - known == set()
    assert set(confluent.LOCAL_ERRORS) - set(CONFLUENT_CODES) == set()


def test_no_code_has_two_consequences() -> None:
    assert sum(map(len, _CODES.values())) == len(BROKER_ERRORS)


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
    error = confluent._mapped(KafkaException(KafkaError(CONFLUENT_CODES[name])), "it failed", "x")
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
    with pytest.raises(OnceflowError) as caught, kafka_python._mapping("it failed", "group"):
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
            client.poll(0.0)
