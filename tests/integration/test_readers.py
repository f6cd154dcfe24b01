"""The example for readers with a PySpark program leaves out what a topic has more than once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.support.brokers.choice import RunningBroker
from tests.support.outside.history import read_topic
from tests.support.outside.repeats import AFTER, BEFORE, ONCE, ONCE_AFTER, PARTITIONS, values, write
from tests.support.outside.topics import create_topic

EXAMPLES = Path(__file__).parents[2] / "examples" / "readers"
PROGRAM = Path(__file__).parents[1] / "support" / "readers" / "run_once.py"
RUN_TIMEOUT_S = 180


def test_spark_reads_each_record_once_also_after_a_restart(
    broker: RunningBroker, topic: Callable[[str], str], tmp_path: Path
) -> None:
    numbered = topic("numbered")
    create_topic(broker.bootstrap_servers, numbered, PARTITIONS)

    def run() -> dict[int, list[str]]:
        path = os.pathsep.join([str(EXAMPLES), *sys.path])
        command = [sys.executable, str(PROGRAM), broker.bootstrap_servers, numbered, str(tmp_path)]
        done = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_TIMEOUT_S,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        rows = (tmp_path / "rows").read_text().splitlines()
        places = {tuple(json.loads(row)) for row in rows}
        assert len(places) == len(rows)
        written = read_topic(broker.bootstrap_servers, numbered)
        return values([each for each in written if (each.partition, each.offset) in places])

    write(broker.bootstrap_servers, numbered, BEFORE)
    assert run() == ONCE
    write(broker.bootstrap_servers, numbered, AFTER)
    assert run() == ONCE_AFTER
