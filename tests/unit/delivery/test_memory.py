"""Flat memory depends on an order: Arrow reads its variable when it is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import sys
import onceflow.delivery.memory as memory

def keep_flat(chosen=memory.keep_flat):
    chosen()
    import pyarrow
    print(pyarrow.default_memory_pool().backend_name)
    sys.exit()

memory.keep_flat = keep_flat
from onceflow.cli.main import main
main()
"""
FILE = """\
apiVersion: onceflow/v1
kind: delivery
name: flat
from: {topics: [views], schema: "n BIGINT"}
to:
  delta: {path: table}
"""


@pytest.mark.parametrize("command", ["run", "serve"])
def test_arrow_comes_after_the_choice_of_its_allocator(command: str, tmp_path: Path) -> None:
    file = tmp_path / "delivery.yaml"
    file.write_text(FILE)
    line = [sys.executable, "-c", CODE, command, str(file), "--bootstrap-servers", "127.0.0.1:1"]
    done = subprocess.run(line, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "system"
