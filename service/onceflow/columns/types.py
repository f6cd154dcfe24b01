"""Types of Spark SQL: which Python values they have, and how these are written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from onceflow.columns import scalars

if TYPE_CHECKING:
    import pyarrow as pa


class Type(ABC):
    """A type of Spark SQL. Compare types by `==`; they survive pickling."""

    @property
    @abstractmethod
    def ddl(self) -> str:
        """The type as Spark SQL writes it."""

    @abstractmethod
    def check(self, value: Any) -> Any:
        """The value as this type keeps it; None stays None.

        Raises:
            ValueError: it is not of this type; says what was expected and found.
        """

    @abstractmethod
    def avro(self, name: str) -> Any:
        """Avro schema of values that may be null; `name` begins the names of records in it."""

    @abstractmethod
    def to_avro(self, value: Any) -> Any:
        """A checked value as fastavro writes it."""

    @abstractmethod
    def from_avro(self, value: Any) -> Any:
        """A value that was written under the schema of this type, or of one that it widens."""

    @abstractmethod
    def to_arrow(self) -> pa.DataType:
        """The type in Arrow."""


@dataclass(frozen=True)
class Scalar(Type):
    """A type without parts. `scalar` and `decimal` make them.

    Args:
        name: in Spark SQL.
        schema: of Avro.
        accept: what a value becomes; see `onceflow.columns.scalars`.
    """

    name: str
    schema: Any
    accept: Callable[[Any], Any]

    @property
    def ddl(self) -> str:
        return self.name

    @property
    def digits(self) -> tuple[int, int] | None:
        """Digits of a decimal: in all, and after the point. None for every other type."""
        if self.name.startswith("decimal("):
            return self.schema["precision"], self.schema["scale"]
        return None

    def check(self, value: Any) -> Any:
        if value is None:
            return None
        try:
            return self.accept(value)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise _unlike(self.ddl, value, str(error)) from None

    def avro(self, name: str) -> Any:
        return ["null", self.schema]

    def to_avro(self, value: Any) -> Any:
        return value

    def from_avro(self, value: Any) -> Any:
        return self.check(value)

    def to_arrow(self) -> pa.DataType:
        import pyarrow as pa  # noqa: PLC0415  only output needs it

        match self.ddl:
            case "timestamp":
                return pa.timestamp("us", tz="UTC")
            case "timestamp_ntz":
                return pa.timestamp("us")
            case name if name in _ARROW:
                return pa.type_for_alias(_ARROW[name])
        return pa.decimal128(self.schema["precision"], self.schema["scale"])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scalar) and self.ddl == other.ddl

    def __hash__(self) -> int:
        return hash(self.ddl)

    def __reduce__(self) -> tuple[object, ...]:
        if self.ddl in SCALARS:
            return scalar, (self.ddl,)
        return decimal, (self.schema["precision"], self.schema["scale"])


@dataclass(frozen=True)
class Array(Type):
    """Items of one type."""

    item: Type

    @property
    def ddl(self) -> str:
        return f"array<{self.item.ddl}>"

    def check(self, value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, list | tuple):
            raise _unlike(self.ddl, value)
        return [_checked(self.item, each, f"item {n}") for n, each in enumerate(value)]

    def avro(self, name: str) -> Any:
        return ["null", {"type": "array", "items": self.item.avro(f"{name}.item")}]

    def to_avro(self, value: Any) -> Any:
        return None if value is None else [self.item.to_avro(each) for each in value]

    def from_avro(self, value: Any) -> Any:
        return None if value is None else [self.item.from_avro(each) for each in value]

    def to_arrow(self) -> pa.DataType:
        import pyarrow as pa  # noqa: PLC0415

        return pa.list_(self.item.to_arrow())


@dataclass(frozen=True)
class MapOf(Type):
    """Values by key, in the order of the keys. Keys are not null, nor NaN."""

    key: Scalar
    value: Type

    @property
    def ddl(self) -> str:
        return f"map<{self.key.ddl},{self.value.ddl}>"

    def check(self, value: Any) -> Any:
        """Take a dict, or pairs as Arrow gives them."""
        if value is None:
            return None
        entries = list(value.items()) if isinstance(value, Mapping) else value
        if not isinstance(entries, list) or not all(
            isinstance(each, tuple) and len(each) == 2 for each in entries
        ):
            raise _unlike(self.ddl, value)
        checked: dict[Any, Any] = {}
        for given, item in entries:
            key = _checked(self.key, given, "key")
            if key is None or key != key:  # noqa: PLR0124  NaN
                raise ValueError(f"expected {self.ddl}, found the key {given}")
            if key in checked:
                raise ValueError(f"expected {self.ddl}, found the key {_shown(key)} twice")
            checked[key] = _checked(self.value, item, f"value of {_shown(given)}")
        return {key: checked[key] for key in sorted(checked)}

    def avro(self, name: str) -> Any:
        """An array of entries: Avro's own maps have text for keys."""
        fields = [
            {"name": "key", "type": self.key.avro(f"{name}.key")},
            {"name": "value", "type": self.value.avro(f"{name}.value")},
        ]
        entry = {"type": "record", "name": f"{name}.entry", "fields": fields}
        return ["null", {"type": "array", "items": entry}]

    def to_avro(self, value: Any) -> Any:
        if value is None:
            return None
        to_avro = self.value.to_avro
        return [{"key": key, "value": to_avro(value[key])} for key in sorted(value)]

    def from_avro(self, value: Any) -> Any:
        if value is None:
            return None
        key, item = self.key.from_avro, self.value.from_avro
        return {key(each["key"]): item(each["value"]) for each in value}

    def to_arrow(self) -> pa.DataType:
        import pyarrow as pa  # noqa: PLC0415

        return pa.map_(self.key.to_arrow(), self.value.to_arrow())


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
        """Make a row, a named tuple, from values in order; `_1` is a column without such a name."""
        return namedtuple("Row", self.names, rename=True)

    @cached_property
    def by_name(self) -> Mapping[str, Type]:
        """The type of each column."""
        return dict(zip(self.names, self.types, strict=True))

    @property
    def columns_ddl(self) -> str:
        """The columns as a list, as a table declares them."""
        return ", ".join(self._declarations(" "))

    @property
    def ddl(self) -> str:
        return f"struct<{','.join(self._declarations(':'))}>"

    def _declarations(self, separator: str) -> Sequence[str]:
        return [
            f"{_quoted(name)}{separator}{kind.ddl}{' not null' * (name in self.required)}"
            for name, kind in zip(self.names, self.types, strict=True)
        ]

    @cached_property
    def _checks(self) -> Sequence[Callable[[Any], Any]]:
        return [each.accept if isinstance(each, Scalar) else each.check for each in self.types]

    def check(self, value: Any) -> Any:
        """Take values by name (a mapping or named tuple) or in order; all must be there."""
        if value is None:
            return None
        values = self._in_order(value)
        try:
            checked = [
                None if each is None else check(each)
                for check, each in zip(self._checks, values, strict=True)
            ]
        except (TypeError, ValueError, ArithmeticError):
            # Again, slowly, to find which.
            for name, kind, each in zip(self.names, self.types, values, strict=True):
                _checked(kind, each, name)
            raise
        if self.required:
            for name, each in zip(self.names, checked, strict=True):
                if each is None and name in self.required:
                    raise ValueError(f"{name}: expected a value, found null")
        return self.row._make(checked)  # type: ignore[attr-defined]

    def _in_order(self, value: Any) -> Sequence[Any]:
        if type(value) is dict and value.keys() == self._known:
            return self._values(value) if len(self.names) > 1 else [*value.values()]
        if isinstance(value, tuple):
            # A row of PySpark has `__fields__`; `_fields` of our own may be renamed.
            names = getattr(value, "__fields__", getattr(value, "_fields", self.names))
            if names != self._row_names and tuple(names) != self.names:
                value = dict(zip(names, value, strict=True))
        if isinstance(value, Mapping):
            if len(value) != len(self.names) or not self._known.issuperset(value):
                missing = [name for name in self.names if name not in value]
                unknown = [str(name) for name in value if name not in self._known]
                found = [f"{', '.join(missing)} missing"] * bool(missing)
                found += [f"{', '.join(unknown)} unknown"] * bool(unknown)
                raise ValueError(f"expected {', '.join(self.names)}; found {' and '.join(found)}")
            return [value[name] for name in self.names]
        if not isinstance(value, tuple | list):
            raise _unlike("values by name or in order", value)
        if len(value) != len(self.names):
            expected = f"{len(self.names)} values ({', '.join(self.names)})"
            raise ValueError(f"expected {expected}, found {len(value)}")
        return value

    @cached_property
    def _values(self) -> Callable[[Mapping[str, Any]], Sequence[Any]]:
        """Takes the values of several columns from a mapping, in order."""
        return itemgetter(*self.names)

    @cached_property
    def _row_names(self) -> tuple[str, ...]:
        return self.row._fields  # type: ignore[attr-defined,no-any-return]

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.names)

    @cached_property
    def _avro_names(self) -> Sequence[str]:
        """Avro allows fewer names; hex keeps the others apart, and the same in every version."""
        return [
            name if _is_plain(name) and not name.startswith("_x") else f"_x{name.encode().hex()}"
            for name in self.names
        ]

    def avro(self, name: str) -> Any:
        """A record with a field for each column."""
        fields = [
            {"name": field, "type": kind.avro(f"{name}.{field}")}
            for field, kind in zip(self._avro_names, self.types, strict=True)
        ]
        return ["null", {"type": "record", "name": name, "fields": fields}]

    def to_avro(self, value: Any) -> Any:
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

    def to_arrow(self) -> pa.DataType:
        import pyarrow as pa  # noqa: PLC0415

        return pa.struct(
            [
                pa.field(name, kind.to_arrow(), nullable=name not in self.required)
                for name, kind in zip(self.names, self.types, strict=True)
            ]
        )

    def __reduce__(self) -> tuple[object, ...]:
        # The class of its rows does not survive pickling.
        return Columns, (self.names, self.types, self.required)


NO_COLUMNS = Columns((), ())


SCALARS: Mapping[str, Scalar] = {
    each.ddl: each
    for each in (
        Scalar("boolean", "boolean", scalars.boolean),
        Scalar("tinyint", "int", scalars.integer(8)),
        Scalar("smallint", "int", scalars.integer(16)),
        Scalar("int", "int", scalars.integer(32)),
        Scalar("bigint", "long", scalars.integer(64)),
        Scalar("float", "float", scalars.float32),
        Scalar("double", "double", scalars.double),
        Scalar("string", "string", scalars.string),
        Scalar("binary", "bytes", scalars.binary),
        Scalar("date", {"type": "int", "logicalType": "date"}, scalars.day),
        Scalar("timestamp", {"type": "long", "logicalType": "timestamp-micros"}, scalars.moment),
        Scalar(
            "timestamp_ntz",
            {"type": "long", "logicalType": "local-timestamp-micros"},
            scalars.wall_time,
        ),
    )
}
_ARROW = {
    "boolean": "bool",
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "float": "float32",
    "double": "float64",
    "string": "string",
    "binary": "binary",
    "date": "date32",
}


def scalar(name: str) -> Scalar:
    """The type of this name, one of `SCALARS`."""
    return SCALARS[name]


def decimal(precision: int, scale: int) -> Scalar:
    """The type of decimals of this many digits in all, and this many after the point."""
    schema = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    return Scalar(f"decimal({precision},{scale})", schema, scalars.decimal(precision, scale))


def _unlike(expected: str, value: object, why: str = "") -> ValueError:
    text = f"expected {expected}, found {type(value).__name__} {_shown(value)}"
    return ValueError(f"{text} ({why})" if why else text)


def _checked(kind: Type, value: Any, where: str) -> Any:
    try:
        return kind.check(value)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  a user's class, or an integer of more digits than Python shows
        return "that cannot be shown"
    return text if len(text) <= 60 else f"{text[:60]}..."


def _is_plain(name: str) -> bool:
    return name.isidentifier() and name.isascii()


def _quoted(name: str) -> str:
    return name if _is_plain(name) else f"`{name.replace('`', '``')}`"
