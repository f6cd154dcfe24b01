"""Whether a query can make values, rows or searches without bound. Pure.

What grows with an argument needs a number there, and what searches needs a pattern that is written
in the query: only these can be judged before records come.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from onceflow.errors import Fault
from onceflow.pipeline.allow_list.patterns import (
    MAX_SLOPPY,
    UnsafePatternError,
    check_like,
    check_pattern,
)

if TYPE_CHECKING:
    # With it comes Spark, which settings are read without.
    from onceflow.pipeline.plan.parts import PlanPart

DEFAULT_MAX_MADE = 1_000_000
"""Characters or elements: ten days in seconds, and far from what a heap cannot hold."""
SETTING = "spark.max_made"
CONF = "spark.onceflow.maxMade"
"""By which a session carries that setting."""
MAX_SKETCH_ERROR = 0.005
"""A smaller one makes buffers of hundreds of thousands of columns while the query is planned."""
MAX_CUBE = 10
"""Columns: each doubles the rows."""
MAX_WINDOWS = 1_000
"""That overlap: the plan has a row of expressions for each."""
MAX_FORMAT = 1_000
"""Characters of a format; a width in it is bounded as the rest."""

_SIZED: Mapping[str, int] = {
    "ArrayInsert": 1,
    "ArrayRepeat": 1,
    "BRound": 1,
    "BinaryPad": 1,
    "FormatNumber": 1,
    "RandStr": 0,
    "Round": 1,
    "RoundCeil": 1,
    "RoundFloor": 1,
    "StringLPad": 1,
    "StringRPad": 1,
    "StringRepeat": 1,
    "StringSpace": 0,
}
"""Class of a function -> place of the argument that says how much it makes."""
_PATTERNS: Mapping[str, tuple[int, ...]] = {
    "ILike": (1,),
    "Like": (1,),
    "ParseUrl": (2,),
    "RLike": (1,),
    "RegExpCount": (1,),
    "RegExpExtract": (1,),
    "RegExpExtractAll": (1,),
    "RegExpInStr": (1,),
    "RegExpReplace": (1,),
    "RegExpSubStr": (1,),
    "StringSplit": (1,),
    "StringToMap": (1, 2),
    **dict.fromkeys(
        (
            "XPathBoolean",
            "XPathDouble",
            "XPathFloat",
            "XPathInt",
            "XPathList",
            "XPathLong",
            "XPathShort",
            "XPathString",
        ),
        (1,),
    ),
}
"""Class of a function -> places of its patterns."""
_LIKE_LISTS = frozenset({"LikeAll", "LikeAny", "NotLikeAll", "NotLikeAny"})
_WIDTH = re.compile(r"%(?:\d+\$)?[-#+ 0,(<]*(\d+)?(?:\.(\d+))?")
_INTERVAL = re.compile(r"\s*(?:interval\s+)?((?:\d{1,12}\s*[a-z]+\s*)+)", re.IGNORECASE)
_AMOUNT = re.compile(r"(\d+)\s*([a-z]+?)s?(?=[\s\d]|$)", re.IGNORECASE)
_SECONDS: Mapping[str, float] = {
    "microsecond": 1e-6,
    "millisecond": 1e-3,
    "second": 1,
    "minute": 60,
    "hour": 3600,
    "day": 86_400,
    "week": 604_800,
}


_WRAPPINGS = frozenset({"Cast", "UnaryMinus"})
_DAY_MICROS = 86_400_000_000


@dataclass(frozen=True)
class _Tree:
    """Parts, and which ones each holds, in order."""

    parts: Sequence[PlanPart]
    below: Mapping[int, Sequence[int]]

    def argument(self, place: int, number: int) -> PlanPart | None:
        """An argument without casts and signs around it; None if it was left out."""
        found = self.arguments(place)
        return found[number] if number < len(found) else None

    def arguments(self, place: int) -> Sequence[PlanPart]:
        """All of them."""
        return [self._bare(at) for at in self.below.get(place, ())]

    def _bare(self, at: int) -> PlanPart:
        is_negative = False
        while self.parts[at].kind in _WRAPPINGS and self.below.get(at):
            is_negative ^= self.parts[at].kind == "UnaryMinus"
            at = self.below[at][0]
        part = self.parts[at]
        if is_negative and part.number is not None:
            return replace(part, number=-part.number)
        return part


def written_without_bound(parts: Sequence[PlanPart], max_made: int) -> list[Fault]:
    """Find what would take the driver's memory while the parsed query is analysed.

    `max_made` counts the characters, elements or rows that a function may make of one.
    """
    tree = _tree(parts)
    found: list[Fault] = []
    for place, part in enumerate(parts):
        name = ".".join(part.strings).lower()
        arguments = tree.arguments(place)
        if part.kind == "UnresolvedTableValuedFunction" and name == "range":
            found += _range(arguments, max_made)
        elif part.kind == "UnresolvedFunction" and name == "window":
            found += _sliding(arguments, max_made)
        elif part.kind == "UnresolvedFunction" and name == "approx_count_distinct":
            found += _sketch(arguments)
        elif part.kind in {"Cube", "Rollup", "GroupingSets"} or name == "cube":
            count = len(arguments)
            if count > MAX_CUBE:
                found.append(Fault(f"{part.kind} of {count} columns", expected=f"{MAX_CUBE}"))
    return list(dict.fromkeys(found))


def made_without_bound(parts: Sequence[PlanPart], max_made: int) -> list[Fault]:
    """Find values and searches of an analysed query that nothing bounds.

    `max_made` counts the characters or elements that a function may make.
    """
    tree = _tree(parts)
    made: dict[int, float] = {}
    found: list[Fault] = []
    for place, part in enumerate(parts):
        around = made.get(part.parent, 1)
        if part.kind == "LambdaFunction":
            # It is made once for each element.
            around *= max(_made_size(tree, each) for each in tree.below[part.parent])
        size: float = 1
        if part.kind in _SIZED or part.kind in {"Sequence", "FormatString"}:
            wanted = _size(tree, place)
            size = wanted if wanted is not None else 1
            if wanted is None:
                found.append(_not_a_number(part, max_made))
            elif wanted * around > max_made:
                found.append(_too_many(part, max_made))
        # Parts are listed after the one that holds them.
        made[place] = around * max(1, size)
        found += _patterns(tree, place)
    return list(dict.fromkeys(found))


def _made_size(tree: _Tree, place: int) -> float:
    is_made = tree.parts[place].kind in {"ArrayRepeat", "Sequence"}
    return (_size(tree, place) if is_made else None) or 1


def _size(tree: _Tree, place: int) -> float | None:
    """How much a function makes; None if that is not written in the query."""
    part = tree.parts[place]
    if part.kind == "Sequence":
        return _steps(tree, place)
    if part.kind == "FormatString":
        text = tree.argument(place, 0)
        if text is None or text.literal is None or len(text.literal) >= MAX_FORMAT:
            return None
        widths = [
            int(digits[:18]) for pair in _WIDTH.findall(text.literal) for digits in pair if digits
        ]
        return max(widths, default=0)
    argument = tree.argument(place, _SIZED[part.kind])
    if argument is None:
        return 0
    return None if argument.number is None else abs(argument.number)


def _steps(tree: _Tree, place: int) -> float | None:
    start, stop, step = (tree.argument(place, number) for number in range(3))
    if start is None or stop is None or start.number is None or stop.number is None:
        return None
    if step is None:
        each: float | None = 1 if start.written is None else _DAY_MICROS
    else:
        each = step.number
    return abs(stop.number - start.number) / abs(each) + 1 if each else None


def _patterns(tree: _Tree, place: int) -> Iterator[Fault]:
    part = tree.parts[place]
    if part.kind in _LIKE_LISTS:
        for text in part.strings:
            yield from _unsafe(part, text)
    for number in _PATTERNS.get(part.kind, ()):
        argument = tree.argument(place, number)
        if argument is None or (part.kind == "ParseUrl" and argument.number is not None):
            continue
        if argument.literal is None:
            if argument.kind != "Literal":
                yield Fault(
                    f"the pattern of `{part.name}` is computed",
                    expected="one that is written in the query, so that it can be judged",
                )
            continue
        yield from _unsafe(part, argument.literal)


def _unsafe(part: PlanPart, text: str) -> Iterator[Fault]:
    if part.kind.startswith("XPath"):
        if text.count("//") > MAX_SLOPPY:
            yield Fault(f"the pattern of `{part.name}` has more than {MAX_SLOPPY} `//`")
        return
    try:
        if "Like" in part.kind and part.kind != "RLike":
            check_like(text)
        else:
            check_pattern(text)
    except UnsafePatternError as error:
        yield Fault(
            f"the pattern of `{part.name}` {error}",
            expected="one that Java never searches for long: docs/security.md",
        )


def _range(arguments: Sequence[PlanPart], max_made: int) -> Iterator[Fault]:
    numbers = [part.number for part in arguments[:3]]
    if any(number is None for number in numbers):
        yield Fault("the numbers of `range` are computed", expected="numbers")
        return
    given = [number for number in numbers if number is not None]
    start, stop = (0, given[0]) if len(given) == 1 else (given[0], given[1])
    step = given[2] if len(given) > 2 and given[2] else 1
    if abs(stop - start) / abs(step) > max_made:
        yield Fault("`range` makes too many rows", expected=_at_most(max_made, "rows"))


def _sliding(arguments: Sequence[PlanPart], max_made: int) -> Iterator[Fault]:
    """A sliding window makes a row for each window that a time is in."""
    if len(arguments) < 3:
        return
    length, slide = (
        _seconds(part.literal) if part.number is None else part.number / 1e6
        for part in arguments[1:3]
    )
    if not length or not slide:
        yield Fault(
            "`window` slides by an interval that is not understood here",
            expected="texts such as '1 hour' and '5 minutes', of weeks or less",
        )
    elif length / slide > min(max_made, MAX_WINDOWS):
        yield Fault(
            "`window` slides too often", expected=f"at most {MAX_WINDOWS} windows at any time"
        )


def _seconds(text: str | None) -> float:
    """Length of an interval; 0 if it is none that is known."""
    found = _INTERVAL.fullmatch(text or "")
    amounts = _AMOUNT.findall(found[1]) if found else []
    if any(unit.lower() not in _SECONDS for _, unit in amounts):
        return 0
    return sum(int(amount) * _SECONDS[unit.lower()] for amount, unit in amounts)


def _sketch(arguments: Sequence[PlanPart]) -> Iterator[Fault]:
    if len(arguments) < 2:
        return
    error = arguments[1].number
    if error is None or error < MAX_SKETCH_ERROR:
        yield Fault(
            "`approx_count_distinct` with an error that is computed, or too small",
            expected=f"at least {MAX_SKETCH_ERROR}",
        )


def _not_a_number(part: PlanPart, max_made: int) -> Fault:
    return Fault(
        f"how much `{part.name}` makes is computed",
        expected=f"numbers that are written in the query, for {_at_most(max_made)}",
    )


def _too_many(part: PlanPart, max_made: int) -> Fault:
    return Fault(f"`{part.name}` makes too much of one value", expected=_at_most(max_made))


def _at_most(max_made: int, what: str = "characters or elements") -> str:
    return f"at most {max_made} {what} ({SETTING})"


def _tree(parts: Sequence[PlanPart]) -> _Tree:
    below: dict[int, list[int]] = {}
    for place, part in enumerate(parts):
        below.setdefault(part.parent, []).append(place)
    return _Tree(parts, below)
