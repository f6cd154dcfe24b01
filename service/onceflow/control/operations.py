"""Orders that take a while: done when they are true, or to be asked about later."""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum

from onceflow.clock import Clock
from onceflow.errors import OnceflowError

MAX_KEPT = 200
"""Operations that can be asked about; the oldest that ended is forgotten first."""
MAX_AT_ONCE = 8
"""Orders that are carried out; others wait for their turn."""
MAX_RUNNING = 32
"""Orders that have not ended. More are refused."""


class Outcome(StrEnum):
    """How far an operation is."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass
class Operation:
    """One order.

    Args:
        operation_id: to ask about it.
        action: what was ordered.
        pipeline: of which pipeline; empty for the whole service.
        began_ms: when.
        outcome: how far it is.
        detail: what came of it, or why nothing.
        ended: set when it has ended.
    """

    operation_id: str
    action: str
    pipeline: str
    began_ms: int
    outcome: Outcome = Outcome.RUNNING
    detail: str = ""
    ended: threading.Event = field(default_factory=threading.Event)


class Operations:
    """Carries orders out and remembers what became of them.

    Args:
        clock: dates them.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[str, Operation] = OrderedDict()
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(MAX_AT_ONCE, thread_name_prefix="operation")

    def begin(self, action: str, pipeline: str, work: Callable[[], str]) -> Operation | None:
        """Begin to carry an order out; None if there are too many already.

        Args:
            action: its name.
            pipeline: whose.
            work: does it; returns what came of it, or raises `OnceflowError`.
        """
        operation = Operation(str(uuid.uuid4()), action, pipeline, self._clock.unix_ms())
        with self._lock:
            if sum(not one.ended.is_set() for one in self._kept.values()) >= MAX_RUNNING:
                return None
            self._kept[operation.operation_id] = operation
            self._forget()
        self._threads.submit(self._carry_out, operation, work)
        return operation

    def find(self, operation_id: str) -> Operation | None:
        """None if it is not known, or no more."""
        with self._lock:
            return self._kept.get(operation_id)

    def close(self) -> None:
        """Begin nothing more. What runs ends with the process."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _carry_out(self, operation: Operation, work: Callable[[], str]) -> None:
        try:
            operation.detail = work()
            operation.outcome = Outcome.DONE
        except OnceflowError as error:
            operation.detail = str(error)
            operation.outcome = Outcome.FAILED
        except BaseException:
            operation.detail = "an unexpected error; the service's log has it"
            operation.outcome = Outcome.FAILED
            raise
        finally:
            operation.ended.set()

    def _forget(self) -> None:
        ended = [name for name, one in self._kept.items() if one.ended.is_set()]
        for name in ended[: max(0, len(self._kept) - MAX_KEPT)]:
            del self._kept[name]
