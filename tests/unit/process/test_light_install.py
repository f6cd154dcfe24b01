"""A consumer and the command line work where Spark and Arrow are not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("pyspark", "py4j", "pyarrow", "pandas", "fastavro", "psutil")
WITHOUT_HEAVY = f"import sys; sys.modules.update(dict.fromkeys({HEAVY!r})); "
HELP = "sys.argv = ['onceflow', '--help']; from onceflow.cli.main import main; main()"


@pytest.mark.parametrize(
    "program",
    [
        "import onceflow_connectors.consumer",
        "import onceflow.contracts.connector",
        "from onceflow.contracts.connector import find_connector; find_connector('kafka')",
        HELP,
    ],
    ids=["consumer", "contract", "connector", "help"],
)
def test_it_needs_nothing_of_the_service_extra(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_HEAVY + program],
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", HEAVY)
def test_the_check_above_would_notice(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{WITHOUT_HEAVY}import {module}"], check=False, capture_output=True
    )

    assert done.returncode == 1
