"""From the payload of one record to its fields, in each format but JSON. Pure.

The decoders of pipelines make columns of Arrow, which a delivery does not need to have installed.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from onceflow.columns import Columns, Scalar, Type, text_reader
from onceflow.errors import ConfigError

Fields: TypeAlias = Mapping[str, Any]
_SINGLE = {"text": "string", "binary": "binary"}


class PayloadFormat(NamedTuple):
    """How a payload is read.

    Attributes:
        fields: from a payload to its fields by name. It raises ValueError, and says why.
        reader: from a column's type to what reads a field that is not null.
    """

    fields: Callable[[bytes], Fields]
    reader: Callable[[Type], Callable[[Any], Any]]


def payload_format(name: str, columns: Columns, avro_schema: str) -> PayloadFormat:
    """The format of this name: `csv`, `text`, `binary` or `avro`.

    Raises:
        ConfigError: the Avro schema cannot be used.
    """
    if name == "avro":
        return PayloadFormat(_avro(avro_schema), _checker)
    if name == "csv":
        return PayloadFormat(_csv(columns), _text_reader)
    [column] = columns.names or ("value",)
    if name == "text":
        return PayloadFormat(lambda payload: {column: payload.decode()}, _checker)
    return PayloadFormat(lambda payload: {column: payload}, _checker)


def wrong_columns(name: str, columns: Columns) -> Iterator[str]:
    """Say which columns a format cannot have."""
    wanted = _SINGLE.get(name)
    if wanted is not None and [kind.ddl for kind in columns.types] != [wanted]:
        yield f"format {name} holds a single value: expected one column of type {wanted.upper()}"
    if name in {"csv", "avro"}:
        for column, kind in columns.by_name.items():
            if not isinstance(kind, Scalar):
                yield f"format {name} is read without parts: `{column}` has the type {kind.ddl}"


def _csv(columns: Columns) -> Callable[[bytes], Fields]:
    """One row in each record, with the columns in order; an empty field is null."""
    names = columns.names

    def fields(payload: bytes) -> Fields:
        try:
            rows = [*csv.reader([payload.decode()], strict=True)]
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"expected a row of CSV, found {error}") from None
        if len(rows) != 1 or len(rows[0]) != len(names):
            found = f"{len(rows)} rows" if len(rows) != 1 else f"{len(rows[0])} fields"
            raise ValueError(f"expected a row of {len(names)} fields, found {found}")
        return {name: text or None for name, text in zip(names, rows[0], strict=True)}

    return fields


def _avro(schema: str) -> Callable[[bytes], Fields]:
    """One plain datum in each record."""
    # It loads fastavro, which only this format needs.
    from onceflow.columns.avro import READ_ERRORS, avro_reader, parse_avro  # noqa: PLC0415

    try:
        read = avro_reader(parse_avro(schema))
    except ValueError as error:
        raise ConfigError("the Avro schema cannot be used", found=str(error)) from None

    def fields(payload: bytes) -> Fields:
        try:
            datum, left = read(payload)
        except READ_ERRORS as error:
            found = f"{type(error).__name__} {error}".strip()
            raise ValueError(f"expected a datum of the Avro schema, found {found}") from None
        if left:
            raise ValueError(f"expected a datum of the Avro schema, found {left} bytes after it")
        return dict(datum)

    return fields


def _checker(kind: Type) -> Callable[[Any], Any]:
    return kind.accept if isinstance(kind, Scalar) else kind.check


def _text_reader(kind: Type) -> Callable[[Any], Any]:
    return text_reader(kind) if isinstance(kind, Scalar) else kind.check
