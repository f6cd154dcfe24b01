"""A source of another package: it keeps the contract, and a file chooses it by its block."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pyarrow as pa
import pytest

from onceflow.cli.operate.acls import topics_of
from onceflow.contracts.connector import Broker, Connection
from onceflow.contracts.source import META_COLUMNS, SourceSpec
from onceflow.contracts.source_block import find_source, installed_sources
from onceflow.errors import ConfigError, CorruptionError, Fault
from onceflow.observe.retention import positions_of
from onceflow.pipeline.file.kinds import FileKind
from onceflow.pipeline.file.loader import load_pipeline
from onceflow.pipeline.file.model import Pipeline
from onceflow.pipeline.file.schema import json_schema
from onceflow.protocol.dead_letter import DeadLetter
from onceflow.protocol.ledger import BatchPlan
from onceflow.runtime.query.progress import lag_of
from onceflow.runtime.source.data_source import SourceHandle
from onceflow.testing.sources import (
    SPEC,
    GrowthPromises,
    RecordsRead,
    RetentionPromises,
    SourceContract,
    SourceUnderTest,
)
from tests.support.clock import ManualClock
from tests.support.entries import head
from tests.support.jobs.numbered_files import KIND, PACKAGE, Files, importable, install

pytestmark = pytest.mark.usefixtures("installed")
ORDERS = (PACKAGE / "orders.yaml").read_text()


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("package")
    install(folder)
    return folder


@pytest.fixture
def installed(package: Path) -> Iterator[None]:
    with importable(package):
        yield


class TestNumberedFiles(SourceContract, RetentionPromises, GrowthPromises):
    @pytest.fixture
    def spec(self, tmp_path: Path) -> SourceSpec:
        return replace(SPEC, folder=str(tmp_path))

    @pytest.fixture
    def origin(self, tmp_path: Path) -> Files:
        return Files(tmp_path / "origin")


def faults(folder: Path, text: str) -> tuple[Fault, ...]:
    path = folder / "pipeline.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        load_pipeline(path)
    return refused.value.faults


def test_the_example_is_valid_and_read_to_its_end(tmp_path: Path) -> None:
    pipeline = load_pipeline(PACKAGE / "orders.yaml").pipeline
    source = pipeline.sources["orders"]
    schema = pa.schema([*META_COLUMNS.items(), ("customer", pa.string()), ("cents", pa.int64())])
    spec = SourceSpec("orders", source.format, schema, folder=str(PACKAGE))
    made = SourceUnderTest(source.block, Connection(""), spec)
    planner = made.planner()
    start = planner.initial_position()
    splits = planner.splits(start, planner.latest_position(start, None))
    rows = pa.Table.from_batches(made.reader().read(splits)).to_pylist()
    assert [(row["customer"], row["cents"]) for row in rows] == [
        ("ada", 250),
        ("ben", 99),
        ("ada", 1200),
    ]
    assert [(row["_topic"], row["_partition"], row["_offset"]) for row in rows] == [
        ("numbered-files:orders", 0, line) for line in range(3)
    ]


def test_a_block_travels_to_sparks_processes_as_text(tmp_path: Path) -> None:
    block = load_pipeline(PACKAGE / "orders.yaml").pipeline.sources["orders"].block
    sent = SourceHandle(KIND, block, replace(SPEC, folder=str(tmp_path)), Connection(""))
    assert SourceHandle.from_options(sent.to_options()) == sent


def test_a_kind_that_is_not_installed_is_answered_with_those_that_are(tmp_path: Path) -> None:
    assert installed_sources() == ["kafka", KIND]
    found = faults(tmp_path, ORDERS.replace("numbered-files:", "numbered-fils:"))
    assert [(fault.what, fault.expected, fault.suggestion) for fault in found] == [
        ("what to read is needed exactly once", "`kafka` or `numbered-files`", ""),
        ("unknown key `numbered-fils`", "", "Did you mean `numbered-files`?"),
    ]


def test_a_source_has_one_kind(tmp_path: Path) -> None:
    both = ORDERS.replace("    numbered-files:", "    kafka: {topics: [a]}\n    numbered-files:")
    assert "what to read is needed exactly once" in [fault.what for fault in faults(tmp_path, both)]


def test_its_block_is_as_strict_as_ours(tmp_path: Path) -> None:
    (unknown,) = faults(tmp_path, ORDERS.replace("{folder: orders}", "{folder: a, follow: true}"))
    assert (unknown.where, unknown.what) == (
        "sources.orders.numbered-files.follow",
        "unknown key `follow`",
    )
    (wrong,) = faults(tmp_path, ORDERS.replace("{folder: orders}", "{folder: [a]}"))
    assert (wrong.line, wrong.where) == (5, "sources.orders.numbered-files.folder")


def test_the_schema_has_every_kind_that_is_installed() -> None:
    source = json_schema(Pipeline, FileKind.PIPELINE)["$defs"]["Source"]
    assert source["oneOf"] == [{"required": ["kafka"]}, {"required": [KIND]}]
    assert source["properties"][KIND]["additionalProperties"] is False


def test_what_kafka_alone_can_tell_is_not_asked() -> None:
    """Nothing is looked up, granted or refused at the brokers for a source that is not there."""
    file = load_pipeline(PACKAGE / "orders.yaml")
    assert file.pipeline.named_inputs == []
    topics = topics_of(file)
    assert (topics.inputs, topics.patterns) == ([], [])
    plan = BatchPlan({"orders": {"numbered-files:orders": {0: (0, 3)}}}, 0, 0)
    entry = replace(head(0, 0, 3), plan=plan)
    assert positions_of(entry) == {}
    broker = cast("Broker", None)
    assert lag_of(entry, broker, ManualClock().within(1)) == {}


def test_its_dead_letters_are_kept_and_not_sent_to_a_topic_of_that_name() -> None:
    letter = DeadLetter(
        key=None,
        value=b"{",
        headers=(),
        reason="undecodable",
        text="",
        pipeline="orders",
        batch_id=0,
        source="orders",
        topic="numbered-files:orders",
        partition=0,
        offset=1,
        timestamp_ms=-1,
    )
    assert not letter.is_whole
    assert replace(letter, topic="orders").is_whole


def test_a_change_of_the_folder_is_a_change_of_the_query(tmp_path: Path) -> None:
    def parts(text: str) -> object:
        path = tmp_path / "pipeline.yaml"
        path.write_text(text)
        return load_pipeline(path).pipeline.result_parts()

    assert json.dumps(parts(ORDERS))
    assert parts(ORDERS.replace("{folder: orders}", "{folder: others}")) != parts(ORDERS)
    limited = ORDERS.replace("{folder: orders}", "{folder: orders, max_records_per_batch: 5}")
    assert parts(limited) == parts(ORDERS)


@pytest.mark.parametrize("folder", ["..", "/", "link"])
def test_a_folder_elsewhere_is_refused(tmp_path: Path, folder: str) -> None:
    """Who may write a pipeline file may not read every file of the machine."""
    (tmp_path / "link").symlink_to("/")
    block = find_source(KIND).model_validate({"folder": folder})
    for make in (block.planner, block.reader):
        with pytest.raises(ConfigError, match="lies outside"):
            make(replace(SPEC, folder=str(tmp_path)), Connection(""))


def test_a_link_to_a_file_elsewhere_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret\n")
    origin = Files(tmp_path / "pipelines" / "origin")
    (origin.folder / "0" / "000.jsonl").symlink_to(tmp_path / "secret")
    block = SourceUnderTest(origin.block, spec=replace(SPEC, folder=str(origin.folder.parent)))
    reading = RecordsRead(block)
    reading.until({})


def test_a_missing_file_in_the_middle_is_an_error(tmp_path: Path) -> None:
    origin = Files(tmp_path / "origin")
    origin.append(0, [(b"", b"%d" % line) for line in range(9)])
    source = SourceUnderTest(origin.block, spec=replace(SPEC, folder=str(tmp_path)))
    planner = source.planner()
    start = planner.initial_position()
    (split,) = planner.splits(start, planner.latest_position(start, None))
    (origin.folder / "0" / "000000000003.jsonl").unlink()
    with pytest.raises(CorruptionError, match=r"lines \[3, 9\) of numbered-files:origin-0"):
        source.values([split])


@pytest.mark.parametrize(
    ("target", "what"),
    [
        ("no_such_module:Block", "ModuleNotFoundError"),
        ("json:dumps", "is not a SourceBlock"),
        ("tests.unit.kafka.test_source_conformance:Lax", "accepts unknown keys"),
    ],
)
def test_a_package_that_does_not_work_is_named_and_harms_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, what: str
) -> None:
    metadata = tmp_path / "broken-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[onceflow.sources]\nbroken = {target}\n")
    monkeypatch.syspath_prepend(tmp_path)
    (fault,) = faults(tmp_path, ORDERS.replace("numbered-files:", "broken:"))
    assert fault.where == "sources.orders"
    assert "broken of package broken" in fault.what
    assert what in fault.what
    assert "broken" not in json_schema(Pipeline, FileKind.PIPELINE)["$defs"]["Source"]["properties"]
    load_pipeline(PACKAGE / "orders.yaml")
