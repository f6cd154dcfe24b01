"""Tries mutants one after the other, each in a copy of its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from onceflow.clock import Clock
from tests.faults.mutants.copies import PatchError, apply_patch, copy_repository
from tests.faults.mutants.mutant import Mutant
from tests.faults.mutants.trial import Run, Verdict, judge, run_tests

MUTANT_TIMEOUT_S = 180.0
"""For the tests of one mutant; they take 3 to 30 s."""
GREEN_TIMEOUT_S = 900.0
"""For every named test once, in one process."""


@dataclass(frozen=True)
class Result:
    """The result of one mutant.

    Args:
        mutant: which.
        verdict: the judgement.
        why: what is behind a verdict other than caught.
        run: of its tests.
        seconds: that it took.
    """

    mutant: Mutant
    verdict: Verdict
    why: str
    run: Run
    seconds: float

    def to_json(self) -> Mapping[str, object]:
        """For a report: one JSON object."""
        return {
            "mutant": self.mutant.name,
            "what": self.mutant.what,
            "verdict": self.verdict.value,
            "why": self.why,
            "seconds": round(self.seconds, 1),
            "tests": [
                {"test": test, "says": list(self.run.failures[test].says)}
                if test in self.run.failures
                else {"test": test, "says": None}
                for test in self.mutant.tests
            ],
        }


@dataclass
class Laboratory:
    """A place for copies.

    Args:
        root: of the repository.
        folder: for the copies; must be empty.
        environment: further variables for the tests.
        clock: measures.
    """

    root: Path
    folder: Path
    environment: Mapping[str, str]
    clock: Clock
    _red: frozenset[str] = field(default=frozenset(), init=False)
    _output: Sequence[str] = field(default=(), init=False)

    @property
    def _original(self) -> Path:
        return self.folder / "original"

    def run_unchanged(self, mutants: Sequence[Mutant]) -> Sequence[str]:
        """Run every named test once without a mutant: one that is red anyway catches nothing.

        Returns:
            Those that did not pass.
        """
        tests = list(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
        copy_repository(self.root, self._original)
        run = run_tests(self._original, tests, GREEN_TIMEOUT_S, self.environment)
        self._red = frozenset(t for t in tests if t not in run.ran or t in run.failures)
        self._output = run.output
        return sorted(self._red)

    def try_all(self, mutants: Sequence[Mutant]) -> Iterator[Result]:
        """Judge mutants, each on a copy; `run_unchanged` goes first."""
        for mutant in mutants:
            began_at_s = self.clock.monotonic_s()
            run, verdict, why = self._try(mutant)
            yield Result(mutant, verdict, why, run, self.clock.monotonic_s() - began_at_s)

    def _try(self, mutant: Mutant) -> tuple[Run, Verdict, str]:
        if red := sorted(self._red.intersection(mutant.tests)):
            told = [f"not green without the mutant: {', '.join(red)}", *self._output]
            return Run(None), Verdict.BROKEN, "\n".join(told)
        copy = self.folder / mutant.name
        shutil.copytree(self._original, copy)
        try:
            apply_patch(mutant.patch, copy)
            run = run_tests(copy, mutant.tests, MUTANT_TIMEOUT_S, self.environment)
        except PatchError as error:
            return Run(None), Verdict.BROKEN, str(error)
        finally:
            shutil.rmtree(copy)
        return run, *judge(run, mutant.tests)
