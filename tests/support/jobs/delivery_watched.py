"""Commands that look at a delivery or an enrichment, and `onceflow serve` of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from onceflow.devkit.broker_config import HOST
from onceflow.devkit.broker_start import free_ports
from tests.support.jobs.delivery_process import DeliveryProcess


def command(job: DeliveryProcess, *arguments: str) -> list[str]:
    where = ["--bootstrap-servers", job.kafka.bootstrap_servers]
    return [sys.executable, "-m", "onceflow.cli", *arguments, *where]


def asked(job: DeliveryProcess, name: str, code: int = 0) -> dict[str, Any]:
    """The answer of a command about the delivery."""
    arguments = command(job, name, str(job.file), "--output", "json")
    done = subprocess.run(
        arguments, cwd=job.folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def causes(job: DeliveryProcess) -> list[str]:
    return [cause["cause"] for cause in asked(job, "why-stuck", 1)["causes"]]


@contextmanager
def served(job: DeliveryProcess, *paths: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """`onceflow serve`; gives the process and the address that it answers at."""
    [port] = free_ports(1)
    settings = {"monitoring": {"address": HOST, "port": port}}
    (job.folder / "onceflow.yaml").write_text(json.dumps(settings))
    arguments = command(job, "serve", *map(str, paths), "--config", "onceflow.yaml")
    with (
        (job.folder / "served").open("wb") as output,
        subprocess.Popen(
            arguments, cwd=job.folder, env={**os.environ}, stdout=output, stderr=output
        ) as process,
    ):
        try:
            yield process, f"http://{HOST}:{port}"
        finally:
            process.kill()


def metrics_of(address: str, kind: str = "delivery") -> dict[str, float]:
    """Sums over all labels but `state`; empty while nothing answers."""
    try:
        text = httpx.get(f"{address}/metrics", timeout=5).text
    except httpx.TransportError:
        return {}
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            state = sample.labels.get("state", "")
            name = f"{sample.name.removeprefix(f'onceflow_{kind}_')} {state}".strip()
            found[name] = found.get(name, 0) + sample.value
    return found
