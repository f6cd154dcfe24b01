"""CSV payloads: one row in each record, quoted as in RFC 4180, without a header.

Columns are matched by their order: `columns` of the format options, or else all payload columns of
the schema. An empty field is null. Values look as they do in JSON, without its quotes.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from onceflow.errors import ConfigError
from onceflow_connectors.decoders.values import CONVERSION_ERRORS, PayloadError, column

_DEFAULT_DELIMITER = ","
_MAX_DIGITS = 38
"""Of Arrow's decimals."""

# 128 KiB by default; a record bounds its fields already, and Kafka bounds the record.
csv.field_size_limit(2**31 - 1)


class CsvDecoder:
    """Decodes a chunk with Python's own reader, which tells rows from records exactly.

    Args:
        schema: the payload columns.
        options: `columns`, names of all fields of a row in order; `delimiter`.
    """

    def __init__(self, schema: pa.Schema, options: Mapping[str, Any]) -> None:
        self._schema = schema
        self._names: Sequence[str] = options.get("columns") or schema.names
        self._delimiter: str = options.get("delimiter", _DEFAULT_DELIMITER)
        _check_columns(schema, self._names)

    def columns(self, payloads: Sequence[bytes | None]) -> Sequence[pa.Array]:
        """A record without a payload is a bad one."""
        try:
            fields = dict(zip(self._names, self._fields(payloads), strict=True))
            return [_column(fields[field.name], field.type) for field in self._schema]
        except (csv.Error, *CONVERSION_ERRORS) as error:
            raise PayloadError(str(error)) from error

    def _fields(self, payloads: Sequence[bytes | None]) -> Sequence[Sequence[str]]:
        """Values of each column.

        A row that goes on in the next record is found by counting; two rows in one record the
        reader refuses itself. So equal counts mean that each record is one row.
        """
        if None in payloads:
            raise PayloadError("the record has no payload")
        texts = [payload.decode() for payload in payloads if payload is not None]
        rows = list(csv.reader(texts, delimiter=self._delimiter, strict=True))
        if len(rows) != len(payloads):
            raise PayloadError("not one row in each record")
        expected = len(self._names)
        if odd := {len(row) for row in rows} - {expected}:
            raise PayloadError(f"expected {expected} fields, found {max(odd)}")
        return list(zip(*rows, strict=True))


def _column(texts: Sequence[str], arrow_type: pa.DataType) -> pa.Array:
    values = [text or None for text in texts]
    if pat.is_timestamp(arrow_type) or pat.is_binary(arrow_type):
        return column(values, arrow_type)
    if pat.is_decimal(arrow_type):
        values = [text and _counted(text, arrow_type) for text in values]
    return pa.array(values, pa.string()).cast(arrow_type)


def _counted(text: str, arrow_type: pa.Decimal128Type) -> str:
    """A number that Arrow casts rightly: with more digits, or places, its cast may write another.

    Raises:
        ValueError: there is none.
    """
    try:
        number = Decimal(text)
    except InvalidOperation:
        return text  # the cast says why
    _, digits, power = number.as_tuple()
    if not isinstance(power, int) or power > _MAX_DIGITS:
        return text
    if len(digits) > _MAX_DIGITS:
        raise ValueError(f"The string '{text}' cannot be represented as decimal128")
    if number and number.adjusted() + 1 + arrow_type.scale > _MAX_DIGITS:
        raise ValueError(f"Decimal value does not fit in precision {arrow_type.precision}")
    if power + arrow_type.scale < -_MAX_DIGITS:
        if number:
            raise ValueError("Rescaling Decimal value would cause data loss")
        return "0"
    return text


def _check_columns(schema: pa.Schema, names: Sequence[str]) -> None:
    if missing := [name for name in schema.names if name not in names]:
        raise ConfigError(
            "columns that the rows do not have",
            subject=", ".join(missing),
            expected=f"some of {', '.join(names)}",
        )
    if nested := [field.name for field in schema if pat.is_nested(field.type)]:
        raise ConfigError(
            "CSV has no nested columns", subject=", ".join(nested), expected="scalar types"
        )
