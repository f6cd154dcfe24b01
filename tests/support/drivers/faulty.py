"""Wrappers that misbehave on purpose, around real incarnations and appenders; each counts it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from onceflow.clock import Deadline
from onceflow.contracts.sink import Appender, Incarnation, OutputRecord
from onceflow.errors import AbortableError, DeadlineError, FencedError, OutcomeUnknownError


@dataclass
class Faults:
    """Faults to inject at the next commit of a lane, and how often each has happened.

    Args:
        before_records: called before records are sent.
        before_offsets: called before offsets are sent.
        before_commit: called in place of the request's way to the broker.
        loses_answer: the commit happens; the answer is lost.
        loses_request: the commit does not happen; there is no answer either.
        answers_fenced: the commit happens, and a retry of it is answered "fenced".
        refuses_records: the first half of the records is sent, then produce() fails.
        refuses_append: half of what an appender is given is written, then it fails.
        dies_on_lanes: lanes are never initialised, as if the process had died before.
    """

    before_records: Callable[[], None] | None = None
    before_offsets: Callable[[], None] | None = None
    before_commit: Callable[[], None] | None = None
    loses_answer: int = 0
    loses_request: int = 0
    answers_fenced: int = 0
    refuses_records: int = 0
    refuses_append: int = 0
    dies_on_lanes: int = 0
    fired: list[str] = field(default_factory=list)

    def wrap(self, incarnation: Incarnation) -> Incarnation:
        return FaultyIncarnation(incarnation, self)

    def wrap_appender(self, appender: Appender) -> Appender:
        return FaultyAppender(appender, self)

    def act(self, name: str) -> None:
        act = getattr(self, name)
        if act is not None:
            setattr(self, name, None)
            self.fired.append(name)
            act()

    def take(self, name: str) -> bool:
        left = getattr(self, name)
        if left:
            setattr(self, name, left - 1)
            self.fired.append(name)
        return bool(left)


class FaultyIncarnation:
    """Delegates to a real incarnation, except where a fault is due. Owner ids are left alone."""

    def __init__(self, inner: Incarnation, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults
        self._is_lane = not inner.transactional_id.endswith(".owner")

    @property
    def transactional_id(self) -> str:
        return self._inner.transactional_id

    def initialise(self, deadline: Deadline) -> None:
        if self._is_lane and self._faults.take("dies_on_lanes"):
            raise DeadlineError("died before the fence, on purpose")
        self._inner.initialise(deadline)

    def begin(self) -> None:
        self._inner.begin()

    def send(self, topic: str, records: Iterable[OutputRecord], deadline: Deadline) -> int:
        queued = list(records)
        if self._is_lane:
            self._faults.act("before_records")
        if self._is_lane and queued and self._faults.take("refuses_records"):
            self._inner.send(topic, queued[: len(queued) // 2], deadline)
            raise AbortableError("produce() failed on purpose")
        return self._inner.send(topic, queued, deadline)

    def send_offsets(
        self, group: str, offsets: Mapping[tuple[str, int], int], deadline: Deadline
    ) -> None:
        if self._is_lane:
            self._faults.act("before_offsets")
        self._inner.send_offsets(group, offsets, deadline)

    def commit(self, deadline: Deadline) -> None:
        if not self._is_lane:
            self._inner.commit(deadline)
            return
        self._faults.act("before_commit")
        if self._faults.take("loses_request"):
            raise OutcomeUnknownError("the request was lost on purpose")
        self._inner.commit(deadline)
        if self._faults.take("loses_answer"):
            raise OutcomeUnknownError("the answer was lost on purpose")
        if self._faults.take("answers_fenced"):
            raise FencedError("a retried EndTxn was answered on purpose")

    def abort(self, deadline: Deadline) -> None:
        self._inner.abort(deadline)

    def discard(self) -> None:
        self._inner.discard()


class FaultyAppender:
    """Delegates to a real appender, except where a fault is due."""

    def __init__(self, inner: Appender, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    def append(self, topic: str, records: Iterable[OutputRecord], deadline: Deadline) -> int:
        queued = list(records)
        if queued and self._faults.take("refuses_append"):
            self._inner.append(topic, queued[: len(queued) // 2], deadline)
            raise AbortableError("an append failed on purpose")
        return self._inner.append(topic, queued, deadline)

    def close(self) -> None:
        self._inner.close()
