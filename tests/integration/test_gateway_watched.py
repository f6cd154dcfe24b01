"""A gateway as seen from outside: `status` and `why-stuck`, on a real broker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.brokers.choice import RunningBroker
from tests.support.eventually import eventually
from tests.support.jobs.gateway_process import FILE, Gateways


@pytest.fixture
def gateways(broker: RunningBroker, topic: Callable[[str], str], tmp_path: Path) -> Gateways:
    made = Gateways(broker.bootstrap_servers, tmp_path, topic("posted"))
    made.set_up()
    return made


def asked(gateways: Gateways, name: str) -> tuple[int, dict[str, Any]]:
    """The exit code of a command, and its answer."""
    line = [sys.executable, "-m", "onceflow.cli", name, str(gateways.file), "--output", "json"]
    line += ["--bootstrap-servers", gateways.kafka]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, json.loads(done.stdout) if done.stdout else {"said": done.stderr}


def causes(gateways: Gateways) -> list[str]:
    return [cause["cause"] for cause in asked(gateways, "why-stuck")[1]["causes"]]


def test_what_holds_a_gateway_up_is_told_with_the_same_codes(gateways: Gateways) -> None:
    code, told = asked(gateways, "why-stuck")
    assert (code, [cause["cause"] for cause in told["causes"]]) == (1, ["not running"])
    with ExitStack() as stack:
        first = stack.enter_context(gateways.running())
        first.wait_until_ready()
        assert asked(gateways, "why-stuck") == (0, {"causes": [], "lag": None, "not_seen": {}})
        code, told = asked(gateways, "status")
        assert (code, told["instances"], told["not_ready"]) == (0, 1, {})
        assert told["slots"] == dict.fromkeys("01", f"http://127.0.0.1:{first.port}")
        for _ in range(2):
            stack.enter_context(gateways.running()).wait_until_ready()
        eventually(lambda: causes(gateways) == ["no slot free"], timeout_s=60)


def test_an_owner_that_is_frozen_is_named_with_its_slots(gateways: Gateways) -> None:
    with gateways.running() as running:
        running.wait_until_ready()
        running.process.send_signal(signal.SIGSTOP)
        _, told = asked(gateways, "why-stuck")
        assert [cause["cause"] for cause in told["causes"]][:1] == ["owner does not answer"]
        assert "slots 0, 1" in told["causes"][0]["what"]
        assert f"127.0.0.1:{running.port}" in told["causes"][0]["evidence"][0]


def test_a_topic_that_is_missing_is_named(gateways: Gateways) -> None:
    text = FILE.format(name=gateways.name, topic="not-there", more="")
    gateways.file.write_text(text)
    code, told = asked(gateways, "why-stuck")
    assert (code, causes(gateways)[0]) == (1, "topics missing")
    assert told["causes"][0]["evidence"] == ["there is no topic not-there"]


def test_without_brokers_it_fails_as_for_every_kind(gateways: Gateways) -> None:
    gateways.kafka = "127.0.0.1:1"
    code, told = asked(gateways, "why-stuck")
    assert (code, "no Kafka broker answers" in told["said"]) == (3, True)
