"""`onceflow serve` of a folder with a gateway: watched, with another file, ended under load."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from onceflow.devkit.broker_start import free_ports
from onceflow.errors import ConfigError
from tests.support.brokers.choice import RunningBroker
from tests.support.eventually import eventually
from tests.support.jobs.delivery_watched import metrics_of
from tests.support.jobs.gateway_process import Gateways, Running, Sent, posts
from tests.support.sites.certificates import Authority

END_TIMEOUT_S = 60


@pytest.fixture
def gateways(broker: RunningBroker, topic: Callable[[str], str], tmp_path: Path) -> Gateways:
    (tmp_path / "files").mkdir()
    made = Gateways(broker.bootstrap_servers, tmp_path / "files", topic("views"))
    made.set_up()
    return made


def test_a_gateway_is_served_watched_given_another_file_and_ended_under_load(
    gateways: Gateways, tmp_path: Path
) -> None:
    before, given = posts(0, 60), gateways.file.read_text()
    during = [Sent(f"d-{number}", (number,)) for number in range(5000, 7000)]
    port, monitoring = free_ports(2)
    authorities = tmp_path / "authorities"
    authorities.write_bytes(Authority.in_folder(tmp_path / "one").certificate.read_bytes())
    settings = {
        "ONCEFLOW_GATEWAY__PORT": str(port),
        "ONCEFLOW_MONITORING__PORT": str(monitoring),
        "ONCEFLOW_GATEWAY__CA_FILE": str(authorities),
    }
    address = f"http://127.0.0.1:{monitoring}"
    with gateways.running("", settings, is_served=True) as gateway:
        gateway.wait_until_ready()
        gateways.send_all([gateway], before)
        assert not gateways.unanswered
        assert httpx.get(f"{address}/readyz", timeout=5).status_code == 200
        seen = metrics_of(address, "gateway")
        assert (seen["posts_total"], seen["records_total"], seen["keys"]) == (60, 84, 60)
        assert (seen["state running"], seen["slots"], seen["unowned_slots"]) == (1, 2, 0)

        # A file that was changed is read when what the process was given is renewed.
        gateways.file.write_text(f"{given}limits: {{records: 2}}\n")
        authorities.write_bytes(Authority.in_folder(tmp_path / "two").certificate.read_bytes())
        eventually(lambda: status_of(gateway, (1, 2, 3)), lambda status: status == 413)
        gateway.wait_until_ready()
        gateways.send_all([gateway], before[1:5])  # the same answers: keys outlive a run

        sending = threading.Thread(target=gateways.send_all, args=[[gateway], during])
        sending.start()
        answered = len(gateways.answered)
        eventually(lambda: len(gateways.answered) > answered + 50, timeout_s=END_TIMEOUT_S)
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(END_TIMEOUT_S) == 0
        sending.join(END_TIMEOUT_S)
        assert [each["event"] for each in gateway.events()].count("draining") == 2
    gateways.file.write_text(given)
    with gateways.running() as gateway:
        gateways.send_until_answered([gateway], during)
    gateways.check()


def status_of(gateway: Running, numbers: tuple[int, ...]) -> int:
    """Post with a key that is used, and return the status; 0 without an answer."""
    got = gateway.send(Sent("k-0-0", numbers))
    return got.status if got else 0


def test_a_gateway_and_a_delivery_need_a_process_each(gateways: Gateways) -> None:
    (gateways.folder / "delivery.yaml").write_text(
        "apiVersion: onceflow/v1\nkind: delivery\nname: other\n"
    )
    command = [sys.executable, "-m", "onceflow.cli", "serve", str(gateways.folder)]
    command += ["--bootstrap-servers", gateways.kafka]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == ConfigError.exit_code
    assert "one process serves files of one kind" in done.stderr
    assert "delivery.yaml (delivery)" in done.stderr
