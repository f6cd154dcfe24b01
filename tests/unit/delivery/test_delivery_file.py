"""Delivery files: what they mean, and what is refused, with line and advice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from onceflow.cli.main import build_app
from onceflow.delivery.loader import load_delivery
from onceflow.delivery.model import delivery_model
from onceflow.errors import ConfigError
from onceflow.pipeline.file.kinds import FileKind
from onceflow.pipeline.file.loader import kind_of
from onceflow.pipeline.file.schema import json_schema, reference_table

ROOT = Path(__file__).parents[3]
PUBLISHED = ROOT / "docs" / "delivery.schema.json"
GOOD = """\
apiVersion: onceflow/v1
kind: delivery
name: views-to-postgres
from:
  topics: [page-views]
  schema: "page STRING, views BIGINT, version BIGINT"
to:
  postgres: {dsn_file: secrets/dsn, table: page_views, mode: upsert, key: page, revision: version}
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "delivery.yaml"
    file.write_text(text)
    return file


def faults_of(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        load_delivery(written(folder, text))
    return [str(fault) for fault in refused.value.faults]


def test_a_file_with_nothing_but_what_is_needed(tmp_path: Path) -> None:
    file = written(tmp_path, GOOD)
    assert kind_of(file) is FileKind.DELIVERY
    delivery = load_delivery(file).delivery
    assert delivery.source.columns.names == ("page", "views", "version")
    assert delivery.group == "onceflow-delivery-views-to-postgres"
    assert delivery.rejection == "fail"
    assert delivery.to.kind == "postgres"
    assert delivery.to.block.required_columns == {"page", "version"}
    assert str(delivery.guarantee()) == "exactly once from the topic to the table page_views"
    assert delivery.guarantee().reasons == ()


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (
            '  schema: "page STRING, views BIGINT, version BIGINT"\n',
            "",
            (
                "line 4, from: `postgres` needs the columns of a row; expected `schema:"
                ' "page STRING, views BIGINT"` with its columns'
            ),
        ),
        (
            "table: page_views",
            "tabel: page_views",
            "line 8, to.postgres.tabel: unknown key `tabel`. Did you mean `table`?",
        ),
        (
            "key: page,",
            "key: pgae,",
            (
                "line 8, to.postgres.key: `pgae` is not in `schema`; expected one of page, views,"
                " version. Did you mean `page`?"
            ),
        ),
        (
            "mode: upsert",
            "mode: append",
            (
                "line 8, to.postgres.key: `key` means nothing to `mode: append`. Remove it, or set"
                " `mode: upsert`."
            ),
        ),
        (
            "views BIGINT,",
            "views BIGNT,",
            "line 6, from.schema: `BIGNT` after `STRING , views`; expected a type",
        ),
        (
            "  topics: [page-views]",
            "  topics: [page-views]\n  starting: 2026-11-01",
            "line 6, from.starting: not a starting point; expected `earliest`, `latest`, or",
        ),
        (
            "name: views",
            "when_behind: {policy: drop_oldest, max_age: 1 hour}\nname: views",
            (
                "line 3, when_behind: no topic is named for gap records. Add `dead_letter: {topic:"
                " ...}` to the delivery."
            ),
        ),
        (
            "name: views",
            "on_reject: dead_letter\nname: views",
            (
                "line 3, on_reject: no topic is named for dead letters. Add"
                " `dead_letter: {topic: ...}` to the delivery."
            ),
        ),
        (
            "name: views",
            "dead_letter: {topic: page-views}\nname: views",
            (
                "line 3, dead_letter.topic: a delivery cannot read the topic that it writes. Name"
                " another topic for dead letters."
            ),
        ),
        (
            "name: views",
            "retry: {when_key_expires: send}\nname: views",
            (
                "line 3, retry.when_key_expires: this means nothing to `postgres`, where a record"
                " is recognised by its position. Remove it."
            ),
        ),
        (
            "name: views",
            "retry: {delay: 2 min}\nname: views",
            (
                "line 3, retry.delay: the first delay is longer than the longest; expected"
                " `max_delay` of at least `delay`"
            ),
        ),
    ],
)
def test_a_fault_has_a_line_and_advice(tmp_path: Path, old: str, new: str, fault: str) -> None:
    assert old in GOOD
    assert any(each.startswith(fault) for each in faults_of(tmp_path, GOOD.replace(old, new)))


def test_exactly_one_target_is_needed(tmp_path: Path) -> None:
    text = GOOD[: GOOD.index("to:")] + "to: {}\n"
    [fault] = faults_of(tmp_path, text)
    assert fault.startswith("line 7, to: one target is needed, and no more; expected `delta` or")


def test_conditions_of_the_guarantee_are_printed(tmp_path: Path) -> None:
    text = GOOD.replace("  schema:", "  foreign: deliver\n  on_gap: continue\n  schema:")
    done = CliRunner().invoke(build_app(), ["validate", str(written(tmp_path, text))])
    assert done.exit_code == 0
    assert "valid: exactly once from the topic to the table page_views" in done.stdout
    assert "records without the header of Onceflow are delivered as often" in done.stdout
    assert "records that retention or compaction has removed are passed over" in done.stdout


def test_validate_answers_programs_too(tmp_path: Path) -> None:
    file = str(written(tmp_path, GOOD))
    done = CliRunner().invoke(build_app(), ["validate", file, "-o", "json"])
    [verdict] = json.loads(done.stdout)
    assert verdict["valid"]
    assert verdict["guarantee"] == "exactly once from the topic to the table page_views"


def test_options_of_pipelines_are_refused(tmp_path: Path) -> None:
    file = str(written(tmp_path, GOOD))
    done = CliRunner().invoke(build_app(), ["run", file, "--standby"])
    assert isinstance(done.exception, ConfigError)


def test_explain_shows_the_way_and_the_promise(tmp_path: Path) -> None:
    text = GOOD.replace("  schema:", "  on_gap: continue\n  schema:")
    done = CliRunner().invoke(build_app(), ["explain", str(written(tmp_path, text))])
    assert done.exit_code == 0
    flat = " ".join(done.stdout.replace("│", " ").split())
    for part in (
        "topic page-views",
        "group onceflow-delivery-",
        "exactly once from the topic to the table page_views",
        "PostgreSQL, table page_views",
        "records that retention or compaction has removed are passed over",
    ):
        assert part in flat


def test_explain_answers_programs_too(tmp_path: Path) -> None:
    file = str(written(tmp_path, GOOD))
    done = CliRunner().invoke(build_app(), ["explain", file, "-o", "json"])
    found = json.loads(done.stdout)
    assert (found["topics"], found["guarantee"]) == (["page-views"], "exactly_once")
    assert found["reasons"] == []


def test_other_commands_say_that_it_is_not_a_pipeline(tmp_path: Path) -> None:
    file = str(written(tmp_path, GOOD))
    done = CliRunner().invoke(build_app(), ["state", "list", file])
    assert "this is a delivery, and this command takes pipelines only" in str(done.exception)


def test_the_published_schema_is_current() -> None:
    command = "onceflow validate --schema --kind delivery > docs/delivery.schema.json"
    assert json.loads(PUBLISHED.read_text()) == json_schema(delivery_model(), FileKind.DELIVERY), (
        command
    )


def test_the_page_holds_the_current_table() -> None:
    table = reference_table(delivery_model())

    assert table in (ROOT / "docs" / "deliveries.md").read_text(), table


def test_the_schema_accepts_what_the_loader_accepts() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema(delivery_model(), FileKind.DELIVERY))
    validator = jsonschema.Draft202012Validator(json_schema(delivery_model(), FileKind.DELIVERY))
    good = yaml.safe_load(GOOD)
    assert [*validator.iter_errors(good)] == []
    assert [*validator.iter_errors({**good, "rate": 3})]


def test_a_delivery_imports_neither_spark_nor_arrow() -> None:
    program = (
        "import sys; import onceflow.delivery.serving, onceflow_connectors.postgres.target;"
        "import onceflow_connectors.http.sender, onceflow_connectors.delta.block;"
        "sys.exit(bool({'pyspark', 'pyarrow', 'pandas', 'py4j', 'deltalake'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_another_kafka_takes_records_without_a_schema(tmp_path: Path) -> None:
    text = GOOD[: GOOD.index("  schema:")] + 'to:\n  kafka: {bootstrap_servers: "west:9092"}\n'
    delivery = load_delivery(written(tmp_path, text)).delivery
    assert str(delivery.guarantee()) == (
        "exactly once from topic to topic, for read_committed readers"
    )
    assert delivery.to.block.describe() == (
        "Kafka at west:9092, topics of the same names, partition by same"
    )
    [fault] = faults_of(tmp_path, text.replace("}", ", topic: onceflow.deliveries}"))
    assert fault.startswith("line 7, to.kafka.topic: topics that begin with `onceflow.`")
