"""Read types and columns as Spark SQL writes them.

By hand: sqlglot (30) passes over what it does not know (`a int> , b int`, `string collate x`), and
reads `a int null` as NOT NULL.
"""

from __future__ import annotations

import re

from onceflow.columns.types import SCALARS, Array, Columns, MapOf, Scalar, Type, decimal
from onceflow.errors import ConfigError, Fault, did_you_mean

_SYNONYMS = {
    "bool": "boolean",
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "timestamp_ltz": "timestamp",
}
_KNOWN = (*SCALARS, "decimal(p,s)", "array<...>", "map<k,v>", "struct<a:...>")
_TOKEN = re.compile(r"`(?:[^`]|``)+`|\w+|\S")
_MAX_DEPTH = 20
_MAX_PRECISION = 38


def parse_columns(ddl: str) -> Columns:
    """Columns from a list such as `card string, amount decimal(10,2) not null`.

    Raises:
        ConfigError: it is not such a list, or has a type that is not known here.
    """
    reader = _Reader(ddl)
    columns = reader.columns()
    reader.expect("")
    return columns


def parse_type(ddl: str) -> Type:
    """A type from its text: `bigint`, `array<string>`; a list of columns gives a struct.

    Raises:
        ConfigError: it is neither, or not known here.
    """
    reader = _Reader(ddl)
    if reader.begins_with_a_name():
        return parse_columns(ddl)
    kind = reader.type()
    reader.expect("")
    return kind


class _Reader:
    """Reads tokens from the left; the token after the last is empty."""

    def __init__(self, ddl: str) -> None:
        self._ddl = ddl
        self._tokens = [*_TOKEN.findall(ddl), ""]
        self._at = 0
        self._depth = 0

    def begins_with_a_name(self) -> bool:
        """Whether a column is declared: a name is followed by a type, or by a colon."""
        if len(self._tokens) < 3:
            return False
        return self._tokens[0].startswith("`") or bool(re.match(r"[\w:`]", self._tokens[1]))

    def expect(self, token: str) -> None:
        if self._take().lower() != token:
            raise self._refused(f"`{token}`" if token else "the end")

    def columns(self) -> Columns:
        names: list[str] = []
        types: list[Type] = []
        required: set[str] = set()
        while True:
            name = self._name()
            if name.casefold() in {each.casefold() for each in names}:
                raise _error(self._ddl, Fault(f"the column `{name}` is there twice"))
            self._skip(":")
            names.append(name)
            types.append(self.type())
            if self._skip("not"):
                self.expect("null")
                required.add(name)
            if not self._skip(","):
                return Columns(tuple(names), tuple(types), frozenset(required))

    def type(self) -> Type:
        word = self._take().lower()
        name = _SYNONYMS.get(word, word)
        if name in SCALARS:
            return SCALARS[name]
        match name:
            case "decimal":
                return self._decimal()
            case "array" | "map" | "struct":
                return self._nested(name)
        suggestion = did_you_mean(name, [*SCALARS, *_SYNONYMS, "array", "map", "struct", "decimal"])
        raise self._refused(f"a type ({', '.join(_KNOWN)})", suggestion)

    def _nested(self, name: str) -> Type:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _error(self._ddl, Fault("nested too deeply", expected=f"{_MAX_DEPTH} levels"))
        self.expect("<")
        kind: Type
        if name == "array":
            kind = Array(self.type())
        elif name == "struct":
            kind = self.columns()
        else:
            key = self.type()
            if not isinstance(key, Scalar):
                fault = Fault(f"{key.ddl} as the key of a map", expected="a type without parts")
                raise _error(self._ddl, fault)
            self.expect(",")
            kind = MapOf(key, self.type())
        self.expect(">")
        self._depth -= 1
        return kind

    def _decimal(self) -> Scalar:
        precision, scale = 10, 0
        if self._skip("("):
            precision = self._number()
            scale = self._number() if self._skip(",") else 0
            self.expect(")")
        if not (1 <= precision <= _MAX_PRECISION and scale <= precision):
            fault = Fault(
                f"decimal({precision},{scale})",
                expected=f"1 to {_MAX_PRECISION} digits, and no more of them after the point",
            )
            raise _error(self._ddl, fault)
        return decimal(precision, scale)

    def _name(self) -> str:
        token = self._take()
        if token.startswith("`") and len(token) > 1:
            return token[1:-1].replace("``", "`")
        if not re.fullmatch(r"\w+", token):
            raise self._refused("the name of a column, such as `card` in `card string`")
        return token

    def _number(self) -> int:
        token = self._take()
        if not re.fullmatch("[0-9]{1,3}", token):
            raise self._refused("a number")
        return int(token)

    def _take(self) -> str:
        token: str = self._tokens[min(self._at, len(self._tokens) - 1)]
        self._at += 1
        return token

    def _skip(self, token: str) -> bool:
        found = self._at < len(self._tokens) and self._tokens[self._at].lower() == token
        self._at += found
        return found

    def _refused(self, expected: str, suggestion: str = "") -> ConfigError:
        before = self._tokens[: self._at - 1]
        found = self._tokens[min(self._at, len(self._tokens)) - 1]
        what = f"`{found}`" if found else "the end"
        place = f" after `{' '.join(before[-3:])}`" if before else ""
        return _error(self._ddl, Fault(f"{what}{place}", "", None, expected, suggestion))


def _error(ddl: str, fault: Fault) -> ConfigError:
    shown = ddl if len(ddl) <= 200 else f"{ddl[:200]}..."
    return ConfigError("types refused", subject=f"`{shown}`", faults=(fault,))
