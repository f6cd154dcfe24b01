"""A frame is what stands between two sizes on a connection; its header names it. Pure."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tests.chaos.codec import Cursor, Form, FrameError, Text

SIZE_BYTES = 4
MAX_FRAME_BYTES = 128 * 1024 * 1024
"""Brokers take requests up to 100 MiB by default; answers to a fetch are smaller."""

_FIXED = struct.Struct(">hhi")
_CORRELATION_ID = struct.Struct(">i")
_CORRELATION_ID_AT = 4
_CLASSIC = Form(version=0, is_flexible=False)
"""The client id is written in the old way also where all the rest is flexible."""


@dataclass(frozen=True)
class RequestHeader:
    """What every request begins with.

    Args:
        api_key: which api.
        api_version: of that api.
        correlation_id: of the client's choice; the answer repeats it.
        client_id: None if it has none.
        size: bytes of the header up to where the body, or the header's tagged fields, begin.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    size: int


def frame_size(prefix: bytes) -> int:
    """What the four bytes before a frame say.

    Raises:
        FrameError: negative, or more than MAX_FRAME_BYTES.
    """
    size = int.from_bytes(prefix, signed=True)
    if not 0 <= size <= MAX_FRAME_BYTES:
        raise FrameError(f"a frame of {size} bytes; expected at most {MAX_FRAME_BYTES}")
    return size


def with_size(frame: bytes) -> bytes:
    """The frame as it goes over a connection."""
    return len(frame).to_bytes(SIZE_BYTES) + frame


def request_header(frame: bytes) -> RequestHeader:
    """Read the header; alike in its versions 1 and 2, and in no older one that is still in use.

    Raises:
        FrameError: this is no request.
    """
    cursor = Cursor(frame)
    key, version, correlation_id = _FIXED.unpack(cursor.take(_FIXED.size))
    client_id = Text().read(cursor, _CLASSIC)
    return RequestHeader(key, version, correlation_id, client_id, cursor.position)


def write_request_header(
    key: int, version: int, correlation_id: int, client_id: str | None, *, is_flexible: bool
) -> bytes:
    """A header of version 2 if it is flexible, else of version 1."""
    fixed = _FIXED.pack(key, version, correlation_id)
    return fixed + Text().write(client_id, _CLASSIC) + (b"\0" if is_flexible else b"")


def with_correlation_id(request: bytes, correlation_id: int) -> bytes:
    """The same request under another correlation id."""
    after = _CORRELATION_ID_AT + _CORRELATION_ID.size
    return request[:_CORRELATION_ID_AT] + _CORRELATION_ID.pack(correlation_id) + request[after:]


def answered_id(response: bytes) -> int:
    """The correlation id of a response.

    Raises:
        FrameError: it has none.
    """
    (correlation_id,) = _CORRELATION_ID.unpack(Cursor(response).take(_CORRELATION_ID.size))
    return int(correlation_id)


def write_response_header(correlation_id: int, *, is_flexible: bool) -> bytes:
    """A header of version 1 if it is flexible, else of version 0."""
    return _CORRELATION_ID.pack(correlation_id) + (b"\0" if is_flexible else b"")


def skip_tags(cursor: Cursor) -> None:
    """Pass over the tagged fields of a header."""
    for _ in range(cursor.varint()):
        cursor.varint()
        cursor.take(cursor.varint())
