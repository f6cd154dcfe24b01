"""The truth table of what is really guaranteed, over every combination of parts."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from onceflow.protocol.delivery import Delivery
from onceflow.protocol.guarantee import (
    EPHEMERAL,
    EPHEMERAL_WAIVED,
    NOT_DETERMINISTIC,
    NOT_REPLAYABLE,
    RECORDS_BEHIND_LEDGER,
    REPEATS,
    UNCOMMITTED,
    WAIVED,
    ChainParts,
    Determinism,
    Level,
    Reading,
    Replay,
    State,
    Weakness,
    effective_guarantee,
)

TABLE = """
    source  state      delivery       reading           determinism  level
    *       ephemeral  *              *                 *            refused
    *       *          *              *                 broken       refused
    none    *          exactly_once   *                 *            refused
    none    *          at_least_once  *                 *            refused
    *       *          at_most_once   *                 *            at_most_once
    *       *          exactly_once   read_uncommitted  *            at_least_once
    *       *          at_least_once  read_committed    *            at_least_once
    *       *          at_least_once  read_uncommitted  *            at_least_once
    *       ephemeral_waived  *       *              *            exactly_once_until_state_is_lost
    *       *          *              *                 waived       exactly_once_unless_replayed
    *       *          *              *                 *            exactly_once
"""
"""Of docs/guarantees.md, in words: the first line that fits decides."""
LINES = [line.split() for line in TABLE.strip().splitlines()[1:]]
ALL = [ChainParts(*parts) for parts in product(Replay, State, Delivery, Reading, Determinism)]
MENDED: dict[Weakness, list[dict[str, object]]] = {
    EPHEMERAL: [{"state": State.DURABLE}, {"state": State.EPHEMERAL_WAIVED}],
    EPHEMERAL_WAIVED: [{"state": State.DURABLE}],
    NOT_REPLAYABLE: [{"source": Replay.REPLAYABLE}, {"delivery": Delivery.AT_MOST_ONCE}],
    NOT_DETERMINISTIC: [
        {"determinism": Determinism.HOLDS},
        {"determinism": Determinism.WAIVED},
    ],
    WAIVED: [{"determinism": Determinism.HOLDS}],
    RECORDS_BEHIND_LEDGER: [{"delivery": Delivery.EXACTLY_ONCE}],
    REPEATS: [{"reading": Reading.DEDUPLICATING}, {"delivery": Delivery.EXACTLY_ONCE}],
    UNCOMMITTED: [{"reading": Reading.READ_COMMITTED}, {"reading": Reading.DEDUPLICATING}],
}
"""The fix that each weakness names."""


def words(parts: ChainParts) -> list[str]:
    return [str(value) for value in vars(parts).values()]


def told(parts: ChainParts) -> str:
    """The level that the table gives."""
    for *wanted, level in LINES:
        if all(cell in {"*", word} for cell, word in zip(wanted, words(parts), strict=True)):
            return level
    raise AssertionError(parts)


@pytest.mark.parametrize("parts", ALL, ids=lambda parts: " ".join(words(parts)))
def test_the_guarantee_is_that_of_the_weakest_part(parts: ChainParts) -> None:
    found = effective_guarantee(parts)
    assert found.level.value == told(parts)
    assert bool(found.reasons) == (found.level is not Level.EXACTLY_ONCE)
    for reason in found.reasons:
        assert reason.why[0].islower()
        assert not reason.why.endswith(".")
        assert reason.fix[0].isupper()
        assert reason.fix.endswith(".")


def test_every_line_of_the_table_and_every_weakness_is_met() -> None:
    first = [
        next(n for n, line in enumerate(LINES) if all(
            cell in {"*", word} for cell, word in zip(line, words(parts), strict=False)
        ))
        for parts in ALL
    ]  # fmt: skip
    assert set(first) == set(range(len(LINES)))
    assert {r for parts in ALL for r in effective_guarantee(parts).reasons} == set(MENDED)


@pytest.mark.parametrize("parts", ALL, ids=lambda parts: " ".join(words(parts)))
def test_what_is_said_to_mend_a_weakness_does(parts: ChainParts) -> None:
    for reason in effective_guarantee(parts).reasons:
        for change in MENDED[reason]:
            mended = effective_guarantee(replace(parts, **change))  # type: ignore[arg-type]
            assert reason not in mended.reasons


@pytest.mark.parametrize(
    ("source", "delivery", "scope"),
    [
        (Replay.REPLAYABLE, Delivery.EXACTLY_ONCE, "from the source to the output topic"),
        (
            Replay.REPLAYABLE,
            Delivery.AT_LEAST_ONCE,
            "from the source to a consumer that discards repeats",
        ),
        (Replay.REPLAYABLE, Delivery.AT_MOST_ONCE, "from the source to the reader"),
    ],
)
def test_it_says_from_where_to_where(source: Replay, delivery: Delivery, scope: str) -> None:
    found = effective_guarantee(ChainParts(source, State.DURABLE, delivery, Reading.DEDUPLICATING))
    assert found.scope == scope
    assert str(found) == f"{found.level.value.replace('_', ' ')} {scope}"
