"""Forecasts the size of the state: what a row takes, and what bounds the number of rows. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onceflow.contracts.values import duration_text
from onceflow.pipeline.plan.facts import walk
from onceflow.pipeline.plan.plan import PlanExpression, PlanNode
from onceflow.processing.codec import HEADER_BYTES
from onceflow.processing.runner import Runner

TEXT_BYTES = 16
"""Reckoned for a text, and for anything else whose size is not known before it is there."""
_FIXED = frozenset(
    {"boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "date", "timestamp"}
)
_WINDOW = "struct<start:timestamp,end:timestamp>"
_WINDOW_BYTES = 24
_BUFFERS: Mapping[str, int] = {"Average": 2, "First": 2, "Last": 2, "StddevSamp": 3}
"""Columns that Spark keeps for an aggregate function, where it is more than one."""
_COLLECTS = frozenset({"CollectList", "CollectSet", "ListAgg", "Percentile", "Mode"})
"""Keep every value that comes."""
_TIMER_BYTES = 16
FOREVER = "never removed: it grows with each new one"


@dataclass(frozen=True)
class StateForecast:
    """The state of one operator.

    Args:
        name: as `onceflow state list` has it, but for a number after it.
        rows: what there is a row for, or how many there are.
        bytes: of a row's key and value, before compression.
        grows: what makes a row larger; empty if nothing does.
        kept: how long a row is kept.
    """

    name: str
    rows: str
    bytes: int
    kept: str
    grows: str = ""

    def text(self, rows: int | None = None) -> str:
        """In words; with the size of this many rows."""
        larger = f", and more for {self.grows}" if self.grows else ""
        total = f"; {rows:,} rows take {size_text(rows * self.bytes)}" if rows else ""
        return (
            f"state of {self.name}: {self.rows}, {self.kept};"
            f" a row takes about {self.bytes} bytes{larger}{total}"
        )


def size_text(size: float) -> str:
    """Bytes in the largest unit that leaves a number of at least one."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} TB"


def forecast_state(
    plan: PlanNode, processors: Mapping[str, Runner], lateness_ms: int
) -> Iterator[StateForecast]:
    """Forecast every operator with state.

    Args:
        plan: the analysed one.
        processors: by their steps.
        lateness_ms: the largest of the sources: how far the event watermark is behind.
    """
    late = duration_text(lateness_ms)
    nodes = [step.node for step in walk(plan) if step.node.is_streaming]
    times = frozenset().union(
        *(node.references for node in nodes if node.kind == "EventTimeWatermark")
    )
    for node in nodes:
        match node.kind:
            case "Aggregate":
                yield _aggregation(node, times, late)
            case "Join" if all(child.is_streaming for child in node.children):
                yield from _sides(node, times, late)
            case "Deduplicate" | "DeduplicateWithinWatermark":
                yield _deduplication(node, times, late)
            case "Distinct":
                is_bound = bool(node.output_ids & times)
                yield _forecast("aggregation", node.output, (), _until(is_bound, late))
    for runner in processors.values():
        yield _processor(runner, late)


def _aggregation(node: PlanNode, times: frozenset[int], late: str) -> StateForecast:
    keys, results = node.expressions[: node.groupings], node.expressions[node.groupings :]
    functions = [
        each.children[0]
        for result in results
        for each in result.walk()
        if each.kind == "AggregateExpression"
    ]
    kept = [(each.type, _BUFFERS.get(each.kind, 1)) for each in functions]
    values = [of_type for of_type, count in kept for _ in range(count)]
    windows = [key for key in keys if key.type == _WINDOW]
    is_bound = bool(windows or {key.id for key in keys} & times)
    collects = [each.name for each in functions if each.kind in _COLLECTS]
    is_session = any(key.name == "session_window" for key in windows)
    what = "its window" if windows else "its event time"
    kept_for = f"kept until {late} after the end of {what}" if is_bound else FOREVER
    return _forecast(
        "sessions" if is_session else "aggregation",
        keys,
        values,
        kept_for,
        f"each value that {' and '.join(collects)} takes" if collects else "",
    )


def _sides(node: PlanNode, times: frozenset[int], late: str) -> Iterator[StateForecast]:
    looked_at = node.references & times
    for side, child in zip(("left", "right"), node.children, strict=True):
        is_bound = bool(looked_at) and bool(child.output_ids & times)
        kept = (
            f"kept until {late} after the last moment at which a row may match it"
            if is_bound
            else FOREVER
        )
        yield _forecast(f"join, {side}", (), [c.type for c in child.output], kept, rows="row")


def _deduplication(node: PlanNode, times: frozenset[int], late: str) -> StateForecast:
    keys = [each for each in node.expressions if each.kind == "AttributeReference"]
    if node.kind == "DeduplicateWithinWatermark":
        kept = "kept until the event watermark has passed its time by as much as was asked for"
        if not node.deduplicates:
            kept = f"kept until {late} after its event time"
        return _forecast("deduplication", keys, ("bigint",), kept)
    is_bound = bool({key.id for key in keys} & times)
    return _forecast("deduplication", keys, (), _until(is_bound, late))


def _until(is_bound: bool, late: str) -> str:
    return f"kept until {late} after its event time" if is_bound else FOREVER


def _forecast(
    name: str,
    keys: Sequence[PlanExpression],
    values: Sequence[str],
    kept: str,
    grows: str = "",
    *,
    rows: str = "",
) -> StateForecast:
    size = _row_bytes([key.type for key in keys]) + _row_bytes(values)
    names = " and ".join(key.name for key in keys)
    if not names and not rows:
        return StateForecast(name, "one row", size, "and no other", grows)
    return StateForecast(name, f"a row for each {rows or names}", size, kept, grows)


def _processor(runner: Runner, late: str) -> StateForecast:
    declared: Mapping[str, Mapping[str, Any]] = runner.declared
    types = runner.columns.by_name
    size = _row_bytes([types[key].ddl for key in runner.keys]) + _row_bytes(["binary"])
    size += HEADER_BYTES + _TIMER_BYTES - TEXT_BYTES
    grows = []
    for name, each in declared.items():
        entry = _value_bytes(each)
        if name == "_waiting":
            grows.append(f"each record that waits ({late} or longer)")
        elif each["kind"] in {"list", "map"}:
            grows.append(f"each entry of {name} (about {entry} bytes)")
        else:
            size += entry
    ends_ms = [each.get("ttl_ms", 0) for name, each in declared.items() if name != "_waiting"]
    kept = "kept until the class has cleared all of it: else it grows with each new one"
    if ends_ms and all(ends_ms):
        kept = f"kept for at most {duration_text(max(ends_ms))} after its last change"
    rows = f"a row for each {' and '.join(runner.keys)}"
    return StateForecast(runner.name, rows, size, kept, " and ".join(grows))


def _value_bytes(declared: Mapping[str, Any]) -> int:
    """Bytes of a value, or an entry, in Avro; texts as everywhere."""
    parts = [str(declared[part]) for part in ("key", "type") if part in declared]
    end = 8 if "ttl_ms" in declared else 0
    columns = [column for part in parts for column in part.split(",")]
    return end + sum(4 if _is_fixed(column) else TEXT_BYTES for column in columns)


def _is_fixed(column: str) -> bool:
    """Whether a type, perhaps after a name, has few bytes."""
    last = column.replace(":", " ").split()[-1].strip("<>").lower()
    return last in _FIXED or last.startswith("decimal")


def _row_bytes(types: Sequence[str]) -> int:
    """Bytes of a row as Spark stores it: 8 for each column, and a bit to tell if it is null."""
    nulls = 8 * -(-len(types) // 64)
    return nulls + sum(8 + _more_bytes(each) for each in types)


def _more_bytes(of_type: str) -> int:
    if of_type in _FIXED:
        return 0
    return _WINDOW_BYTES if of_type == _WINDOW else TEXT_BYTES
