"""Batches of numbered rows, as the tests of targets write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from onceflow.contracts.target import Batch, Claim, Mark, Move, Values

DDL = "n BIGINT NOT NULL, page STRING"
PLACE = ("views", 0)


def batch(claim: Claim, rows: Sequence[Values], *more: Move) -> Batch:
    start = claim.mark.offset if claim.mark else 0
    move = Move(claim, Mark(start + len(rows), f"after {start + len(rows)}"))
    return Batch((), rows, [move, *more])


def after(written: Batch) -> Claim:
    move = written.moves[0]
    return replace(move.claim, mark=move.to)


def numbered(first: int, count: int) -> Sequence[Values]:
    return [(n, f"page {n}") for n in range(first, first + count)]
