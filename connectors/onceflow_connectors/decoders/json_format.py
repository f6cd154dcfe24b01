"""JSON payloads: one object in each record.

Fields are matched by name, exactly; unknown ones are ignored, missing ones are null. A TIMESTAMP is
ISO 8601 with a zone or, if it has none, in UTC; digits beyond microseconds are cut off. A DATE is
`2026-11-01`, BINARY is base64, a MAP is an object. Nothing is coerced: text in a numeric column, or
a number in a text column, is a bad record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.json as pj
import pyarrow.types as pat

from onceflow_connectors.decoders.values import CONVERSION_ERRORS, PayloadError, column

_MAX_BLOCK_BYTES = 2**31 - 1
"""Arrow's own bound on a block. A chunk is one block, as Arrow cuts blocks at any line feed."""
_TINY = tuple(
    re.compile(each)
    for each in (rb"\.\d{30}", rb"e-0*(?:[3-9]\d|\d{3})", rb"E-0*(?:[3-9]\d|\d{3})")
)
"""Many places after the point. One pattern for both exponents would take ten times as long."""
_NUMBER = re.compile(rb"""[:\[,]\s*"?[-+]?[\d.]*\Z""")
_MAX_NUMBER = 128
"""Bytes before an exponent in which its number begins."""
_FIRST, _LAST = itemgetter(0), itemgetter(-1)


class JsonDecoder:
    """Decodes a chunk in one pass of Arrow's parser; record by record only what that refuses."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        # Microseconds first; nanoseconds, which Java writes, reach from 1677 to 2262 only.
        self._readings = [
            pa.schema([_readable(field, unit) for field in schema]) for unit in ("us", "ns")
        ]
        self._has_decimals = any("decimal" in str(field.type) for field in schema)
        self._is_readable = all(_is_readable(field.type) for field in schema)

    def columns(self, payloads: Sequence[bytes | None]) -> Sequence[pa.Array]:
        """A record without a payload is a bad one."""
        if self._is_readable:
            for reading in self._readings:
                try:
                    return self._parse(payloads, reading)
                except (pa.ArrowInvalid, UnicodeDecodeError):
                    continue
        if self._is_readable and len(payloads) > 1:
            raise PayloadError("not one JSON object in each record")
        return self._convert([_object(payload) for payload in payloads])

    def _parse(self, payloads: Sequence[bytes | None], reading: pa.Schema) -> Sequence[pa.Array]:
        """All at once.

        Records must not shift: two objects in one record, and another one spread over two, would
        be as many rows as records. If all records begin with `{` and end with `}`, the border of
        two records reads `}`, line feed, `{`. No string holds a line feed, and inside of an object
        `{` never follows `}`: so each border is one between two rows, and equal counts mean that
        each record is one row.
        """
        given = [payload for payload in payloads if payload]
        if len(given) < len(payloads) or not _are_in_braces(given):
            raise pa.ArrowInvalid("not a JSON object")
        text = b"\n".join(given)
        if self._has_decimals and _has_tiny_number(text):
            raise pa.ArrowInvalid("a number that may be rounded")
        table = pj.read_json(
            pa.BufferReader(text),
            pj.ReadOptions(use_threads=False, block_size=min(len(text) + 1, _MAX_BLOCK_BYTES)),
            pj.ParseOptions(explicit_schema=reading, unexpected_field_behavior="ignore"),
        )
        if table.num_rows != len(payloads):
            raise pa.ArrowInvalid("not one object in each record")
        arrays = [table.column(field.name).combine_chunks() for field in self._schema]
        for array in arrays:
            array.validate(full=True)  # the parser lets text pass that is not UTF-8
        return [
            array.cast(field.type, safe=not pat.is_timestamp(field.type))
            for array, field in zip(arrays, self._schema, strict=True)
        ]

    def _convert(self, objects: Sequence[dict[str, Any]]) -> Sequence[pa.Array]:
        try:
            return [column([o.get(f.name) for o in objects], f.type) for f in self._schema]
        except CONVERSION_ERRORS as error:
            raise PayloadError(str(error)) from error


def _are_in_braces(payloads: Sequence[bytes]) -> bool:
    # Not by Arrow: the first array that it makes of a list imports pandas, half a second.
    return {*map(_FIRST, payloads)} == {ord("{")} and {*map(_LAST, payloads)} == {ord("}")}


def _has_tiny_number(text: bytes) -> bool:
    """Whether Arrow may round a DECIMAL: it looks up powers of ten beyond the end of its table."""
    return any(
        _NUMBER.search(text, max(0, hit.start() - _MAX_NUMBER), hit.start())
        for places in _TINY
        for hit in places.finditer(text)
    )


def _object(payload: bytes | None) -> dict[str, Any]:
    """One record, by Python's own parser."""
    if payload is None:
        raise PayloadError("the record has no payload")
    try:
        value = json.loads(payload.decode(), parse_float=Decimal)
    except (ValueError, RecursionError, InvalidOperation) as error:
        raise PayloadError(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise PayloadError(f"expected a JSON object, found {type(value).__name__}")
    return value


def _readable(field: pa.Field, unit: str) -> pa.Field:
    """The type as which Arrow's parser reads a column that is cast afterwards."""
    if pat.is_date32(field.type):
        return field.with_type(pa.string())
    if pat.is_timestamp(field.type):
        return field.with_type(pa.timestamp(unit, field.type.tz))
    return field


def _is_readable(arrow_type: pa.DataType, depth: int = 0) -> bool:
    """Whether Arrow's parser, and a cast of a whole column, read the type as we define it."""
    if pat.is_list(arrow_type):
        return _is_readable(arrow_type.value_type, depth + 1)
    if pat.is_struct(arrow_type):
        return all(_is_readable(field.type, depth + 1) for field in arrow_type)
    if pat.is_date32(arrow_type):
        return depth == 0
    return any(matches(arrow_type) for matches in _READABLE)


_READABLE = (
    pat.is_boolean,
    pat.is_integer,
    pat.is_floating,
    pat.is_string,
    pat.is_timestamp,
    pat.is_decimal,
)
