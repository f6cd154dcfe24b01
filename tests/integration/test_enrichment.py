"""An enrichment end to end: `onceflow run` on a real broker and a real service."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from onceflow.crashpoints import CrashPoint
from onceflow.devkit.broker_config import HOST
from onceflow.devkit.broker_start import free_ports
from tests.support.contracts.consumer_steps import Written as ToWrite
from tests.support.drivers.here import run_here
from tests.support.eventually import eventually
from tests.support.jobs.delivery_process import (
    PARTITIONS,
    RUN_TIMEOUT_S,
    any_arrival,
    page_of,
)
from tests.support.jobs.delivery_watched import asked, causes, metrics_of, served
from tests.support.jobs.enriching import (
    GET,
    GOOD,
    HEADER,
    JSON,
    Enriching,
    content_of,
    wait_for,
)
from tests.support.outside.history import read_topic
from tests.support.outside.topics import create_topic
from tests.support.sites.receiver import ALWAYS, Rule

ROOT = Path(__file__).parents[2]
RECORDS = 200
POINTS = (
    CrashPoint.BEFORE_CLAIM,
    CrashPoint.AFTER_CLAIM,
    CrashPoint.BEFORE_BEGIN,
    CrashPoint.MID_ASK,
    CrashPoint.MID_PRODUCE,
    CrashPoint.AFTER_EFFECT,
    CrashPoint.BEFORE_COMMIT,
    CrashPoint.AFTER_COMMIT,
)


def test_each_record_gets_one_answer_and_none_is_asked_about_again(enriching: Enriching) -> None:
    enriching.set_up()
    enriching.write_much(RECORDS)
    enriching.deliver()
    enriching.assert_each_record_has_one_answer()
    first, *events = enriching.events()
    assert first["guarantee"] == (
        "exactly once from topic to topic, with one answer, for read_committed readers"
    )
    assert sum(each.get("asked", 0) for each in events) == PARTITIONS * RECORDS
    assert max(each.get("in_flight", 0) for each in events) > 1
    assert len(enriching.requests()) == PARTITIONS * RECORDS
    enriching.write(RECORDS - 40, RECORDS + 50)
    enriching.deliver()
    enriching.assert_each_record_has_one_answer()
    assert len(enriching.requests()) == PARTITIONS * RECORDS + 50


@pytest.mark.crash
@pytest.mark.parametrize("point", POINTS, ids=[point.value for point in POINTS])
def test_a_kill_at_each_point_loses_no_record_and_records_no_answer_twice(
    enriching: Enriching, point: CrashPoint, random: Random
) -> None:
    enriching.set_up()
    enriching.write_much(RECORDS)
    most = PARTITIONS * RECORDS
    is_asking = point is CrashPoint.MID_ASK
    enriching.die(point, random.randint(1, most) if is_asking else any_arrival(point, random))
    enriching.write(RECORDS + 1, RECORDS + 50)
    enriching.deliver()
    enriching.assert_each_record_has_one_answer()
    asked_again = len(enriching.requests()) - most - 50
    # Two partitions are read, so a batch may be of both.
    assert 0 <= asked_again <= 40


@pytest.mark.crash
@pytest.mark.parametrize(
    "point",
    [CrashPoint.MID_ASK, CrashPoint.MID_PRODUCE, CrashPoint.AFTER_EFFECT, CrashPoint.BEFORE_COMMIT],
    ids=lambda point: point.value,
)
def test_a_frozen_instance_that_wakes_up_late_writes_no_answer(
    enriching: Enriching, point: CrashPoint, random: Random
) -> None:
    enriching.set_up()
    enriching.write_much(RECORDS)
    # The first transactions are those of the claims.
    first = 1 + PARTITIONS if point is CrashPoint.BEFORE_COMMIT else 1
    with enriching.frozen(point, first + random.randrange(5)):
        enriching.deliver()
        enriching.assert_each_record_has_one_answer()
    events = [each["event"] for each in enriching.events("frozen")]
    assert events[-1] == "caught_up"
    assert "warning" in events
    enriching.assert_each_record_has_one_answer()


@pytest.mark.crash
def test_two_instances_share_the_partitions_and_one_goes_on_alone(enriching: Enriching) -> None:
    enriching.set_up()
    create_topic(enriching.kafka.bootstrap_servers, enriching.output, PARTITIONS)
    with enriching.running(name="one") as one, enriching.running(name="two") as two:
        end = 0
        # Until the second has joined, the first has all partitions.
        while not all(map(enriching.has_written, ("one", "two"))):
            assert end < 1000
            end = enriching.write_on(end)
        one.kill()
        enriching.write_on(end)
        two.send_signal(signal.SIGTERM)
        assert two.wait(RUN_TIMEOUT_S) == 0
        assert enriching.events("two")[-1]["event"] == "drained"
    enriching.assert_each_record_has_one_answer()


def test_whatever_the_service_does_each_record_has_one_answer(enriching: Enriching) -> None:
    faults = [
        Rule(status=503, headers={"Retry-After": "1"}),
        Rule(cut="after", times=3),
        Rule(delay_s=2),
        Rule(status=500, times=4),
        Rule(status=429),
        Rule(cut="before", times=2),
    ]
    rules = [
        replace(rule, methods=GET)
        for fault in faults
        for rule in (Rule(times=9, headers=JSON, body=GOOD.body), fault)
    ]
    enriching.set_up()
    service = enriching.service
    service.obey(*rules, GOOD)
    enriching.write_much(RECORDS)
    enriching.deliver()
    enriching.assert_each_record_has_one_answer()
    assert len(enriching.waits) >= 3
    assert len(enriching.requests()) > PARTITIONS * RECORDS


@pytest.mark.crash
def test_a_service_that_is_down_for_a_while_delays_and_loses_nothing(enriching: Enriching) -> None:
    enriching.set_up()
    create_topic(enriching.kafka.bootstrap_servers, enriching.output, PARTITIONS)
    enriching.write(1, RECORDS)
    with enriching.running() as process:
        wait_for(enriching, RECORDS)
        enriching.service.kill()
        enriching.write(RECORDS + 1, 2 * RECORDS)
        eventually(lambda: len(enriching.waits) >= 3, timeout_s=RUN_TIMEOUT_S)
        enriching.service.start()
        wait_for(enriching, 2 * RECORDS)
        process.send_signal(signal.SIGTERM)
        assert process.wait(RUN_TIMEOUT_S) == 0
    assert "resumed" in [each["event"] for each in enriching.events()]
    enriching.assert_each_record_has_one_answer()


WRONG = {
    3: Rule(status=422),
    5: Rule(headers=JSON, body="{"),
    7: Rule(headers=JSON, body='{"serial": "7"}'),
    9: Rule(headers=JSON, body_bytes=70_000),
    11: Rule(headers={"Content-Type": "text/html"}, body='{"serial": 1}'),
}
"""The answer about the record of each number."""


def wrong_rules(enriching: Enriching) -> list[Rule]:
    return [
        replace(rule, times=ALWAYS, methods=GET, path=f"/{enriching.name}/{n}?")
        for n, rule in WRONG.items()
    ]


def test_records_without_a_usable_answer_are_set_aside(enriching: Enriching) -> None:
    letters = f"{enriching.topic}-letters"
    enriching.set_up(more=f"dead_letter: {{topic: {letters}}}")
    enriching.service.obey(*wrong_rules(enriching), GOOD)
    enriching.write(1, RECORDS)
    enriching.deliver()
    enriching.assert_each_record_has_one_answer(without=[*WRONG])
    found = read_topic(enriching.kafka.bootstrap_servers, letters)
    told = {
        content_of(each)["n"]: dict(each.headers)["onceflow.dead_letter.text"] for each in found
    }
    assert [*told] == [*WRONG]
    for text, part in zip(
        told.values(),
        (b"422", b"in JSON", b"expected bigint", b"at most 65536 bytes", b"text/html"),
        strict=True,
    ):
        assert part in (text or b"")
    assert len(enriching.requests()) == RECORDS


def test_null_is_written_instead_of_an_answer_if_the_file_says_so(enriching: Enriching) -> None:
    enriching.set_up(ask="order: partition", more="on_error: write_null")
    enriching.service.obey(*wrong_rules(enriching), GOOD)
    enriching.write(1, RECORDS)
    enriching.deliver()
    found = {content_of(each)["n"]: each for each in enriching.written()}
    assert [*found] == [*range(1, RECORDS + 1)]
    assert [n for n, each in found.items() if content_of(each)["answer"] is None] == [*WRONG]
    told = json.loads(dict(found[3].headers)[HEADER] or b"")
    assert (told["how"], told["why"]) == ("none", "422 Unprocessable Entity")
    asked = [
        int(path.rpartition("/")[2].partition("?")[0]) for path in enriching.requests().values()
    ]
    assert asked == [*range(1, RECORDS + 1)]


def test_by_default_it_stops_at_a_record_without_an_answer(enriching: Enriching) -> None:
    enriching.set_up()
    enriching.service.obey(*wrong_rules(enriching), GOOD)
    enriching.write(1, RECORDS)
    assert enriching.run() == 6
    assert "422" in enriching.errors
    assert enriching.written() == []


def test_equal_questions_are_asked_once_as_long_as_the_answer_is_young(
    enriching: Enriching,
) -> None:
    enriching.set_up(ask="cache: {for: 1 hour, by: n}")
    enriching.write_much(RECORDS)
    enriching.deliver()
    found = [content_of(each) for each in enriching.written()]
    assert len(found) == PARTITIONS * RECORDS
    assert len(enriching.requests()) == RECORDS
    answers = {(each["n"], each["answer"]["serial"]) for each in found}
    assert len(answers) == RECORDS
    hows = [json.loads(dict(each.headers)[HEADER] or b"")["how"] for each in enriching.written()]
    assert {*hows} <= {"asked", "cached"}


def test_an_enrichment_is_served_and_seen_from_outside(enriching: Enriching) -> None:
    enriching.set_up()
    enriching.write_much(RECORDS)
    before = asked(enriching, "status")
    assert before["enrichment"] == enriching.name
    assert (before["target"], before["instances"]) == ("well", 0)
    assert causes(enriching)[0] == "not running"
    with served(enriching, enriching.file) as (process, address):

        def is_done() -> bool:
            found = metrics_of(address, "enrichment").get("records_total")
            return found == PARTITIONS * RECORDS

        eventually(is_done, timeout_s=RUN_TIMEOUT_S)
        found = metrics_of(address, "enrichment")
        assert found["asked_total"] == PARTITIONS * RECORDS
        assert found["ask_seconds_total"] > 0
        assert found["in_flight"] > 0
        assert found["ask_failed_total"] == found["cached_total"] == 0
        enriching.service.kill()
        try:
            assert causes(enriching)[0] == "target down"
            assert "HTTP, GET" in asked(enriching, "status")["target"]
        finally:
            enriching.service.start()
        process.send_signal(signal.SIGTERM)
        assert process.wait(RUN_TIMEOUT_S) == 0
    enriching.assert_each_record_has_one_answer()


CODE = """
import asyncio

async def look_up(row):
    await asyncio.sleep(0)
    if row["n"] == 3:
        raise ValueError("three is not known")
    return {"serial": row["n"], "path": row["page"], "more": 1}
"""


def test_a_coroutine_is_asked_where_the_settings_allow_code(enriching: Enriching) -> None:
    enriching.set_up(more="on_error: write_null")
    module = enriching.name.replace("-", "_")
    text = enriching.file.read_text()
    http = text[text.index("  http:") : text.index("  order:")]
    enriching.file.write_text(text.replace(http, f"  python: {{coroutine: {module}:look_up}}\n"))
    (enriching.folder / f"{module}.py").write_text(CODE)
    enriching.write(1, 50)
    enriching.environment = {**enriching.environment, "ONCEFLOW_TRANSFORMS": "false"}
    assert enriching.run() == 2
    assert "enrichment files may not bring Python code here" in enriching.errors
    enriching.environment = {**enriching.environment, "ONCEFLOW_TRANSFORMS": "true"}
    enriching.deliver()
    answers = {content_of(each)["n"]: content_of(each)["answer"] for each in enriching.written()}
    assert answers == {
        n: None if n == 3 else {"serial": n, "path": page_of(n, 0)} for n in range(1, 51)
    }


def test_the_example_writes_what_it_expects(enriching: Enriching) -> None:
    example, folder = ROOT / "examples" / "order-rates", enriching.folder
    [port] = free_ports(1)
    given = (example / "enrichment.yaml").read_text()
    for before, after in {
        "name: order-rates": f"name: {enriching.name}",
        "[orders]": f"[{enriching.topic}]",
        "topic: order-rates,": f"topic: {enriching.output},",
        "order-rates-rejected": f"{enriching.topic}-rejected",
        ":8085/": f":{port}/",
    }.items():
        assert given.count(before) == 1
        given = given.replace(before, after)
    enriching.file.write_text(given)
    enriching.kafka.create_topic(enriching.topic, 1)
    lines = (example / "data" / "orders.jsonl").read_bytes().splitlines()
    enriching.kafka.write(enriching.topic, [ToWrite(line) for line in lines])
    command = [sys.executable, str(example / "rates.py"), str(port)]
    with (folder / "rates").open("wb") as log, subprocess.Popen(command, stderr=log) as rates:
        try:
            eventually(lambda: _answers(port), timeout_s=RUN_TIMEOUT_S)
            enriching.deliver()
        finally:
            rates.kill()
    expected = (example / "expected" / "order-rates.jsonl").read_bytes().splitlines()
    assert [each.value for each in enriching.written()] == expected
    rejected = read_topic(enriching.kafka.bootstrap_servers, f"{enriching.topic}-rejected")
    assert [content_of(each)["order_id"] for each in rejected] == [4]
    assert (folder / "rates").read_text().count("GET /rates/") == 4


def _answers(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=5).close()
    except OSError:
        return False
    return True


PIPELINE = """\
apiVersion: onceflow/v1
name: {name}
sources:
  answered:
    kafka: {{topics: [{output}]}}
    schema: "n BIGINT, page STRING, answer STRUCT<serial: BIGINT, path: STRING>"
query: SELECT page, n, answer.serial AS serial FROM answered
sink:
  kafka: {{topic: {name}, partitions: 1, key: page}}
"""


@pytest.mark.long
def test_pipelines_read_recorded_answers_and_ask_nothing(
    enriching: Enriching, tmp_path: Path
) -> None:
    enriching.set_up()
    enriching.write_much(50)
    enriching.deliver()
    asked_before = enriching.requests()
    serials = {content_of(each)["answer"]["serial"] for each in enriching.written()}
    for name in (f"{enriching.name}-one", f"{enriching.name}-two"):
        folder = tmp_path / name
        folder.mkdir()
        file = folder / "pipeline.yaml"
        file.write_text(PIPELINE.format(name=name, output=enriching.output))
        run_here(file, enriching.kafka.bootstrap_servers)
        rows = [each.row for each in read_topic(enriching.kafka.bootstrap_servers, name)]
        assert len(rows) == PARTITIONS * 50
        assert {row["serial"] for row in rows} == serials
    assert enriching.requests() == asked_before
