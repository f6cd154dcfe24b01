"""The example of docs/state.md: its class, and its test, as they are printed there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.documents.markdown import ROOT, Document


def test_the_example_passes_its_own_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [
        b.text for b in Document(ROOT / "docs" / "state.md").blocks() if b.language == "python"
    ]
    processor, test = blocks[:2]
    (tmp_path / "fraud.py").write_text(processor)
    monkeypatch.syspath_prepend(str(tmp_path))
    names: dict[str, object] = {}
    exec(compile(test, "test_fraud.py", "exec"), names)
    checks = [value for name, value in names.items() if name.startswith("test_")]
    assert checks
    for check in checks:
        assert callable(check)
        check()
    sys.modules.pop("fraud")
