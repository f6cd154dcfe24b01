"""Flat memory depends on an order: Arrow reads its variable when it is imported."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import onceflow.cli.kinds.delivery
from onceflow.delivery.memory import keep_flat
keep_flat()
import pyarrow
print(pyarrow.default_memory_pool().backend_name)
"""


def test_arrow_comes_after_the_choice_of_its_allocator() -> None:
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "system"
