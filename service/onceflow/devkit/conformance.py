"""Checks that a source keeps the promises of `onceflow.contracts.source`; for your own, too.

You write an `Origin`: something that a test can write to, and that hands out fresh instances of
your source. Then, with or without a test framework:

    for result in check_source(open_my_origin):
        print(result)

An origin that cannot do something, such as compaction, does not name that feature, and the cases
that need it are passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum

from onceflow.devkit.conformance_cases import CASES, Case
from onceflow.devkit.conformance_origin import NonconformanceError, Origin
from onceflow.errors import OnceflowError


class Outcome(Enum):
    """What came of a case."""

    PASSED = "passed"
    FAILED = "FAILED"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True)
class Result:
    """What came of one case, and why."""

    case: Case
    outcome: Outcome
    detail: str = ""

    def __str__(self) -> str:
        text = f"{self.outcome.value}: {self.case.promise}"
        return f"{text}\n    {self.detail}" if self.detail else text


def check_source(
    open_origin: Callable[[], AbstractContextManager[Origin]], cases: Iterable[Case] = CASES
) -> list[Result]:
    """Run cases, each on a fresh origin with two empty partitions.

    Args:
        open_origin: makes such an origin and disposes of it afterwards.
        cases: which.
    """
    return [_run(case, open_origin) for case in cases]


def _run(case: Case, open_origin: Callable[[], AbstractContextManager[Origin]]) -> Result:
    with open_origin() as origin:
        if missing := case.needs - origin.features:
            names = ", ".join(sorted(feature.value for feature in missing))
            return Result(case, Outcome.NOT_APPLICABLE, f"the origin has no {names}")
        try:
            case.check(origin)
        except (NonconformanceError, OnceflowError) as error:
            return Result(case, Outcome.FAILED, f"{type(error).__name__}: {error}")
    return Result(case, Outcome.PASSED)
