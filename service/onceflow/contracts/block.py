"""The base of every block of a user's file: frozen, closed, strict, all its faults at once.

Pydantic checks a block as a whole only after every field in it is right. People want to hear about
both in one go, so combinations of a block are checked on what was given, together with its fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from onceflow.contracts.values import FAULT_TYPE

Combination = tuple[tuple[str, ...], PydanticCustomError]
"""Path inside the block, and what is wrong there."""


class Block(BaseModel):
    """One mapping of a file."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, hide_input_in_errors=True)

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """Keys that do not go together. Values in `given` are unchecked: they may be anything."""
        yield from ()

    @model_validator(mode="wrap")
    @classmethod
    def _check_everything(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        combinations = cls.wrong_combinations(data) if isinstance(data, Mapping) else ()
        details = [InitErrorDetails(type=e, loc=path, input=None) for path, e in combinations]
        try:
            block = handler(data)
        except ValidationError as error:
            fields = [_as_raised(found) for found in error.errors(include_url=False)]
            raise ValidationError.from_exception_data(
                cls.__name__, [*fields, *details], hide_input=True
            ) from None
        if details:
            raise ValidationError.from_exception_data(cls.__name__, details, hide_input=True)
        return block


def _as_raised(found: ErrorDetails) -> InitErrorDetails:
    """A reported error in the form in which it can be raised again."""
    context = found.get("ctx", {})
    kind: str | PydanticCustomError = found["type"]
    if kind == FAULT_TYPE:
        # The message is complete: a template without placeholders.
        kind = PydanticCustomError(FAULT_TYPE, found["msg"], context)
    return InitErrorDetails(type=kind, loc=found["loc"], input=None, ctx=context)
