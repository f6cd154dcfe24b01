"""Whether the state of a class can go on under a changed class, and what becomes of each part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from onceflow.columns import Array, Columns, MapOf, Scalar, Type, parse_type

_WHOLE_DIGITS: Mapping[str, int] = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_WIDER: Mapping[str, tuple[str, ...]] = {
    "tinyint": ("smallint", "int", "bigint", "float", "double"),
    "smallint": ("int", "bigint", "float", "double"),
    "int": ("bigint", "double"),
    "float": ("double",),
}
"""Type -> types that have all of its values."""


@dataclass(frozen=True)
class Evolution:
    """A comparison of declared state, before and after a change.

    Args:
        kept: state that goes on, with what happens to it: "total: int becomes bigint".
        added: state that begins empty.
        dropped: state whose values are lost.
        refused: why state cannot go on. Then nothing goes on.
    """

    kept: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        parts = vars(self).items()
        return "; ".join(f"{name}: {', '.join(each)}" for name, each in parts if each)


def compare_state(before: Mapping[str, Any], after: Mapping[str, Any]) -> Evolution:
    """Compare what `Runner.declared` was with what it is."""
    found = Evolution()
    for name in sorted({*before, *after}):
        if name not in after:
            found.dropped.append(name)
        elif name not in before:
            found.added.append(name)
        elif faults := [*_faults(before[name], after[name])]:
            found.refused.append(f"{name}: {', '.join(faults)}")
        else:
            found.kept.append(": ".join([name, *_changes(before[name], after[name])]))
    if "_waiting" in found.dropped:
        found.dropped.remove("_waiting")
        found.refused.append("records wait for the event watermark, and would be lost")
    return found


def _faults(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    if before["kind"] != after["kind"]:
        yield f"a {before['kind']} cannot become a {after['kind']}"
        return
    if ("ttl_ms" in before) != ("ttl_ms" in after):
        yield f"a time to live cannot be {'removed' if 'ttl_ms' in before else 'added'}"
    for part in ("key", "type"):
        if part in before and not widens(parse_type(before[part]), parse_type(after[part])):
            yield f"{before[part]} cannot become {after[part]}"
    if before.get("key") != after.get("key"):
        yield "keys of entries cannot change"


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    if before["type"] != after["type"]:
        yield f"{before['type']} becomes {after['type']}"
    if before.get("ttl_ms") != after.get("ttl_ms"):
        yield "the new time to live holds for what is set from now on"


def widens(before: Type, after: Type) -> bool:
    """Whether a type has all values of another; fields of structs may come and go."""
    match before, after:
        case Columns(), Columns():
            added, wanted = after.required - {*before.names}, after.by_name
            return not added and all(
                widens(kind, wanted[name])
                for name, kind in before.by_name.items()
                if name in wanted
            )
        case Array(), Array():
            return widens(before.item, after.item)
        case MapOf(), MapOf():
            return before.key == after.key and widens(before.value, after.value)
        case Scalar(), Scalar():
            return before == after or _scalar_widens(before, after)
    return False


def _scalar_widens(before: Scalar, after: Scalar) -> bool:
    if after.digits is None:
        return after.name in _WIDER.get(before.name, ())
    whole = _WHOLE_DIGITS.get(before.name)
    old = before.digits or (whole and (whole, 0))
    if not old:
        return False
    (precision, scale), (old_precision, old_scale) = after.digits, old
    return scale >= old_scale and precision - scale >= old_precision - old_scale
