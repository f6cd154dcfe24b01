"""What is really guaranteed from end to end, and why not more. Pure: a table and its reasons.

People choose parts; the guarantee is that of the weakest. A combination that cannot keep what was
asked for is refused rather than silently weakened.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Replay(StrEnum):
    """Whether a source can be read again."""

    REPLAYABLE = "replayable"
    """A range always holds the same records, as long as the origin keeps them."""
    JOURNALED = "journaled"
    """A gateway writes to a replayable log before it accepts."""
    NONE = "none"
    """What was read once is gone."""


class State(StrEnum):
    """Where positions and state are kept."""

    DURABLE = "durable"
    EPHEMERAL = "ephemeral"


class Writing(StrEnum):
    """How output is written."""

    TRANSACTIONAL = "transactional"
    """Records and ledger entry in one transaction; a replay is skipped."""
    IDEMPOTENT = "idempotent"
    """Without transaction; a replay writes the same sequences again."""


class Reading(StrEnum):
    """How output is read."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"
    DEDUPLICATING = "deduplicating"
    """By our consumer library, which also reads committed records only."""


class Determinism(StrEnum):
    """Whether the query computes the same rows on a replay."""

    HOLDS = "holds"
    WAIVED = "waived"
    """A rule is broken and somebody took the responsibility."""
    BROKEN = "broken"


class Level(StrEnum):
    """What holds for each input record, strongest last."""

    REFUSED = "refused"
    AT_MOST_ONCE = "at_most_once"
    AT_LEAST_ONCE = "at_least_once"
    EXACTLY_ONCE_UNLESS_REPLAYED = "exactly_once_unless_replayed"
    EXACTLY_ONCE = "exactly_once"


@dataclass(frozen=True)
class Parts:
    """What a pipeline and its reader are made of."""

    source: Replay
    state: State
    writing: Writing
    reading: Reading
    determinism: Determinism = Determinism.HOLDS


@dataclass(frozen=True)
class Guarantee:
    """What is guaranteed.

    Args:
        level: for each input record.
        scope: from where to where, or under which condition.
        reasons: why it is not more; empty at the strongest level without a condition.
    """

    level: Level
    scope: str
    reasons: tuple[str, ...] = ()


def effective_guarantee(parts: Parts) -> Guarantee:
    """The guarantee that these parts give together."""
    if refusals := _refusals(parts):
        return Guarantee(Level.REFUSED, "nothing runs", refusals)
    if parts.source is Replay.NONE:
        reason = "the source cannot be read again, so what a crash interrupts is lost"
        return Guarantee(Level.AT_MOST_ONCE, "from the source to the reader", (reason,))
    weak_link = _weak_link(parts)
    if weak_link is not None:
        return Guarantee(Level.AT_LEAST_ONCE, "from the source to the reader", (weak_link,))
    scope = _scope(parts)
    if parts.determinism is Determinism.WAIVED:
        reason = "a rule of determinism is waived: a replayed batch may compute other rows"
        return Guarantee(Level.EXACTLY_ONCE_UNLESS_REPLAYED, scope, (reason,))
    return Guarantee(Level.EXACTLY_ONCE, scope)


def _refusals(parts: Parts) -> tuple[str, ...]:
    reasons = []
    if parts.state is State.EPHEMERAL:
        reasons.append("positions and state would be lost with the process")
    if parts.determinism is Determinism.BROKEN:
        reasons.append("the query computes other rows when a batch is replayed")
    return tuple(reasons)


def _weak_link(parts: Parts) -> str | None:
    """Why a reader may see a record's effect twice; None if it cannot."""
    if parts.reading is Reading.DEDUPLICATING:
        return None
    if parts.writing is Writing.IDEMPOTENT:
        return "a replay writes again, and this reader does not discard repeats"
    if parts.reading is Reading.READ_UNCOMMITTED:
        return "this reader sees records of aborted transactions, and their repetition"
    return None


def _scope(parts: Parts) -> str:
    origin = "the source" if parts.source is Replay.REPLAYABLE else "the accepted post"
    if parts.writing is Writing.IDEMPOTENT:
        return f"from {origin} to a consumer that discards repeats"
    return f"from {origin} to the output topic"
