"""The mutants fit the product, say what they must, and are judged rightly."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from difflib import unified_diff
from pathlib import Path

import pytest

from onceflow.clock import SystemClock
from tests.faults.mutants import mutant as headers
from tests.faults.mutants.copies import (
    PatchError,
    apply_patch,
    copy_files,
)
from tests.faults.mutants.laboratory import Laboratory
from tests.faults.mutants.mutant import HeaderError, Mutant, read_mutant, read_mutants
from tests.faults.mutants.trial import Failure, Run, Verdict, judge, run_tests

ROOT = Path(__file__).parents[3]
MUTANTS = read_mutants()
FEWEST = 25
ON_A_BROKER = ("tests/integration/", "tests/faults/test_")
BY_NAME = "[broker]"


def test_there_are_enough_of_them_and_half_are_noticed_on_a_real_broker() -> None:
    assert len(MUTANTS) >= FEWEST
    real = [m for m in MUTANTS if any(t.startswith(ON_A_BROKER) or BY_NAME in t for t in m.tests)]
    assert 2 * len(real) >= len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_patch_fits_and_changes_what_runs(mutant: Mutant, tmp_path: Path) -> None:
    copy_files(ROOT, tmp_path, mutant.files)
    before = {name: code_of(ROOT / name) for name in mutant.files}
    apply_patch(mutant.patch, tmp_path)
    after = {name: code_of(tmp_path / name) for name in mutant.files}
    assert not [name for name in mutant.files if before[name] == after[name]]
    assert all(name.startswith(("service/", "connectors/")) for name in mutant.files)


def code_of(file: Path) -> str:
    """All but comments, and what only looks different."""
    text = file.read_text()
    if file.suffix == ".java":
        return " ".join(re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL).split())
    return ast.dump(ast.parse(text))


def test_the_tests_that_they_name_exist() -> None:
    named = sorted({test for mutant in MUTANTS for test in mutant.tests})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    found = subprocess.run(
        [*command, *named],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    missing = [line for line in found.stdout.splitlines() if line.startswith("ERROR")]
    assert not missing
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("caught-by: a.py::t\n--- a/x\n+++ b/x\n", "are needed"),
        ("what: w\n--- a/x\n+++ b/x\n", "are needed"),
        ("what: w\nwhat: v\ncaught-by: a.py::t\n--- a/x\n+++ b/x\n", "are needed"),
        ("what: w\ncaught-by: a.py::t\n", "are needed"),
        ("what: w\ncaught-bye: a.py::t\n--- a/x\n+++ b/x\n", "caught-bye"),
    ],
)
def test_a_header_that_is_not_complete_is_refused(
    text: str, complaint: str, tmp_path: Path
) -> None:
    patch = tmp_path / "m.patch"
    patch.write_text(text)
    with pytest.raises(HeaderError, match=complaint):
        read_mutant(patch)


def test_a_patch_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("something else\n")
    patch = tmp_path / "m.patch"
    patch.write_text("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n")
    with pytest.raises(PatchError, match="x: the lines of a hunk occur 0 times"):
        apply_patch(patch, tmp_path)
    (tmp_path / "x").write_text("old\nold\n")
    with pytest.raises(PatchError, match="x: the lines of a hunk occur 2 times"):
        apply_patch(patch, tmp_path)
    assert (tmp_path / "x").read_text() == "old\nold\n"


ASSERTION = Failure("AssertionError", ["assert 1 == 2"])


@pytest.mark.parametrize(
    ("run", "verdict"),
    [
        (Run(1, frozenset("ab"), {"a": ASSERTION, "b": ASSERTION}), Verdict.CAUGHT),
        (Run(1, frozenset("ab"), {"a": ASSERTION}), Verdict.SURVIVED),
        (Run(0, frozenset("ab")), Verdict.SURVIVED),
        (Run(1, frozenset("a"), {"a": ASSERTION}), Verdict.BROKEN),
        (Run(1, frozenset("ab"), {"a": ASSERTION, "b": Failure("NameError", [])}), Verdict.BROKEN),
        (Run(2, frozenset("ab"), {"a": ASSERTION, "b": ASSERTION}), Verdict.BROKEN),
        (Run(None), Verdict.BROKEN),
    ],
)
def test_a_mutant_is_caught_only_if_every_test_failed_by_itself(run: Run, verdict: Verdict) -> None:
    assert judge(run, ["a", "b"])[0] is verdict


PRODUCT = """\
def double(n: int) -> int:
    return n + n


def unused() -> None:
    pass
"""
TESTS = """\
import onceflow
import pytest


@pytest.fixture
def needed():
    return onceflow.unused


def test_two():
    assert onceflow.double(2) == 4


def test_three(needed):
    assert onceflow.double(3) == 6


def test_red():
    assert False
"""
FILE = "service/onceflow/__init__.py"
BOTH = ("test_two", "test_three")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A repository with a product of one function, which the installed product does not have."""
    root = tmp_path / "small"
    files = {
        FILE: PRODUCT,
        "connectors/onceflow_connectors/__init__.py": "",
        "tests/test_small.py": TESTS,
        "pyproject.toml": "[tool.pytest.ini_options]\naddopts = ['--import-mode=importlib']\n",
        ".gitignore": "__pycache__/\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    tools = root / "tests" / "faults" / "mutants"
    tools.mkdir(parents=True)
    for name in ("__init__.py", "outcomes.py"):
        shutil.copy(Path(headers.__file__).with_name(name), tools)
    return root


def test_each_mutant_gets_the_verdict_that_it_deserves(small: Path, tmp_path: Path) -> None:
    def mutant(name: str, old: str, new: str, *tests: str, text: str = PRODUCT) -> Mutant:
        assert old in text
        changed = text.replace(old, new)
        lines = text.splitlines(keepends=True), changed.splitlines(keepends=True)
        diff = "".join(unified_diff(*lines, f"a/{FILE}", f"b/{FILE}", n=1))
        named = "".join(f"caught-by: tests/test_small.py::{test}\n" for test in tests)
        patch = tmp_path / f"{name}.patch"
        patch.write_text(f"what: {name}\n{named}{diff}")
        return read_mutant(patch)

    mutants = [
        mutant("wrong", "n + n", "n * n + 1", *BOTH),
        mutant("wrong for three", "n + n", "n + 2", *BOTH),
        mutant("no Python", "n + n", "(n + n", *BOTH),
        mutant("no fixture", "unused", "other", *BOTH),
        mutant("unfit", "m + m", "0", *BOTH, text=PRODUCT.replace("n + n", "m + m")),
        mutant("red anyway", "n + n", "0", "test_red"),
    ]
    laboratory = Laboratory(small, tmp_path / "copies", {}, SystemClock())
    assert laboratory.run_unchanged(mutants) == ["tests/test_small.py::test_red"]
    results = {result.mutant.name: result for result in laboratory.try_all(mutants)}
    assert {name: result.verdict for name, result in results.items()} == {
        "wrong": Verdict.CAUGHT,
        "wrong for three": Verdict.SURVIVED,
        "no Python": Verdict.BROKEN,
        "no fixture": Verdict.BROKEN,
        "unfit": Verdict.BROKEN,
        "red anyway": Verdict.BROKEN,
    }
    said = [" ".join(failure.says) for failure in results["wrong"].run.failures.values()]
    assert all("onceflow.double" in text for text in said)
    assert results["wrong for three"].why == "stays green: tests/test_small.py::test_two"
    assert (small / FILE).read_text() == PRODUCT


def test_the_installed_product_is_never_taken_for_the_copy(small: Path, tmp_path: Path) -> None:
    (small / FILE).unlink()
    run = run_tests(small, ["tests/test_small.py::test_red"], 60.0, {})
    verdict, why = judge(run, ["tests/test_small.py::test_red"])
    assert verdict is Verdict.BROKEN
    assert "not the copy's" in why
