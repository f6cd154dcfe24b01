"""The small languages inside a pipeline file: durations, sizes, names, instants.

Each type knows how it is written in the file, and keeps a plain Python value whose unit is in the
name of the field that holds it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    JsonValue,
    PlainValidator,
    StringConstraints,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from onceflow.columns import parse_columns
from onceflow.contracts.topic_pattern import topic_pattern
from onceflow.errors import ConfigError
from onceflow.protocol.identity import check_pipeline_name, is_internal_topic

FAULT_TYPE = "onceflow"
"""Type of every validation error that is worded here; the loader takes it as it is."""

_DURATION = re.compile(r"(\d{1,15})\s*([a-z]+)")
"""More digits would not fit into the 64 bits that Spark has for it."""
_MS_PER_UNIT: Mapping[str, int] = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "second", "seconds"), 1000),
    **dict.fromkeys(("min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}
_DURATION_PATTERN = r"^\d{1,15}\s*(ms|milliseconds?|s|seconds?|min|minutes?|h|hours?|d|days?)$"

MAX_DURATION_MS = 36_500 * 86_400_000
"""A century: more than any event time is late, and far from where sums of times overflow."""
MIN_IDLE_MS = 1_000
"""A shorter silence cannot be distinguished from the time between two batches."""

_SIZE = re.compile(r"(\d{1,15})\s*([KMG]i?B|B)")
_BYTES_PER_UNIT: Mapping[str, int] = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}

_TOPIC_PATTERN = r"^(?!onceflow\.|__)[a-zA-Z0-9._-]{1,249}$"
_VIEW_PATTERN = r"^[a-z][a-z0-9_]{0,62}$"
_TRANSFORM_PATTERN = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"
_REMOTE_SCHEMES = ("s3a", "hdfs", "abfs", "abfss", "gs")


def fault(what: str, *, expected: str = "", suggestion: str = "") -> PydanticCustomError:
    """A validation error in our own words; `what` never repeats a value, which may be a secret."""
    # Braces would be taken for placeholders.
    text = what.replace("{", "(").replace("}", ")")
    return PydanticCustomError(FAULT_TYPE, text, {"expected": expected, "suggestion": suggestion})


def parse_duration_ms(value: object) -> int:
    """Milliseconds of a duration such as `500 ms`, `10 seconds` or `1 minute`."""
    found = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None or found[2] not in _MS_PER_UNIT:
        raise fault("not a duration", expected="a number and its unit, such as `10 seconds`")
    duration_ms = int(found[1]) * _MS_PER_UNIT[found[2]]
    if duration_ms > MAX_DURATION_MS:
        raise fault("too long", expected=f"at most {duration_text(MAX_DURATION_MS)}")
    return duration_ms


def duration_text(duration_ms: int) -> str:
    """A duration in the largest unit that gives a whole number, as the file could have it."""
    for unit in ("d", "h", "min", "s"):
        count, rest_ms = divmod(duration_ms, _MS_PER_UNIT[unit])
        if count and not rest_ms:
            return f"{count} {unit}"
    return f"{duration_ms} ms"


def without_default(schema: dict[str, JsonValue]) -> None:
    """Leave a default out of a schema that the file would write in another way."""
    del schema["default"]


def _checked_idle(duration_ms: int) -> int:
    if duration_ms < MIN_IDLE_MS:
        raise fault("too short", expected=f"at least {duration_text(MIN_IDLE_MS)}")
    return duration_ms


def parse_size_bytes(value: object) -> int:
    """Bytes of a size such as `256 MiB`; a bare number is bytes."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise fault("not a size", expected="a number and its unit, such as `256 MiB`")
    return int(found[1]) * _BYTES_PER_UNIT[found[2]]


def _matching(pattern: str, what: str, expected: str) -> AfterValidator:
    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise fault(what, expected=expected)
        return text

    return AfterValidator(check)


def _checked_pipeline_name(name: str) -> str:
    try:
        return check_pipeline_name(name)
    except ConfigError as error:
        raise fault(error.what, expected=error.expected) from error


def _checked_topic(name: str) -> str:
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", name) or name in {".", ".."}:
        raise fault("not a topic name", expected="1 to 249 of [a-zA-Z0-9._-]")
    if is_internal_topic(name):
        raise fault(
            "topics that begin with `onceflow.` or `__` are internal",
            suggestion="Name another topic.",
        )
    return name


def _checked_pattern(text: str) -> str:
    try:
        topic_pattern(text)
    except ConfigError as error:
        found = f": {error.found}" if error.found else ""
        raise fault(f"{error.what}{found}", expected=error.expected) from error
    return text


def _checked_location(text: str) -> str:
    scheme, separator, rest = text.partition("://")
    if not separator:
        if not text.strip():
            raise fault("no location", expected="a directory, or a URL")
        return text
    if scheme not in _REMOTE_SCHEMES or not rest:
        raise fault(
            f"unknown storage {scheme}://",
            expected="a directory, or " + ", ".join(f"{s}://" for s in _REMOTE_SCHEMES),
            suggestion="Did you mean `s3a://`?" if scheme == "s3" else "",
        )
    return text


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Starting: TypeAlias = Literal["earliest", "latest"] | datetime
"""Where a pipeline begins that has never run: an end of the topic, or an instant."""


def _parse_starting(value: object) -> Starting:
    if value == "earliest":
        return "earliest"
    if value == "latest":
        return "latest"
    if isinstance(value, Mapping) and set(value) == {"timestamp"}:
        return _parse_instant(value["timestamp"])
    raise fault(
        "not a starting point",
        expected="`earliest`, `latest`, or {timestamp: 2026-11-01T00:00:00Z}",
    )


def _parse_instant(value: object) -> datetime:
    expected = "a date, a time and a zone, such as 2026-11-01T00:00:00Z"
    try:
        instant = datetime.fromisoformat(str(value))
        # Near the ends of the calendar there is none in another zone.
        instant.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise fault("not an instant", expected=expected) from error
    if instant.tzinfo is None:
        raise fault("an instant without a time zone", expected=expected)
    return instant


def instant_ms(instant: datetime) -> int:
    """Unix milliseconds, rounded up: a record of the same millisecond is older than the instant."""
    return -(-(instant - _EPOCH) // timedelta(milliseconds=1))


def not_yet(*refused: str) -> BeforeValidator:
    """Refuse values that are designed but not built, by name."""

    def check(value: object) -> object:
        if value in refused:
            raise fault(f"`{value}` is not yet supported by this version")
        return value

    return BeforeValidator(check)


def _schema(**keywords: Any) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", **keywords})


DurationMs = Annotated[int, BeforeValidator(parse_duration_ms), _schema(pattern=_DURATION_PATTERN)]
IdleMs = Annotated[DurationMs, AfterValidator(_checked_idle)]
ColumnNames = Annotated[
    tuple[Annotated[str, StringConstraints(min_length=1)], ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
    WithJsonSchema(
        {
            "oneOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
            ]
        }
    ),
]
"""One column, or a list of them."""
SizeBytes = Annotated[int, BeforeValidator(parse_size_bytes)]
PipelineName = Annotated[
    str,
    AfterValidator(_checked_pipeline_name),
    _schema(pattern="^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"),
]
ViewName = Annotated[
    str,
    _matching(
        _VIEW_PATTERN,
        "not a view name",
        "1 to 63 of [a-z0-9_], beginning with a letter, as SQL would write it",
    ),
    _schema(pattern=_VIEW_PATTERN),
]
ParameterName = Annotated[
    str,
    _matching(
        _VIEW_PATTERN,
        "not the name of a parameter",
        "1 to 63 of [a-z0-9_], beginning with a letter",
    ),
    _schema(pattern=_VIEW_PATTERN),
]
TopicName = Annotated[str, AfterValidator(_checked_topic), _schema(pattern=_TOPIC_PATTERN)]
TopicPattern = Annotated[str, AfterValidator(_checked_pattern), _schema(format="regex")]
TransformName = Annotated[
    str,
    _matching(_TRANSFORM_PATTERN, "not the name of a function", "module:function"),
    _schema(pattern=_TRANSFORM_PATTERN),
]
Location = Annotated[str, AfterValidator(_checked_location)]
Instant = Annotated[datetime, BeforeValidator(_parse_instant), _schema(format="date-time")]
StartingPoint = Annotated[
    Starting,
    PlainValidator(_parse_starting),
    WithJsonSchema(
        {
            "oneOf": [
                {"enum": ["earliest", "latest"]},
                {
                    "type": "object",
                    "properties": {"timestamp": {"type": "string", "format": "date-time"}},
                    "required": ["timestamp"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]


def _checked_columns(value: object) -> object:
    """Accept columns as Spark DDL, and anything that is not text."""
    if isinstance(value, str):
        try:
            parse_columns(value)
        except ConfigError as error:
            found = error.faults[0]
            raise fault(found.what, expected=found.expected, suggestion=found.suggestion) from error
    return value


ColumnsDdl: TypeAlias = Annotated[str, BeforeValidator(_checked_columns)]
"""Columns and their types, as Spark DDL."""
