"""The common part of looks from outside: a question without an answer leaves a blind spot."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from onceflow.clock import Clock, Deadline
from onceflow.errors import OnceflowError

LOOK_TIMEOUT_S = 10.0
"""For each kind of question. One without an answer leaves a blind spot."""
REACH_TIMEOUT_S = 30.0
"""For the first answer of the brokers."""

T = TypeVar("T")


class Looking:
    """A look from outside. What cannot be seen is named in `blind`.

    Attributes:
        blind: what could not be seen, and why.
    """

    clock: Clock
    blind: dict[str, str]

    def attempt(self, what: str, call: Callable[[], T], default: T) -> T:
        """Ask; without an answer, note that and return the default."""
        try:
            return call()
        except OnceflowError as error:
            self.blind[what] = str(error)
            return default

    def deadline(self) -> Deadline:
        """For one question."""
        return self.clock.within(LOOK_TIMEOUT_S)
