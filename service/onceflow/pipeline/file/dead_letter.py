"""The block of dead letters: where records go that the pipeline cannot use."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field

from onceflow.contracts.block import Block
from onceflow.contracts.values import TopicName

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
