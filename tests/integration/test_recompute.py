"""An earlier batch is computed again, from a copy, with everything that has come since."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner, Result

from onceflow.cli.main import build_app
from onceflow.errors import ConfigError, CorruptionError
from onceflow.pipeline.plan.plan import jvm_of
from tests.support.drivers.here import QUICK, engine, keep_engine, run_here
from tests.support.jobs.clock_in_c import write_clock_in_c
from tests.support.jobs.views import ViewsJob
from tests.support.outside.history import read_ledger, read_topic
from tests.support.outside.topics import delete_before

SETTINGS = {"spark": {**QUICK.__dict__, "max_result_bytes": "256 MiB"}}


@pytest.fixture
def job(job: ViewsJob, tmp_path: Path) -> ViewsJob:
    job.produce(Random(1), records=300, seconds=200)
    job.close_windows()
    (tmp_path / "onceflow.yaml").write_text(json.dumps(SETTINGS))
    return job


@pytest.fixture
def verify(job: ViewsJob, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    keep_engine(monkeypatch)

    def run(batch_id: int, *arguments: str) -> Result:
        file, config = str(job.folder / "pipeline.yaml"), str(job.folder / "onceflow.yaml")
        where = ["--bootstrap-servers", job.bootstrap_servers, "--config", config]
        wanted = ["ledger", "verify", file, "--batch", str(batch_id), *where, *arguments]
        return CliRunner().invoke(build_app(), wanted)

    return run


def files(job: ViewsJob) -> Sequence[str]:
    """Files of the checkpoint and next to it, where a copy would be."""
    found = job.folder.glob("checkpoint*/**/*")
    return sorted(f"{path} {path.stat().st_mtime_ns}" for path in found)


def end_maintenance() -> None:
    """End Spark's threads that go on writing snapshots of the state after a run."""
    jvm = jvm_of(engine().open_session(""))
    jvm.org.apache.spark.sql.execution.streaming.state.StateStore.stop()


def test_a_batch_of_the_past(job: ViewsJob, verify: Callable[..., Result]) -> None:
    file = job.write_file(80)
    run_here(file, job.bootstrap_servers)
    heads = read_ledger(job.bootstrap_servers, job.name)
    written = {head["batch_id"]: head["records"]["written"] for head in heads}
    end_maintenance()
    before = files(job)
    assert before

    # It closes windows that earlier batches began, and is not the last one.
    middle = max(n for n, count in written.items() if count and n < max(written))
    assert middle > 1
    told = verify(middle, "-o", "json")
    assert told.exit_code == 0, told.exception
    assert json.loads(told.stdout)["records"] == written[middle]
    assert json.loads(told.stdout)["digest"] == heads[[*written].index(middle)]["digest"]
    assert files(job) == before
    assert read_ledger(job.bootstrap_servers, job.name) == heads

    unknown = verify(max(written) + 1).exception
    assert isinstance(unknown, ConfigError)
    assert f"from 0 to {max(written)}" in str(unknown)
    text = file.read_text()
    file.write_text(text.replace("1 minute", "2 minutes"))
    changed = verify(middle).exception
    assert isinstance(changed, ConfigError)
    assert "changes of query" in str(changed)
    file.write_text(text)
    delete_before(job.bootstrap_servers, job.input_topic, 0, 30)
    gone = verify(0).exception
    assert isinstance(gone, CorruptionError)
    assert "deleted before they were read" in str(gone)
    assert files(job) == before
    named = CliRunner().invoke(build_app(), ["ledger", "verify", job.name, "--batch", "0"])
    assert "needs the pipeline file" in str(named.exception)


def test_what_computes_otherwise_is_shown(job: ViewsJob, verify: Callable[..., Result]) -> None:
    run_here(write_clock_in_c(job), job.bootstrap_servers)
    output = read_topic(job.bootstrap_servers, job.output_topic)
    told = verify(0).exception
    assert isinstance(told, CorruptionError)
    assert f"{len(output)} rows differ, the first: partition " in str(told)
    assert str(told).count("committed {") == str(told).count("computed {") == 3
    assert read_topic(job.bootstrap_servers, job.output_topic) == output
