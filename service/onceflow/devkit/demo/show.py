"""`onceflow demo`: produce, run, kill between the two commits, run again, compare."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.progress import track
from rich.table import Table

from onceflow.clock import Clock
from onceflow.crashpoints import CrashPoint
from onceflow.devkit.demo.page_views import (
    PIPELINE_FILE,
    Row,
    answer_row,
    expected_answer,
    generate_views,
)
from onceflow.devkit.demo.stage import (
    INPUT_PARTITIONS,
    READ_TIMEOUT_S,
    RunResult,
    create_topic,
    produce,
    provide_kafka_client,
    read_plainly,
    run_service,
)
from onceflow.devkit.dev_broker import temporary_broker
from onceflow.errors import CorruptionError, require
from onceflow_connectors.consumer import Consumer, Counters

RECORDS = 240_000
EVENT_SECONDS = 1_200
MAX_RECORDS_PER_BATCH = 30_000
CRASH = (CrashPoint.AFTER_COMMIT, 4)
"""Between the Kafka commit and Spark's commit; the first arrival is the pipeline's registration."""
SIGKILLED = -9
SAMPLES = 3
"""Output records that are shown."""
SEED = 20_260_101


@dataclass(frozen=True)
class Proof:
    """Figures of the demonstration. All but `seconds_to_recover` are exact."""

    expected: int
    found: int
    lost: int
    repeated: int
    batches_skipped: int
    sequence_holes: int
    repeats_seen_by_consumer: int
    seconds_to_recover: float

    @property
    def is_right(self) -> bool:
        """Whether nothing was lost or repeated, and the crash did hit between the commits."""
        return all(is_right for _, _, is_right in self.lines())

    def lines(self) -> Iterator[tuple[str, str, bool]]:
        """Each figure: its name, its value, and whether it is as promised."""
        yield "expected windows", f"{self.expected:,}", True
        yield "found", f"{self.found:,}", self.found == self.expected
        yield "lost", str(self.lost), self.lost == 0
        yield "repeated", str(self.repeated), self.repeated == 0
        yield "batches skipped on replay", str(self.batches_skipped), self.batches_skipped == 1
        yield "sequence holes", str(self.sequence_holes), self.sequence_holes == 0
        discarded = self.repeats_seen_by_consumer
        yield "repeats discarded by the consumer", str(discarded), discarded == 0
        yield "seconds to recover", f"{self.seconds_to_recover:.1f}", True


def run_demo(console: Console, clock: Clock, records: int = RECORDS) -> Proof:
    """Play the demonstration on a broker of its own; nothing is left behind.

    Raises:
        OnceflowError: something failed that the demonstration does not provoke.
    """
    provide_kafka_client()
    with (
        tempfile.TemporaryDirectory(prefix="onceflow-demo-") as folder,
        temporary_broker(clock) as bootstrap_servers,
    ):
        console.print(f"[bold]1[/] a real Kafka broker listens on {bootstrap_servers}")
        return _play(console, clock, bootstrap_servers, Path(folder), records)


def _play(
    console: Console, clock: Clock, bootstrap_servers: str, folder: Path, records: int
) -> Proof:
    create_topic(bootstrap_servers, "clicks", INPUT_PARTITIONS)
    views = generate_views(records, EVENT_SECONDS, SEED)
    steps = track(views, "  producing page views", total=records, console=console, transient=True)
    produced = produce(bootstrap_servers, "clicks", (view.to_json() for view in steps))
    console.print(f"[bold]2[/] {produced:,} page views are in the topic [cyan]clicks[/]")

    pipeline = folder / "pipeline.yaml"
    text = PIPELINE_FILE.format(max_records=MAX_RECORDS_PER_BATCH, checkpoint=folder / "checkpoint")
    pipeline.write_text(text)
    proof_file = folder / "crashed"
    with console.status("  onceflow run: Spark computes views per page and minute ..."):
        killed = run_service(pipeline, bootstrap_servers, CRASH, proof_file)
    _require_kill(killed, proof_file)
    killed_at_ms = clock.unix_ms()
    console.print(
        f"[bold]3[/] the driver was killed with SIGKILL after Kafka's commit of batch"
        f" {_killed_batch(killed)} and before Spark's"
    )
    with console.status("  onceflow run: started again ..."):
        finished = run_service(pipeline, bootstrap_servers, None, proof_file)
    if finished.exit_code != 0:
        raise CorruptionError("the second run failed", found=finished.errors[-2_000:])
    console.print("[bold]4[/] started again, it caught up and ended by itself")

    values = read_plainly(bootstrap_servers, "page-views", clock)
    console.print(render_samples(values[:SAMPLES]))
    answer = expected_answer(generate_views(records, EVENT_SECONDS, SEED))
    plain = Counter(answer_row(v) for v in values)
    wanted = Counter(answer.items())
    filtered, counters = _read_filtered(bootstrap_servers, sum(plain.values()), clock)
    require(filtered == plain, "our consumer and a plain one see the same records")
    proof = Proof(
        expected=len(answer),
        found=sum(plain.values()),
        lost=(wanted - plain).total(),
        repeated=(plain - wanted).total(),
        batches_skipped=len([b for b in finished.of_kind("batch") if b["is_skipped"]]),
        sequence_holes=counters.gaps,
        repeats_seen_by_consumer=counters.discarded,
        seconds_to_recover=_recovery_s(finished, killed_at_ms),
    )
    console.print(render(proof))
    return proof


def _require_kill(run: RunResult, proof_file: Path) -> None:
    fired = proof_file.is_file() and proof_file.read_text() == CRASH[0].value
    if run.exit_code != SIGKILLED or not fired:
        raise CorruptionError(
            "the driver was not killed where it should have been",
            expected=f"death at {CRASH[0].value}",
            found=f"exit code {run.exit_code}: {run.errors[-2_000:]}",
        )


def _killed_batch(run: RunResult) -> int:
    """The batch after the last one that the run could still report."""
    return int(str(run.of_kind("batch")[-1]["batch_id"])) + 1


def _recovery_s(run: RunResult, killed_at_ms: int) -> float:
    """From the kill to the first new batch that was committed."""
    new = [batch for batch in run.of_kind("batch") if not batch["is_skipped"]]
    require(bool(new), "the second run commits something")
    return (int(str(new[0]["ts"])) - killed_at_ms) / 1000


def _read_filtered(
    bootstrap_servers: str, count: int, clock: Clock
) -> tuple[Counter[Row], Counters]:
    """Read `count` records through our own consumer, which would notice holes and repeats."""
    deadline = clock.within(READ_TIMEOUT_S)
    rows: Counter[Row] = Counter()
    with Consumer(bootstrap_servers, group="demo-reader", topics=["page-views"]) as records:
        while rows.total() < count:
            deadline.check("our consumer did not see every record", subject="page-views")
            record = records.poll(1.0)
            if record is not None:
                rows[answer_row(record.value or b"")] += 1
        records.commit()
        return rows, records.counters


def render_samples(values: Sequence[bytes]) -> Table:
    """Output records as a table."""
    table = Table(title="[cyan]page-views[/] begins with", title_justify="left", box=SIMPLE)
    table.add_column("page", no_wrap=True)
    table.add_column("minute", no_wrap=True)
    table.add_column("views", justify="right", no_wrap=True)
    table.add_column("milliseconds", justify="right", no_wrap=True)
    for (page, start), (views, total_ms) in map(answer_row, values):
        minute = datetime.fromisoformat(start)
        table.add_row(page, f"{minute:%H:%M}", f"{views:,}", f"{total_ms:,}")
    return table


def render(proof: Proof) -> Table:
    """The proof as a table; green where it is as promised."""
    table = Table(title="recomputed in plain Python, compared record by record")
    table.add_column("")
    table.add_column("", justify="right")
    for label, value, is_right in proof.lines():
        table.add_row(label, f"[{'green' if is_right else 'bold red'}]{value}[/]")
    return table
