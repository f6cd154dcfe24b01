"""Declared state of a processor: what a class says that it keeps, and one key's values of it."""

from __future__ import annotations

import builtins
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from pydantic_core import PydanticCustomError

from onceflow.columns import Columns, Type, parse_type
from onceflow.contracts.values import parse_duration_ms

if TYPE_CHECKING:
    from onceflow.processing.processor import Processor

LiveT = TypeVar("LiveT", bound="Live")
Clock = Callable[[], datetime]
"""Event time in hand."""


def duration(name: str, text: object) -> timedelta:
    """A duration such as `10 minutes`.

    Raises:
        ValueError: it is none; begins with the name.
    """
    try:
        return timedelta(milliseconds=parse_duration_ms(text))
    except PydanticCustomError as error:
        expected = (error.context or {}).get("expected", "")
        raise ValueError(f"{name} is {error.message()}; expected {expected}") from error


class Live(ABC):
    """One key's values of one declared state, while the key is handled.

    Attributes:
        nothing: what is stored if there is no value.
    """

    nothing: object = None

    def __init__(self, clock: Clock, ttl: timedelta | None) -> None:
        self._clock = clock
        self._ttl = ttl

    def _expiry(self) -> datetime | None:
        return None if self._ttl is None else self._clock() + self._ttl

    def _is_alive(self, expires: datetime | None) -> bool:
        return expires is None or expires > self._clock()

    @abstractmethod
    def expiries(self) -> Iterator[datetime]:
        """When values end."""

    @abstractmethod
    def clear(self) -> None:
        """Forget everything."""

    @abstractmethod
    def stored(self) -> object:
        """Values to keep, each with its end if there is a time to live."""


class State(ABC, Generic[LiveT]):
    """A declaration: an attribute of a processor's class.

    On an instance, the attribute is the value of the key in hand. It cannot be assigned.
    """

    def __init__(self, type: str, ttl: str | None = None) -> None:  # noqa: A002
        self._type = type
        self._ttl = ttl
        self.name = ""

    @cached_property
    def type(self) -> Type:
        """As declared.

        Raises:
            ConfigError: it is not a type that can be stored.
        """
        return parse_type(self._type)

    @cached_property
    def ttl(self) -> timedelta | None:
        """As declared.

        Raises:
            ValueError: it is not a duration.
        """
        return None if self._ttl is None else duration("ttl", self._ttl)

    def check(self) -> None:
        """Look at everything that the declaration says.

        Raises:
            ConfigError, ValueError: it cannot be used so.
        """
        _ = self.ttl, self.type

    def __set_name__(self, owner: Any, name: str) -> None:
        self.name = name

    def of(self, kind: builtins.type[Processor]) -> State[LiveT]:
        """The declaration as a class has it, which may be a subclass of the one that declares."""
        return self

    @overload
    def __get__(self, instance: None, owner: Any) -> Self: ...
    @overload
    def __get__(self, instance: Processor, owner: Any) -> LiveT: ...
    def __get__(self, instance: Processor | None, owner: Any) -> Self | LiveT:
        if instance is None:
            return self
        live: LiveT = instance.live[self.name]  # type: ignore[assignment]
        return live

    def __set__(self, instance: Processor, value: object) -> None:
        text = f"{type(instance).__name__}.{self.name} is state: change it with its methods"
        raise AttributeError(f"{text}, such as `self.{self.name}.{self.verb}`")

    verb: str
    """Of an error: how it is changed."""

    @abstractmethod
    def avro(self, namespace: str) -> Any:
        """Avro schema of what is stored. Names of records begin with the namespace."""

    def types(self) -> Mapping[str, Type]:
        """Types of its parts, by name."""
        return {"type": self.type}

    def declared(self) -> Mapping[str, Any]:
        """The declaration as JSON, for a comparison with another."""
        ends = {} if self.ttl is None else {"ttl_ms": self.ttl // timedelta(milliseconds=1)}
        types = {name: each.ddl for name, each in self.types().items()}
        return {"kind": type(self).__name__.lower(), **types, **ends}

    @abstractmethod
    def live(self, stored: Any, clock: Clock) -> LiveT:
        """Values of a key; None for a key that is new or a state that was added."""

    @abstractmethod
    def view(self, stored: Any, now: datetime) -> Any:
        """State as plain Python values."""

    def _with_end(self, schema: Any, name: str) -> Any:
        """Schema of a value that may have a time to live."""
        if self.ttl is None:
            return schema
        end = {"name": "expires", "type": TIME}
        return {"type": "record", "name": name, "fields": [{"name": "value", "type": schema}, end]}


TIME = {"type": "long", "logicalType": "timestamp-micros"}


class LiveValue(Live):
    """A value, or none."""

    def __init__(self, declared: Value, stored: Any, clock: Clock) -> None:
        super().__init__(clock, declared.ttl)
        self._declared = declared
        if stored is None:
            self._value, self._expires = None, None
        elif declared.ttl is None:
            self._value, self._expires = declared.type.from_avro(stored), None
        else:
            self._value = declared.type.from_avro(stored["value"])
            self._expires = stored["expires"]

    def get(self, default: Any = None) -> Any:
        """The value; `default`, or that of the declaration, if it is not set or has expired."""
        if self._value is not None and self._is_alive(self._expires):
            return self._value
        return self._declared.default if default is None else default

    def set(self, *value: Any, **fields: Any) -> None:
        """Replace the value. Its time to live begins again.

        Args:
            value: one; None clears it.
            fields: instead, of a struct: each field by name.

        Raises:
            ValueError: it is not of the declared type.
        """
        (new,) = value or (fields,)
        self._value = self._declared.type.check(new)
        self._expires = self._expiry()

    def clear(self) -> None:
        """Forget the value."""
        self._value = None

    def expiries(self) -> Iterator[datetime]:
        """When it ends."""
        if self._value is not None and self._expires is not None:
            yield self._expires

    def stored(self) -> object:
        """The value as it is kept."""
        if self._value is None or not self._is_alive(self._expires):
            return None
        value = self._declared.type.to_avro(self._value)
        return value if self._expires is None else {"value": value, "expires": self._expires}


class Value(State[LiveValue]):
    """One value for each key.

    Args:
        type: of Spark SQL: `bigint`, or the fields of a struct, such as `n bigint, sum double`.
        default: what `get` answers before the first `set`.
        ttl: time to live since the last `set`, in event time, such as `1 hour`.
    """

    verb = "set(...)"

    def __init__(self, type: str, default: Any = None, ttl: str | None = None) -> None:  # noqa: A002
        super().__init__(type, ttl)
        self._default = default

    @cached_property
    def default(self) -> Any:
        """As declared.

        Raises:
            ValueError: it is not of the declared type.
        """
        return None if self._default is None else self.type.check(self._default)

    def check(self) -> None:
        """Look at the default as well."""
        super().check()
        _ = self.default

    def avro(self, namespace: str) -> Any:
        """A union with null."""
        return ["null", self._with_end(self.type.avro(f"{namespace}_value"), namespace)]

    def live(self, stored: Any, clock: Clock) -> LiveValue:
        """The value of a key."""
        return LiveValue(self, stored, clock)

    def view(self, stored: Any, now: datetime) -> Any:
        """The value."""
        return self.live(stored, lambda: now).get()


class LiveList(Live):
    """Items in the order in which they were appended."""

    nothing: object = []

    def __init__(self, declared: List, stored: Any, clock: Clock) -> None:
        super().__init__(clock, declared.ttl)
        self._type = declared.type
        self._items: list[tuple[Any, datetime | None]] = [
            (self._type.from_avro(each), None)
            if declared.ttl is None
            else (self._type.from_avro(each["value"]), each["expires"])
            for each in stored or ()
        ]

    def append(self, item: Any) -> None:
        """Add an item at the end.

        Raises:
            ValueError: it is not of the declared type.
        """
        self._items.append((self._type.check(item), self._expiry()))

    def extend(self, items: Iterable[Any]) -> None:
        """Add items at the end."""
        for item in items:
            self.append(item)

    def replace(self, items: Iterable[Any]) -> None:
        """Keep these items only. Their time to live begins again."""
        new = [(self._type.check(item), self._expiry()) for item in items]
        self._items = new

    def drop_first(self, count: int = 1) -> None:
        """Forget the oldest items."""
        self._forget()
        del self._items[:count]

    def clear(self) -> None:
        """Forget all items."""
        self._items = []

    def __iter__(self) -> Iterator[Any]:
        return iter([item for item, expires in self._items if self._is_alive(expires)])

    def __len__(self) -> int:
        return sum(self._is_alive(expires) for _, expires in self._items)

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Any]: ...
    def __getitem__(self, place: int | slice) -> Any:
        return list(self)[place]

    def expiries(self) -> Iterator[datetime]:
        """When items end."""
        return (expires for _, expires in self._items if expires is not None)

    def stored(self) -> object:
        """The items as they are kept."""
        self._forget()
        to_avro = self._type.to_avro
        return [
            to_avro(item) if expires is None else {"value": to_avro(item), "expires": expires}
            for item, expires in self._items
        ]

    def _forget(self) -> None:
        if self._ttl is not None:
            self._items = [each for each in self._items if self._is_alive(each[1])]


class List(State[LiveList]):
    """A list for each key.

    Args:
        type: of an item, as for `Value`.
        ttl: time to live of each item since it was added, in event time.
    """

    verb = "append(...)"

    def avro(self, namespace: str) -> Any:
        """An array."""
        items = self._with_end(self.type.avro(f"{namespace}_value"), namespace)
        return {"type": "array", "items": items}

    def live(self, stored: Any, clock: Clock) -> LiveList:
        """The list of a key."""
        return LiveList(self, stored, clock)

    def view(self, stored: Any, now: datetime) -> Any:
        """A list."""
        return list(self.live(stored, lambda: now))


class LiveMap(Live, MutableMapping[Any, Any]):
    """Entries by key. Iterated in the order of their keys, which is the same at every replay."""

    nothing: object = []

    def __init__(self, declared: Map, stored: Any, clock: Clock) -> None:
        super().__init__(clock, declared.ttl)
        self._declared = declared
        self._entries: dict[Any, tuple[Any, datetime | None]] = {
            declared.key_type.from_avro(each["key"]): (
                declared.type.from_avro(each["value"]),
                each.get("expires"),
            )
            for each in stored or ()
        }

    def __getitem__(self, key: Any) -> Any:
        value, end = self._entries[self._declared.key_type.check(key)]
        if not self._is_alive(end):
            raise KeyError(key)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        checked = self._declared.key_type.check(key)
        if checked is None:
            raise ValueError(f"{self._declared.name}: the key of an entry is null")
        self._entries[checked] = (self._declared.type.check(value), self._expiry())

    def __delitem__(self, key: Any) -> None:
        if key not in self:
            raise KeyError(key)
        del self._entries[self._declared.key_type.check(key)]

    def __len__(self) -> int:
        return sum(self._is_alive(expires) for _, expires in self._entries.values())

    def __iter__(self) -> Iterator[Any]:
        return iter(sorted(key for key, (_, end) in self._entries.items() if self._is_alive(end)))

    def clear(self) -> None:
        """Forget all entries."""
        self._entries = {}

    def expiries(self) -> Iterator[datetime]:
        """When entries end."""
        return (end for _, end in self._entries.values() if end is not None)

    def stored(self) -> object:
        """The entries as they are kept."""
        declared = self._declared
        found: list[Mapping[str, object]] = []
        for key in self:
            value, end = self._entries[key]
            entry = {"key": declared.key_type.to_avro(key), "value": declared.type.to_avro(value)}
            found.append(entry if end is None else {**entry, "expires": end})
        return found


class Map(State[LiveMap]):
    """A map for each key.

    Args:
        key: type of the keys of entries: a scalar, or fields of a struct of scalars.
        type: of the values, as for `Value`.
        ttl: time to live of each entry since it was last set, in event time.
    """

    verb = "__setitem__(...)"

    def __init__(self, key: str, type: str, ttl: str | None = None) -> None:  # noqa: A002
        super().__init__(type, ttl)
        self._key = key

    @cached_property
    def key_type(self) -> Type:
        """Type of the keys of entries.

        Raises:
            ConfigError: it is not a type that can be stored.
        """
        key = parse_type(self._key)
        # With one column, as in `shop string`, the name is for readers.
        return key.types[0] if isinstance(key, Columns) and len(key.types) == 1 else key

    def check(self) -> None:
        """Look at the type of the keys as well."""
        super().check()
        _ = self.key_type

    def types(self) -> Mapping[str, Type]:
        """Types of keys and values."""
        return {"key": self.key_type, **super().types()}

    def avro(self, namespace: str) -> Any:
        """An array of entries: Avro's own maps have text for keys."""
        fields = [
            {"name": "key", "type": self.key_type.avro(f"{namespace}_key")},
            {"name": "value", "type": self.type.avro(f"{namespace}_value")},
        ]
        if self.ttl is not None:
            fields.append({"name": "expires", "type": TIME})
        entry = {"type": "record", "name": namespace, "fields": fields}
        return {"type": "array", "items": entry}

    def live(self, stored: Any, clock: Clock) -> LiveMap:
        """The map of a key."""
        return LiveMap(self, stored, clock)

    def view(self, stored: Any, now: datetime) -> Any:
        """A dict, in the order of its keys."""
        return dict(self.live(stored, lambda: now).items())
