"""How much of a test is played: what a seed draws from its cases, or all of them.

`make test` and `make crash` have minutes for everything; their seeds differ, so that in time all is
drawn.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from random import Random
from typing import TypeVar

VARIABLE = "ONCEFLOW_TEST_EVERYTHING"
"""Set to anything: every case, and the largest searches."""
T = TypeVar("T")


def is_everything() -> bool:
    return bool(os.environ.get(VARIABLE))


def some(cases: Sequence[T], count: int, random: Random) -> Sequence[T]:
    """So many of them in a drawn order; all in their own order if everything is wanted."""
    return cases if is_everything() else random.sample(cases, count)
