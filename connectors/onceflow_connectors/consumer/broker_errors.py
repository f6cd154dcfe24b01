"""Maps a broker's error codes to our errors, for both flavours of the consumer.

A test fails when a client library knows a code that is not listed here.
"""

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

_CODES: Mapping[type[OnceflowError], frozenset[int]] = {
    # Passes by itself: leaders, coordinators and metadata move; a rebalance ends; quotas refill.
    RetriableError: frozenset(
        {3, 5, 6, 7, 8, 9, 13, 14, 15, 16, 27, 56, 70, 71, 72, 74, 75, 78, 79, 88, 89}
        | {100, 103, 106}
    ),
    # ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, STALE_MEMBER_EPOCH.
    AbortableError: frozenset({22, 25, 110, 113}),
    # FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID: another process has our group.instance.id.
    FencedError: frozenset({82, 111}),
    # OFFSET_OUT_OF_RANGE is answered by a reset before it gets here; INVALID_MSG: bad checksum.
    CorruptionError: frozenset({1, 2}),
    # Offset metadata, topic, group and session limits; versions; authorisation; credentials.
    ConfigError: frozenset(
        {12, 17, 23, 24, 26, 28, 29, 30, 31, 33, 34, 35, 43, 44, 54, 58, 76, 81, 112, 128}
        | {61, 62, 63, 64, 65, 66, 67, 93, 97}
    ),
    # Answers to requests that a consumer never makes, and UNKNOWN_SERVER_ERROR.
    InvariantError: frozenset(
        {-1, 4, 10, 11, 18, 19, 20, 21, 32, 36, 37, 38, 39, 40, 41, 42, 45, 46, 47, 48, 49}
        | {50, 51, 52, 53, 55, 57, 59, 60, 68, 69, 73, 77, 80, 83, 84, 85, 86, 87, 90, 91, 92}
        | {94, 95, 96, 98, 99, 101, 102, 104, 105, 107, 108, 109, 114, 115, 116, 117, 118, 119}
        | {120, 121, 122, 123, 124, 125, 126, 127, 129, 130, 131, 132, 133}
    ),
}

BROKER_ERRORS: Mapping[int, type[OnceflowError]] = {
    code: consequence for consequence, codes in _CODES.items() for code in codes
}
"""Broker error code -> our class."""
