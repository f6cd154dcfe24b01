"""The block that says when a pipeline that failed is started again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field, JsonValue

from onceflow.contracts.block import Block, Combination
from onceflow.contracts.values import DurationMs, fault, parse_duration_ms


def _without_default(schema: dict[str, JsonValue]) -> None:
    """The default is a number of milliseconds, which is not how the file would say it."""
    del schema["default"]


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
        json_schema_extra=_without_default,
        description="Before the first of them. Left out: 1 second.",
    )
    multiplier: float = Field(
        default=2.0, ge=1, le=100, description="How much longer each further delay is."
    )
    max_delay_ms: DurationMs = Field(
        default=60_000,
        alias="max_delay",
        json_schema_extra=_without_default,
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
        json_schema_extra=_without_default,
        description="A run that lasted so long ends the row. Left out: 10 minutes.",
    )

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """A bound below what it bounds."""
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
