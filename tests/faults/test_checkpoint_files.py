"""Every kind of file of Spark's checkpoint, damaged in every way, then a start.

A start either goes on to the right output, or is refused by an error that names the file and says
what to do. What a refused start leaves behind must not matter once the file is put back.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark import SparkContext

from onceflow.app import RunOptions
from onceflow.errors import InvariantError, OnceflowError
from onceflow.runtime.spark.session import SessionSettings
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.here import QUICK, application, run_here
from tests.support.eventually import eventually
from tests.support.everything import is_everything, some
from tests.support.jobs.tally import TallyJob, TallyProcessorJob
from tests.support.outside.checkpoint_damage import Damage, Target, damaged, of_checksum, targets

REFUSALS = 10
"""Of a short run. Each takes a second: Spark is started meanwhile, and not used."""
STARTS = 2
"""Of a short run, with Spark: several seconds each."""
TIMEOUT_S = 30
SNAPSHOT_TIMEOUT_S = 150.0
MOST_S = 3600
"""For a test that plays every case; the usual limit is for those that play some."""
_STATE = "spark.sql.streaming.stateStore"
JOBS = (TallyJob, TallyProcessorJob)


pytestmark = [pytest.mark.timeout(MOST_S)] if is_everything() else []


class Outcome(Enum):
    """The demand on a start."""

    GOES_ON = "goes on"
    REFUSES = "refuses"
    EITHER = "goes on rightly, or refuses"
    """Two faults at once, the file's and its checksum's: which, depends on the bit. What is refused
    then is not always known to be this file."""


@dataclass(frozen=True)
class Case:
    """One file, one damage.

    Args:
        kind: of file, as `targets` calls it.
        is_checksum: the checksum of the file is damaged, and not the file.
        damage: what happens.
        outcome: what is demanded.
    """

    kind: str
    is_checksum: bool
    damage: Damage
    outcome: Outcome

    @property
    def case_id(self) -> str:
        part = "checksum of " if self.is_checksum else ""
        return f"{part}{self.kind}: {self.damage.value}"


_STARTED_RIGHTLY = (Outcome.GOES_ON.value, Outcome.REFUSES.value)
_LETTERS = {"g": Outcome.GOES_ON, "r": Outcome.REFUSES, "e": Outcome.EITHER}
_FILE_DAMAGES = tuple(Damage)
_CHECKSUM_DAMAGES = tuple(d for d in Damage if d is not Damage.FLIPPED_UNSEEN)
_BEFORE_SPARK: Mapping[str, tuple[str, str]] = {
    # Of the file, in the order of `Damage`; then of its checksum, without the last but one. A dot
    # stands where there is nothing to do: no checksum, or no older content that differs.
    "onceflow.json": ("grrr..", "....."),
    "metadata": ("rrrre.", "grrr."),
    "operators.json": ("grrre.", "grrr."),
    "offsets, newest": ("rrrrer", "grrrr"),
    "offsets, second newest": ("rrrrer", "grrrr"),
    # A bit of the next watermark's digits has no other witness than the checksum: not promised.
    "commits, newest": ("grrr.r", "grrrr"),
    "processor's form": ("grrre.", "grrr."),
}
_BY_SPARK: Mapping[str, tuple[str, str]] = {
    "state schema": ("grrre.", "geee."),
    "operator metadata": ("gggge.", "gggg."),
    "changelog, newest": ("rrrrer", "geeer"),
    "changelog, second newest": ("rrrrer", "geeer"),
    "snapshot, newest": ("gggggr", "ggggr"),
    "table, newest": ("ggggeg", "ggggg"),
    # Spark writes what it names into the next one: a bit that turned unseen stays.
    "processor's metadata": ("grrr..", "geee."),
    "processor's schema": ("rrrr..", "geee."),
}
_UNREAD: Mapping[str, tuple[str, str]] = {
    "offsets, old": ("gggggg", "ggggg"),
    "commits, second newest": ("gggggg", "ggggg"),
    "commits, old": ("gggggg", "ggggg"),
    "changelog, old": ("gggggg", "ggggg"),
    "snapshot, old": ("ggggg.", "gggg."),
}
"""No start needs them, so none of them may prevent one."""


def _cases(table: Mapping[str, tuple[str, str]]) -> Sequence[Case]:
    return [
        Case(kind, is_checksum, damage, _LETTERS[letter])
        for kind, rows in table.items()
        for is_checksum, row, damages in zip(
            (False, True), rows, (_FILE_DAMAGES, _CHECKSUM_DAMAGES), strict=True
        )
        for letter, damage in zip(row, damages, strict=True)
        if letter in _LETTERS
    ]


_LOOKED_AT = _cases(_BEFORE_SPARK)
REFUSED = [case for case in _LOOKED_AT if case.outcome is Outcome.REFUSES]
"""Before Spark is needed."""
LOADED = [
    *(case for case in _LOOKED_AT if case.outcome is not Outcome.REFUSES),
    *_cases(_BY_SPARK),
]
"""Known when Spark has read the file."""
UNREAD = _cases(_UNREAD)
CASES: Sequence[Case] = (*REFUSED, *LOADED, *UNREAD)
"""The whole table, for documents."""


def _session(deltas: int) -> SessionSettings:
    conf = {f"{_STATE}.minDeltasForSnapshot": str(deltas), f"{_STATE}.maintenanceInterval": "500ms"}
    return replace(QUICK, conf={**QUICK.conf, **conf})


WITHOUT_SNAPSHOTS = _session(1_000_000)


@dataclass
class Bench:
    """One pipeline on which all cases are played, each on what the one before left.

    Args:
        job: the pipeline's input and oracle.
        file: the pipeline.
        random: chooses bits.
        is_refused: how the last start ended.
    """

    job: TallyJob
    file: Path
    random: Random
    is_refused: bool = False

    def start(self) -> None:
        """A start that has something to do, and its check."""
        if not self.is_refused:  # otherwise there still is
            self.job.touch()
        run_here(self.file, self.job.bootstrap_servers, WITHOUT_SNAPSHOTS)
        self.job.check()

    def having(self, cases: Sequence[Case]) -> Sequence[Case]:
        """Those of files that the checkpoint has."""
        kinds = targets(self.job.checkpoint)
        return [case for case in cases if case.kind in kinds]

    def play(self, *cases: Case) -> str:
        """Damage, start, look, put back. Several at once if none of them may prevent the start."""
        kinds = targets(self.job.checkpoint)
        before = self._written()
        with ExitStack() as stack:
            for case in cases:
                found = kinds[case.kind]
                target = of_checksum(found) if case.is_checksum else found
                stack.enter_context(damaged(target, case.damage, self.random.randrange(1 << 20)))
            try:
                self.start()
                self.is_refused = False
            except OnceflowError as error:
                self.is_refused = True
                if self._written() != before:
                    return f"refused, and wrote: {error}"
                return self._judge(error, cases[0], kinds[cases[0].kind])
        return Outcome.GOES_ON.value

    def _judge(self, error: OnceflowError, case: Case, target: Target) -> str:
        name = str(target.path.relative_to(self.job.checkpoint))
        if isinstance(error, InvariantError) or "\n" in str(error):
            return f"a stack trace: {error}"
        is_seen = case.damage is not Damage.FLIPPED_UNSEEN
        if is_seen and name not in str(error):
            return f"no name of {name}: {error}"
        return Outcome.REFUSES.value if error.then else f"no cure: {error}"

    def _written(self) -> Mapping[tuple[str, int], int]:
        """Where the output ends, and the part of the ledger that holds `head`."""
        ends = {}
        consumer = Consumer({"bootstrap.servers": self.job.bootstrap_servers, "group.id": "ends"})
        try:
            for topic in (self.job.output_topic, f"onceflow.ledger.{self.job.name}"):
                for partition in consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions:
                    place = TopicPartition(topic, partition)
                    ends[topic, partition] = consumer.get_watermark_offsets(place, TIMEOUT_S)[1]
        finally:
            consumer.close()
        # The owner stands apart: a start may claim the pipeline before it is refused.
        del ends[f"onceflow.ledger.{self.job.name}", 0]
        return ends


@pytest.fixture(scope="module", params=JOBS if is_everything() else ["by seed"])
def kind(request: pytest.FixtureRequest, seed: int) -> type[TallyJob]:
    """State of SQL, or of a processor."""
    return Random(seed).choice(JOBS) if request.param == "by seed" else request.param


@pytest.fixture(scope="module")
def bench(
    broker: RunningBroker,
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    kind: type[TallyJob],
) -> Iterator[Bench]:
    job = kind(broker.bootstrap_servers, tmp_path_factory.mktemp("files"))
    job.create_input()
    job.introduce()
    file = job.write_file()
    _run_to_two_snapshots(job, file)
    made = Bench(job, file, Random(seed))
    made.start()
    yield made
    if made.is_refused:
        made.start()
    # Tests that follow want changelogs, and no snapshot twice a second.
    _forget_interval()


def _run_to_two_snapshots(job: TallyJob, file: Path) -> None:
    _forget_interval()
    made, _ = application(file, job.bootstrap_servers, RunOptions(), _session(3))
    running = threading.Thread(target=made.run)
    running.start()
    try:
        eventually(
            lambda: len(list(job.checkpoint.glob("state/0/0/*.zip"))),
            lambda seen: seen >= 2,
            timeout_s=SNAPSHOT_TIMEOUT_S,
        )
    finally:
        made.request_drain()
        running.join()


def _forget_interval() -> None:
    """Snapshots are uploaded as often as the first query of this JVM wanted, until it is ended."""
    gateway = SparkContext._gateway
    if gateway is not None:
        states = getattr(gateway.jvm, "org.apache.spark.sql.execution.streaming.state.StateStore$")
        getattr(states, "MODULE$").stop()


def test_a_start_is_refused_before_it_stops_anybody(bench: Bench, random: Random) -> None:
    cases = some(bench.having(REFUSED), REFUSALS, random)
    assert {case.case_id: bench.play(case) for case in cases} == _demanded(cases)


def test_what_spark_loads_is_right_or_refused(bench: Bench, random: Random) -> None:
    cases = some(bench.having(LOADED), STARTS, random)
    seen = {case.case_id: bench.play(case) for case in cases}
    for case in cases:
        if case.outcome is Outcome.EITHER and seen[case.case_id] in _STARTED_RIGHTLY:
            seen[case.case_id] = Outcome.EITHER.value
    assert seen == _demanded(cases)


def test_what_no_start_needs_hinders_none(bench: Bench, random: Random) -> None:
    groups: dict[tuple[bool, Damage], list[Case]] = {}
    for case in bench.having(UNREAD):
        groups.setdefault((case.is_checksum, case.damage), []).append(case)
    for group in some([*groups.values()], 1, random):
        assert bench.play(*group) == Outcome.GOES_ON.value, group[0].damage


def _demanded(cases: Sequence[Case]) -> Mapping[str, str]:
    return {case.case_id: case.outcome.value for case in cases}
