"""Whether a regular expression may be matched by backtracking, as Java does. Pure.

Nothing stops Java's engine once it has begun. So an expression is let in only if it is written in
the part of Java's language that is read here, and if no input makes it try exponentially many ways:

- what is repeated holds nothing of variable length, unless it begins or ends with a character that
  occurs nowhere else in it, as in `([^,]*,)*`;
- alternatives that are repeated begin with different characters;
- there are no backreferences;
- no more than `MAX_SLOPPY` repetitions may run past what follows them, as `.*` does in `.*;`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

MAX_LENGTH = 1_000
"""Characters of an expression."""
MAX_SLOPPY = 3
"""Each multiplies the steps by the length of the text in the worst case."""
MANY = 4
"""Repetitions from which on a bounded one of a character counts as unbounded."""
MAX_NESTING = 20

_ASCII = 128
_EVERY = (1 << (_ASCII + 1)) - 1
"""A set of characters: a bit for each of ASCII, and one for all others."""
_BOUND = re.compile(r"\{(\d{1,4})(,(\d{1,4})?)?\}")
_GROUP = re.compile(r"\((?:\?(?:[:>=!]|<[=!]|<[A-Za-z]\w*>|[ims]+(?:-[ims]+)?[:)]))?")
_HEX = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})")
_PROPERTY = re.compile(r"[pP](?:\{[A-Za-z_=]+\}|[A-Z])")
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class UnsafePatternError(Exception):
    """Says in one clause why an expression is refused."""


@dataclass(frozen=True)
class _Item:
    """One element of a sequence: a set of characters or a group, and how often it may occur.

    Args:
        ways: of a group, its alternatives; empty for a set of characters.
        chars: of a set; of a group, all that are in it.
        least: how often at least.
        most: how often at most.
    """

    ways: tuple[tuple[_Item, ...], ...]
    chars: int
    least: int = 1
    most: float = 1

    @property
    def is_fixed(self) -> bool:
        """Whether what it matches has one length and one way."""
        return self.least == self.most and (
            not self.ways
            or (_are_apart(self.ways) and all(i.is_fixed for w in self.ways for i in w))
        )

    @property
    def can_be_empty(self) -> bool:
        """Whether it may match nothing."""
        inside = any(all(item.can_be_empty for item in way) for way in self.ways)
        return not self.least or inside

    @property
    def first(self) -> int:
        """Characters that it may begin with."""
        if not self.ways:
            return self.chars
        found = 0
        for way in self.ways:
            found |= _first_of(way, after=0)
        return found


def check_pattern(text: str) -> None:
    """Refuse a regular expression that Java might never finish with.

    Raises:
        UnsafePatternError: it is refused.
    """
    if len(text) >= MAX_LENGTH:
        raise UnsafePatternError(f"is longer than {MAX_LENGTH - 1} characters")
    parser = _Parser(text)
    ways = parser.alternatives(0)
    if parser.at < len(text):
        raise UnsafePatternError("has a `)` without its `(`")
    sloppy = max(_sloppiness(way, after=0) for way in ways)
    if sloppy > MAX_SLOPPY:
        raise UnsafePatternError(
            f"has {sloppy:g} repetitions that run past what follows them; at most {MAX_SLOPPY}"
            " may, such as `[^;]*;` instead of `.*;`"
        )


def check_like(text: str) -> None:
    """Refuse a LIKE pattern with too many wildcards, which Java matches in the same way.

    Raises:
        UnsafePatternError: it is refused.
    """
    if len(text) >= MAX_LENGTH:
        raise UnsafePatternError(f"is longer than {MAX_LENGTH - 1} characters")
    if len(re.findall("%+", text.strip("%"))) > MAX_SLOPPY:
        raise UnsafePatternError(f"has more than {MAX_SLOPPY} `%` inside")


def _are_apart(ways: Sequence[Sequence[_Item]]) -> bool:
    """Whether the first character tells which alternative it is."""
    seen = 0
    for way in ways:
        if all(item.can_be_empty for item in way):
            return len(ways) == 1
        first = _first_of(way, after=0)
        if first & seen:
            return False
        seen |= first
    return True


def _is_separated(way: Sequence[_Item]) -> bool:
    """Whether a character at an end of it tells where one repetition ends and the next begins."""
    for end, rest in ((way[0], way[1:]), (way[-1], way[:-1])):
        is_mark = not end.ways and end.least == end.most == 1
        if is_mark and not any(item.chars & end.chars for item in rest):
            return True
    return False


def _sloppiness(way: Sequence[_Item], after: int) -> float:
    """How many repetitions may run past what follows them.

    Args:
        way: a sequence.
        after: characters that may follow it.
    """
    count: float = 0
    for place, item in enumerate(way):
        follows = _first_of(way[place + 1 :], after)
        again = item.first if item.most > 1 else 0
        inner = max((_sloppiness(each, follows | again) for each in item.ways), default=0)
        count += inner * (1 if item.most >= MANY else max(1, item.most))
        if item.most >= MANY and item.least != item.most:
            count += bool(follows & item.chars)
    return count


def _first_of(way: Sequence[_Item], after: int) -> int:
    """Characters that a sequence may begin with, or what is after it."""
    found = 0
    for item in way:
        found |= item.first
        if not item.can_be_empty:
            return found
    return found | after


def _repeated(item: _Item, least: int, most: float) -> _Item:
    if most > 1 and item.ways:
        _check_body(item)
    return _Item(item.ways, item.chars, least, most)


def _check_body(item: _Item) -> None:
    if len(item.ways) > 1:
        if not all(each.is_fixed for way in item.ways for each in way):
            raise UnsafePatternError("repeats alternatives of variable length")
        if not _are_apart(item.ways):
            raise UnsafePatternError("repeats alternatives that begin alike")
        return
    (way,) = item.ways
    if not way:
        return
    if not all(each.is_fixed for each in way) and not _is_separated(way):
        raise UnsafePatternError("has a repetition inside of a repetition")
    for each in way:
        if each.ways and not each.is_fixed:
            raise UnsafePatternError("has a repetition inside of a repetition")


class _Parser:
    """Reads an expression; what it does not know is refused."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._ignores_case = re.search(r"\(\?[ms]*i", text) is not None
        self.at = 0

    def alternatives(self, depth: int) -> tuple[tuple[_Item, ...], ...]:
        if depth > MAX_NESTING:
            raise UnsafePatternError(f"is nested more than {MAX_NESTING} levels deep")
        ways: list[tuple[_Item, ...]] = []
        way: list[_Item] = []
        while self.at < len(self._text) and self._text[self.at] != ")":
            if self._text[self.at] == "|":
                self.at += 1
                ways.append(tuple(way))
                way = []
            elif (item := self._item(depth)) is not None:
                way.append(self._quantified(item))
        return (*ways, tuple(way))

    def _item(self, depth: int) -> _Item | None:
        """The next element; None for flags."""
        char = self._text[self.at]
        if char == "(":
            return self._group(depth)
        self.at += 1
        if char in "^$":
            return _PLACE
        if char == ".":
            return _Item((), _EVERY)
        if char == "[":
            return _Item((), self._folded(self._set()))
        if char == "\\":
            found = self._escape()
            return _PLACE if found is None else _Item((), self._folded(found))
        if char in "*+?{":
            raise UnsafePatternError(f"has a `{char}` that repeats nothing")
        return _Item((), self._folded(_of(char)))

    def _group(self, depth: int) -> _Item | None:
        found = _GROUP.match(self._text, self.at)
        opening = found[0] if found else ""
        if not found or (opening == "(" and self._text.startswith("(?", self.at)):
            raise UnsafePatternError("has a group of a kind that is not known here")
        self.at = found.end()
        if opening.endswith(")"):
            return None
        ways = self.alternatives(depth + 1)
        if self.at >= len(self._text):
            raise UnsafePatternError("has a `(` without its `)`")
        self.at += 1
        chars = 0
        for way in ways:
            for item in way:
                chars |= item.chars
        return _Item(ways, chars)

    def _quantified(self, item: _Item) -> _Item:
        rest = self._text[self.at : self.at + 1]
        least, most = 1, 1.0
        if rest and rest in "*+?":
            self.at += 1
            least, most = (rest == "+") * 1, 1.0 if rest == "?" else float("inf")
        elif rest == "{":
            found = _BOUND.match(self._text, self.at)
            if found is None:
                raise UnsafePatternError("has a `{` that begins no repetition")
            self.at = found.end()
            least = int(found[1])
            most = float(found[3]) if found[3] else float("inf") if found[2] else least
        else:
            return item
        if self._text[self.at : self.at + 1] in {"?", "+"}:
            self.at += 1
        if self._text[self.at : self.at + 1] in {"*", "+", "?", "{"}:
            raise UnsafePatternError("has a repetition of a repetition")
        return _repeated(item, least, most)

    def _escape(self) -> int | None:
        """Characters of an escape; None for a place between characters."""
        char = self._text[self.at : self.at + 1]
        if char in set("bBAzZG"):
            self.at += 1
            return None
        return self._escaped_set()

    def _escaped_set(self) -> int:
        if found := _PROPERTY.match(self._text, self.at):
            self.at = found.end()
            return _EVERY
        if found := _HEX.match(self._text, self.at):
            self.at = found.end()
            return _of(chr(int(found[1] or found[2], 16)))
        char = self._text[self.at : self.at + 1]
        self.at += 1
        if char in _CONTROLS:
            return _of(_CONTROLS[char])
        if char and char in _CLASSES:
            return _CLASSES[char]
        if char.isdigit() or char == "k":
            raise UnsafePatternError("has a backreference")
        if not char or char.isalnum():
            raise UnsafePatternError(f"has the escape `\\{char}`, which is not known here")
        return _of(char)

    def _set(self) -> int:
        """Parse a set, after its `[`."""
        is_negated = self._text.startswith("^", self.at)
        self.at += is_negated
        found, is_first = 0, True
        while not self._text.startswith("]", self.at) or is_first:
            found |= self._range()
            is_first = False
        self.at += 1
        return _EVERY & ~found if is_negated else found

    def _range(self) -> int:
        low = self._member()
        if not self._text.startswith("-", self.at) or self._text.startswith("-]", self.at):
            return low
        self.at += 1
        high = self._member()
        if low.bit_count() != 1 or high.bit_count() != 1:
            raise UnsafePatternError("has a range of characters that is none")
        # From the lowest bit of the one to the highest of the other.
        return (high << 1) - low if high >= low else _EVERY

    def _member(self) -> int:
        char = self._text[self.at : self.at + 1]
        self.at += 1
        if not char:
            raise UnsafePatternError("has a `[` without its `]`")
        if char == "[" or (char == "&" and self._text.startswith("&", self.at)):
            raise UnsafePatternError("has a set of characters inside of a set")
        return self._escaped_set() if char == "\\" else _of(char)

    def _folded(self, chars: int) -> int:
        if not self._ignores_case:
            return chars
        letters = (1 << 26) - 1
        upper, lower = chars >> 65 & letters, chars >> 97 & letters
        both = upper | lower
        # Some letters beyond ASCII equal one of it.
        return chars | both << 65 | both << 97 | (bool(both) << _ASCII)


_PLACE = _Item((), _EVERY)
"""Between characters: a place may be wrong whatever came before, so anything might follow."""


def _of(char: str) -> int:
    return 1 << min(ord(char), _ASCII)


def _all_of(chars: str) -> int:
    found = 0
    for char in chars:
        found |= _of(char)
    return found


_DIGITS = _all_of("0123456789")
_SPACES = _all_of(" \t\n\r\f\v")
_WORDS = _DIGITS | _all_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_CLASSES = {
    "d": _DIGITS,
    "D": _EVERY & ~_DIGITS,
    "s": _SPACES,
    "S": _EVERY & ~_SPACES,
    "w": _WORDS,
    "W": _EVERY & ~_WORDS,
    "h": _SPACES | 1 << _ASCII,
    "R": _SPACES | 1 << _ASCII,
}
