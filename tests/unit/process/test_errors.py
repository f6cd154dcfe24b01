"""Errors tell what to do next, and survive the way from one process to another."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from onceflow.errors import ConfigError, Fault, InvariantError, OnceflowError, require

ROOT = Path(__file__).parents[3]
EXIT_CODES = {
    "ConfigError": 2,
    "RetriableError": 3,
    "DeadlineError": 3,
    "AbortableError": 3,
    "FencedError": 4,
    "OutcomeUnknownError": 5,
    "RecordError": 6,
    "LineageError": 7,
    "CorruptionError": 7,
    "InvariantError": 70,
}
PERMANENT = {"ConfigError", "FencedError", "RecordError", "LineageError", "CorruptionError"}
"""The same start would end the same way: no service manager should make it."""
FAULTS = (
    Fault("unknown key", where="sources.clicks.latenes", line=7, suggestion="Write `lateness`"),
)


def subclasses(of: type[OnceflowError]) -> Iterator[type[OnceflowError]]:
    for child in of.__subclasses__():
        yield child
        yield from subclasses(child)


# Only those of the module itself: what else is loaded depends on which tests run.
ALL = [kind for kind in subclasses(OnceflowError) if kind.__module__ == OnceflowError.__module__]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_class_survives_pickling_with_all_it_says(kind: type[OnceflowError]) -> None:
    error = kind("it failed", subject="batch 41", expected="6", found="7", then="stopping")
    if isinstance(error, ConfigError):
        error.faults = FAULTS

    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is kind
    assert str(copy) == str(error)
    assert copy.__dict__ == error.__dict__
    assert copy.args == error.args


def test_every_class_has_the_exit_code_of_its_consequence() -> None:
    assert {kind.__name__: kind.exit_code for kind in ALL} == EXIT_CODES


def test_what_would_fail_again_is_known() -> None:
    assert {kind.__name__ for kind in ALL if kind.is_permanent} == PERMANENT


def test_a_message_says_what_failed_then_the_facts_then_what_happens() -> None:
    error = OnceflowError("commit refused", subject="batch 41", expected="token 7", found="token 6")

    assert str(error) == "commit refused: batch 41; expected token 7; found token 6"
    assert str(OnceflowError("commit refused", then="stopping")) == "commit refused; stopping"
    assert str(OnceflowError("commit refused")) == "commit refused"


def test_a_refused_configuration_lists_every_fault_on_a_line_of_its_own() -> None:
    error = ConfigError("2 faults", faults=(*FAULTS, Fault("no sink")))

    assert str(error).splitlines() == [
        "2 faults",
        "  - line 7, sources.clicks.latenes: unknown key. Write `lateness`",
        "  - no sink",
    ]


def test_a_broken_invariant_raises_and_one_that_holds_does_not() -> None:
    require(True, "sequences are contiguous")

    with pytest.raises(InvariantError, match=r"sequences are contiguous.*found 3.*bug in Onceflow"):
        require(False, "sequences are contiguous", found="3")


def test_every_class_is_explained_in_the_documents() -> None:
    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")

    missing = [kind.__name__ for kind in ALL if not re.search(rf"`{kind.__name__}`", text)]

    assert missing == []
