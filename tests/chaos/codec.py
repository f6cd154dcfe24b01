"""Kafka's wire types: from bytes to plain values and back, without a loss. Pure.

A struct becomes a dict of its fields. A field that a version lacks is absent from it. Tagged fields
that a schema does not know are kept as bytes: what is read can be written again as it was.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Message = dict[str, Any]
"""A decoded struct. Its shape is given by a schema, which types cannot follow."""

UNKNOWN_TAGS = "unknown_tags"
"""Where a struct keeps the tagged fields that its schema does not know: tag -> bytes."""
REST = "rest"
"""Where an open struct keeps the bytes after its fields."""

MAX_VARINT_BYTES = 5
"""Of an unsigned 32-bit number."""


class FrameError(ValueError):
    """Bytes that are no such message."""


class Cursor:
    """Reads bytes from a place onwards.

    Args:
        data: all of them.
        position: of the first to read.
    """

    def __init__(self, data: bytes, position: int = 0) -> None:
        self._data = data
        self.position = position

    @property
    def rest(self) -> int:
        """How many are left."""
        return len(self._data) - self.position

    def take(self, size: int) -> bytes:
        """The next `size` bytes.

        Raises:
            FrameError: there are not so many.
        """
        end = self.position + size
        if size < 0 or end > len(self._data):
            raise FrameError(f"{size} bytes wanted at {self.position}, {self.rest} left")
        taken = self._data[self.position : end]
        self.position = end
        return taken

    def varint(self) -> int:
        """An unsigned number in groups of seven bits, the lowest first."""
        value = 0
        for index in range(MAX_VARINT_BYTES):
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value
        raise FrameError(f"a number without an end at {self.position}")


def varint(value: int) -> bytes:
    """The inverse of `Cursor.varint`."""
    groups = bytearray()
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


@dataclass(frozen=True)
class Form:
    """How a message is written.

    Args:
        version: of its api.
        is_flexible: whether lengths are varints and structs have tagged fields.
    """

    version: int
    is_flexible: bool


class Kind(Protocol):
    """One type of the wire."""

    def read(self, cursor: Cursor, form: Form) -> Any:
        """The value that stands at the cursor."""

    def write(self, value: Any, form: Form) -> bytes:
        """Its bytes. None means the value that stands for nothing."""


@dataclass(frozen=True)
class Number:
    """A number or a boolean of fixed size.

    Args:
        code: of `struct`, without the byte order.
    """

    code: str

    def read(self, cursor: Cursor, form: Form) -> Any:
        """The value that stands at the cursor."""
        (value,) = struct.unpack(f">{self.code}", cursor.take(struct.calcsize(f">{self.code}")))
        return value

    def write(self, value: Any, form: Form) -> bytes:
        """Its bytes; None is zero."""
        return struct.pack(f">{self.code}", value or 0)


@dataclass(frozen=True)
class Uuid:
    """Sixteen bytes."""

    def read(self, cursor: Cursor, form: Form) -> bytes:
        """The value that stands at the cursor."""
        return cursor.take(16)

    def write(self, value: bytes | None, form: Form) -> bytes:
        """Its bytes; None is zero."""
        return value or bytes(16)


@dataclass(frozen=True)
class Blob:
    """Bytes with their length before them; None if there are none.

    Args:
        code: of the length where it is no varint.
    """

    code: str = "i"

    def read(self, cursor: Cursor, form: Form) -> bytes | None:
        """The value that stands at the cursor."""
        size = _read_length(cursor, form, self.code)
        return None if size is None else cursor.take(size)

    def write(self, value: bytes | None, form: Form) -> bytes:
        """Its bytes."""
        return _length(value, form, self.code) + (value or b"")


@dataclass(frozen=True)
class Text:
    """UTF-8; None if there is none."""

    _blob = Blob("h")

    def read(self, cursor: Cursor, form: Form) -> str | None:
        """The value that stands at the cursor."""
        data = self._blob.read(cursor, form)
        return None if data is None else _decoded(data)

    def write(self, value: str | None, form: Form) -> bytes:
        """Its bytes."""
        return self._blob.write(None if value is None else value.encode(), form)


@dataclass(frozen=True)
class Array:
    """Values of one kind; None if there is no array.

    Args:
        of: the kind of each.
    """

    of: Kind

    def read(self, cursor: Cursor, form: Form) -> list[Any] | None:
        """The value that stands at the cursor."""
        count = _read_length(cursor, form, "i")
        if count is None:
            return None
        if count > cursor.rest:  # each takes a byte at least
            raise FrameError(f"an array of {count} in {cursor.rest} bytes")
        return [self.of.read(cursor, form) for _ in range(count)]

    def write(self, value: Collection[Any] | None, form: Form) -> bytes:
        """Its bytes."""
        return _length(value, form, "i") + b"".join(self.of.write(v, form) for v in value or ())


@dataclass(frozen=True)
class Field:
    """One field of a struct.

    Args:
        name: under which it stands in the decoded struct.
        kind: its type.
        since: first version that has it.
        until: last version that has it; None if it is still there.
        tag: its number, if it is a tagged field.
        default: written where the struct lacks it.
    """

    name: str
    kind: Kind
    since: int = 0
    until: int | None = None
    tag: int | None = None
    default: object = None

    def is_in(self, version: int) -> bool:
        """Whether a version has it."""
        return self.since <= version and (self.until is None or version <= self.until)


class Struct:
    """Fields in order, and tagged ones after them.

    Args:
        fields: in the order of the wire.
        is_open: whether other bytes follow, which are kept as they are.
    """

    def __init__(self, *fields: Field, is_open: bool = False) -> None:
        self._is_open = is_open
        self._plain = tuple(field for field in fields if field.tag is None)
        self._tagged = {field.tag: field for field in fields if field.tag is not None}

    def read(self, cursor: Cursor, form: Form) -> Message:
        """The value that stands at the cursor."""
        found = self.read_first(cursor, form, {field.name for field in self._plain})
        if self._is_open:
            found[REST] = cursor.take(cursor.rest)
        elif form.is_flexible:
            self._read_tags(cursor, form, found)
        return found

    def read_first(self, cursor: Cursor, form: Form, wanted: Collection[str]) -> Message:
        """Only as far as the last of the `wanted` fields."""
        fields = [field for field in self._plain if field.is_in(form.version)]
        last = max((i for i, field in enumerate(fields) if field.name in wanted), default=-1)
        return {field.name: field.kind.read(cursor, form) for field in fields[: last + 1]}

    def write(self, value: Mapping[str, Any] | None, form: Form) -> bytes:
        """Its bytes."""
        given = value or {}
        parts = [
            field.kind.write(given.get(field.name, field.default), form)
            for field in self._plain
            if field.is_in(form.version)
        ]
        if self._is_open:
            parts.append(given.get(REST, b""))
        elif form.is_flexible:
            parts.append(self._tags(given, form))
        return b"".join(parts)

    def _read_tags(self, cursor: Cursor, form: Form, found: Message) -> None:
        unknown = {}
        for _ in range(cursor.varint()):
            tag, data = cursor.varint(), cursor.take(cursor.varint())
            field = self._tagged.get(tag)
            if field is not None and field.is_in(form.version):
                found[field.name] = field.kind.read(Cursor(data), form)
            else:
                unknown[tag] = data
        if unknown:
            found[UNKNOWN_TAGS] = unknown

    def _tags(self, given: Mapping[str, Any], form: Form) -> bytes:
        tags = dict(given.get(UNKNOWN_TAGS, {}))
        for tag, field in self._tagged.items():
            if field.name in given and field.is_in(form.version):
                tags[tag] = field.kind.write(given[field.name], form)
        written = (varint(t) + varint(len(tags[t])) + tags[t] for t in sorted(tags))
        return varint(len(tags)) + b"".join(written)


def _read_length(cursor: Cursor, form: Form, code: str) -> int | None:
    if form.is_flexible:
        length = cursor.varint() - 1
    else:
        (length,) = struct.unpack(f">{code}", cursor.take(struct.calcsize(f">{code}")))
    if length < -1:
        raise FrameError(f"a length of {length} at {cursor.position}")
    return None if length == -1 else length


def _length(value: Collection[Any] | None, form: Form, code: str) -> bytes:
    length = -1 if value is None else len(value)
    return varint(length + 1) if form.is_flexible else struct.pack(f">{code}", length)


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FrameError("text that is not UTF-8") from error
