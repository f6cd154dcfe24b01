"""References: a change begins with a batch, and a replay has the version of its batch."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner

from onceflow.cli.main import build_app
from onceflow.crashpoints import CrashPoint
from onceflow.errors import ConfigError, CorruptionError
from tests.support.brokers.choice import RunningBroker
from tests.support.drivers.here import (
    QUICK,
    Running,
    is_at_rest,
    keep_engine,
    run_here,
    run_until_it_fails,
    running_here,
)
from tests.support.eventually import eventually
from tests.support.jobs.names import FIRST, SYMBOLS, NamesJob
from tests.support.outside.history import read_topic

SETTINGS = {"spark": {**QUICK.__dict__, "max_result_bytes": "256 MiB"}}


@pytest.fixture
def job(broker: RunningBroker, tmp_path: Path, random: Random) -> NamesJob:
    made = NamesJob(broker.bootstrap_servers, tmp_path)
    made.create_input()
    made.change(random)
    made.change(random)
    return made


def command(job: NamesJob, *arguments: str) -> str:
    """Run a command on the pipeline file; returns what it prints."""
    name, *rest = arguments
    (job.folder / "onceflow.yaml").write_text(json.dumps(SETTINGS))
    where = ["--bootstrap-servers", job.bootstrap_servers]
    where += ["--config", str(job.folder / "onceflow.yaml")]
    file = str(job.folder / "pipeline.yaml")
    told = CliRunner().invoke(build_app(), [*name.split(), file, *rest, *where])
    if told.exception is not None:
        raise told.exception
    return told.output


def test_a_replay_has_the_version_of_its_batch_whatever_has_changed_since(
    job: NamesJob, random: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = job.write_file()
    job.produce(random, 40)
    before = job.write_names({"F": "Ford", "X": "before"}), f"0:{len(job.records)}"
    run_until_it_fails(file, job.bootstrap_servers, CrashPoint.BEFORE_COMMIT, 3)
    # The service is down, and several changes come in a row.
    job.change(random)
    job.tell("F-0", None)
    after = job.write_names({"F": "Ford Motor"}), f"0:{len(job.records)}"
    job.produce(random, 20)
    run_here(file, job.bootstrap_servers)
    assert job.versions() == [before, before, after]
    job.check()
    # A verification is a replay, too.
    keep_engine(monkeypatch)
    for batch in ("0", "2"):
        told = command(job, "ledger verify", "--batch", batch)
        assert f"batch {batch}: 20 records computed again, all equal" in told


def test_a_replay_needs_neither_the_file_nor_the_topic_but_what_was_kept(
    job: NamesJob, random: Random
) -> None:
    file = job.write_file()
    job.produce(random, 40)
    run_until_it_fails(file, job.bootstrap_servers, CrashPoint.AFTER_COMMIT, 2)
    job.names_file.unlink()
    kept = job.checkpoint / "references"
    hidden = kept.rename(kept.with_name("hidden"))
    with pytest.raises(CorruptionError, match=r"kept version of a reference is missing.*halting"):
        run_here(file, job.bootstrap_servers)
    hidden.rename(kept)
    events = run_here(file, job.bootstrap_servers)
    (warning,) = [e["text"] for e in events.of_kind("warning") if "names" in e["text"]]
    assert warning.startswith("reference names: it cannot be read: No such file or directory")
    job.check()


def test_changes_make_batches_and_bad_versions_are_told(job: NamesJob, random: Random) -> None:
    file = job.write_file()
    job.produce(random)
    with running_here(file, job.bootstrap_servers) as running:
        running.wait_for_batches(1)
        for _ in range(3):
            job.change(random)
            eventually(job.has_seen_all)
            job.produce(random)
        good = job.names_file.read_bytes()
        job.names_file.write_text("symbol,name\nF,one\nX,two\nF,three\n")
        wait_for_warning(running, "names: line 2 and line 4 have the same key: symbol F")
        job.names_file.write_text("symbol,title\nF,one\n")
        wait_for_warning(running, "names: it has no column `name`; its last good version stays")
        job.names_file.unlink()
        wait_for_warning(running, "names: it cannot be read: No such file or directory")
        job.produce(random)
        job.names_file.write_bytes(good)
        job.tell("F-bad", {"symbol": "F", "title": 7, "since": "2026-01-01T00:00:00Z"})
        wait_for_warning(running, "titles: the record with key b'F-bad': JSON parse error")
        bad = len(job.records)
        job.produce(random)
        job.tell("F-bad", None)
        eventually(lambda: job.versions()[-1][1] == f"0:{bad + 1}")
        job.produce(random)
        eventually(lambda: len(job.written()) == len(job.trades))
        # Looks that find nothing new make no batch.
        assert is_at_rest(running, 1.0)
    job.check()
    assert len({*job.versions()}) >= 5
    assert f"reference names: {[*job.files][-1]}"[:40] in command(job, "status")


def wait_for_warning(running: Running, text: str) -> None:
    eventually(lambda: any(text in e["text"] for e in running.events.of_kind("warning")))


def test_a_first_version_that_is_bad_ends_the_run(job: NamesJob, random: Random) -> None:
    file = job.write_file()
    job.produce(random)
    job.names_file.write_text("symbol,name\nF,one\nF,two\n")
    with pytest.raises(ConfigError) as refused:
        run_here(file, job.bootstrap_servers)
    assert refused.value.exit_code == 2
    assert "line 2 and line 3 have the same key: symbol F" in str(refused.value)
    job.change(random)
    run_here(file, job.bootstrap_servers)
    job.check()


def test_another_declaration_has_to_be_accepted_and_is_read_at_once(
    job: NamesJob, random: Random
) -> None:
    job.produce(random)
    run_here(job.write_file(), job.bootstrap_servers)
    changed = job.write_file(names="name STRING, listed STRING")
    with pytest.raises(ConfigError, match=r"references\.names"):
        run_here(changed, job.bootstrap_servers)
    job.names_file.write_text("listed,symbol,name\nNYSE,F,Ford\n")
    job.produce(random)
    run_here(changed, job.bootstrap_servers, is_change_accepted=True, reason="listed")
    names = [each.row["name"] for each in job.written()][20:]
    assert {*names} <= {"Ford", None}


def test_a_fork_goes_on_with_versions_of_its_own(job: NamesJob, random: Random) -> None:
    file = job.write_file()
    job.produce(random, 60)
    run_here(file, job.bootstrap_servers)
    at = job.heads()[-2]["batch_id"]
    name = f"{job.name}-fork"
    command(job, "fork", "--at", str(at), "--name", name, "--topic", f"{name}-out")
    fork = NamesJob(job.bootstrap_servers, job.folder, name, job.trades, job.files, job.records)
    job.change(random)
    job.produce(random)
    run_here(job.folder / f"{name}.yaml", job.bootstrap_servers)
    expected = fork.expected()
    rows = {each.row["id"]: (each.row["name"], each.row["title"]) for each in fork.written()}
    assert rows == expected
    assert len(rows) == len(job.trades) - 20 * (at + 1)
    run_here(file, job.bootstrap_servers)
    job.check()


WINDOWED = """\
query: |
  SELECT window.start AS minute, n.name, count(*) AS trades
  FROM trades t LEFT JOIN names n ON t.symbol = n.symbol
  JOIN titles s ON t.symbol = s.symbol AND t.at >= s.since AND t.at < s.valid_until
  GROUP BY window(t.at, '1 day'), n.name
late: {topic: LATE}
"""


def windowed(job: NamesJob, late: str) -> Path:
    """Write the file of a pipeline with state, whose trades all have a title."""
    file = job.write_file(batch=1000)
    text = file.read_text()
    begin, end = text.index("query: |"), text.index("sink:")
    file.write_text(text[:begin] + WINDOWED.replace("LATE", late) + text[end:])
    for symbol in SYMBOLS:
        job.tell(symbol, {"symbol": symbol, "title": "", "since": "2000-01-01T00:00:00Z"})
    return file


def test_late_trades_are_found_in_the_version_of_their_batch(job: NamesJob, random: Random) -> None:
    late = f"{job.name}-late"
    file = windowed(job, late)
    job.trade(("F", FIRST + timedelta(days=30)))
    job.trade(("F", FIRST + timedelta(days=40)))
    run_here(file, job.bootstrap_servers)
    job.trade(("F", FIRST))
    job.write_names({"F": "Ford"})
    run_here(file, job.bootstrap_servers)
    assert job.heads()[-1]["totals"]["late"] == 1
    (letter,) = read_topic(job.bootstrap_servers, late)
    assert json.loads(letter.value or b"")["id"] == 2


def test_state_that_moves_takes_the_versions_along(
    job: NamesJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = windowed(job, f"{job.name}-late")
    before = job.write_names({"F": "before"})
    job.trade(("F", FIRST))
    run_here(file, job.bootstrap_servers)
    keep_engine(monkeypatch)
    what = ["--shuffle-partitions", "2", "--reason", "more cores", "-o", "json"]
    told = json.loads(command(job, "state migrate", *what))
    file.write_text(file.read_text().replace(str(job.checkpoint), told["checkpoint"]))
    after = job.write_names({"F": "after"})
    job.trade(("F", FIRST), ("F", FIRST + timedelta(days=9)))
    run_here(file, job.bootstrap_servers)
    assert [each for each, _ in job.versions()][:1] == [before]
    assert job.versions()[-1][0] == after
    rows = [(each.row["name"], each.row["trades"]) for each in job.written()]
    assert sorted(rows) == [("after", 1), ("before", 1)]
