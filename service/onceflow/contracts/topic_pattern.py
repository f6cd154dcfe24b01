"""Topics by regular expression, matched in linear time."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated

from pydantic import StringConstraints, TypeAdapter, ValidationError
from pydantic_core import SchemaError

from onceflow.errors import ConfigError
from onceflow.protocol.identity import is_internal_topic

MAX_PATTERN = 1_000
"""Characters of an expression; names have 249 at most."""


@lru_cache(maxsize=64)
def topic_pattern(text: str) -> Callable[[str], bool]:
    """Return what tells if an expression matches the whole name of a topic that is not internal.

    Uses the engine of pydantic, which is Rust's: it never backtracks, and has neither look-around
    nor backreferences.

    Raises:
        ConfigError: it is too long, or not an expression that this engine understands.
    """
    if len(text) > MAX_PATTERN:
        raise ConfigError(
            "a topic pattern is too long",
            expected=f"at most {MAX_PATTERN} characters",
            found=f"{len(text)}",
        )
    # By itself first: `a)|(?:b` is valid only between our parentheses.
    _compiled(text)
    whole = _compiled(rf"\A(?:{text})\z")

    def matches(topic: str) -> bool:
        if is_internal_topic(topic):
            return False
        try:
            whole.validate_python(topic)
        except ValidationError:
            return False
        return True

    return matches


def _compiled(expression: str) -> TypeAdapter[str]:
    try:
        return TypeAdapter(Annotated[str, StringConstraints(pattern=expression)])
    except SchemaError as error:
        *_, why = str(error).strip().splitlines()
        raise ConfigError(
            "not a regular expression for topic names",
            expected="one without look-around and backreferences",
            found=why.removeprefix("error: ").strip(),
        ) from None
