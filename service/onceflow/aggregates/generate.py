"""Hypothesis strategies for the values of a type."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from onceflow.columns import Array, Columns, MapOf, Type

_MAX_ITEMS = 3
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}


def values(kind: Type) -> st.SearchStrategy[Any]:
    """Values of a type, null among them."""
    return _nullable(_given(kind))


def _nullable(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    # Last, so that a counterexample has a value where it can.
    return strategy | st.none()


def _given(kind: Type) -> st.SearchStrategy[Any]:
    match kind:
        case Array():
            return st.lists(values(kind.item), max_size=_MAX_ITEMS)
        case MapOf():
            keys = _given(kind.key).filter(lambda key: key == key)  # noqa: PLR0124  not NaN
            return st.dictionaries(keys, values(kind.value), max_size=_MAX_ITEMS).map(kind.check)
        case Columns():
            parts = zip(kind.names, kind.types, strict=True)
            return st.tuples(
                *(_given(each) if name in kind.required else values(each) for name, each in parts)
            ).map(lambda row: kind.row(*row))
    if kind.ddl in _BITS:
        half = 2 ** (_BITS[kind.ddl] - 1)
        return st.integers(-half, half - 1)
    return _SCALARS[kind.ddl] if kind.ddl in _SCALARS else _decimals(kind.ddl)


def _decimals(ddl: str) -> st.SearchStrategy[Decimal]:
    precision, scale = map(int, ddl.removeprefix("decimal(").removesuffix(")").split(","))

    def from_units(units: int) -> Decimal:
        return Decimal((int(units < 0), tuple(map(int, str(abs(units)))), -scale))

    return st.integers(1 - 10**precision, 10**precision - 1).map(from_units)


def _one_nan(number: float) -> float:
    return math.nan if math.isnan(number) else number


_SCALARS: Mapping[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "float": st.floats(width=32).map(_one_nan),
    "double": st.floats().map(_one_nan),
    "string": st.text(max_size=10),
    "binary": st.binary(max_size=10),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
    "timestamp_ntz": st.datetimes(),
}
