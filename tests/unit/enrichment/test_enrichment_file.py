"""Enrichment files: what they mean, what is refused, what the commands say of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from onceflow.cli.main import build_app
from onceflow.delivery.metrics import DeliveryMetrics
from onceflow.enrichment.loader import load_enrichment
from onceflow.enrichment.metrics import EnrichmentMetrics
from onceflow.enrichment.model import Enrichment
from onceflow.errors import ConfigError
from onceflow.pipeline.file.kinds import FileKind
from onceflow.pipeline.file.schema import json_schema, reference_table

ROOT = Path(__file__).parents[3]
PUBLISHED = ROOT / "docs" / "enrichment.schema.json"
PAGE = ROOT / "docs" / "enrichment.md"
GOOD = """\
apiVersion: onceflow/v1
kind: enrichment
name: orders-with-rates
from:
  topics: [orders]
  schema: "currency STRING NOT NULL, day DATE, tags ARRAY<STRING>"
ask:
  http: {url: "https://rates.example/v1/{currency}?day={day}"}
answer: {as: rate, schema: "rate DOUBLE NOT NULL"}
to: {topic: orders-with-rates}
"""
PYTHON = (
    """  http: {url: "https://rates.example/v1/{currency}?day={day}"}""",
    "  python: {coroutine: rates:ask}",
)


def written(folder: Path, text: str) -> Path:
    file = folder / "enrichment.yaml"
    file.write_text(text)
    return file


def test_a_file_with_nothing_but_what_is_needed(tmp_path: Path) -> None:
    found = load_enrichment(written(tmp_path, GOOD))
    assert found.group == "onceflow-enrichment-orders-with-rates"
    assert found.limits.max_records == 500
    assert found.rejection == "fail"
    assert found.source.foreign == "deliver"
    assert str(found.guarantee()) == (
        "exactly once from topic to topic, with one answer, for read_committed readers"
    )
    assert "at least once" in str(found.guarantee().reasons[0])


def test_few_questions_a_second_make_small_batches(tmp_path: Path) -> None:
    text = GOOD.replace("ask:\n", "ask:\n  questions_per_second: 20\n")
    assert load_enrichment(written(tmp_path, text)).limits.max_records == 20


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (
            "{currency}",
            "{curency}",
            "line 8, ask.http.url: no column `curency`. Did you mean `currency`?",
        ),
        (
            "{day}",
            "{tags}",
            "line 8, ask.http.url: `tags` is of type array<string>, which has no text",
        ),
        ("rates.example/v1", "{currency}/v1", "ask.http.url: a column in the address of the host"),
        (
            "https://rates",
            "http://rates",
            "ask.http.url: records and credentials would pass a network",
        ),
        ('url: "', 'headers: {Authorization: x}, url: "', "`Authorization` is for a secret"),
        ("ask:\n", "ask:\n  python: {coroutine: a:b}\n", "one service is needed, and no more"),
        (
            "ask:\n",
            "ask:\n  cache: {for: 1 min, by: [crrency]}\n",
            "no column `crrency`. Did you mean",
        ),
        ("as: rate", "as: day", "line 9, answer.as: `day` is a column of the records already"),
        ("[orders]", "[orders, more]", "Write an enrichment for each topic."),
        (
            "topic: orders-with",
            "topic: orders}\n#",
            "to.topic: an enrichment cannot read the topic that it",
        ),
        ("to:", "retry: {when_key_expires: send}\nto:", "unknown key `when_key_expires`"),
        (
            "to:",
            "dead_letter: {topic: orders}\nto:",
            "an enrichment cannot read the topic that it writes",
        ),
        (
            "to:",
            "dead_letter: {topic: orders-with-rates}\nto:",
            "dead letters and records with answers in one topic",
        ),
        (
            "to:",
            "on_reject: dead_letter\nto:",
            "Add `dead_letter: {topic: ...}` to the enrichment.",
        ),
        ("to:", "on_error: null\nto:", "line 10, on_error"),
        ('schema: "rate DOUBLE NOT NULL"', 'schema: "rate DUBLE"', "answer.schema: `DUBLE`"),
        (
            'https://rates.example/v1/{currency}?day={day}"',
            'https://r/", max_answer: 2 MiB',
            "too large",
        ),
        (
            'https://rates.example/v1/{currency}?day={day}"',
            'https://r/", final: [503]',
            "not possible here",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_advice(
    tmp_path: Path, old: str, new: str, fault: str
) -> None:
    assert old in GOOD
    with pytest.raises(ConfigError) as refused:
        load_enrichment(written(tmp_path, GOOD.replace(old, new, 1)))
    assert fault in "\n".join(map(str, refused.value.faults))


def test_code_is_refused_where_files_may_not_bring_it(tmp_path: Path) -> None:
    file = written(tmp_path, GOOD.replace(*PYTHON))
    assert load_enrichment(file).ask.block.describe() == "Python, rates:ask"
    with pytest.raises(ConfigError) as refused:
        load_enrichment(file, may_run_code=False)
    [fault] = refused.value.faults
    assert str(fault) == (
        "line 8, ask.python.coroutine: enrichment files may not bring Python code here; expected"
        " `http`. Set `transforms: true` if you trust the authors of these files."
    )


def test_the_published_schema_is_current() -> None:
    command = "onceflow validate --schema --kind enrichment > docs/enrichment.schema.json"
    assert json.loads(PUBLISHED.read_text()) == json_schema(Enrichment, FileKind.ENRICHMENT), (
        command
    )


def test_the_table_of_the_page_is_current() -> None:
    table = reference_table(Enrichment)
    assert table in PAGE.read_text(), table


def test_good_files_fit_the_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema(Enrichment, FileKind.ENRICHMENT))
    validator = jsonschema.Draft202012Validator(json_schema(Enrichment, FileKind.ENRICHMENT))
    for text in (GOOD, GOOD.replace(*PYTHON)):
        assert [*validator.iter_errors(yaml.safe_load(text))] == []


def test_what_the_commands_say(tmp_path: Path) -> None:
    file, runner, app = written(tmp_path, GOOD), CliRunner(), build_app()
    told = runner.invoke(app, ["validate", str(file)]).output
    assert "valid: exactly once from topic to topic, with one answer" in told
    assert "asked about a record at least once" in told
    found = json.loads(runner.invoke(app, ["explain", str(file), "-o", "json"]).output)
    assert found["enrichment"] == "orders-with-rates"
    assert found["asks"] == "HTTP, GET https://rates.example/v1/{currency}"
    assert found["answer"] == {"rate": "rate double not null"}
    drawn = runner.invoke(app, ["explain", str(file)]).output
    for part in ("topic orders", "asks HTTP, GET", "8 at once", "records rate", "not more"):
        assert part in drawn


def test_a_file_is_checked_without_spark_kafka_and_a_client_of_http(tmp_path: Path) -> None:
    file = written(tmp_path, GOOD)
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from onceflow.enrichment.loader import load_enrichment\n"
        f"load_enrichment(Path({str(file)!r}))\n"
        "print([name for name in ('pyspark', 'pyarrow', 'aiohttp') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def sample(metrics: DeliveryMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_metrics_count_questions() -> None:
    metrics = EnrichmentMetrics(list, {"version": "0"})
    report = metrics.report_of("rates")
    report("asked", asked=5, cached=0, failed=2, in_flight=4, seconds=0.5)
    report("asked", asked=0, cached=3, failed=0, in_flight=0, seconds=0.0)
    facts: dict[str, Any] = {
        "records": 6,
        "rejected": 0,
        "dropped": 0,
        "repeats": 0,
        "seconds": 1.0,
    }
    report("batch", **facts)
    prefix = "onceflow_enrichment_"
    wanted = {
        "asked_total": 5,
        "cached_total": 3,
        "ask_failed_total": 2,
        "ask_seconds_total": 0.5,
        "in_flight": 4,
        "records_total": 6,
    }
    found = {name: sample(metrics, prefix + name, enrichment="rates") for name in wanted}
    assert found == wanted
