"""Judges a pipeline file without running it, for `validate` and `explain`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from onceflow.clock import SystemClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from onceflow.errors import Fault
    from onceflow.pipeline.analysis.analysis import Analysis
    from onceflow.pipeline.analysis.explain import ReaderGuarantee
    from onceflow.pipeline.file.loader import PipelineFile
    from onceflow.protocol.guarantee import State
    from onceflow.settings import Settings


_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-AlwaysPreTouch"
"""For a JVM that ends in seconds: the better compiler and collector cost it more than they save."""


def has_spark() -> bool:
    """Whether PySpark is installed."""
    return find_spec("pyspark") is not None


@contextmanager
def analysis_session(command: str, settings: Settings) -> Iterator[SparkSession]:
    """A session under the settings of a real run, on one core of this machine.

    Raises:
        ConfigError: the settings are wrong, there is no Java, or Spark refuses to start.
        RetriableError: Spark has ended.
    """
    from onceflow.java.choice import use_java
    from onceflow.runtime.spark import jvm
    from onceflow.runtime.spark.home import sharing_options
    from onceflow.runtime.spark.session import SessionSettings, open_session

    spark = settings.spark.model_copy(update={"master": "local[1]"})
    options = f"{sharing_options(use_java())} {_SHORT_LIVED}"
    session = open_session(command, SessionSettings(**spark.model_dump()), "", options)
    try:
        with jvm.losses_told():
            yield session
    finally:
        jvm.stop(session)


@dataclass(frozen=True)
class Analysed:
    """A valid file; `analysis` is None if Spark did not look at its query.

    Args:
        tables: what is wrong with files of references as they are now.
    """

    file: PipelineFile
    state: State
    analysis: Analysis | None
    tables: tuple[Fault, ...] = ()

    def warnings(self) -> tuple[Fault, ...]:
        """Find what may go wrong although it runs."""
        from onceflow.runtime.checkpoint.disk import ephemeral_fault

        if self.analysis is None:
            return ()
        # A warning: the file may be meant for another machine than the one that checks it.
        ephemeral = ephemeral_fault(self.file, self.state)
        return (*self.analysis.warnings, *self.tables, *([ephemeral] if ephemeral else []))

    def waived(self) -> tuple[str, ...]:
        """Waivers of rules that it breaks."""
        return tuple(map(str, self.analysis.waived)) if self.analysis else ()

    def readers(self) -> tuple[ReaderGuarantee, ...]:
        """Compute what each kind of reader gets; without an analysis, as if deterministic."""
        from onceflow.pipeline.analysis.explain import readers_of
        from onceflow.protocol.guarantee import Determinism

        determinism = self.analysis.determinism if self.analysis else Determinism.HOLDS
        return readers_of(self.file.pipeline.mode, determinism, self.state)


def analysed(file: PipelineFile, settings: Settings, spark: SparkSession | None) -> Analysed:
    """Find out what can be known without running a pipeline; without Spark, less.

    Raises:
        ConfigError: lists every fault.
    """
    from onceflow.pipeline.analysis.analysis import analyse
    from onceflow.pipeline.query.promises import require_sources
    from onceflow.runtime.checkpoint.disk import state_of

    now_ms = SystemClock().unix_ms()
    analysis = None
    tables: tuple[Fault, ...] = ()
    if spark is not None:
        from onceflow.pipeline.analysis.tables import file_faults

        tables = tuple(file_faults(file))
        require_sources(file)
        analysis = analyse(spark, file, now_ms)
    location, waiver = file.pipeline.checkpoint_location, settings.ephemeral_checkpoints
    return Analysed(file, state_of(location, waiver, now_ms), analysis, tables)
