"""Parameters: values that queries and processors read by name, and that change between batches.

A value is kept as text, as SQL would cast it: in the plan of a batch, and so in the offset log and
in `head`. Names that nothing has set are left out there; they have their default.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import Any

from onceflow.columns import Scalar, parse_type
from onceflow.errors import ConfigError

MAX_VALUE_BYTES = 4096
"""Of a value on the topic. All of them are in each entry of the ledger."""
MAX_PARAMETERS = 50
LOCAL_PROPERTY = "onceflow.parameters"
"""Of Spark's tasks: the values of their batch, as JSON."""

_READERS: Mapping[str, Callable[[str], Any]] = {
    "boolean": {"true": True, "false": False}.__getitem__,
    "tinyint": int,
    "smallint": int,
    "int": int,
    "bigint": int,
    "float": float,
    "double": float,
    "decimal": Decimal,
    "string": str,
    "date": date.fromisoformat,
    "timestamp": datetime.fromisoformat,
}
"""Types that a parameter may have, and what makes their values of text."""
_NUMBERS = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double", "decimal"})


@dataclass(frozen=True)
class Parameter:
    """A declared parameter.

    Args:
        type: in Spark SQL.
        default: JSON.

    Raises:
        ConfigError: no parameter can have this type.
    """

    type: str
    default: str

    @cached_property
    def _scalar(self) -> Scalar:
        found = parse_type(self.type)
        if not isinstance(found, Scalar) or _family(found) not in _READERS:
            raise ConfigError("no parameter can have this type", expected=", ".join(_READERS))
        return found

    @property
    def ddl(self) -> str:
        """The type, as Spark writes it."""
        return self._scalar.ddl

    @cached_property
    def default_text(self) -> str:
        """The default as it is kept.

        Raises:
            ValueError: it is not of the type.
        """
        return self.text(self.default.encode())

    def text(self, content: bytes) -> str:
        """A value on the topic as it is kept.

        Args:
            content: JSON; text for a date or a time, and for a number that doubles do not have.

        Raises:
            ValueError: it is not JSON, not of the type, or too large.
        """
        if len(content) > MAX_VALUE_BYTES:
            raise ValueError(f"expected at most {MAX_VALUE_BYTES} bytes, found {len(content)}")
        try:
            found = json.loads(content, parse_float=Decimal, parse_constant=_no_number)
        except (ValueError, RecursionError):
            raise ValueError(
                f"expected JSON of {self.ddl}, found {_shown(content.decode(errors='replace'))}"
            ) from None
        return _text(self.value(self._plain(found)))

    def value(self, text: str) -> Any:
        """The value of a text, as processors see it.

        Raises:
            ValueError: it is not of the type.
        """
        try:
            found = _READERS[_family(self._scalar)](text)
        except (ValueError, KeyError, InvalidOperation):
            raise ValueError(f"expected {self.ddl}, found {_shown(text)}") from None
        return self._scalar.check(found)

    def _plain(self, found: object) -> str:
        family = _family(self._scalar)
        if isinstance(found, str) and family not in _NUMBERS - {"decimal"} and family != "boolean":
            return found
        if isinstance(found, bool) and family == "boolean":
            return _text(found)
        if isinstance(found, int | Decimal) and not isinstance(found, bool) and family in _NUMBERS:
            return str(found)
        shown = "null" if found is None else _shown(json.dumps(found, default=str))
        raise ValueError(f"expected {self.ddl}, found {shown}")


@dataclass(frozen=True)
class Parameters:
    """The parameters that a pipeline declares, by name."""

    declared: Mapping[str, Parameter]

    def values(self, kept: Mapping[str, str]) -> Mapping[str, Any]:
        """Every value as of a batch, for processors."""
        return {name: self.declared[name].value(text) for name, text in self.texts(kept).items()}

    def texts(self, kept: Mapping[str, str]) -> Mapping[str, str]:
        """The same as text."""
        defaults = {name: each.default_text for name, each in self.declared.items()}
        return {**defaults, **self._fitting(kept)}

    def _fitting(self, kept: Mapping[str, str]) -> dict[str, str]:
        """Keep what is still declared and fits the type that it has now."""
        found = {}
        for name in kept.keys() & self.declared.keys():
            with suppress(ValueError):
                found[name] = _text(self.declared[name].value(kept[name]))
        return found

    def fold(
        self, kept: Mapping[str, str], records: Iterable[tuple[bytes | None, bytes | None]]
    ) -> tuple[dict[str, str], list[str]]:
        """Apply records of the topic, in order, to what is kept.

        Other keys belong to other pipelines. A value that cannot be used changes nothing. What is
        kept under a changed declaration, and does not fit it, is as if it had never been set.

        Returns:
            What is kept now, and what is wrong with each record that was not used.
        """
        found, refused = self._fitting(kept), []
        for key, value in records:
            name = (key or b"").decode(errors="replace")
            if name not in self.declared:
                continue
            if value is None:
                found.pop(name, None)
                continue
            try:
                found[name] = self.declared[name].text(value)
            except ValueError as error:
                refused.append(f"parameter {name}: {error}")
        return found, refused


NONE = Parameters({})


def carrier_of(sources: Iterable[str]) -> str:
    """The source whose offsets hold the values of parameters, of all sources of a pipeline."""
    return min(sources)


def _family(kind: Scalar) -> str:
    return kind.name.partition("(")[0]


def _text(value: Any) -> str:
    """As SQL casts it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal):
        return f"{value:f}"
    return value.isoformat() if isinstance(value, date) else str(value)


def _no_number(text: str) -> Any:
    raise ValueError(text)


def _shown(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}..."
