"""The block of a waiver: a rule that a user takes the responsibility for."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from onceflow.contracts.block import Block
from onceflow.contracts.values import fault

MIN_REASON = 10
"""Characters; enough to keep `ok` and `todo` out."""


def _parse_date(value: object) -> date:
    try:
        return date.fromisoformat(str(value))
    except ValueError as error:
        raise fault("not a date", expected="a day, such as 2027-03-31") from error


Day = Annotated[date, BeforeValidator(_parse_date)]
Reason = Annotated[str, Field(min_length=MIN_REASON)]


class CheckpointWaiver(Block):
    """Checkpoints may be lost with the process, until a day. One for a process, in its settings."""

    reason: Reason = Field(description="Why losing positions and state is acceptable here.")
    until: Day = Field(
        description="The last day on which it holds. From then on such a checkpoint is refused."
    )


class Waiver(Block):
    """One finding that does not stop the pipeline until a day."""

    rule: Literal[
        "ND-AGG",
        "ND-CLOCK",
        "ND-EFFECT",
        "ND-ENV",
        "ND-GLOBAL",
        "ND-LAYOUT",
        "ND-ORDER",
        "ND-RANDOM",
        "ND-SOURCE",
        "ND-STATE",
    ] = Field(description="The rule that is broken.")
    place: str = Field(
        min_length=1, description="Where, as `onceflow validate` names it: `query: rand`."
    )
    reason: Reason = Field(description="Why results are right nevertheless, or need not be.")
    until: Day = Field(
        description="The last day on which it holds. From then on the pipeline is refused again."
    )

    def __str__(self) -> str:
        return f"{self.rule} at {self.place!r} until {self.until}: {self.reason}"
