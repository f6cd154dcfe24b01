"""The error table: complete for the installed library, and safe in every corner."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from onceflow.errors import (
    AbortableError,
    ConfigError,
    FencedError,
    OutcomeUnknownError,
    RecordError,
)
from onceflow_connectors.error_codes import NATURES, Nature
from onceflow_connectors.kafka.client.failures import (
    CONSEQUENCES,
    Operation,
    consequence,
    describe,
    failure,
    is_passing,
    kafka_error,
    nature_of,
    without_client_details,
)


def codes_of_the_library() -> dict[str, int]:
    """Constants of KafkaError: every code that the installed librdkafka can name."""
    members = {name: getattr(KafkaError, name) for name in dir(KafkaError)}
    return {name: code for name, code in members.items() if type(code) is int}


CODES = codes_of_the_library()
PRODUCER_OPERATIONS = (Operation.PRODUCE, Operation.SEND_OFFSETS)


def test_the_library_names_as_many_codes_as_ever() -> None:
    assert len(CODES) > 180  # a change of how codes are exposed would empty the next test


def test_an_error_gives_the_name_that_the_table_is_keyed_by() -> None:
    assert {name: KafkaError(code).name() for name, code in CODES.items()} == {n: n for n in CODES}


def test_every_operation_has_a_consequence_for_every_nature() -> None:
    assert set(CONSEQUENCES) == set(Operation)
    for operation, consequences in CONSEQUENCES.items():
        assert set(consequences) == set(Nature), operation


def test_a_code_that_the_table_lacks_counts_as_broken() -> None:
    unheard_of = KafkaError(-90)
    assert unheard_of.name() not in NATURES
    assert consequence(unheard_of, Operation.COMMIT) is OutcomeUnknownError
    assert consequence(unheard_of, Operation.PRODUCE) is AbortableError
    assert not is_passing(unheard_of)


@pytest.mark.parametrize(
    ("text", "state", "nature"),
    [
        ("SSL routines::certificate verify failed", "SSL_HANDSHAKE", Nature.REFUSED),
        ("SSL routines::unexpected eof while reading", "SSL_HANDSHAKE", Nature.PASSING),
        ("SSL routines::unexpected eof while reading", "UP", Nature.PASSING),
        ("Connect to ipv4#127.0.0.1:1 failed: Connection refused", "CONNECT", Nature.PASSING),
    ],
    ids=["certificate", "gone in the handshake", "gone later", "no listener"],
)
def test_a_handshake_that_fails_at_its_first_step_is_refused(
    text: str, state: str, nature: Nature
) -> None:
    """librdkafka 2.16 gives it no code of its own."""
    told = f"sasl_ssl://127.0.0.1:1/bootstrap: error:0A0: {text} (after 2ms in state {state})"
    assert nature_of(KafkaError(KafkaError._TRANSPORT, told)) is nature


@pytest.mark.parametrize("is_fatal", [False, True])
def test_no_refused_commit_is_taken_for_an_abort_without_the_flag(is_fatal: bool) -> None:
    for name, code in CODES.items():
        kind = consequence(KafkaError(code, fatal=is_fatal), Operation.COMMIT)
        assert kind in {OutcomeUnknownError, FencedError}, name


@pytest.mark.parametrize("operation", PRODUCER_OPERATIONS)
def test_no_failed_send_is_ever_taken_for_a_passing_trouble(operation: Operation) -> None:
    for name, code in CODES.items():
        kind = consequence(KafkaError(code), operation)
        assert kind in {AbortableError, FencedError, RecordError}, name


def test_the_abort_flag_proves_that_a_commit_did_not_happen() -> None:
    failed = KafkaError(KafkaError._INCONSISTENT, txn_requires_abort=True)
    too_large = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, txn_requires_abort=True)
    assert consequence(failed, Operation.COMMIT) is AbortableError
    assert consequence(too_large, Operation.COMMIT) is RecordError


@pytest.mark.parametrize("operation", [*PRODUCER_OPERATIONS, Operation.COMMIT])
@pytest.mark.parametrize("must_abort", [False, True])
def test_whoever_may_be_fenced_hears_so_whatever_the_flags(
    operation: Operation, must_abort: bool
) -> None:
    codes = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING")
    for code in codes:
        error = KafkaError(CODES[code], fatal=not must_abort, txn_requires_abort=must_abort)
        assert consequence(error, operation) is FencedError


def test_only_what_the_library_or_the_table_calls_passing_is_tried_again() -> None:
    assert is_passing(KafkaError(KafkaError._TIMED_OUT))
    assert is_passing(KafkaError(KafkaError._STATE, retriable=True))
    assert not is_passing(KafkaError(KafkaError._STATE))
    assert not is_passing(KafkaError(KafkaError._TIMED_OUT, fatal=True))
    assert not is_passing(KafkaError(KafkaError._TIMED_OUT, txn_requires_abort=True))


@pytest.mark.parametrize(
    "name",
    [
        "INVALID_TRANSACTION_TIMEOUT",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "SASL_AUTHENTICATION_FAILED",
        "_UNSUPPORTED_FEATURE",
    ],
)
def test_an_initialisation_that_can_never_succeed_is_a_matter_of_configuration(name: str) -> None:
    assert consequence(KafkaError(CODES[name], fatal=True), Operation.INITIALISE) is ConfigError


def test_a_system_error_of_the_binding_gives_up_its_kafka_error() -> None:
    outer = SystemError("<method 'poll'> returned a result with an exception set")
    outer.__cause__ = KafkaException(KafkaError(KafkaError._FENCED, fatal=True))
    assert kafka_error(outer).code() == KafkaError._FENCED


def test_a_system_error_without_a_kafka_error_goes_on_as_it_came() -> None:
    outer = SystemError("something else")
    with pytest.raises(SystemError) as raised:
        kafka_error(outer)
    assert raised.value is outer


def test_a_message_holds_name_text_and_reason() -> None:
    error = KafkaError(KafkaError.INVALID_RECORD, "record refused")
    text = describe(error)
    assert text.startswith("INVALID_RECORD: record refused")
    assert "without a key" in text


def test_a_failure_names_what_it_failed_on() -> None:
    error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no access")
    raised = failure(error, Operation.ADMINISTER, "cannot create a topic", subject="clicks")
    assert isinstance(raised, ConfigError)
    assert str(raised) == (
        "cannot create a topic: clicks; found TOPIC_AUTHORIZATION_FAILED: no access"
    )


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "_TRANSPORT: a:1/7: Connect to ipv6#[::1]:1 failed: No way (after 0ms in state UP)",
            "No way",
        ),
        (
            "_RESOLVE: b:2/7: Failed to resolve 'b:2': Not known (after 3ms in state CONNECT)",
            "Failed to resolve 'b:2': Not known",
        ),
        ("_AUTHENTICATION: SASL failed", "_AUTHENTICATION: SASL failed"),
        ("_TIMED_OUT: no answer in time", "_TIMED_OUT: no answer in time"),
    ],
)
def test_a_person_is_told_only_why_a_connection_failed(said: str, reason: str) -> None:
    assert without_client_details(said) == reason
