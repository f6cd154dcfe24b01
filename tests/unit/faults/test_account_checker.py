"""The check of the account finds every way in which it can be wrong."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.checkers import account_faults

COUNTED = {"read": 7, "late": 1, "rejected": 2, "written": 3}


def heads(**totals: int) -> list[dict[str, Any]]:
    first = {"read": 3, "late": 0, "rejected": 2, "written": 1}
    second = {"read": 4, "late": 1, "rejected": 0, "written": 2}
    whole = {"read": 7, "late": 1, "rejected": 2, "written": 3} | totals
    return [{"records": first, "totals": first}, {"records": second, "totals": whole}]


def test_an_account_that_agrees_has_no_fault() -> None:
    assert account_faults(heads(), COUNTED) == []


@pytest.mark.parametrize("name", COUNTED)
def test_another_count_is_a_fault(name: str) -> None:
    (fault,) = account_faults(heads(), COUNTED | {name: 9})
    assert fault.startswith(f"{name}: ")
    assert fault.endswith(", 9 counted")


@pytest.mark.parametrize("name", COUNTED)
def test_totals_that_are_not_those_of_the_batches_are_a_fault(name: str) -> None:
    (fault,) = account_faults(heads(**{name: 9}), COUNTED | {name: 9})
    assert fault.startswith(f"{name}: ")
    assert fault.endswith(", 9 in the totals")
