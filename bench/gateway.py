"""`python -m bench.gateway`: how many records and posts one gateway takes, and how fast it answers.

The gateway is bound to one core, the clients to the others; the broker is free. On a busy machine,
measure with `--first`, or trust the processor time of a post more than the time on the wall.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import aiohttp
import psutil
import typer

from bench.figures import percentile
from onceflow.cli.shared.options import kafka
from onceflow.clock import Clock, SystemClock
from onceflow.contracts.connector import Connection, TopicSpec
from onceflow.devkit.dev_broker import temporary_broker

FILE = """\
apiVersion: onceflow/v1
kind: gateway
name: bench
topics:
  views: {schema: "page STRING NOT NULL, n BIGINT, filler STRING", key: page}
remember: {slots: SLOTS}
"""
PARTITIONS = 4
CONNECTIONS = 64
START_TIMEOUT_S = 60.0
WARM_UP_S = 3.0
RECORD = {"filler": "x" * 140}
"""About 200 bytes with the rest."""


@dataclass(frozen=True)
class Figure:
    """One measurement.

    Args:
        cpu_ms_per_post: processor time of the gateway, of all its threads.
        late_p99_ms: how late clients began a post by their own fault. The times to answer include
            it.
    """

    what: str
    posts_per_s: float
    records_per_s: float
    cpu_ms_per_post: float
    p50_ms: float
    p99_ms: float
    late_p99_ms: float = 0.0


@dataclass
class Load:
    """Posts to one gateway."""

    url: str
    process: psutil.Process
    clock: Clock
    seconds: float
    numbers: int = 0
    late_s: list[float] = field(default_factory=list)

    async def measure(
        self, what: str, records: int, *, is_keyed: bool, rate: float | None = None
    ) -> Figure:
        """Post for a while: as fast as the answers come, or at a rate."""
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=256 if rate else CONNECTIONS)
        ) as session:

            async def post() -> float:
                begun_s = self.clock.monotonic_s()
                headers, body = self._post(records, is_keyed=is_keyed)
                async with session.post(self.url, data=body, headers=headers) as response:
                    text = await response.text()
                    if response.status != 202:
                        raise RuntimeError(text)
                return self.clock.monotonic_s() - begun_s

            run = self._paced if rate else self._eager
            await run(post, rate or 0.0, WARM_UP_S)
            self.late_s = [0.0]
            begun_s, cpu_s = self.clock.monotonic_s(), self._cpu_s()
            took_s = await run(post, rate or 0.0, self.seconds)
            passed_s, used_s = self.clock.monotonic_s() - begun_s, self._cpu_s() - cpu_s
        per_s = len(took_s) / passed_s
        return Figure(
            what,
            per_s,
            per_s * records,
            1000 * used_s / len(took_s),
            1000 * percentile(took_s, 0.5),
            1000 * percentile(took_s, 0.99),
            1000 * percentile(self.late_s, 0.99),
        )

    async def _eager(
        self, post: Callable[[], Awaitable[float]], rate: float, seconds: float
    ) -> list[float]:
        until_s = self.clock.monotonic_s() + seconds
        took_s: list[float] = []

        async def client() -> None:
            while self.clock.monotonic_s() < until_s:
                took_s.append(await post())

        await asyncio.gather(*(client() for _ in range(CONNECTIONS)))
        return took_s

    async def _paced(
        self, post: Callable[[], Awaitable[float]], rate: float, seconds: float
    ) -> list[float]:
        """Each post at its time, whether or not those before are answered; late ones count so."""
        begun_s = self.clock.monotonic_s()

        async def at(due_s: float) -> float:
            self.late_s.append(self.clock.monotonic_s() - due_s)
            await post()
            return self.clock.monotonic_s() - due_s

        async with asyncio.TaskGroup() as group:
            posts = []
            for number in range(int(rate * seconds)):
                due_s = begun_s + number / rate
                if (wait_s := due_s - self.clock.monotonic_s()) > 0:
                    await asyncio.sleep(wait_s)
                posts.append(group.create_task(at(due_s)))
        return [each.result() for each in posts]

    def _post(self, records: int, *, is_keyed: bool) -> tuple[Mapping[str, str], bytes]:
        self.numbers += 1
        headers = {"Content-Type": "application/x-ndjson" if records > 1 else "application/json"}
        if is_keyed:
            headers["Idempotency-Key"] = f"bench-{os.getpid()}-{self.numbers}"
        page = {"page": f"p{self.numbers % 1000}", "n": self.numbers, **RECORD}
        line = json.dumps(page).encode()
        return headers, b"\n".join([line] * records)

    def _cpu_s(self) -> float:
        used = self.process.cpu_times()
        return float(used.user + used.system)


@contextmanager
def running(bootstrap_servers: str, slots: int, folder: Path) -> Iterator[tuple[str, int]]:
    """Run a gateway on the last core; gives its URL and process id."""
    file = folder / "gateway.yaml"
    file.write_text(FILE.replace("SLOTS", str(slots)))
    command = [sys.executable, "-m", "onceflow.cli", "run", str(file)]
    command += ["--bootstrap-servers", bootstrap_servers]
    cores = sorted(os.sched_getaffinity(0))
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        env={**os.environ, "ONCEFLOW_GATEWAY__PORT": "0"},
        preexec_fn=lambda: os.sched_setaffinity(0, cores[-1:]),  # noqa: PLW1509  no thread yet
    ) as process:
        try:
            port = _port_when_serving(process, slots)
            yield f"http://127.0.0.1:{port}/v1/views", process.pid
        finally:
            process.kill()


def _port_when_serving(process: subprocess.Popen[bytes], slots: int) -> int:
    events: list[Mapping[str, Any]] = []
    for line in process.stdout or ():
        events.append(json.loads(line))
        if [event["event"] for event in events].count("slot_taken") == slots:
            break
    return next(int(event["port"]) for event in events if event["event"] == "running")


def measure(
    seconds: Annotated[float, typer.Option(min=1, help="Of each measurement.")] = 10.0,
    slots: Annotated[int, typer.Option(min=1, help="Of remembered keys.")] = 2,
    rate: Annotated[float, typer.Option(min=1, help="Posts per second.")] = 1_000.0,
    first: Annotated[
        bool, typer.Option("--first", help="Run before all else on this machine, as root.")
    ] = False,
    folder: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("artifacts"),
) -> None:
    """Measure batches, single posts and latency, with and without keys."""
    clock = SystemClock()
    if first:  # broker, clients and gateway alike: they inherit it
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    cores = sorted(os.sched_getaffinity(0))
    with (
        temporary_broker(clock) as bootstrap_servers,
        tempfile.TemporaryDirectory() as scratch,
    ):
        broker = kafka().broker(Connection(bootstrap_servers))
        broker.create_topic(TopicSpec("views", PARTITIONS), clock.within(START_TIMEOUT_S))
        broker.close()
        with running(bootstrap_servers, slots, Path(scratch)) as (url, process):
            os.sched_setaffinity(0, cores[:-1] or cores)
            load = Load(url, psutil.Process(process), clock, seconds)
            figures = [*asyncio.run(_all(load, rate))]
    folder.mkdir(parents=True, exist_ok=True)
    found = json.dumps([asdict(figure) for figure in figures], indent=1)
    (folder / "gateway.json").write_text(found, encoding="utf-8")


async def _all(load: Load, rate: float) -> list[Figure]:
    found = []
    for is_keyed in (False, True):
        how = "with keys" if is_keyed else "without keys"
        for what, records, paced in (
            ("posts of 500 records", 500, None),
            ("single posts", 1, None),
            (f"single posts at {rate:g}/s", 1, rate),
        ):
            figure = await load.measure(f"{what}, {how}", records, is_keyed=is_keyed, rate=paced)
            typer.echo(
                f"{figure.what:42} {figure.posts_per_s:9,.0f} posts/s {figure.records_per_s:10,.0f}"
                f" records/s {figure.cpu_ms_per_post:7.3f} ms CPU/post"
                f"  p50 {figure.p50_ms:6.1f} ms  p99 {figure.p99_ms:6.1f} ms"
                f"  late {figure.late_p99_ms:4.1f} ms"
            )
            found.append(figure)
    return found


if __name__ == "__main__":
    typer.run(measure)
