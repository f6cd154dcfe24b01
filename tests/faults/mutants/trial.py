"""Runs tests in a copy and judges a mutant by them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tests.faults.mutants.outcomes import OUTCOMES_VARIABLE, PROFILE

PLUGIN = "tests.faults.mutants.outcomes"
SEED = "1"
"""Of every run, so that a verdict can be had again."""
ALL_PASSED, SOME_FAILED = 0, 1
"""Exit codes of pytest; all others mean that tests were not run."""
NO_VERDICT = {"ImportError", "ModuleNotFoundError", "SyntaxError", "IndentationError", "NameError"}
"""What a careless patch raises, and no broken guarantee does."""
OUTPUT_SHOWN = 5
"""Lines of pytest's output where no test can tell."""


class Verdict(StrEnum):
    """The verdict on a mutant."""

    CAUGHT = "caught"
    """Every test that it names failed."""
    SURVIVED = "survived"
    """Some test that it names passed."""
    BROKEN = "broken"
    """It proves nothing: the patch does not fit, or the tests could not be run."""


@dataclass(frozen=True)
class Failure:
    """The first failure of a test that was named.

    Args:
        error: name of the exception's class.
        says: last lines of its message.
    """

    error: str
    says: Sequence[str]


@dataclass(frozen=True)
class Run:
    """The result of one process of pytest.

    Args:
        exit_code: None if it had to be ended.
        ran: named tests of which at least one case was called.
        failures: of the named tests.
        output: last lines that pytest printed.
    """

    exit_code: int | None
    ran: frozenset[str] = frozenset()
    failures: Mapping[str, Failure] = field(default_factory=dict)
    output: Sequence[str] = ()


def run_tests(
    copy: Path, tests: Sequence[str], timeout_s: float, environment: Mapping[str, str]
) -> Run:
    """Run tests of a copy against the code of that copy, in one process.

    Args:
        copy: root of the tree.
        tests: node ids.
        timeout_s: after which the process is ended.
        environment: further variables, such as the address of a broker.
    """
    outcomes = copy / "outcomes.jsonl"
    outcomes.unlink(missing_ok=True)
    places = os.pathsep.join(str(copy / name) for name in ("service", "connectors"))
    # Compiled modules are kept, so that the next copy need not compile them again.
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", PLUGIN, "-p", "no:cacheprovider"]
    command += [f"--hypothesis-seed={SEED}", f"--hypothesis-profile={PROFILE}", *tests]
    variables = {
        **inherited,
        "ONCEFLOW_TEST_SEED": SEED,
        **environment,
        "PYTHONPATH": places,
        OUTCOMES_VARIABLE: str(outcomes),
    }
    printed = copy / "printed"
    with printed.open("wb") as out:  # no pipe, which a process left behind would hold open
        try:
            done = subprocess.run(
                command,
                cwd=copy,
                env=variables,
                timeout=timeout_s,
                check=False,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        except subprocess.TimeoutExpired:
            return Run(None, output=[f"not done within {timeout_s:g} s"])
    lines = printed.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return _read(outcomes, tests, Run(done.returncode, output=lines[-OUTPUT_SHOWN:]))


def judge(run: Run, tests: Sequence[str]) -> tuple[Verdict, str]:
    """Whether the tests noticed, and why not.

    A failure counts if it happened in the test itself, by an assertion or an error of the product:
    not while it was collected or set up.
    """
    if run.exit_code not in {ALL_PASSED, SOME_FAILED}:
        return Verdict.BROKEN, "\n".join(run.output)
    if not_run := [test for test in tests if test not in run.ran]:
        return Verdict.BROKEN, f"not run: {', '.join(not_run)}"
    for test, failure in run.failures.items():
        if failure.error in NO_VERDICT:
            return Verdict.BROKEN, f"{test}: {failure.error}: {' '.join(failure.says)}"
    if green := [test for test in tests if test not in run.failures]:
        return Verdict.SURVIVED, f"stays green: {', '.join(green)}"
    return Verdict.CAUGHT, ""


def _read(outcomes: Path, tests: Sequence[str], run: Run) -> Run:
    text = outcomes.read_text(encoding="utf-8") if outcomes.is_file() else ""
    ran: set[str] = set()
    failures: dict[str, Failure] = {}
    for line in map(json.loads, text.splitlines()):
        named = [test for test in tests if _is_case_of(line["test"], test)]
        if line["phase"] == "call":
            ran.update(named)
        if line["phase"] == "call" and line["is_failed"]:
            found = Failure(line["error"], line["says"])
            failures = {**dict.fromkeys(named, found), **failures}
    return Run(run.exit_code, frozenset(ran), failures, run.output)


def _is_case_of(found: str, named: str) -> bool:
    return found == named or found.startswith((f"{named}[", f"{named}::"))
