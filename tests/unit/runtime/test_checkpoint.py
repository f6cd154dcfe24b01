"""Spark's checkpoint as we read it, and the cases in which we write it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onceflow.contracts.source import Position, TopicRanges
from onceflow.errors import ConfigError, CorruptionError, LineageError
from onceflow.protocol.fork import forked as of_fork
from onceflow.protocol.identity import BatchKey, FencingToken, Layout
from onceflow.protocol.ledger import BatchPlan, HeadEntry, RecordCounts, SinkState
from onceflow.protocol.references import ReferenceVersion
from onceflow.runtime.checkpoint.checkpoint import Checkpoint, SourceArithmetic
from onceflow.runtime.checkpoint.hadoop_checksum import checksum_of


def ranges(start: Position | None, end: Position) -> TopicRanges:
    before = start["t"] if start else {}
    return {"t": {int(p): (before.get(p, 0), e) for p, e in end["t"].items()}}


def position(like: Position | None, wanted: TopicRanges) -> Position:
    return {"t": {str(p): end for p, (_, end) in wanted["t"].items()}}


SOURCES = {"s": SourceArithmetic(ranges, position)}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(str(tmp_path / "ck"), "views", SOURCES)


def log_batch(
    root: Path, batch_id: int, ends: dict[str, int], settings: dict[str, str] | None = None
) -> None:
    conf = {"a": "b"} if settings is None else settings
    metadata = {"batchWatermarkMs": 5, "batchTimestampMs": 9, "conf": conf}
    offset = {"source": "s", "position": {"t": ends}}
    (root / "offsets").mkdir(parents=True, exist_ok=True)
    text = f"v1\n{json.dumps(metadata)}\n{json.dumps(offset)}"
    (root / "offsets" / str(batch_id)).write_text(text)


def log_commit(root: Path, batch_id: int, text: str) -> None:
    (root / "commits").mkdir(parents=True, exist_ok=True)
    (root / "commits" / str(batch_id)).write_text(text)


def head(batch_id: int, bounds: tuple[int, int]) -> HeadEntry:
    return HeadEntry(
        "views",
        1,
        BatchKey("q", batch_id),
        FencingToken(1),
        "r",
        BatchPlan({"s": {"t": {0: bounds}}}, 50, 90),
        SinkState("out", 1, Layout(1, 3)),
        RecordCounts(),
        "",
        "",
    )


def test_a_new_checkpoint_has_no_query(checkpoint: Checkpoint) -> None:
    assert checkpoint.facts().query_id is None


def test_a_created_checkpoint_keeps_its_query(checkpoint: Checkpoint) -> None:
    checkpoint.create("q-1")
    facts = checkpoint.facts()
    assert (facts.query_id, facts.planned, facts.done) == ("q-1", -1, -1)


def test_ranges_run_from_the_batch_before(checkpoint: Checkpoint, tmp_path: Path) -> None:
    checkpoint.create("q")
    log_batch(tmp_path / "ck", 0, {"0": 10})
    log_batch(tmp_path / "ck", 1, {"0": 25})
    assert checkpoint.plan(1) == BatchPlan({"s": {"t": {0: (10, 25)}}}, 5, 9)
    assert checkpoint.facts().plans == {1: checkpoint.plan(1)}


def test_the_checkpoint_of_another_pipeline_is_refused(tmp_path: Path) -> None:
    Checkpoint(str(tmp_path), "orders", {}).create("q")
    with pytest.raises(LineageError, match="orders"):
        Checkpoint(str(tmp_path), "views", {}).query_id()


@pytest.mark.parametrize("text", ["", "v1", "v2\n{}\n{}", "v1\n{}\n{}", "v1\n{\n{}", "v1\n[]\n[]"])
def test_a_damaged_offset_log_names_the_file(
    checkpoint: Checkpoint, tmp_path: Path, text: str
) -> None:
    checkpoint.create("q")
    (tmp_path / "ck" / "offsets").mkdir()
    (tmp_path / "ck" / "offsets" / "0").write_text(text)
    with pytest.raises(CorruptionError, match="offsets/0"):
        checkpoint.facts()


def test_logs_without_metadata_are_no_new_checkpoint(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    log_batch(tmp_path / "ck", 0, {"0": 10})
    with pytest.raises(CorruptionError, match="metadata"):
        checkpoint.facts()


def test_a_written_plan_is_the_ledgers(checkpoint: Checkpoint, tmp_path: Path) -> None:
    checkpoint.create("q")
    log_batch(tmp_path / "ck", 0, {"0": 10})
    (tmp_path / "ck" / "offsets" / ".1.crc").write_text("checksum of a zombie's plan")
    checkpoint.write_plan(head(1, (10, 40)))
    assert checkpoint.plan(1) == BatchPlan({"s": {"t": {0: (10, 40)}}}, 50, 90)
    metadata = (tmp_path / "ck" / "offsets" / "1").read_text().splitlines()[1]
    assert json.loads(metadata)["conf"] == {"a": "b"}


def log_parameters(root: Path, batch_id: int, carried_by: str, told: dict[str, object]) -> None:
    """An entry of two sources, in the order in which a query reads them."""
    metadata = {"batchWatermarkMs": 5, "batchTimestampMs": 9, "conf": {}}
    lines = ["v1", json.dumps(metadata)]
    for name in ("s", "r"):
        offset = {"source": name, "position": {"t": {"0": 10}}}
        lines.append(json.dumps({**offset, **({"parameters": told} if name == carried_by else {})}))
    (root / "offsets").mkdir(parents=True, exist_ok=True)
    (root / "offsets" / str(batch_id)).write_text("\n".join(lines))


def carried(root: Path, batch_id: int) -> dict[str, object]:
    lines = (root / "offsets" / str(batch_id)).read_text().splitlines()[2:]
    offsets = [json.loads(line) for line in lines]
    return {each["source"]: each.get("parameters") for each in offsets}


@pytest.mark.parametrize("told", [5, [], {}, {"values": 5}, {"values": []}])
def test_damaged_parameters_name_the_file(tmp_path: Path, told: Any) -> None:
    checkpoint = Checkpoint(str(tmp_path), "views", {**SOURCES, "r": SOURCES["s"]})
    log_parameters(tmp_path, 0, "r", told)
    with pytest.raises(CorruptionError, match="offsets/0"):
        checkpoint.plan(0)


@pytest.mark.parametrize("logged", [0, 1])
@pytest.mark.parametrize("values", [{"limit": "7.00"}, {}])
def test_a_written_plan_has_the_parameters_of_the_ledger_and_their_place_on_the_topic(
    tmp_path: Path, logged: int, values: dict[str, str]
) -> None:
    checkpoint = Checkpoint(str(tmp_path), "views", {**SOURCES, "r": SOURCES["s"]})
    checkpoint.create("q")
    told = {"position": {"p": 3}, "values": {"limit": "9.00"}, "refused": [2, "bad"]}
    log_parameters(tmp_path, 0, "r", told)
    if logged:
        log_parameters(tmp_path, 1, "r", told)
    assert checkpoint.plan(0).parameters == {"limit": "9.00"}
    committed = head(1, (10, 40))
    sources = dict.fromkeys(("s", "r"), committed.plan.sources["s"])
    plan = replace(committed.plan, sources=sources, parameters=values)
    checkpoint.write_plan(replace(committed, plan=plan))
    assert checkpoint.plan(1) == plan
    # From an earlier place, changes are applied again, to the same effect.
    assert carried(tmp_path, 1) == {"s": None, "r": {**told, "values": values}}


@pytest.mark.parametrize(
    ("logged", "kept"),
    [
        # The same version: the next one goes on from where its topic stood.
        ({"of": "0:7", "rows": "ab", "topic": "t", "position": {"p": 7}}, {"position": {"p": 7}}),
        ({"of": "0:9", "rows": "cd", "topic": "t", "position": {"p": 9}}, {}),
    ],
)
def test_a_written_plan_has_the_references_of_the_ledger(
    checkpoint: Checkpoint, tmp_path: Path, logged: dict[str, Any], kept: dict[str, Any]
) -> None:
    checkpoint.create("q")
    log_batch(tmp_path / "ck", 0, {"0": 10})
    entry = tmp_path / "ck" / "offsets" / "0"
    *lines, offset = entry.read_text().splitlines()
    told = json.dumps({**json.loads(offset), "references": {"names": logged}})
    entry.write_text("\n".join([*lines, told]))
    assert checkpoint.references_in(0) == {logged["rows"]}
    committed = head(1, (10, 40))
    plan = replace(committed.plan, references={"names": ReferenceVersion("0:7", "ab")})
    checkpoint.write_plan(replace(committed, plan=plan))
    assert checkpoint.plan(1) == plan
    written = json.loads((tmp_path / "ck" / "offsets" / "1").read_text().splitlines()[2])
    names = written["references"]["names"]
    assert {key: names[key] for key in names if key == "position"} == kept


@pytest.mark.parametrize("told", [5, {"names": 5}, {"names": {"of": "0:7"}}])
def test_damaged_references_name_the_file(
    checkpoint: Checkpoint, tmp_path: Path, told: Any
) -> None:
    log_batch(tmp_path / "ck", 0, {"0": 10})
    entry = tmp_path / "ck" / "offsets" / "0"
    *lines, offset = entry.read_text().splitlines()
    changed = json.dumps({**json.loads(offset), "references": told})
    entry.write_text("\n".join([*lines, changed]))
    with pytest.raises(CorruptionError, match="offsets/0"):
        checkpoint.plan(0)


def test_a_written_plan_of_a_pipeline_without_parameters_has_none(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    checkpoint.create("q")
    log_batch(tmp_path / "ck", 0, {"0": 10})
    checkpoint.write_plan(head(1, (10, 40)))
    assert carried(tmp_path / "ck", 1) == {"s": None}


@pytest.mark.parametrize("is_done", [False, True])
def test_a_plan_after_the_written_one_is_withdrawn_unless_that_is_done(
    checkpoint: Checkpoint, tmp_path: Path, is_done: bool
) -> None:
    """Done, it is so by a driver that took over meanwhile: the plan after it is that one's."""
    checkpoint.create("q")
    log_commit(tmp_path / "ck", int(is_done), 'v1\n{"nextBatchWatermarkMs":50}')
    for batch_id, end in enumerate([10, 25, 31]):
        log_batch(tmp_path / "ck", batch_id, {"0": end})
    checksum = checksum_of((tmp_path / "ck" / "offsets" / "2").read_bytes())
    (tmp_path / "ck" / "offsets" / ".2.crc").write_bytes(checksum)
    checkpoint.write_plan(head(1, (10, 40)))
    assert checkpoint.facts().planned == (2 if is_done else 1)
    assert checkpoint.plan(1) == BatchPlan({"s": {"t": {0: (10, 40)}}}, 50, 90)
    left = {file.name for file in (tmp_path / "ck" / "offsets").iterdir()}
    assert left == {"0", "1", ".1.crc", *(["2", ".2.crc"] if is_done else [])}


def test_a_checksum_that_contradicts_its_file_is_refused(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    checkpoint.create("q-1")
    written = tmp_path / "ck" / "metadata"
    written.write_text(written.read_text().replace("q-1", "q-2"))
    with pytest.raises(CorruptionError, match="metadata"):
        checkpoint.facts()
    (tmp_path / "ck" / ".metadata.crc").unlink()
    assert checkpoint.facts().query_id == "q-2"


def test_settings_are_those_of_the_batch_before(checkpoint: Checkpoint, tmp_path: Path) -> None:
    checkpoint.create("q")
    log_batch(tmp_path / "ck", 0, {"0": 10})
    log_batch(tmp_path / "ck", 1, {"0": 20}, {"a": "b", "added": "c"})
    assert checkpoint.facts().planned == 1
    log_batch(tmp_path / "ck", 1, {"0": 20}, {"a": "c"})
    with pytest.raises(CorruptionError, match="offsets/1"):
        checkpoint.facts()


def test_spark_needs_the_batch_before_the_newest(checkpoint: Checkpoint, tmp_path: Path) -> None:
    checkpoint.create("q")
    log_batch(tmp_path / "ck", 3, {"0": 10})
    with pytest.raises(CorruptionError, match="offsets/2"):
        checkpoint.facts()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v2",
        "v2\n{",
        "v2\n[]",
        "v9\n" + json.dumps({"nextBatchWatermarkMs": 5}),
        "v2\n" + json.dumps({"nextBatchWatermarkMs": "5"}),
        "v2\n" + json.dumps({"nextBatchWatermarkMs": 4}),
        "v2\n" + json.dumps({"nextBatchWatermarkMs": 5, "stateUniqueJds": {}}),
    ],
)
def test_a_damaged_commit_log_names_the_file_and_the_safe_cure(
    checkpoint: Checkpoint, tmp_path: Path, text: str
) -> None:
    checkpoint.create("q")
    log_batch(tmp_path / "ck", 0, {"0": 10})  # whose watermark is 5
    log_commit(tmp_path / "ck", 0, text)
    with pytest.raises(CorruptionError, match="commits/0") as caught:
        checkpoint.facts()
    assert "delete both" in caught.value.then


def test_a_sound_commit_log_is_believed(checkpoint: Checkpoint, tmp_path: Path) -> None:
    checkpoint.create("q")
    log_batch(tmp_path / "ck", 0, {"0": 10})
    fields = {"nextBatchWatermarkMs": 5, "stateUniqueIds": {"0": [["u"]]}}
    log_commit(tmp_path / "ck", 0, "v2\n" + json.dumps(fields))
    assert checkpoint.facts().done == 0


def test_a_batch_is_done_when_spark_logged_it(checkpoint: Checkpoint, tmp_path: Path) -> None:
    checkpoint.create("q")
    log_commit(tmp_path / "ck", 0, "v1\n{}")
    assert checkpoint.is_done(-1)
    assert checkpoint.is_done(0)
    assert not checkpoint.is_done(1)


def forked(root: Path, other: Path) -> Checkpoint:
    """A fork after batch 1 of a checkpoint that has planned batch 3."""
    origin = Checkpoint(str(root), "views", SOURCES)
    origin.create("o")
    for batch_id in range(4):
        log_batch(root, batch_id, {"0": 10 * (batch_id + 1)})
        for kind in ("changelog", "zip"):
            state = root / "state" / "0" / "0" / f"{batch_id}_u.{kind}"
            state.parent.mkdir(parents=True, exist_ok=True)
            state.write_text("")
    for batch_id in range(3):
        log_commit(root, batch_id, json.dumps(batch_id))
        (root / "commits" / f".{batch_id}.crc").write_text("")
    assert origin.ended_batches() == [0, 1, 2]
    copy = Checkpoint(str(other), "fork", SOURCES)
    assert copy.is_empty
    origin.copy_after(1, copy, forking(1))
    copy.begin(forking(1))
    return copy


def forking(batch_id: int) -> HeadEntry:
    entry = head(batch_id, (10, 20))
    return of_fork(entry, "fork", "f", replace(entry.sink, topic="fork"))


def files_of(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_a_fork_has_what_was_there_when_the_batch_ended(tmp_path: Path) -> None:
    copy = forked(tmp_path / "origin", tmp_path / "fork")
    hidden = [".metadata.crc", "commits/.0.crc", "commits/.1.crc"]
    logs = ["commits/0", "commits/1", "offsets/0", "offsets/1"]
    state = [f"state/0/0/{n}_u.{kind}" for n in range(3) for kind in ("changelog", "zip")]
    own = ["copied.json", "metadata", "onceflow.json"]
    assert files_of(tmp_path / "fork") == sorted([*hidden, *logs, *state, *own])
    assert copy.query_id() == "f"
    assert copy.copied() == forking(1)
    assert copy.plan(1).sources == {"s": {"t": {0: (10, 20)}}}


@pytest.mark.parametrize("lost", ["metadata", "copied.json"])
def test_an_unfinished_fork_is_told_from_a_damaged_checkpoint(tmp_path: Path, lost: str) -> None:
    copy = forked(tmp_path / "origin", tmp_path / "fork")
    (tmp_path / "fork" / lost).unlink()
    if lost == "copied.json":
        assert not copy.is_unfinished
        assert copy.query_id() == "f"
        return
    assert copy.is_unfinished
    with pytest.raises(LineageError, match="run the same `onceflow fork`"):
        copy.facts()


def test_a_fork_that_another_fork_has_overwritten_is_unfinished(tmp_path: Path) -> None:
    copy = forked(tmp_path / "origin", tmp_path / "fork")
    copy.create("of-another-fork")
    with pytest.raises(LineageError, match="run the same `onceflow fork`"):
        copy.facts()


@pytest.mark.parametrize("text", ["{}", "no json", ""])
def test_a_damaged_beginning_of_a_fork_names_the_file(tmp_path: Path, text: str) -> None:
    copy = forked(tmp_path / "origin", tmp_path / "fork")
    (tmp_path / "fork" / "copied.json").write_text(text)
    with pytest.raises(CorruptionError, match=r"copied\.json"):
        copy.facts()


def test_a_fork_without_its_batch_does_not_begin_at_nothing(tmp_path: Path) -> None:
    copy = forked(tmp_path / "origin", tmp_path / "fork")
    for batch_id in (0, 1):
        (tmp_path / "fork" / "offsets" / str(batch_id)).unlink()
        (tmp_path / "fork" / "commits" / str(batch_id)).unlink()
    with pytest.raises(CorruptionError, match="offsets/1"):
        copy.facts()


def test_a_fork_stays_on_the_storage_of_its_origin(tmp_path: Path) -> None:
    origin = Checkpoint(str(tmp_path), "views", SOURCES)
    elsewhere = Checkpoint("mock:///fork", "fork", SOURCES)
    with pytest.raises(ConfigError, match="within one storage only: mock:///fork"):
        origin.copy_after(1, elsewhere, forking(1))


SCHEMA = {"type": "record", "name": "state", "fields": [{"name": "n", "type": "long"}]}
STATES = [{"declared": {"n": {"kind": "value"}}, "schema": SCHEMA}]


def test_the_states_of_a_processor_are_read_as_they_were_written(checkpoint: Checkpoint) -> None:
    checkpoint.create("q")
    assert not checkpoint.recorded.states_of("fraud")
    checkpoint.recorded.write_states_of("fraud", STATES)
    assert checkpoint.recorded.states_of("fraud") == STATES


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"states": 1}', '{"states": [1]}', '{"states": [{"declared": {}}]}'],
)
def test_damaged_states_of_a_processor_name_the_file(
    checkpoint: Checkpoint, tmp_path: Path, text: str
) -> None:
    checkpoint.create("q")
    (tmp_path / "ck" / "processors").mkdir()
    (tmp_path / "ck" / "processors" / "fraud.json").write_text(text)
    with pytest.raises(CorruptionError, match="a file of the checkpoint is missing or damaged"):
        checkpoint.recorded.states_of("fraud")


def test_a_bit_of_the_states_of_a_processor_does_not_turn_unseen(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    checkpoint.create("q")
    checkpoint.recorded.write_states_of("fraud", STATES)
    file = tmp_path / "ck" / "processors" / "fraud.json"
    file.write_text(file.read_text().replace("value", "valuf"))
    with pytest.raises(CorruptionError, match=r"missing or damaged: .*processors/fraud\.json"):
        checkpoint.facts()

    # Without a checksum, what is not a schema is found all the same.
    (file.parent / f".{file.name}.crc").unlink()
    file.write_text(file.read_text().replace('"long"', '"lonh"'))
    with pytest.raises(CorruptionError, match=r"missing or damaged: .*processors/fraud\.json"):
        checkpoint.facts()


OPERATOR = {"operator": 0, "kind": "dedupe", "by": [], "key": [], "computes": [], "value": []}


def test_operators_are_read_as_they_were_written(checkpoint: Checkpoint) -> None:
    checkpoint.create("q")
    assert checkpoint.recorded.operators() is None
    checkpoint.recorded.write_operators([OPERATOR])
    assert checkpoint.recorded.operators() == [OPERATOR]


@pytest.mark.parametrize("text", ["{}", '{"operators": 1}', '{"operators": [{"kind": "dedupe"}]}'])
def test_damaged_operators_name_the_file(checkpoint: Checkpoint, tmp_path: Path, text: str) -> None:
    checkpoint.create("q")
    (tmp_path / "ck" / "operators.json").write_text(text)
    with pytest.raises(CorruptionError, match=r"missing or damaged: .*operators\.json"):
        checkpoint.recorded.operators()
