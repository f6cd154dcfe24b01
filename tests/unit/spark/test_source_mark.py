"""Python marks the column of a source, and Java finds it: by the same key."""

from __future__ import annotations

from pathlib import Path

import onceflow
from onceflow.pipeline.file.duplicates import SOURCE_KEY

JAVA = Path(onceflow.__file__).parent / "java" / "src" / "onceflow" / "SourceMark.java"


def test_java_looks_for_the_key_that_python_writes() -> None:
    assert f'String KEY = "{SOURCE_KEY}";' in JAVA.read_text()
