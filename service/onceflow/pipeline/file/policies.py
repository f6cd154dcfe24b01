"""Blocks for what goes wrong: rejected and late records, waivers, starts after failures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from onceflow.contracts.block import Block, Combination
from onceflow.contracts.values import (
    DurationMs,
    TopicName,
    fault,
    parse_duration_ms,
    without_default,
)

OnReject: TypeAlias = Literal["dead_letter", "drop", "fail"]
"""What becomes of a rejected record. `dead_letter` and `drop` count it; `fail` stops the pipeline
before its batch is written."""
OnDivergence: TypeAlias = Literal["halt", "quarantine"]
"""What becomes of a replay that computes other rows than were committed."""


class Late(Block):
    """The topic of late records."""

    topic: TopicName = Field(
        description="Topic of late records, each as it came. Created if it does not exist."
    )


class DeadLetterBlock(Block):
    """The topic of rejected records."""

    topic: TopicName = Field(
        description="Topic of rejected records, each as it came. Created if it does not exist."
    )


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


def wrong_delays(given: Mapping[str, Any]) -> Iterator[Combination]:
    """A first delay that is longer than the longest, in a block with `delay` and `max_delay`."""
    defaults = {"delay": "1 s", "max_delay": "1 min"}
    try:
        delay, most = (parse_duration_ms(given.get(k, v)) for k, v in defaults.items())
    except ValueError:
        return
    if delay > most:
        yield (
            ("max_delay",) if "max_delay" in given else ("delay",),
            fault(
                "the first delay is longer than the longest",
                expected="`max_delay` of at least `delay`",
            ),
        )


class Restart(Block):
    """How often `onceflow serve` starts a pipeline again, and how long after a failure.

    What would fail in the same way again is never started by itself: a fault of configuration, a
    newer instance, a record that `on_reject: fail` refuses, a damaged checkpoint.
    """

    attempts: int = Field(
        default=10, ge=0, description="Starts after failures in a row; 0 for none."
    )
    delay_ms: DurationMs = Field(
        default=1_000,
        alias="delay",
        json_schema_extra=without_default,
        description="Before the first of them. Left out: 1 second.",
    )
    multiplier: float = Field(
        default=2.0, ge=1, le=100, description="How much longer each further delay is."
    )
    max_delay_ms: DurationMs = Field(
        default=60_000,
        alias="max_delay",
        json_schema_extra=without_default,
        description="That no delay exceeds, but for its jitter. Left out: 1 minute.",
    )
    jitter: float = Field(
        default=0.2,
        ge=0,
        le=1,
        description="Part of a delay by which it is longer or shorter at random, so that pipelines"
        " that failed together do not start together.",
    )
    reset_after_ms: DurationMs = Field(
        default=600_000,
        alias="reset_after",
        json_schema_extra=without_default,
        description="A run that lasted so long ends the row. Left out: 10 minutes.",
    )

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """A bound below what it bounds."""
        yield from wrong_delays(given)
