"""`onceflow demo`: produce, run, kill between the two commits, run again, compare."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from onceflow.clock import Clock, Deadline
from onceflow.crashpoints import CrashPoint
from onceflow.devkit.broker import EmbeddedCluster
from onceflow.devkit.demo.page_views import (
    PIPELINE_FILE,
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
    read_plainly,
    run_service,
)
from onceflow.errors import CorruptionError, require
from onceflow_connectors.consumer import Consumer

RECORDS = 240_000
EVENT_SECONDS = 1_200
MAX_RECORDS_PER_BATCH = 30_000
CRASH = (CrashPoint.AFTER_COMMIT, 4)
"""Between the Kafka commit and Spark's commit of the fourth batch."""
SIGKILLED = -9
SEED = 20_260_101


@dataclass(frozen=True)
class Proof:
    """What the demonstration found. Everything but `seconds_to_recover` is exact."""

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
        wrong = (self.lost, self.repeated, self.sequence_holes, self.repeats_seen_by_consumer)
        return self.expected == self.found and not any(wrong) and self.batches_skipped == 1


def run_demo(console: Console, clock: Clock, records: int = RECORDS) -> Proof:
    """Play the demonstration on a broker of its own; nothing is left behind.

    Raises:
        OnceflowError: something failed that the demonstration does not provoke.
    """
    with tempfile.TemporaryDirectory(prefix="onceflow-demo-") as folder, EmbeddedCluster() as kafka:
        console.print(f"[bold]1[/] a real Kafka broker listens on {kafka.bootstrap_servers}")
        return _play(console, clock, kafka.bootstrap_servers, Path(folder), records)


def _play(
    console: Console, clock: Clock, bootstrap_servers: str, folder: Path, records: int
) -> Proof:
    create_topic(bootstrap_servers, "clicks", INPUT_PARTITIONS)
    views = generate_views(records, EVENT_SECONDS, SEED)
    steps = track(views, "  producing page views", total=records, console=console, transient=True)
    produced = produce(bootstrap_servers, "clicks", (view.to_json() for view in steps))
    console.print(f"[bold]2[/] {produced:,} page views are in the topic [cyan]clicks[/]")

    pipeline = folder / "pipeline.yaml"
    text = PIPELINE_FILE.format(
        max_records=MAX_RECORDS_PER_BATCH, checkpoint=folder / "checkpoint"
    )
    pipeline.write_text(text)
    proof_file = folder / "crashed"
    with console.status("  onceflow run: Spark computes views per page and minute ..."):
        killed = run_service(pipeline, bootstrap_servers, CRASH, proof_file)
    _require_kill(killed, proof_file)
    killed_at_ms = clock.unix_ms()
    console.print(
        f"[bold]3[/] the driver was killed with SIGKILL after Kafka's commit of batch"
        f" {CRASH[1] - 1} and before Spark's"
    )
    with console.status("  onceflow run: started again ..."):
        finished = run_service(pipeline, bootstrap_servers, None, proof_file)
    if finished.exit_code != 0:
        raise CorruptionError("the second run failed", found=finished.errors[-2_000:])
    console.print("[bold]4[/] started again, it caught up and ended by itself")

    answer = expected_answer(generate_views(records, EVENT_SECONDS, SEED))
    plain = Counter(answer_row(v) for v in read_plainly(bootstrap_servers, "page-views", clock))
    wanted = Counter(answer.items())
    filtered, counters = _read_filtered(bootstrap_servers, sum(plain.values()), clock)
    require(filtered == plain, "our consumer and a plain one see the same records")
    proof = Proof(
        expected=len(answer),
        found=sum(plain.values()),
        lost=(wanted - plain).total(),
        repeated=(plain - wanted).total(),
        batches_skipped=len([b for b in finished.of_kind("batch") if b["is_skipped"]]),
        sequence_holes=counters["gaps"],
        repeats_seen_by_consumer=counters["discarded"],
        seconds_to_recover=_recovery_s(finished, killed_at_ms),
    )
    console.print(render(proof))
    return proof
