"""Columns and types as Spark SQL declares them, for plain Python values: no Spark is needed.

Values are those that PySpark and pyarrow give: `int`, `float`, `Decimal`, `str`, `bytes`, `bool`,
`date`, `datetime` (with a zone for TIMESTAMP, without one for TIMESTAMP_NTZ). Structs are named
tuples in the order of their fields, arrays are lists, maps are dicts.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from onceflow.errors import ConfigError, Fault

if TYPE_CHECKING:
    import pyarrow as pa

MAX_EXACT_INT = 2**53
"""The largest integer up to which a double has all of them."""
_D = exp.DataType.Type
_EXAMPLE = "`name type, ...`, such as `card string, amount decimal(10,2), at timestamp`"


class Type(ABC):
    """A type of Spark SQL."""

    @property
    @abstractmethod
    def ddl(self) -> str:
        """As Spark SQL writes it."""

    @abstractmethod
    def check(self, value: Any) -> Any:
        """The value as this type keeps it; None stays None.

        Raises:
            ValueError: it is not of this type; says what was expected and found.
        """

    @abstractmethod
    def avro(self, name: str) -> Any:
        """Avro schema of values that may be null; `name` begins the names of records in it."""

    def to_avro(self, value: Any) -> Any:
        """A checked value as fastavro writes it."""
        return value

    def from_avro(self, value: Any) -> Any:
        """A value that was written under the schema of this type, or of one that it widens."""
        return value

    @abstractmethod
    def arrow(self) -> pa.DataType:
        """The type in Arrow."""

    @property
    def has_order(self) -> bool:
        """Whether values can be compared, and be keys."""
        return False


@dataclass(frozen=True)
class Scalar(Type):
    """A type without parts.

    Args:
        name: in Spark SQL.
        avro_type: of Avro.
        accept: what a value becomes; raises TypeError or ValueError with what is wrong.
    """

    name: str
    avro_type: Any
    accept: Callable[[Any], Any]
    arrow_name: str = ""

    @property
    def ddl(self) -> str:
        """As Spark SQL writes it."""
        return self.name

    @property
    def has_order(self) -> bool:
        """All scalars have."""
        return True

    def check(self, value: Any) -> Any:
        """See `Type.check`."""
        if value is None:
            return None
        try:
            return self.accept(value)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise _unlike(self.ddl, value, str(error) * isinstance(error, _WhyError)) from None

    def avro(self, name: str) -> Any:
        """See `Type.avro`."""
        return ["null", self.avro_type]

    def arrow(self) -> pa.DataType:
        """See `Type.arrow`."""
        import pyarrow as pa  # noqa: PLC0415  a declaration needs none

        if self.name.startswith("decimal"):
            return pa.decimal128(self.avro_type["precision"], self.avro_type["scale"])
        if self.name == "timestamp":
            return pa.timestamp("us", tz="UTC")
        if self.name == "timestamp_ntz":
            return pa.timestamp("us")
        return pa.type_for_alias(self.arrow_name)

    def from_avro(self, value: Any) -> Any:
        """Narrower numbers of an earlier schema become what this type has."""
        return self.check(value)

    def __reduce__(self) -> tuple[object, ...]:
        return parse_type, (self.ddl,)


@dataclass(frozen=True)
class Array(Type):
    """Items of one type."""

    item: Type

    @property
    def ddl(self) -> str:
        """As Spark SQL writes it."""
        return f"array<{self.item.ddl}>"

    def check(self, value: Any) -> Any:
        """A list."""
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            raise _unlike(self.ddl, value)
        return [_checked(self.item, each, f"item {n}") for n, each in enumerate(value)]

    def avro(self, name: str) -> Any:
        """See `Type.avro`."""
        return ["null", {"type": "array", "items": self.item.avro(f"{name}_item")}]

    def to_avro(self, value: Any) -> Any:
        """See `Type.to_avro`."""
        return None if value is None else [self.item.to_avro(each) for each in value]

    def from_avro(self, value: Any) -> Any:
        """See `Type.from_avro`."""
        return None if value is None else [self.item.from_avro(each) for each in value]

    def arrow(self) -> pa.DataType:
        """See `Type.arrow`."""
        import pyarrow as pa  # noqa: PLC0415

        return pa.list_(self.item.arrow())


@dataclass(frozen=True)
class MapOf(Type):
    """Values by key. Iterated and stored in the order of the keys."""

    key: Type
    value: Type

    @property
    def ddl(self) -> str:
        """As Spark SQL writes it."""
        return f"map<{self.key.ddl},{self.value.ddl}>"

    def check(self, value: Any) -> Any:
        """A dict; Arrow's list of pairs will do."""
        if value is None:
            return None
        try:
            entries = dict(value)
        except (TypeError, ValueError):
            raise _unlike(self.ddl, value) from None
        if None in entries:
            raise ValueError(f"expected {self.ddl}, found a key that is null")
        checked = {
            _checked(self.key, key, "key"): _checked(self.value, each, f"value of {_shown(key)}")
            for key, each in entries.items()
        }
        return {key: checked[key] for key in sorted(checked)}

    def avro(self, name: str) -> Any:
        """An array of entries: Avro's own maps have text for keys."""
        fields = [
            {"name": "key", "type": self.key.avro(f"{name}_key")},
            {"name": "value", "type": self.value.avro(f"{name}_value")},
        ]
        entry = {"type": "record", "name": f"{name}_entry", "fields": fields}
        return ["null", {"type": "array", "items": entry}]

    def to_avro(self, value: Any) -> Any:
        """See `Type.to_avro`."""
        if value is None:
            return None
        key, item = self.key.to_avro, self.value.to_avro
        return [{"key": key(k), "value": item(value[k])} for k in sorted(value)]

    def from_avro(self, value: Any) -> Any:
        """See `Type.from_avro`."""
        if value is None:
            return None
        key, item = self.key.from_avro, self.value.from_avro
        return {key(each["key"]): item(each["value"]) for each in value}

    def arrow(self) -> pa.DataType:
        """See `Type.arrow`."""
        import pyarrow as pa  # noqa: PLC0415

        return pa.map_(self.key.arrow(), self.value.arrow())


@dataclass(frozen=True)
class Columns(Type):
    """Named columns, or the fields of a struct.

    Args:
        names: in order; no two are equal but for case.
        types: of each.
        required: names of those that must not be null.
    """

    names: tuple[str, ...]
    types: tuple[Type, ...]
    required: frozenset[str] = frozenset()

    @cached_property
    def row(self) -> Callable[..., Any]:
        """Makes a row from values in order: a named tuple."""
        return namedtuple("Row", self.names, rename=True)

    @cached_property
    def has_order(self) -> bool:
        """Whether all of them have; then rows can be keys."""
        return all(each.has_order for each in self.types)

    @cached_property
    def columns_ddl(self) -> str:
        """As a list of columns."""
        return ", ".join(
            f"{_quoted(name)} {each.ddl}{' not null' if name in self.required else ''}"
            for name, each in zip(self.names, self.types, strict=True)
        )

    @property
    def ddl(self) -> str:
        """As the type of a struct."""
        fields = (f"{_quoted(n)}:{t.ddl}" for n, t in zip(self.names, self.types, strict=True))
        return f"struct<{','.join(fields)}>"

    @cached_property
    def _checks(self) -> Sequence[Callable[[Any], Any]]:
        return [each.accept if isinstance(each, Scalar) else each.check for each in self.types]

    def check(self, value: Any) -> Any:
        """A named tuple, from values in order or by name; a name that is missing is null."""
        if value is None:
            return None
        values = self._in_order(value)
        try:
            checked = [
                None if each is None else check(each)
                for check, each in zip(self._checks, values, strict=True)
            ]
        except (TypeError, ValueError, ArithmeticError):
            for name, kind, each in zip(self.names, self.types, values, strict=True):
                _checked(kind, each, name)
            raise
        if self.required:
            for name, each in zip(self.names, checked, strict=True):
                if each is None and name in self.required:
                    raise ValueError(f"{name}: expected a value, found null")
        return self.row(*checked)

    def _in_order(self, value: Any) -> Sequence[Any]:
        if type(value) is dict or isinstance(value, Mapping):
            if not self._known.issuperset(value):
                unknown = ", ".join(str(name) for name in value if name not in self._known)
                raise ValueError(f"expected {', '.join(self.names)}, found {unknown}")
            return list(map(value.get, self.names))
        if not isinstance(value, tuple | list):
            raise _unlike("values by name or in order", value)
        if len(value) != len(self.names):
            expected = f"{len(self.names)} values ({', '.join(self.names)})"
            raise ValueError(f"expected {expected}, found {len(value)}")
        return value

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.names)

    @cached_property
    def _avro_names(self) -> Sequence[str]:
        """Avro allows fewer names; hex keeps them apart and the same in every version."""
        return [
            n if n.isidentifier() and n.isascii() else f"x{n.encode().hex()}" for n in self.names
        ]

    def avro(self, name: str) -> Any:
        """A record with a field for each column."""
        fields = [
            {"name": field, "type": kind.avro(f"{name}_{field}")}
            for field, kind in zip(self._avro_names, self.types, strict=True)
        ]
        return ["null", {"type": "record", "name": name, "fields": fields}]

    def to_avro(self, value: Any) -> Any:
        """See `Type.to_avro`."""
        if value is None:
            return None
        return {
            field: kind.to_avro(each)
            for field, kind, each in zip(self._avro_names, self.types, value, strict=True)
        }

    def from_avro(self, value: Any) -> Any:
        """By name: what an earlier schema did not have is null, what it had besides is dropped."""
        if value is None:
            return None
        return self.row(
            *(
                kind.from_avro(value.get(field))
                for field, kind in zip(self._avro_names, self.types, strict=True)
            )
        )

    def arrow(self) -> pa.DataType:
        """See `Type.arrow`."""
        import pyarrow as pa  # noqa: PLC0415

        return pa.struct([(n, t.arrow()) for n, t in zip(self.names, self.types, strict=True)])


class _WhyError(ValueError):
    """What is wrong with a value, beyond its type."""


def _unlike(expected: str, value: object, why: str = "") -> ValueError:
    text = f"expected {expected}, found {type(value).__name__} {_shown(value)}"
    return ValueError(f"{text} ({why})" if why else text)


def _checked(kind: Type, value: Any, where: str) -> Any:
    try:
        return kind.check(value)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else f"`{name.replace('`', '``')}`"


def _exactly(kind: type) -> Callable[[Any], Any]:
    def accept(value: Any) -> Any:
        is_time = kind is date and isinstance(value, datetime)
        if is_time or not isinstance(value, kind):
            raise TypeError
        return value

    return accept


def _integer(bits: int) -> Callable[[Any], int]:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def accept(value: Any) -> int:
        if type(value) is not int:
            # Such as those of numpy; a bool is none, nor is 1.5.
            if isinstance(value, bool) or not hasattr(value, "__index__"):
                raise TypeError
            value = value.__index__()
        if not low <= value <= high:
            raise _WhyError(f"expected at least {low} and at most {high}")
        return int(value)

    return accept


def _double(value: Any) -> float:
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    if isinstance(value, int) and abs(value) > MAX_EXACT_INT:
        raise _WhyError("a double does not have all integers of this size")
    return float(value)


def _decimal(precision: int, scale: int) -> Callable[[Any], Decimal]:
    unit = Decimal(1).scaleb(-scale)

    def accept(value: Any) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, Decimal | int):
            raise TypeError
        exact = Decimal(value)
        if not exact.is_finite():
            raise _WhyError("expected a finite number")
        _, digits, exponent = exact.as_tuple()
        more = -scale - int(exponent)
        if more > 0 and any(digits[-more:]):
            raise _WhyError(f"expected at most {scale} digits after the point")
        if exact and exact.adjusted() >= precision - scale:
            raise _WhyError(f"expected at most {precision - scale} digits before the point")
        return exact.quantize(unit, context=_CONTEXT)

    return accept


def _timestamp(value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise TypeError
    if value.tzinfo is None:
        raise _WhyError("expected a time with a zone, such as datetime(..., tzinfo=UTC)")
    return value if value.tzinfo is UTC else value.astimezone(UTC)


def _timestamp_ntz(value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise TypeError
    if value.tzinfo is not None:
        raise _WhyError("expected a time without a zone")
    return value


_CONTEXT = Context(prec=50)


def _float(value: Any) -> float:
    number = _double(value)
    try:
        (nearest,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:
        raise _WhyError("a float does not reach so far") from None
    return float(nearest)


_SCALARS: Mapping[Any, Scalar] = {
    _D.BOOLEAN: Scalar("boolean", "boolean", _exactly(bool), "bool"),
    _D.TINYINT: Scalar("tinyint", "int", _integer(8), "int8"),
    _D.SMALLINT: Scalar("smallint", "int", _integer(16), "int16"),
    _D.INT: Scalar("int", "int", _integer(32), "int32"),
    _D.BIGINT: Scalar("bigint", "long", _integer(64), "int64"),
    _D.FLOAT: Scalar("float", "float", _float, "float32"),
    _D.DOUBLE: Scalar("double", "double", _double, "float64"),
    _D.TEXT: Scalar("string", "string", _exactly(str), "string"),
    _D.BINARY: Scalar("binary", "bytes", _exactly(bytes), "binary"),
    _D.DATE: Scalar("date", {"type": "int", "logicalType": "date"}, _exactly(date), "date32"),
    _D.TIMESTAMPTZ: Scalar(
        "timestamp", {"type": "long", "logicalType": "timestamp-micros"}, _timestamp
    ),
    _D.TIMESTAMPNTZ: Scalar(
        "timestamp_ntz", {"type": "long", "logicalType": "local-timestamp-micros"}, _timestamp_ntz
    ),
}


def parse_columns(ddl: str) -> Columns:
    """Columns from a list such as `card string, amount decimal(10,2) not null`.

    Raises:
        ConfigError: it is none, or has a type that is not known here.
    """
    try:
        tree = sqlglot.parse_one(f"CREATE TABLE t ({ddl})", dialect="spark")
    except SqlglotError:
        raise _refused(ddl, "not a list of columns") from None
    schema = tree.this
    if not isinstance(schema, exp.Schema) or not schema.expressions:
        raise _refused(ddl, "not a list of columns")
    return _columns_of(schema.expressions, ddl)


def parse_type(ddl: str) -> Type:
    """A type from its text: `bigint`, `array<string>`; a list of columns gives a struct.

    Raises:
        ConfigError: it is none, or not known here.
    """
    try:
        return _type_of(exp.DataType.build(ddl, dialect="spark"), ddl)
    except (SqlglotError, ValueError):
        return parse_columns(ddl)


def _columns_of(definitions: Sequence[Any], ddl: str) -> Columns:
    names: list[str] = []
    types: list[Type] = []
    required: set[str] = set()
    for each in definitions:
        if not isinstance(each, exp.ColumnDef) or each.kind is None:
            raise _refused(ddl, f"`{each.sql(dialect='spark')}` has no type")
        for constraint in each.constraints:
            if not isinstance(constraint.kind, exp.NotNullColumnConstraint):
                text = constraint.sql(dialect="spark")
                raise _refused(ddl, f"`{text}` is not possible")
            required.add(each.name)
        if each.name.casefold() in {name.casefold() for name in names}:
            raise _refused(ddl, f"the column `{each.name}` is there twice")
        names.append(each.name)
        types.append(_type_of(each.kind, ddl))
    return Columns(tuple(names), tuple(types), frozenset(required))


def _type_of(kind: Any, ddl: str) -> Type:
    parts = kind.expressions
    match kind.this:
        case _D.ARRAY if len(parts) == 1:
            return Array(_type_of(parts[0], ddl))
        case _D.MAP if len(parts) == 2:
            key = _type_of(parts[0], ddl)
            if not key.has_order:
                raise _refused(ddl, f"{key.ddl} cannot be the key of a map")
            return MapOf(key, _type_of(parts[1], ddl))
        case _D.STRUCT if parts:
            return _columns_of(parts, ddl)
        case _D.DECIMAL:
            numbers = [int(each.name) for each in parts] or [10, 0]
            precision, scale = (*numbers, 0)[:2]
            if not 0 <= scale <= precision <= 38:
                raise _refused(ddl, f"`{kind.sql(dialect='spark')}` is not possible")
            return _decimal_type(precision, scale)
        case scalar if scalar in _SCALARS and not parts:
            return _SCALARS[scalar]
    raise _refused(ddl, f"the type `{kind.sql(dialect='spark')}` cannot be used here")


def _decimal_type(precision: int, scale: int) -> Scalar:
    avro = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    return Scalar(f"decimal({precision},{scale})", avro, _decimal(precision, scale))


def _refused(ddl: str, what: str) -> ConfigError:
    known = ", ".join(each.name for each in _SCALARS.values())
    expected = f"{_EXAMPLE}, of types {known}, decimal(p,s), array<>, struct<>, map<>"
    return ConfigError("types refused", subject=ddl, faults=(Fault(what, expected=expected),))
