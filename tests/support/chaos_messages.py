"""Messages of every api and version, written by kafka-python: not by what is under test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from kafka.protocol.admin import cluster
from kafka.protocol.consumer import fetch
from kafka.protocol.metadata import api_versions, find_coordinator, metadata
from kafka.protocol.producer import produce, transaction

MODULES = (fetch, produce, transaction, metadata, find_coordinator, cluster, api_versions)
OLDEST = {"Fetch": 4, "Produce": 3}
"""Versions below are unknown to brokers of today, and to kafka-python."""
CORRELATION_ID = 77
CLIENT_ID = "somebody"
PORT = 19092


def message_class(name: str) -> Any:
    """Such as `EndTxnRequest`."""
    return next(getattr(module, name) for module in MODULES if hasattr(module, name))


def versions(api: str) -> range:
    """All that kafka-python can write."""
    _, newest = message_class(f"{api}Request").valid_versions
    return range(OLDEST.get(api, 0), newest + 1)


def encoded(name: str, version: int, fields: Mapping[str, Any]) -> bytes:
    """A whole frame, header included.

    Args:
        name: such as `EndTxnRequest`.
        version: of the api.
        fields: by kafka-python's names; structs as mappings. The rest has its default.
    """
    cls = message_class(name)
    message = cls[version](**dict(_as_classes(cls.fields, fields, version)))
    if cls.is_request():
        message.with_header(CORRELATION_ID, CLIENT_ID)
    else:
        message.with_header(CORRELATION_ID)
    return bytes(message.encode(header=True))


def decoded(name: str, version: int, frame: bytes) -> Any:
    """The message in a frame, header included."""
    return message_class(name)[version].decode(frame, header=True)


def filled(name: str, version: int) -> bytes:
    """A frame in which every field of that version has a value, tagged ones included."""
    return encoded(name, version, _filled(message_class(name).fields, version))


def _filled(fields: Mapping[str, Any], version: int) -> dict[str, Any]:
    return {
        name: _value(field, version)
        for name, field in fields.items()
        if field.for_version_q(version) and field._json["name"] != "UnknownTags"
    }


def _value(field: Any, version: int) -> Any:
    if field.is_struct_array():
        return [_filled(field.fields, version), _filled(field.fields, version)]
    if field.is_struct():
        return _filled(field.fields, version)
    kind = field._json["type"]
    if field.name == "port":
        return PORT
    if field.name.endswith("authorized_operations"):  # kafka-python makes sets of these
        return {3, 4}
    element = {
        "string": f"text of {field.name.removeprefix('v3_and_below_')}",
        "uuid": uuid.UUID(int=2**100 + 3),
        "records": b"\1\2\3",
        "bool": True,
    }.get(kind.removeprefix("[]"), 7)
    return [element, element] if kind.startswith("[]") else element


def _as_classes(
    known: Mapping[str, Any], given: Mapping[str, Any], version: int
) -> Iterator[tuple[str, Any]]:
    for name, value in given.items():
        field = known[name]
        if field.is_struct_array() and value is not None:
            yield name, [_as_class(field, one, version) for one in value]
        elif field.is_struct():
            yield name, _as_class(field, value, version)
        else:
            yield name, value


def _as_class(field: Any, value: Mapping[str, Any], version: int) -> Any:
    return field.data_class(version=version, **dict(_as_classes(field.fields, value, version)))
