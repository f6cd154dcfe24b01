"""A JVM that has ended, by its own will or not, is reported as that. No JVM is started."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from onceflow.errors import ConfigError, FencedError, InvariantError, OnceflowError, RetriableError

jvm = pytest.importorskip("onceflow.runtime.spark.jvm")
session = pytest.importorskip("onceflow.runtime.spark.session")

TELL_AN_ADDRESS = f"""\
#!{sys.executable}
import os, signal, socket, struct
with socket.socket() as unused:
    unused.bind(("127.0.0.1", 0))
    port = unused.getsockname()[1]
path = os.environ["_PYSPARK_DRIVER_CONN_INFO_PATH"]
with open(path + "-unfinished", "wb") as info:
    info.write(struct.pack("!i", port) + struct.pack("!i", 6) + b"secret")
os.rename(path + "-unfinished", path)
"""
KILLED = "signal 9; perhaps the machine or the container ran out of memory; nothing is lost"


class Stopped:
    """As much of a session as an end needs."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.calls = 0
        self.sparkContext = SimpleNamespace(_jsc=object())

    def stop(self) -> None:
        self.calls += 1
        if self.error is not None:
            raise self.error


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """Stands for the JVM that PySpark has started."""
    with subprocess.Popen(["sleep", "600"]) as child:
        gateway = SimpleNamespace(proc=child)
        monkeypatch.setattr("pyspark.SparkContext._gateway", gateway)
        monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
        yield child
        child.kill()


def use_context(monkeypatch: pytest.MonkeyPatch, is_stopped: bool | Exception) -> None:
    """Let Spark say whether its context is stopped, or fail to."""

    def answer() -> bool:
        if isinstance(is_stopped, Exception):
            raise is_stopped
        return is_stopped

    java = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=answer))
    context = SimpleNamespace(_jsc=java)
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", context)


def test_without_a_jvm_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.SparkContext._gateway", None)
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    assert jvm.loss() is None
    jvm.require_spark()


def test_a_killed_jvm_is_lost(process: subprocess.Popen[bytes]) -> None:
    assert jvm.loss() is None
    process.kill()
    process.wait()
    assert KILLED in str(jvm.loss())
    with pytest.raises(RetriableError, match=KILLED):
        jvm.require_spark()


@pytest.mark.parametrize(
    ("end", "found"),
    [
        ("exit 11", "exit code 11"),
        ("kill -15 $$", "signal 15;"),
        ("exit 143", "signal 15;"),
        ("exit 137", "signal 9; perhaps"),
    ],
)
def test_how_it_ended_is_told(end: str, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sh", "-c", end]) as child:
        child.wait()
        monkeypatch.setattr("pyspark.SparkContext._gateway", SimpleNamespace(proc=child))
        assert found in str(jvm.loss())


def test_a_context_that_spark_stopped_is_lost_although_its_jvm_lasts(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm, "ENDING_S", 0.01)
    use_context(monkeypatch, is_stopped=False)
    assert jvm.loss() is None
    for state in (True, Py4JNetworkError("no answer"), ConnectionRefusedError(111)):
        use_context(monkeypatch, state)
        assert "Spark has ended" in str(jvm.loss())
    assert process.poll() is None


def test_one_that_closed_its_connections_first_is_waited_for(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusal(ConnectionRefusedError):
        """As the system gives it, just before it reports the end."""

        def __init__(self) -> None:
            process.kill()

    def answer() -> bool:
        raise Refusal

    java = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=answer))
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", SimpleNamespace(_jsc=java))
    assert KILLED in str(jvm.loss())


def fail(error: Exception, cause: Exception | None = None) -> BaseException:
    """The error as which a failure is reported."""
    with pytest.raises(Exception) as raised, jvm.losses_told():  # noqa: PT011  any
        raise error from cause
    return raised.value


GONE = ConnectionRefusedError(111, "Connection refused")
REFUSED = ConfigError("Spark refuses the query")


def test_what_may_come_from_a_loss_is_told_as_one(process: subprocess.Popen[bytes]) -> None:
    for error in (GONE, Py4JNetworkError("gone"), InvariantError("the query failed")):
        assert fail(error) is error
    process.kill()
    process.wait()
    for error in (GONE, Py4JNetworkError("gone"), InvariantError("the query failed")):
        told = fail(error)
        assert isinstance(told, RetriableError)
        assert told.__cause__ is error
    assert isinstance(fail(REFUSED, GONE), RetriableError)
    for ours in (REFUSED, FencedError("replaced")):
        assert fail(ours) is ours


def test_the_end_of_a_session_does_not_hide_why_it_ends(
    process: subprocess.Popen[bytes],
) -> None:
    for error in (None, GONE, Py4JNetworkError("gone")):
        lasting = Stopped(error)
        jvm.stop(lasting)
        assert lasting.calls == 1
    process.kill()
    process.wait()
    lost = Stopped()
    jvm.stop(lost)
    assert not lost.calls


@pytest.mark.usefixtures("process")
def test_who_ends_a_session_that_has_ended_does_not_disturb_the_next_one() -> None:
    """`SparkContext.stop` of a stopped context forgets the one that was started since."""
    ended = Stopped()
    ended.sparkContext._jsc = None
    jvm.stop(ended)
    assert not ended.calls


@dataclass
class Start:
    """The start of a Spark that is another program."""

    folder: Path
    launched: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def engine_that_fails(self, program: str) -> tuple[Any, OnceflowError]:
        """An engine that was asked for a session, and what it failed with."""
        submit = self.folder / "bin" / "spark-submit"
        submit.parent.mkdir()
        submit.write_text(program)
        submit.chmod(0o755)
        engine = session.SharedEngine(session.SessionSettings("local[1]"))
        with pytest.raises(OnceflowError) as raised:
            engine.open_session("")
        return engine, raised.value

    def launch(self, *arguments: Any, **named: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(*arguments, **named)
        self.launched.append(process)
        return process


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    made = Start(tmp_path)
    for name in ("SparkContext._gateway", "SparkContext._active_spark_context"):
        monkeypatch.setattr(f"pyspark.{name}", None)
    # Tests before this one may have left a Spark in this process, which would be joined.
    monkeypatch.setattr("pyspark.sql.SparkSession._instantiatedSession", None)
    for name in ("JAVA_HOME", "PYSPARK_PYTHON"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setattr("pyspark.java_gateway.Popen", made.launch)
    yield made
    for process in made.launched:
        process.communicate(timeout=30)


@pytest.mark.parametrize(
    "program",
    ["#!/bin/sh\nkill -9 $$\n", TELL_AN_ADDRESS + "os.kill(os.getpid(), signal.SIGKILL)\n"],
    ids=["before it answers", "after it has told where it answers"],
)
def test_a_jvm_that_is_killed_in_its_start_is_lost(program: str, start: Start) -> None:
    engine, error = start.engine_that_fails(program)
    assert isinstance(error, RetriableError)
    assert KILLED in str(error)
    assert engine.loss() is error
    with pytest.raises(RetriableError) as again:
        engine.open_session("")
    assert again.value is error
    assert len(start.launched) == 1
    engine.stop()


def test_who_asks_for_a_session_of_a_jvm_that_is_gone_is_told_so(
    process: subprocess.Popen[bytes],
) -> None:
    def refuse() -> None:
        raise GONE

    engine = session.SharedEngine(session.SessionSettings("local[1]"))
    context = SimpleNamespace(_jsc=object())
    engine._first = SimpleNamespace(newSession=refuse, sparkContext=context)
    process.kill()
    process.wait()
    with pytest.raises(RetriableError, match=KILLED):
        engine.open_session("")
    assert KILLED in str(engine.loss())


def test_a_jvm_that_ends_itself_in_its_start_is_lost_once_it_answered(
    start: Start,
) -> None:
    engine, error = start.engine_that_fails(TELL_AN_ADDRESS + "os._exit(11)\n")
    assert isinstance(error, RetriableError)
    assert "exit code 11" in str(engine.loss())


@pytest.mark.parametrize(
    ("program", "found"),
    [("#!/bin/sh\nexit 1\n", "exit code 1"), ("#!/no/such/program\n", "No such file")],
)
def test_one_that_never_answers_and_was_not_ended_by_anybody_is_a_matter_of_settings(
    program: str, found: str, start: Start
) -> None:
    engine, error = start.engine_that_fails(program)
    assert isinstance(error, ConfigError)
    assert "Spark did not start: local[1]" in str(error)
    assert found in str(error)
    assert engine.loss() is None
