"""The consumer is light: it works where neither Spark nor Arrow nor pandas is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
HEAVY = ("pyspark", "pyarrow", "pandas", "numpy", "py4j", "fastavro", "pydantic", "typer", "rich")
PROGRAM = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {heavy!r}:
            raise ImportError(f"{{name}} is not here")

sys.meta_path.insert(0, Blocked())
{statement}
"""


def run_without_heavy_packages(statement: str) -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(heavy=HEAVY, statement=statement)
    command = [sys.executable, "-W", "ignore", "-c", program]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "statement",
    [
        "from onceflow_connectors.consumer import Consumer",
        "from onceflow_connectors.consumer.kafka_python import Consumer",
        "from onceflow.protocol import commit, digest, identity, ledger, record, takeover",
    ],
)
def test_imports_work_without_heavy_packages(statement: str) -> None:
    done = run_without_heavy_packages(statement)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_block_is_real() -> None:
    attempts = "".join(
        f"try: import {package}\nexcept ImportError as error: print(error)\n" for package in HEAVY
    )
    done = run_without_heavy_packages(attempts)
    assert done.stdout.splitlines() == [f"{package} is not here" for package in HEAVY]


def test_the_default_flavour_does_not_need_kafka_python() -> None:
    done = run_without_heavy_packages(
        "from onceflow_connectors.consumer import Consumer; assert 'kafka' not in sys.modules"
    )
    assert (done.returncode, done.stderr) == (0, "")
