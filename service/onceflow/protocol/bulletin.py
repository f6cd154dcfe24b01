"""Bulletins: a run posts its figures while it runs, and how it ended, for tools to read.

A bulletin decides nothing. It may be old, missing, or from a driver that no longer owns the
pipeline. The ledger stays the only truth about what was committed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from onceflow.errors import CorruptionError
from onceflow.protocol.ledger import canonical_json

RUNNING_KIND, END_KIND = 0, 1
"""Kinds of bulletins: the newest figures, and the newest end of a run."""
VERSION = 1
MAX_TEXT, MAX_WHAT = 450, 100
"""Characters of an error, so that a bulletin stays small."""


@dataclass(frozen=True)
class StateFigures:
    """The state of a query after its newest batch.

    Args:
        rows: as last sampled; None before the first sample.
        commit_ms: time that the batch took to change and commit the state stores, per task.
        upload_ms: the part of `commit_ms` that was spent writing files to the checkpoint.
    """

    rows: int | None = None
    memory_bytes: int = 0
    commit_ms: int = 0
    upload_ms: int = 0


@dataclass(frozen=True)
class Bulletin:
    """Figures of a run.

    Args:
        run_id: empty before the claim.
        at_ms: when this was written, by the host's clock.
        batch_id: newest batch that Spark has logged as done; -1 before the first.
        batch_at_ms: when `batch_id` was first seen; 0 before the first.
        records_per_second: of that batch; None if it read none.
        duration_ms: where the time of that batch went, by Spark's names.
        first_state_rows: rows in the state when the run first knew.
        memory_budget_bytes: for the driver's heap.
        retention_left_s: until retention is predicted to delete unread records; None if it is not.
    """

    run_id: str
    host: str
    at_ms: int
    batch_id: int = -1
    batch_at_ms: int = 0
    records_per_second: float | None = None
    duration_ms: Mapping[str, int] = field(default_factory=dict)
    state: StateFigures = StateFigures()
    first_state_rows: int | None = None
    memory_budget_bytes: int = 0
    retention_left_s: float | None = None

    def to_json(self) -> str:
        """Encode as canonical JSON."""
        return canonical_json({"v": VERSION, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> Bulletin:
        """Decode.

        Raises:
            CorruptionError: not a bulletin, or one of another version.
        """
        fields = _fields(text)
        fields["state"] = _made(StateFigures, fields.get("state", {}), text)
        return _made(cls, fields, text)


@dataclass(frozen=True)
class Ending:
    """How a run ended.

    Args:
        run_id: empty before the claim.
        at_ms: when the run ended, by the host's clock.
        error: name of the class; empty for a good end.
        what: what failed, in one clause of at most `MAX_WHAT`.
        message: the whole message, cut to `MAX_TEXT`.
    """

    run_id: str
    host: str
    at_ms: int
    exit_code: int = 0
    error: str = ""
    what: str = ""
    message: str = ""

    def to_json(self) -> str:
        """Encode as canonical JSON."""
        return canonical_json({"v": VERSION, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> Ending:
        """Decode; raises as `Bulletin.from_json` does."""
        return _made(cls, _fields(text), text)


_T = TypeVar("_T", StateFigures, Bulletin, Ending)


def _fields(text: str) -> dict[str, Any]:
    try:
        fields: dict[str, Any] = json.loads(text)
        version = fields.pop("v")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(text) from error
    if version != VERSION:
        raise _unreadable(text)
    return fields


def _made(kind: type[_T], fields: Mapping[str, Any], text: str) -> _T:
    try:
        return kind(**fields)
    except TypeError as error:
        raise _unreadable(text) from error


def _unreadable(text: str) -> CorruptionError:
    return CorruptionError(
        "unreadable bulletin",
        expected=f"one of version {VERSION}",
        found=repr(text[:120]),
        then="the next one of a run of this version replaces it",
    )
