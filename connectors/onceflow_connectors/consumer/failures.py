"""The meaning of an error code for a consumer, whichever client library tells it."""

from __future__ import annotations

from collections.abc import Mapping

from onceflow.errors import (
    AbortableError,
    ConfigError,
    CorruptionError,
    FencedError,
    InvariantError,
    OnceflowError,
    RetriableError,
)
from onceflow_connectors.error_codes import Nature, nature_of_code

_CONSEQUENCES: Mapping[Nature, type[OnceflowError]] = {
    Nature.PASSING: RetriableError,
    Nature.MEMBER: AbortableError,
    Nature.REFUSED: ConfigError,
    Nature.GONE: CorruptionError,
    # Answers to requests that a consumer never makes, or calls out of order.
    Nature.FENCED: InvariantError,
    Nature.RECORD: InvariantError,
    Nature.BROKEN: InvariantError,
}

_EXCEPTIONS: Mapping[str, type[OnceflowError]] = {
    # Another process has our group.instance.id, which is a consumer's only fatal error.
    **dict.fromkeys(
        ("FENCED_INSTANCE_ID", "UNRELEASED_INSTANCE_ID", "_FATAL", "_FENCED"), FencedError
    ),
    # Metadata lags behind, or what looks like an error is an event.
    **dict.fromkeys(("_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC", "_PARTITION_EOF"), RetriableError),
    # Files and threads of this machine.
    **dict.fromkeys(("_FS", "_CRIT_SYS_RESOURCE"), ConfigError),
    # Passing only where a producer or an administrative client meets them.
    **dict.fromkeys(("_FAIL", "_CONFLICT", "_NOENT"), InvariantError),
}


def consequence(code: str) -> type[OnceflowError]:
    """Return the class to raise for a code, by its name in `error_codes`."""
    return _EXCEPTIONS.get(code) or _CONSEQUENCES[nature_of_code(code)]
