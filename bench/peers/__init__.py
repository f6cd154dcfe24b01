"""Kafka Streams and Flink SQL, on the same jobs, exactly once, with a process of each.

Both get what makes them faster: as many threads as cores, compressed batches of 256 KiB, the same
heap as Spark's JVM. Flink keeps state on its heap, or in RocksDB in an engine of its own; Kafka
Streams keeps it in RocksDB, as by default. They commit each second of a backlog, as often as we
commit a batch, and every 100 ms (the default of Kafka Streams) of a paced load.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bench.engines import EAGER, FILTER, ONCEFLOW, Engine, Job
from bench.workload import Question
from onceflow.devkit.jars import JarCache, jar_set
from onceflow.errors import ConfigError

HEAP = "2g"
OF_BACKLOG_MS, OF_PACED_LOAD_MS = 1_000, 100
"""Between two commits."""
OPENED = "java.base/java.util=ALL-UNNAMED"
"""To Flink's serialisation, as its own start script does."""


def _command(job: Job, *, jars: str, program: str, question: Question, state: str) -> Sequence[str]:
    """Compile the program, and run it on the job."""
    if shutil.which("javac") is None:
        raise ConfigError(
            "a peer of the benchmark cannot be compiled",
            subject=program,
            expected="a JDK 17 or newer",
            found="no javac",
            then="install one, or leave the peers out",
        )
    class_path = ":".join(map(str, JarCache.of_user().ensure(jar_set(jars))))
    source = Path(__file__).with_name(f"{program}.java")
    compiler = ["javac", "--release", "17", "-nowarn", "-cp", class_path, "-d", job.folder]
    subprocess.run([*compiler, str(source)], check=True)
    options = [f"-Xmx{HEAP}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    options += ["--add-opens", OPENED, "-cp", f"{job.folder}:{class_path}"]
    commit_ms = OF_BACKLOG_MS if job.records else OF_PACED_LOAD_MS
    arguments = [job.bootstrap_servers, job.input_topic, job.output_topic, job.emit]
    arguments += [str(job.records), str(commit_ms), job.folder, question, state]
    return ["java", *options, program, *arguments]


def _peer(name: str, question: Question = Question.WINDOWS, state: str = "hashmap") -> Engine:
    """One of them, by its name and what is added to it."""
    is_flink = name.startswith("flink")
    jars, program = ("flink", "FlinkJob") if is_flink else ("streams", "StreamsJob")
    command = partial(_command, jars=jars, program=program, question=question, state=state)
    return Engine(name, command, question)


STREAMS = _peer("kafka-streams")
FLINK = _peer("flink")
FLINK_ROCKSDB = _peer("flink-rocksdb", state="rocksdb")
STREAMS_FILTER = _peer("kafka-streams-filter", Question.FILTER)
FLINK_FILTER = _peer("flink-filter", Question.FILTER)

COUNTING = (STREAMS, FLINK, FLINK_ROCKSDB)
FILTERING = (STREAMS_FILTER, FLINK_FILTER)
OF_BACKLOG = (*COUNTING, *FILTERING)
PACED = (STREAMS, FLINK)
COMPARED = (ONCEFLOW, FILTER, EAGER, *OF_BACKLOG)
"""Ours, and those with the same jobs."""
