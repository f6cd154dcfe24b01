"""Whether a query uses only what has been judged. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from onceflow.errors import Fault, did_you_mean
from onceflow.pipeline.allow_list import classes, functions
from onceflow.pipeline.allow_list.functions import ALLOWED, FUNCTIONS, OPTIONS, Category, judged
from onceflow.pipeline.plan.parts import PlanPart

MAX_DEPTH = 400
"""Of a part. Python's own stack ends at 1,000 calls, and looking at a part takes up to two."""

_CALLS = frozenset({"UnresolvedFunction", "UnresolvedTableValuedFunction"})
_WINDOWS = frozenset({"session_window", "window"})
_MOMENT = re.compile(r"\s*[+-]?\d{4,7}(-|\s*$)")
"""Beginning of a date that is written out. `now`, `today` and times without a date are none."""
_WRITTEN = re.compile(r"(?:date|timestamp\w*)\s*r?['\"](.*)['\"]", re.DOTALL | re.IGNORECASE)
_USABLE = [name for name, category in FUNCTIONS.items() if category in ALLOWED]


def check_written(
    parts: Sequence[PlanPart], sources: Collection[str], aggregates: Collection[str] = ()
) -> list[Fault]:
    """Find what a parsed query may not use, before any of it is looked up, read or computed.

    Args:
        parts: of the query.
        sources: views that it may read.
        aggregates: names by which it may call aggregates of the pipeline file.
    """
    found = [
        *_relations(parts, sources),
        *_calls(parts, aggregates),
        *_windows_of_joins(parts),
        *(
            _refused(part.kind, functions.REFUSED[Category.UNJUDGED])
            for part in parts
            if part.is_operator
            if part.kind not in classes.OPERATORS
            if part.kind not in classes.FAULTS
        ),
        *check_analysed(parts),
    ]
    return list(dict.fromkeys(found))


def check_analysed(parts: Sequence[PlanPart]) -> list[Fault]:
    """Find what a plan may not be made of; functions are recognised by their classes.

    Leaves that hold data are left to the rule ND-SOURCE.
    """
    has_input = {part.parent for part in parts if part.is_operator}
    found: list[Fault] = []
    if any(part.depth > MAX_DEPTH for part in parts):
        found.append(Fault(f"the query is nested more than {MAX_DEPTH} levels deep"))
    for place, part in enumerate(parts):
        if part.kind in classes.FAULTS:
            found.append(classes.FAULTS[part.kind])
        elif part.is_operator:
            if part.kind == "ResolvedHint" and _is_of_reference(place, parts):
                continue
            if part.kind not in classes.OPERATORS and place in has_input:
                found.append(_refused(part.kind, functions.REFUSED[Category.UNJUDGED]))
        elif part.kind not in classes.EXPRESSIONS:
            found.append(_refused(part.name, functions.reason(part.name)))
        found += _options(part)
        found += _clock(part)
    return list(dict.fromkeys(found))


def _is_of_reference(place: int, parts: Sequence[PlanPart]) -> bool:
    """Whether this is our own hint to broadcast a reference; others change the order of rows."""
    below = [part.kind for part in parts if part.parent == place and part.is_operator]
    return below == ["onceflow.ReferenceRelation"]


def _relations(parts: Sequence[PlanPart], sources: Collection[str]) -> Iterator[Fault]:
    for part in parts:
        if part.kind != "UnresolvedRelation":
            continue
        if len(part.strings) != 1:
            # The rest of the name may be a path.
            yield Fault(
                f"the query reads a table or file of `{part.strings[0]}`",
                expected=f"only the sources {', '.join(sources)}",
            )
        elif part.options:
            yield Fault(f"the query gives options to `{part.strings[0]}`", expected="none")


def _calls(parts: Sequence[PlanPart], aggregates: Collection[str]) -> Iterator[Fault]:
    arguments: dict[int, list[int]] = {}
    for place, part in enumerate(parts):
        arguments.setdefault(part.parent, []).append(place)
    for place, part in enumerate(parts):
        if part.kind not in _CALLS:
            continue
        name = ".".join(part.strings).lower()
        if name in aggregates:
            continue
        if name not in FUNCTIONS:
            yield Fault(
                f"unknown function `{name}`",
                expected="one that docs/security.md lists",
                suggestion=did_you_mean(name, [*aggregates, *_USABLE]),
            )
        elif judged(name) is Category.NO_STREAM:
            yield classes.OVER
        elif judged(name) not in ALLOWED:
            yield _refused(name, functions.reason(name))
        elif name in OPTIONS:
            for given in arguments.get(place, [])[1:]:
                yield from _given_options(name, given, parts, arguments)


def _windows_of_joins(parts: Sequence[PlanPart]) -> Iterator[Fault]:
    """Spark computes windows of one input only; in a JOIN it leaves them, and blames a column."""
    for part in parts:
        if part.kind != "UnresolvedFunction" or part.strings[-1].lower() not in _WINDOWS:
            continue
        around = part
        while not around.is_operator and around.parent >= 0:
            around = parts[around.parent]
        if around.kind == "Join":
            call = f"{part.strings[-1].lower()}()"
            yield Fault(
                f"{call} cannot be used in the condition of a JOIN",
                suggestion=f"Name {call} AS w in a subquery of each side, and join ON a.w = b.w.",
            )


def _given_options(
    name: str, place: int, parts: Sequence[PlanPart], arguments: dict[int, list[int]]
) -> Iterator[Fault]:
    """Options are computed when the query is analysed, so they are looked at before."""
    part = parts[place]
    called = ".".join(part.strings).lower() if part.kind == "UnresolvedFunction" else ""
    if called == "map":
        options = [parts[each] for each in arguments.get(place, [])]
        if any(option.literal is None for option in options):
            yield _refused(name, "its options must be literals of text")
        for key in options[::2]:
            yield from _option(name, key.literal or "")
    elif part.literal is None and not called.startswith("schema_of_"):
        yield _refused(name, "schema and options must be literals, or map('name', 'value')")


def _options(part: PlanPart) -> Iterator[Fault]:
    # Relations are looked at above; other operators have those of stand-ins and views, which are
    # ours, and Python functions have their environment.
    if not part.is_operator and part.kind not in classes.PYTHON:
        for key in part.options:
            yield from _option(part.name, key)


def _option(owner: str, key: str) -> Iterator[Fault]:
    if key.lower() not in OPTIONS.get(owner, frozenset()):
        yield _refused(f"{key} of {owner}", functions.REFUSED[Category.UNJUDGED])


def _clock(part: PlanPart) -> Iterator[Fault]:
    """Times that Spark completes from the clock: `TIMESTAMP 'now'`, `at > 'today'`, `'12:30'`."""
    written = _WRITTEN.match(part.written or "")
    text = written[1] if written else part.moment
    if text is not None and not _MOMENT.match(text):
        yield Fault(
            f"the time '{text}' {functions.REFUSED[Category.CLOCK]}",
            expected="a date with its year first, or current_timestamp()",
        )


def _refused(name: str, reason: str) -> Fault:
    return Fault(f"`{name}` may not be used: it {reason}")
