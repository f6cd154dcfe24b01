"""Turns errors of librdkafka and of brokers into ours.

A code has a *nature*, whatever we were doing (`error_codes`); a nature has a *consequence* for each
kind of operation, and that is the class we raise. Flags that librdkafka sets on an error (`fatal`,
`txn_requires_abort`, `retriable`) go before the table, because they know about the client's state.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum, auto

from confluent_kafka import KafkaError, KafkaException

from onceflow.errors import (
    AbortableError,
    ConfigError,
    CorruptionError,
    FencedError,
    InvariantError,
    OnceflowError,
    OutcomeUnknownError,
    RecordError,
    RetriableError,
)
from onceflow_connectors.error_codes import REASONS, Nature, nature_of_code

CLIENT_ERRORS = (KafkaException, SystemError)
"""What a call of a client may raise; hand it to `kafka_error`."""


class Operation(Enum):
    """The operation that failed: the same code has different consequences."""

    INITIALISE = auto()
    PRODUCE = auto()
    SEND_OFFSETS = auto()
    COMMIT = auto()
    READ = auto()
    ADMINISTER = auto()


_LOOKING: Mapping[Nature, type[OnceflowError]] = {
    Nature.PASSING: RetriableError,
    Nature.FENCED: InvariantError,
    Nature.MEMBER: ConfigError,
    Nature.RECORD: ConfigError,
    Nature.REFUSED: ConfigError,
    Nature.GONE: CorruptionError,
    Nature.BROKEN: RetriableError,
}

CONSEQUENCES: Mapping[Operation, Mapping[Nature, type[OnceflowError]]] = {
    Operation.INITIALISE: {**_LOOKING, Nature.FENCED: FencedError, Nature.GONE: RetriableError},
    # A transaction commits although a record of it was refused: whatever it is, abort.
    Operation.PRODUCE: {
        **dict.fromkeys(Nature, AbortableError),
        Nature.FENCED: FencedError,
        Nature.RECORD: RecordError,
    },
    Operation.SEND_OFFSETS: {**dict.fromkeys(Nature, AbortableError), Nature.FENCED: FencedError},
    # Nothing but the abort flag proves that a commit did not happen.
    Operation.COMMIT: {**dict.fromkeys(Nature, OutcomeUnknownError), Nature.FENCED: FencedError},
    Operation.READ: {**_LOOKING, Nature.RECORD: CorruptionError},
    Operation.ADMINISTER: _LOOKING,
}
"""What to raise when an operation met a nature. Complete."""

_THEN: Mapping[type[OnceflowError], str] = {
    AbortableError: "the transaction is aborted",
    RecordError: "the transaction is aborted; nothing of it is committed",
    FencedError: "the ledger tells who owns the pipeline and what was committed",
    OutcomeUnknownError: "the ledger tells whether it was committed",
}


def kafka_error(raised: Exception) -> KafkaError:
    """Return the Kafka error inside what a client raised.

    A fatal error that surfaces while `poll` or `flush` serves a delivery report comes out of the
    binding as a SystemError, with the true exception as its cause.

    Raises:
        Exception: `raised` itself, if no Kafka error is in it.
    """
    carrier = raised.__cause__ if isinstance(raised, SystemError) else raised
    if isinstance(carrier, KafkaException) and isinstance(carrier.args[0], KafkaError):
        return carrier.args[0]
    raise raised


_REFUSED_HANDSHAKE = re.compile(
    r"SSL routines::(?!unexpected eof).*in state SSL_HANDSHAKE", re.IGNORECASE
)
"""Not if the stream ends: then the broker has gone away in the middle of the handshake."""


def nature_of(error: KafkaError) -> Nature:
    """Return the nature of an error: of its code, or of its text where the code does not tell."""
    # librdkafka calls a failed handshake `_SSL`, but not if its first step fails: the connection
    # was not established yet (`rd_kafka_transport_ssl_connect`).
    is_refused = error.name() == "_TRANSPORT" and _REFUSED_HANDSHAKE.search(error.str())
    return nature_of_code("_SSL" if is_refused else error.name())


def is_passing(error: KafkaError) -> bool:
    """Whether the same call, on the same client, may succeed a moment later."""
    if error.fatal() or error.txn_requires_abort():
        return False
    return error.retriable() or nature_of(error) is Nature.PASSING


def consequence(error: KafkaError, operation: Operation) -> type[OnceflowError]:
    """Return the class to raise.

    `FENCED` goes before the abort flag: a writer that may have been fenced must look who owns the
    pipeline, and the flag does not tell whether an earlier answer got lost.
    """
    nature = nature_of(error)
    if nature is not Nature.FENCED and error.txn_requires_abort():
        return RecordError if nature is Nature.RECORD else AbortableError
    return CONSEQUENCES[operation][nature]


def describe(error: KafkaError) -> str:
    """Return name, text and, where the code does not speak for itself, the reason, in one line."""
    reason = REASONS.get(error.name(), "")
    text = f"{error.name()}: {error.str()}"
    return f"{text} ({reason})" if reason else text


def without_client_details(text: str) -> str:
    """Return why a connection failed, without the address and the client's states."""
    return _CONNECTION_TEXT.sub(r"\g<reason>", text)


_CONNECTION_TEXT = re.compile(
    r"^_(?:TRANSPORT|RESOLVE): (?:\S+: )?(?:Connect to \S+ failed: )?(?P<reason>.+?)"
    r"(?: \(after \d+ms in state \w+\))?$"
)
"""What librdkafka says of a connection: the address again, and states of its own."""


def failure(
    error: KafkaError, operation: Operation, what: str, *, subject: str, then: str = ""
) -> OnceflowError:
    """Return the exception to raise for an error.

    `what` says in one clause what failed, `then` what happens now where the class does not tell.
    """
    kind = consequence(error, operation)
    return kind(what, subject=subject, found=describe(error), then=then or _THEN.get(kind, ""))
