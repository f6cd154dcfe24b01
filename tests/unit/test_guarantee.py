"""The truth table of what is really guaranteed."""

from __future__ import annotations

from itertools import product

import pytest

from onceflow.protocol.guarantee import (
    Determinism,
    Level,
    Parts,
    Reading,
    Replay,
    State,
    Writing,
    effective_guarantee,
)

R, S, W, C, D = Replay, State, Writing, Reading, Determinism


@pytest.mark.parametrize(
    ("parts", "level", "scope"),
    [
        (
            Parts(R.REPLAYABLE, S.DURABLE, W.TRANSACTIONAL, C.READ_COMMITTED),
            Level.EXACTLY_ONCE,
            "from the source to the output topic",
        ),
        (
            Parts(R.REPLAYABLE, S.DURABLE, W.TRANSACTIONAL, C.DEDUPLICATING),
            Level.EXACTLY_ONCE,
            "from the source to the output topic",
        ),
        (
            Parts(R.REPLAYABLE, S.DURABLE, W.TRANSACTIONAL, C.READ_UNCOMMITTED),
            Level.AT_LEAST_ONCE,
            "from the source to the reader",
        ),
        (
            Parts(R.REPLAYABLE, S.DURABLE, W.IDEMPOTENT, C.DEDUPLICATING),
            Level.EXACTLY_ONCE,
            "from the source to a consumer that discards repeats",
        ),
        (
            Parts(R.REPLAYABLE, S.DURABLE, W.IDEMPOTENT, C.READ_COMMITTED),
            Level.AT_LEAST_ONCE,
            "from the source to the reader",
        ),
        (
            Parts(R.JOURNALED, S.DURABLE, W.TRANSACTIONAL, C.READ_COMMITTED),
            Level.EXACTLY_ONCE,
            "from the accepted post to the output topic",
        ),
        (
            Parts(R.NONE, S.DURABLE, W.TRANSACTIONAL, C.READ_COMMITTED),
            Level.AT_MOST_ONCE,
            "from the source to the reader",
        ),
        (
            Parts(R.REPLAYABLE, S.DURABLE, W.TRANSACTIONAL, C.READ_COMMITTED, D.WAIVED),
            Level.EXACTLY_ONCE_UNLESS_REPLAYED,
            "from the source to the output topic",
        ),
    ],
    ids=lambda value: " ".join(vars(value).values()) if isinstance(value, Parts) else None,
)
def test_the_guarantee_is_that_of_the_weakest_part(parts: Parts, level: Level, scope: str) -> None:
    found = effective_guarantee(parts)

    assert (found.level, found.scope) == (level, scope)


ALL = [Parts(*parts) for parts in product(R, S, W, C, D)]


@pytest.mark.parametrize("parts", [p for p in ALL if p.state is S.EPHEMERAL], ids=str)
def test_nothing_runs_without_a_durable_checkpoint(parts: Parts) -> None:
    found = effective_guarantee(parts)

    assert found.level is Level.REFUSED
    assert "positions and state would be lost with the process" in found.reasons


@pytest.mark.parametrize("parts", [p for p in ALL if p.determinism is D.BROKEN], ids=str)
def test_nothing_runs_that_computes_other_rows_on_a_replay(parts: Parts) -> None:
    found = effective_guarantee(parts)

    assert found.level is Level.REFUSED
    assert "the query computes other rows when a batch is replayed" in found.reasons


def test_whatever_is_less_than_exactly_once_says_why() -> None:
    for parts in ALL:
        found = effective_guarantee(parts)
        assert bool(found.reasons) == (found.level is not Level.EXACTLY_ONCE)
