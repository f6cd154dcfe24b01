"""Python code is part of a query: what a function imports of its folder, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from onceflow.pipeline.file.code_files import code_of

FILES = {
    "jobs.py": "import json\nfrom helpers import clean\nimport shop.prices\ndef f(x): return x\n",
    "helpers.py": "def clean(x): return x\n",
    "shop/__init__.py": "",
    "shop/prices.py": "from . import tax\nfrom .rates import RATE\n",
    "shop/rates.py": "RATE = 2\n",
    "shop/tax.py": "from ..helpers import clean\n",
    "unrelated.py": "import jobs\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_everything_that_is_imported_of_the_folder_counts(folder: Path) -> None:
    assert set(code_of("jobs:f", folder)) == FILES.keys() - {"unrelated.py"}


@pytest.mark.parametrize(
    ("name", "text", "is_other"),
    [
        ("shop/rates.py", "RATE = 3\n", True),
        ("shop/rates.py", "RATE = 2  # a comment\n\n", False),
        ("unrelated.py", "", False),
        ("helpers.py", "def clean(x): return (\n", True),
    ],
)
def test_code_changes_it_and_layout_does_not(
    folder: Path, name: str, text: str, is_other: bool
) -> None:
    before = code_of("jobs:f", folder)
    (folder / name).write_text(text)
    assert (code_of("jobs:f", folder) != before) is is_other


def test_a_module_that_lies_elsewhere_is_none_of_it(tmp_path: Path) -> None:
    assert code_of("json:loads", tmp_path) == {}
