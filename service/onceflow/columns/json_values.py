"""From a JSON value to a value of a type. Pure.

Numbers, text and truth values are as JSON has them; dates and times are ISO 8601 text, BINARY is
base64, as Spark's `to_json` writes them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import Any

from onceflow.columns.types import Array, Columns, MapOf, Scalar, Type

_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
"""Numbers that JSON does not have, as Spark writes them."""


def scalar_reader(kind: Scalar) -> Callable[[Any], Any]:
    """Make the function that reads a JSON value that is not null.

    It raises TypeError, ValueError or ArithmeticError if the value is not of this type.
    """
    if kind.digits:
        return kind.accept
    match kind.name:
        case "float" | "double":
            return partial(_number, kind.accept)
        case "binary":
            return partial(base64.b64decode, validate=True)
        case "date":
            return date.fromisoformat
        case "timestamp" | "timestamp_ntz":
            return partial(_time, kind.accept)
        case _:
            return kind.accept


def parts_reader(kind: Type) -> Callable[[str], Any]:
    """Make the function that reads the JSON text of a value with parts.

    Arrays become lists, structs dicts by name, maps lists of pairs: as Arrow takes them. It raises
    TypeError, ValueError or ArithmeticError if the value is not of this type.
    """
    read = value_reader(kind)
    return lambda text: read(json.loads(text, parse_float=Decimal))


def value_reader(kind: Type) -> Callable[[Any], Any]:
    """Make the function that reads a parsed JSON value of any type; null is read as None.

    It raises as `parts_reader`; numbers with a point may be `Decimal`.
    """
    match kind:
        case Array():
            return partial(_array, value_reader(kind.item))
        case MapOf():
            return partial(_map, text_reader(kind.key), value_reader(kind.value))
        case Columns():
            fields = {name: value_reader(each) for name, each in kind.by_name.items()}
            return partial(_struct, fields, kind.required)
        case Scalar():
            read = scalar_reader(kind)
            return lambda value: None if value is None else read(value)
    raise TypeError(kind.ddl)


def _array(item: Callable[[Any], Any], value: Any) -> list[Any] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise TypeError(f"expected an array, found {type(value).__name__}")
    return [item(each) for each in value]


def _map(
    key: Callable[[str], Any], item: Callable[[Any], Any], value: Any
) -> list[tuple[Any, Any]] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise TypeError(f"expected an object, found {type(value).__name__}")
    return [(key(name), item(each)) for name, each in value.items()]


def _struct(
    fields: Mapping[str, Callable[[Any], Any]], required: frozenset[str], value: Any
) -> dict[str, Any] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise TypeError(f"expected an object, found {type(value).__name__}")
    found = {name: read(value.get(name)) for name, read in fields.items()}
    for name in required:
        if found[name] is None:
            raise ValueError(f"{name}: expected a value, found null")
    return found


def text_reader(kind: Scalar) -> Callable[[str], Any]:
    """Make the function that reads a value as JSON has it, but without quotes; as keys are there.

    It raises as `parts_reader`.
    """
    read = scalar_reader(kind)
    if kind.name in {"string", "binary", "date", "timestamp", "timestamp_ntz"}:
        return read
    return lambda text: read(json.loads(text, parse_float=Decimal))


def _number(accept: Callable[[Any], float], value: Any) -> float:
    if isinstance(value, str):
        value = _NUMBERS.get(value, value)
    elif isinstance(value, Decimal):
        value = float(value)
    return accept(value)


def _time(accept: Callable[[Any], datetime], value: Any) -> datetime:
    return accept(datetime.fromisoformat(value))
