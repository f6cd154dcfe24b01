"""Remembers answers for a while, so that equal questions are asked less often. Pure."""

from __future__ import annotations

from collections.abc import Hashable

from onceflow.enrichment.answers import Answer

MAX_BYTES = 64 * 1024 * 1024
"""Of all answers together, whatever the number of questions."""


class AnswerCache:
    """Answers by question, in memory. It decides who is asked, never what is recorded twice.

    All answers live equally long, so the oldest is the first to go, by age and for room.

    Args:
        lifetime_s: how long an answer is used.
        at_most: answers that are kept.
    """

    def __init__(self, lifetime_s: float, at_most: int, max_bytes: int = MAX_BYTES) -> None:
        self._lifetime_s = lifetime_s
        self._at_most = at_most
        self._max_bytes = max_bytes
        self._answers: dict[Hashable, tuple[float, Answer]] = {}
        self._size_bytes = 0

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, question: Hashable, now_s: float) -> Answer | None:
        """The answer, if one is young enough at this time of a monotonic clock."""
        self._forget_old(now_s)
        found = self._answers.get(question)
        return None if found is None else found[1]

    def put(self, question: Hashable, answer: Answer, now_s: float) -> None:
        """Remember an answer that came now."""
        self._forget(question)
        self._answers[question] = now_s, answer
        self._size_bytes += len(answer.text)
        self._forget_old(now_s)
        while len(self._answers) > self._at_most or self._size_bytes > self._max_bytes:
            self._forget(next(iter(self._answers)))

    def _forget_old(self, now_s: float) -> None:
        while self._answers:
            question, (came_s, _) = next(iter(self._answers.items()))
            if now_s - came_s < self._lifetime_s:
                return
            self._forget(question)

    def _forget(self, question: Hashable) -> None:
        came = self._answers.pop(question, None)
        if came is not None:
            self._size_bytes -= len(came[1].text)
