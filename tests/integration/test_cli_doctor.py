"""`doctor` against a real broker."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from onceflow.cli.main import build_app
from tests.support.brokers.choice import RunningBroker


def test_a_machine_and_a_broker_on_which_tests_pass_have_no_fault(broker: RunningBroker) -> None:
    address = broker.bootstrap_servers
    done = CliRunner().invoke(build_app(), ["doctor", "--bootstrap-servers", address, "-o", "json"])
    levels = {check["name"]: check["level"] for check in map(json.loads, done.stdout.splitlines())}

    assert done.exit_code == 0
    assert "fault" not in levels.values()
    assert (levels["brokers"], levels["transactions"]) == ("ok", "ok")


def test_nobody_at_the_address_is_the_only_fault() -> None:
    done = CliRunner().invoke(
        build_app(), ["doctor", "--bootstrap-servers", "127.0.0.1:1", "-o", "json"]
    )
    checks = [json.loads(line) for line in done.stdout.splitlines()]

    assert done.exit_code == 2
    assert [c["name"] for c in checks if c["level"] == "fault"] == ["brokers"]
