"""The same as test_explorer.py in spaces that take minutes: for `make check`, not `make test`.

Two spaces take minutes of a processor; their third batch is searched by `make faults`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.everything import is_everything
from tests.support.explorer.liveness import fresh_run
from tests.support.explorer.product import Rules
from tests.support.explorer.removals import RANGELESS, remedied_comparison
from tests.support.explorer.scope import ALL_FAULTS, Beginning, Fault, Scope
from tests.support.explorer.search import explore, tell
from tests.support.explorer.spark import LogWrites

pytestmark = [pytest.mark.explorer, pytest.mark.timeout(1800)]

EVERY = ALL_FAULTS - {Fault.REFUSED_FOR_GOOD}
"""That one adds nothing that a crash does not do, and doubles a space."""
FEWER = EVERY - {Fault.LATE_INIT}
BATCHES = 3 if is_everything() else 2
SCOPES = {
    "every fault": Scope(batches=BATCHES, faults=EVERY),
    "overwritten plans": Scope(
        batches=BATCHES,
        plan_variants=2,
        log_writes=LogWrites.CHECK_THEN_RENAME,
        faults=FEWER,
    ),
    "tasks that write": Scope(batches=2, has_writers=True, faults=FEWER),
    "an empty ledger": Scope(batches=2, begins=Beginning.NOTHING, faults=FEWER),
    "three drivers": Scope(
        runs=3, lanes=1, batches=2, faults=frozenset({Fault.LOST_ANSWER, Fault.LANE_TIMEOUT})
    ),
}
LONG = {"overwritten plans", "an empty ledger"}
"""Smaller ones of the same kind are in test_explorer.py."""


def _marks(name: str) -> Sequence[pytest.MarkDecorator]:
    return [pytest.mark.long] if name in LONG else []


@pytest.mark.parametrize(
    "scope", [pytest.param(s, marks=_marks(n), id=n) for n, s in SCOPES.items()]
)
def test_no_order_of_steps_breaks_a_guarantee(
    scope: Scope, capsys: pytest.CaptureFixture[str]
) -> None:
    result = explore(scope)
    assert result.violation is None, result.story()
    liveness = fresh_run(result, rules=Rules(compare=remedied_comparison))
    assert liveness.is_good
    with capsys.disabled():
        tell(
            f"\nexplorer: {len(result.worlds)} worlds, {result.steps} steps between them;"
            f" a fresh driver finishes from {liveness.starts} of them that differ to it"
        )


@pytest.mark.long
def test_input_would_be_lost_if_ranges_were_not_compared() -> None:
    result = explore(RANGELESS.scope, RANGELESS.rules, RANGELESS.finds)
    assert result.violation is not None
    tell(result.story())
