"""An aggregate that queries call by its name: a class with the values that it is made with."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, WithJsonSchema

from onceflow.contracts.values import fault

READY = "onceflow.aggregates"
"""The module of those that come with Onceflow."""
_EXPECTED = f"`module:Class`, or `{READY}:TopK('string', 3)` with literals"


@dataclass(frozen=True)
class AggregateCall:
    """The class of an aggregate, and the values that it is made with.

    Args:
        kind: `module:Class`.
        arguments: by position.
        named: by name.
    """

    kind: str
    arguments: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...]

    @property
    def is_ready(self) -> bool:
        """Whether it comes with Onceflow."""
        return self.kind.partition(":")[0] == READY


def parse_call(text: str) -> AggregateCall:
    """Read `module:Class(...)`. Arguments are literals of Python; nothing is run.

    Raises:
        PydanticCustomError: it is something else.
    """
    module, _, made = text.partition(":")
    try:
        found = ast.parse(made.strip(), mode="eval").body
        call = found if isinstance(found, ast.Call) else ast.Call(found, [], [])
        names = module.split(".")
        is_named = isinstance(call.func, ast.Name) and all(n.isidentifier() for n in names)
        if not is_named or any(each.arg is None for each in call.keywords):
            raise _unlike()
        return AggregateCall(
            f"{module}:{ast.unparse(call.func)}",
            tuple(map(ast.literal_eval, call.args)),
            tuple((each.arg or "", ast.literal_eval(each.value)) for each in call.keywords),
        )
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        raise _unlike() from None


def _unlike() -> Exception:
    return fault("not an aggregate", expected=_EXPECTED)


def _checked(text: str) -> str:
    parse_call(text)
    return text


AggregateText = Annotated[
    str,
    AfterValidator(_checked),
    WithJsonSchema({"type": "string", "pattern": r"^[A-Za-z_][\w.]*:\s*[A-Za-z_]\w*"}),
]
"""`module:Class`, with literals in parentheses if it is made with some."""
