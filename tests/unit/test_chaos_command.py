"""`onceflow dev chaos` as a process of its own, before a broker that only listens."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from onceflow.cli import chaos as command
from onceflow.cli.shared.output import ResultFormat
from onceflow.devkit.chaos import ChaosProxy, Rule
from tests.support.chaos_messages import encoded
from tests.support.raw_kafka import ListeningBroker, RawClient

TIMEOUT_S = 60
RULES = """
rules:
  - {name: lost commits, api: EndTxn, on: request, action: drop}
  - {on: response, action: pass}
"""
END_TXN = encoded("EndTxnRequest", 3, {"transactional_id": "t"})
HEARTBEAT = b"\0\x0c\0\3\0\0\0\5\0\2me after"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_runs_until_a_signal_and_tells_what_each_rule_did(
    tmp_path: Path, number: signal.Signals
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    arguments = ["dev", "chaos", str(rules), "-o", "json"]
    with ListeningBroker() as broker:
        environment = {**os.environ, "ONCEFLOW_BOOTSTRAP_SERVERS": broker.address}
        with subprocess.Popen(
            [sys.executable, "-m", "onceflow.cli", *arguments],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=tmp_path,
        ) as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            found = re.fullmatch(r"export ONCEFLOW_BOOTSTRAP_SERVERS=(127\.0\.0\.1:\d+)\n", first)
            assert found
            with RawClient(found[1]) as client:
                client.send(END_TXN)
                client.send(HEARTBEAT)
                client.receive()
            process.send_signal(number)
            rest, _ = process.communicate(timeout=TIMEOUT_S)

    assert process.returncode == 0
    told = json.loads(rest)
    assert [(rule["name"], rule["fired"]) for rule in told["rules"]] == [
        ("lost commits", 1),
        ("", 1),
    ]
    assert told["sessions"] == 1


def test_people_get_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    with ListeningBroker() as broker:
        rule = Rule(name="lost commits", api="EndTxn", on="request", action="drop")
        with ChaosProxy(broker.address, [rule]) as proxy:
            pass

    command._print(proxy, ResultFormat.TEXT)

    shown = capsys.readouterr().out
    assert "lost commits" in shown
    assert "fired" in shown
