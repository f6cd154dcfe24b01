"""Writers that join a driver's transaction: our Java in a process of its own, without Spark."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Self

from onceflow.contracts.sink import Transaction
from onceflow.java.choice import find_java
from onceflow.java.compiled import SOURCES, compile_to_jar, jars_of_spark, kafka_folder
from tests.support.fakes import slow_files

PROBE = slow_files.SOURCES / "onceflow" / "tests" / "WriterProbe.java"
CLIENT = {
    "compression.type": "lz4",
    "linger.ms": "0",
    "retry.backoff.ms": "10",
    "request.timeout.ms": "5000",
    "delivery.timeout.ms": "30000",
    "max.block.ms": "20000",
    "buffer.memory": "1000000",
}
DONE = "done"


def compile_probe(folder: Path) -> Path:
    """Make the jar of `WriterProcess`."""
    jar = folder / "probe.jar"
    sources = [*sorted((SOURCES / "onceflow" / "sink").glob("*.java")), PROBE]
    compile_to_jar(sources, [jars_of_spark(), kafka_folder()], find_java(), jar)
    return jar


class WriterProcess:
    """A process with any number of writers, each with a name and one transaction at a time.

    Every step returns "done", or the error that a task would report.
    """

    def __init__(self, jar: Path, bootstrap_servers: str, **settings: str) -> None:
        folders = [jars_of_spark(), kafka_folder()]
        class_path = os.pathsep.join([str(jar), *(f"{folder}/*" for folder in folders)])
        client = {"bootstrap.servers": bootstrap_servers, **CLIENT}
        client |= {name.replace("_", "."): value for name, value in settings.items()}
        options = ["-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dlog4j2.level=OFF"]
        command = [str(find_java().executable), *options, "-cp", class_path]
        command += ["onceflow.tests.WriterProbe", *(f"{name}={client[name]}" for name in client)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def join(self, name: str, to: Transaction) -> str:
        """Put a writer into a transaction; the first time, make it."""
        return self._do("join", name, to.transactional_id, to.producer_id, to.producer_epoch)

    def write(self, name: str, topic: str, partition: int, count: int = 10) -> str:
        """Send records named after the writer, and wait until all are acknowledged."""
        sent = self.send(name, topic, partition, count)
        return self.flush(name) if sent == DONE else sent

    def send(self, name: str, topic: str, partition: int, count: int = 10) -> str:
        return self._do("send", name, topic, partition, count)

    def begin_write(self, name: str, topic: str, partition: int, count: int = 10) -> None:
        """As `write`, to be finished with `answer`."""
        assert self.send(name, topic, partition, count) == DONE
        self._start("flush", name)

    def flush(self, name: str) -> str:
        return self._do("flush", name)

    def leave(self, name: str) -> str:
        """Take a writer out of its transaction, of which all is acknowledged."""
        return self._do("leave", name)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def answer(self) -> str:
        """Return the end of a step that was begun."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().decode().strip()

    def _do(self, *step: object) -> str:
        self._start(*step)
        return self.answer()

    def _start(self, *step: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, step)).encode() + b"\n")
        self._process.stdin.flush()
