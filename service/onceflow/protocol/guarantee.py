"""Computes the guarantee from end to end, why it is not more, and how to fix it. Pure.

Users choose parts; the weakest part decides the guarantee. A combination that cannot keep what was
asked for is refused, never silently weakened.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from onceflow.protocol.delivery import Delivery


class Replay(StrEnum):
    """Whether a source can be read again."""

    REPLAYABLE = "replayable"
    """A range always holds the same records, as long as the origin keeps them."""
    NONE = "none"
    """A record can be read only once."""


class State(StrEnum):
    """Where positions and state are kept."""

    DURABLE = "durable"
    EPHEMERAL = "ephemeral"
    EPHEMERAL_WAIVED = "ephemeral_waived"
    """Lost with the process; a waiver accepts that."""


class Reading(StrEnum):
    """How the output is read."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"
    DEDUPLICATING = "deduplicating"
    """By our consumer library, which also reads committed records only."""


class Determinism(StrEnum):
    """Whether the query computes the same rows on a replay."""

    HOLDS = "holds"
    WAIVED = "waived"
    """A rule is broken; a waiver accepts that."""
    BROKEN = "broken"


class Level(StrEnum):
    """The guarantee for each input record, strongest last."""

    REFUSED = "refused"
    AT_MOST_ONCE = "at_most_once"
    AT_LEAST_ONCE = "at_least_once"
    EXACTLY_ONCE_UNTIL_STATE_IS_LOST = "exactly_once_until_state_is_lost"
    EXACTLY_ONCE_UNLESS_REPLAYED = "exactly_once_unless_replayed"
    EXACTLY_ONCE = "exactly_once"


@dataclass(frozen=True)
class ChainParts:
    """The parts of a pipeline and its reader that decide the guarantee."""

    source: Replay
    state: State
    delivery: Delivery
    reading: Reading
    determinism: Determinism = Determinism.HOLDS


@dataclass(frozen=True)
class Weakness:
    """One reason why a guarantee is not more.

    Args:
        why: the part, and what it does to the guarantee.
        fix: what to do about it, as an imperative sentence.
    """

    why: str
    fix: str

    def __str__(self) -> str:
        return f"{self.why}. {self.fix}"


EPHEMERAL = Weakness(
    "positions and state would be lost with the process",
    "Put `checkpoint` on a disk or in an object store that outlives the process.",
)
EPHEMERAL_WAIVED = Weakness(
    "a waiver lets positions and state be lost with the process; the next start is refused then",
    "Put `checkpoint` where it outlives the process, so that the waiver is not needed.",
)
NOT_REPLAYABLE = Weakness(
    "the source cannot be read again, so what a crash interrupts is lost",
    "Write it to a topic first and read that, or ask for `delivery: at_most_once`.",
)
NOT_DETERMINISTIC = Weakness(
    "the query computes different rows when a batch is replayed",
    "Follow the suggestion of the rule that it breaks, or waive the rule with a reason.",
)
WAIVED = Weakness(
    "a rule of determinism is waived: a replayed batch may compute different rows",
    "Change the query so that the waiver is not needed.",
)
RECORDS_BEHIND_LEDGER = Weakness(
    "records are written after their entry in the ledger, and only once: a crash may lose them",
    "Ask for `delivery: exactly_once`.",
)
REPEATS = Weakness(
    "a replay writes again, and this reader does not discard repeats",
    "Read with Onceflow's consumer, or ask for `delivery: exactly_once`.",
)
UNCOMMITTED = Weakness(
    "this reader sees records of aborted transactions, and their repetition",
    "Read with `isolation.level=read_committed`, or with Onceflow's consumer.",
)


@dataclass(frozen=True)
class Guarantee:
    """The guarantee for each input record.

    Args:
        scope: from where to where, or under which condition.
        reasons: why it is not more; empty at the strongest level without a condition.
    """

    level: Level
    scope: str
    reasons: tuple[Weakness, ...] = ()

    def __str__(self) -> str:
        return f"{self.level.value.replace('_', ' ')} {self.scope}"


def effective_guarantee(parts: ChainParts) -> Guarantee:
    """Combine the parts into one guarantee."""
    if refusals := tuple(_refusals(parts)):
        return Guarantee(Level.REFUSED, "nothing runs", refusals)
    to_reader = "from the source to the reader"
    if parts.delivery is Delivery.AT_MOST_ONCE:
        return Guarantee(Level.AT_MOST_ONCE, to_reader, (RECORDS_BEHIND_LEDGER, *_lost(parts)))
    repeats = tuple(_repeats(parts))
    waivers = _lost(parts)
    waivers += (WAIVED,) if parts.determinism is Determinism.WAIVED else ()
    if repeats:
        return Guarantee(Level.AT_LEAST_ONCE, to_reader, (*repeats, *waivers))
    is_plain = parts.delivery is Delivery.EXACTLY_ONCE
    end = "the output topic" if is_plain else "a consumer that discards repeats"
    return Guarantee(_level_with(waivers), f"from the source to {end}", waivers)


def _level_with(waivers: tuple[Weakness, ...]) -> Level:
    if EPHEMERAL_WAIVED in waivers:
        return Level.EXACTLY_ONCE_UNTIL_STATE_IS_LOST
    return Level.EXACTLY_ONCE_UNLESS_REPLAYED if waivers else Level.EXACTLY_ONCE


def _lost(parts: ChainParts) -> tuple[Weakness, ...]:
    return (EPHEMERAL_WAIVED,) if parts.state is State.EPHEMERAL_WAIVED else ()


def _refusals(parts: ChainParts) -> Iterator[Weakness]:
    if parts.state is State.EPHEMERAL:
        yield EPHEMERAL
    if parts.source is Replay.NONE and parts.delivery is not Delivery.AT_MOST_ONCE:
        yield NOT_REPLAYABLE
    if parts.determinism is Determinism.BROKEN:
        yield NOT_DETERMINISTIC


def _repeats(parts: ChainParts) -> Iterator[Weakness]:
    """Why a reader may see a record's effect twice."""
    if parts.reading is Reading.DEDUPLICATING:
        return
    if parts.delivery is Delivery.AT_LEAST_ONCE:
        yield REPEATS
    elif parts.reading is Reading.READ_UNCOMMITTED:
        yield UNCOMMITTED
