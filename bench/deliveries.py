"""`python -m bench.deliveries`: how fast a delivery carries a topic to each kind of target.

Broker, delivery and target share the cores. On a machine that is busy, trust the processor time of
a record more than the time on the wall. In the end, the target's content is compared with the
topic's: the count of records, and a sum over all of them.

`--value-bytes 1000 --records 3600000` is an hour of backlog at 1,000 records a second: see the
memory at its start, middle and end.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias
from zlib import crc32

import psutil
import psycopg
import typer
from confluent_kafka import Consumer, Producer
from deltalake import DeltaTable

from bench.receiver import receiver
from onceflow.cli.shared.options import kafka
from onceflow.clock import Clock, SystemClock
from onceflow.contracts.connector import Connection, TopicSpec
from onceflow.devkit.dev_broker import temporary_broker
from onceflow.protocol.record import HEADER_NAME, HeaderPacker

TOPIC, COPY = "views", "copy"
PARTITIONS = 4
PER_BATCH = 10_000
"""Records of a batch of the pipeline in one partition."""
START_TIMEOUT_S = 60.0
SCHEMA = (
    "n BIGINT NOT NULL, page STRING, country STRING, ms INT, price DOUBLE, fresh BOOLEAN,"
    " day DATE, at TIMESTAMP, filler STRING"
)
FILE = """\
apiVersion: onceflow/v1
kind: delivery
name: bench
from: {topics: [views], schema: "SCHEMA"}
to:
  TARGET
batch: {max_records: RECORDS, max_bytes: 64 MiB}
"""
CREATE = """
CREATE TABLE views (n int8 PRIMARY KEY, page text, country text, ms int4, price float8, fresh bool,
day date, at timestamptz, filler text)
"""
FILL = "INSERT INTO views (n) SELECT generate_series(0, {last})"


@dataclass(frozen=True)
class Figure:
    """One delivery of the whole topic.

    Args:
        cpu_us_per_record: processor time of the delivery, of all its threads.
        memory_mb: the most that the process held in the first, the second and the last third.
    """

    target: str
    records: int
    records_per_s: float
    cpu_us_per_record: float
    memory_mb: tuple[float, float, float]


def payload(row: Sequence[Any]) -> bytes:
    """The value of a record, from the values of its row."""
    n, page, country, ms, price, fresh, day, at, filler = row
    return (
        f'{{"n": {n}, "page": "{page}", "country": "{country}", "ms": {ms}, "price": {price:.2f},'
        f' "fresh": {str(fresh).lower()}, "day": "{day}", "at": "{at:%Y-%m-%dT%H:%M:%SZ}",'
        f' "filler": "{filler}"}}'
    ).encode()


def made(n: int, filler: str) -> bytes:
    """The value of record `n`."""
    return (
        f'{{"n": {n}, "page": "/p{n % 1000}", "country": "c{n % 50}", "ms": {n * 7 % 5000},'
        f' "price": {n % 997 + 0.25:.2f}, "fresh": {str(n % 3 == 0).lower()},'
        f' "day": "2026-11-{n % 28 + 1:02}", "at": "2026-11-01T{n % 24:02}:00:{n % 60:02}Z",'
        f' "filler": "{filler}"}}'
    ).encode()


@dataclass
class Content:
    """Counts records and adds up a sum over each, in any order."""

    records: int = 0
    sum: int = 0

    def add(self, values: Iterable[bytes]) -> None:
        """Count some more."""
        for value in values:
            self.records += 1
            self.sum += crc32(value)


def fill(bootstrap_servers: str, records: int, value_bytes: int) -> Content:
    """Write records as a pipeline does. Returns what was written."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 50,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    filler = "x" * max(0, value_bytes - len(made(0, "")))
    content = Content()
    sequences = [0] * PARTITIONS
    for batch_id, first in enumerate(range(0, records, PER_BATCH)):
        partition = batch_id % PARTITIONS
        packer = HeaderPacker(pipeline_tag=7, generation=1, plan_tag=batch_id, batch_id=batch_id)
        numbers = range(first, min(first + PER_BATCH, records))
        values = [made(n, filler) for n in numbers]
        for n, value in zip(numbers, values, strict=True):
            sequences[partition] += 1
            headers: Any = [(HEADER_NAME, packer.pack(0, sequences[partition]))]
            producer.produce(TOPIC, value, b"%d" % n, partition, headers=headers)
        content.add(values)
        producer.poll(0)
        while len(producer) > 500_000:
            producer.poll(0.1)
    producer.flush(START_TIMEOUT_S)
    return content


@contextmanager
def to_delta(folder: Path, _: str) -> Iterator[tuple[str, Callable[[], Content]]]:
    """A table on disk."""

    def content() -> Content:
        found = Content()
        names = [column.split()[0] for column in SCHEMA.split(", ")]
        for part in DeltaTable(folder / "table").to_pyarrow_dataset().to_batches(columns=names):
            columns = [column.to_pylist() for column in part.columns]
            found.add(payload(row) for row in zip(*columns, strict=True))
        return found

    yield "delta: {path: table}", content


@contextmanager
def to_postgres(
    folder: Path, _: str, *, mode: str = "mode: append", rows: int = 0
) -> Iterator[tuple[str, Callable[[], Content]]]:
    """A table with a primary key, of a server that is started for this, with some rows."""
    from tests.support.sites.postgres import running_postgres  # noqa: PLC0415  not installed

    with running_postgres() as server:
        server.execute(CREATE)
        if rows:
            server.execute(FILL.format(last=rows - 1))
        (folder / "dsn").write_text(server.dsn)

        def content() -> Content:
            found = Content()
            with psycopg.connect(server.dsn) as connection:
                connection.execute("SET TIME ZONE UTC")
                cursor = connection.cursor("all")
                cursor.itersize = PER_BATCH
                cursor.execute("SELECT * FROM views")
                found.add(map(payload, cursor))
            return found

        yield f"postgres: {{dsn_file: dsn, table: views, {mode}}}", content


@contextmanager
def to_http(_: Path, __: str) -> Iterator[tuple[str, Callable[[], Content]]]:
    """A receiver that counts the lines of requests of 500 records."""
    with receiver() as (url, counted):
        yield (
            f"http: {{url: '{url}', records_per_request: 500, body: ndjson}}",
            lambda: Content(*counted()),
        )


@contextmanager
def to_kafka(_: Path, bootstrap_servers: str) -> Iterator[tuple[str, Callable[[], Content]]]:
    """A topic of a second broker."""
    with temporary_broker(SystemClock()) as other:

        def content() -> Content:
            settings = {"bootstrap.servers": other, "group.id": "bench"}
            settings |= {"auto.offset.reset": "earliest", "isolation.level": "read_committed"}
            found = Content()
            with closing(Consumer(settings)) as consumer:
                consumer.subscribe([COPY])
                while messages := consumer.consume(PER_BATCH, timeout=15):
                    found.add(message.value() or b"" for message in messages)
            return found

        yield f"kafka: {{bootstrap_servers: '{other}', topic: {COPY}, create: true}}", content


Site: TypeAlias = Callable[[Path, str], AbstractContextManager[tuple[str, Callable[[], "Content"]]]]
"""Opens a target in a folder, next to a broker: what the file says of it, and what it has then."""
UPSERT = "mode: upsert, key: n"


def targets_of(records: int) -> Mapping[str, Site]:
    """Each kind of target, by name. Upserts make new rows, or change rows that are there."""
    return {
        "delta": to_delta,
        "append": to_postgres,
        "insert": partial(to_postgres, mode=UPSERT),
        "update": partial(to_postgres, mode=UPSERT, rows=records),
        "http": to_http,
        "kafka": to_kafka,
    }


def deliver(target: str, folder: Path, bootstrap_servers: str, clock: Clock) -> Figure:
    """Run the delivery until it has caught up, and watch it from its first batch on."""
    command = [sys.executable, "-m", "onceflow.cli", "run", "delivery.yaml"]
    command += ["--until", "caught-up", "--bootstrap-servers", bootstrap_servers]
    seen: list[tuple[int, float, float, float]] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=folder) as process:
        watched = psutil.Process(process.pid)
        for line in process.stdout or ():
            event = json.loads(line)
            if event["event"] == "batch":
                used = watched.cpu_times()
                cpu_s, memory = used.user + used.system, watched.memory_info().rss
                seen.append((event["records"], clock.monotonic_s(), cpu_s, memory / 1e6))
        if process.wait(START_TIMEOUT_S) != 0:
            raise RuntimeError("the delivery failed")
    (_, begun_s, begun_cpu_s, _), (_, ended_s, ended_cpu_s, _) = seen[0], seen[-1]
    measured = sum(one[0] for one in seen[1:])
    third = max(1, len(seen) // 3)
    parts = (seen[:third], seen[third : 2 * third], seen[2 * third :])
    first, second, last = (max((one[3] for one in part), default=0.0) for part in parts)
    return Figure(
        target,
        sum(one[0] for one in seen),
        measured / (ended_s - begun_s),
        (ended_cpu_s - begun_cpu_s) / measured * 1e6,
        (first, second, last),
    )


def measure(
    targets: Annotated[str, typer.Option(help="Kinds, comma separated.")] = ",".join(targets_of(0)),
    records: Annotated[int, typer.Option(min=100_000, help="In the topic.")] = 1_000_000,
    value_bytes: Annotated[int, typer.Option(help="Of a record's value, about.")] = 200,
    batch: Annotated[int, typer.Option(min=1, help="Records of a batch at most.")] = 20_000,
    folder: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("artifacts"),
) -> None:
    """Measure speed, processor time and memory, and compare what has arrived."""
    clock = SystemClock()
    with temporary_broker(clock) as bootstrap_servers:
        with closing(kafka().broker(Connection(bootstrap_servers))) as broker:
            broker.create_topic(TopicSpec(TOPIC, PARTITIONS), clock.within(START_TIMEOUT_S))
        written = fill(bootstrap_servers, records, value_bytes)
        figures = [
            told(carry(name, written, batch, bootstrap_servers, clock))
            for name in targets.split(",")
        ]
    folder.mkdir(parents=True, exist_ok=True)
    found = json.dumps([asdict(figure) for figure in figures], indent=1)
    (folder / "deliveries.json").write_text(found, encoding="utf-8")


def carry(name: str, written: Content, batch: int, bootstrap_servers: str, clock: Clock) -> Figure:
    """Deliver the topic to a target of this kind, and compare what has arrived."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        to, content = stack.enter_context(
            targets_of(written.records)[name](scratch, bootstrap_servers)
        )
        text = FILE.replace("SCHEMA", SCHEMA).replace("TARGET", to)
        (scratch / "delivery.yaml").write_text(text.replace("RECORDS", str(batch)))
        figure = deliver(name, scratch, bootstrap_servers, clock)
        if (arrived := content()) != written:
            raise RuntimeError(f"{name}: expected {written}, found {arrived}")
    return figure


def told(figure: Figure) -> Figure:
    """Print it."""
    memory = ", ".join(f"{each:.0f}" for each in figure.memory_mb)
    typer.echo(
        f"{figure.target:9} {figure.records:,} records, equal; {figure.records_per_s:9,.0f}/s,"
        f" {figure.cpu_us_per_record:6.2f} us CPU each; memory {memory} MB"
    )
    return figure


if __name__ == "__main__":
    typer.run(measure)
