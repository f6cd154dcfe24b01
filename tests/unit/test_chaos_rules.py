"""Rules as people write them, with every fault at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from onceflow.errors import ConfigError, Fault
from tests.chaos import Rule
from tests.chaos.refusals import REFUSABLE
from tests.chaos.rules import Traffic, load_rules


def write(folder: Path, text: str) -> Path:
    path = folder / "rules.yaml"
    path.write_text(text)
    return path


def faults(folder: Path, text: str) -> dict[str, Fault]:
    """By the place in the file."""
    with pytest.raises(ConfigError) as refusal:
        load_rules(write(folder, text))
    assert len({fault.where for fault in refusal.value.faults}) == len(refusal.value.faults)
    return {fault.where: fault for fault in refusal.value.faults}


EVERY_ACTION = """
rules:
  - {on: request, action: pass, name: spare, api: Produce, client_id: "app-*", broker: 2, skip: 3}
  - {on: response, action: delay, delay_ms: 500, overtake: true}
  - {on: request, action: hold, times: 1, transactional_id: "onceflow.views.*"}
  - {on: request, action: drop}
  - {on: response, action: duplicate}
  - {on: request, action: close}
  - {on: request, action: error, api: EndTxn, error: NOT_COORDINATOR}
  - {on: response, action: slow, bytes_per_s: 1000}
  - {on: request, action: split, chunk_bytes: 1}
"""


def test_a_file_of_every_action_is_read(tmp_path: Path) -> None:
    rules = load_rules(write(tmp_path, EVERY_ACTION))

    assert len({rule.action for rule in rules}) == len(rules) == 9
    assert rules[0] == Rule(
        name="spare",
        api="Produce",
        on="request",
        client_id="app-*",
        broker=2,
        skip=3,
        action="pass",
    )
    assert rules[2].transactional_id == "onceflow.views.*"


def test_every_fault_is_told_at_once_with_its_line(tmp_path: Path) -> None:
    found = faults(
        tmp_path,
        "rules:\n"
        "  - {api: EndTxm, on: request, action: drop}\n"
        "  - {api: Fetch, on: sideways, action: drop}\n"
        "  - {on: request, action: explode}\n"
        "  - {on: request, action: drop, tines: 1}\n"
        "  - {action: drop}\n"
        "  - {on: request, action: drop, times: 0}\n"
        "  - {on: request, action: drop, skip: many}\n"
        "  - {api: EndTxn, on: request, action: error, error: NOT_CORDINATOR}\n",
    )

    assert {where: fault.line for where, fault in found.items()} == {
        "rules.0.api": 2,
        "rules.1.on": 3,
        "rules.2.action": 4,
        "rules.3.tines": 5,
        "rules.4.on": 6,
        "rules.5.times": 7,
        "rules.6.skip": 8,
        "rules.7.error": 9,
    }
    assert found["rules.0.api"].suggestion == "Did you mean `EndTxn`?"
    assert "Kafka's name" in found["rules.0.api"].expected
    assert found["rules.1.on"].expected == "`request` or `response`"
    assert "`split`" in found["rules.2.action"].expected
    assert found["rules.3.tines"].suggestion == "Did you mean `times`?"
    assert "missing" in found["rules.4.on"].what
    assert found["rules.5.times"].expected == "at least 1"
    assert found["rules.6.skip"].expected == "a whole number"
    assert found["rules.7.error"].suggestion == "Did you mean `NOT_COORDINATOR`?"


def test_an_unknown_key_that_is_like_none_shows_all(tmp_path: Path) -> None:
    found = faults(tmp_path, "rules:\n  - {on: request, action: drop, zzz: 1}\n")

    assert "transactional_id" in found["rules.0.zzz"].expected


@pytest.mark.parametrize("text", ["- on: request", "just text"])
def test_what_is_no_file_of_rules_says_how_one_begins(tmp_path: Path, text: str) -> None:
    (fault,) = faults(tmp_path, text).values()

    assert "rules:" in fault.expected


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("rules: []", "rules"),
        ("rule: []", "rule"),
        ("rules:\n  on: request", "rules"),
        ("rules:\n  - text", "rules.0"),
    ],
)
def test_the_frame_of_the_file_is_checked(tmp_path: Path, text: str, where: str) -> None:
    assert where in faults(tmp_path, text)


def test_malformed_yaml_is_told_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="line 3: not YAML"):
        load_rules(write(tmp_path, "rules:\n  - {on: request\n"))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        load_rules(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"action": "delay"}, "delay_ms"),
        ({"action": "drop", "delay_ms": 5}, "delay_ms"),
        ({"action": "slow"}, "bytes_per_s"),
        ({"action": "split", "bytes_per_s": 5, "chunk_bytes": 1}, "bytes_per_s"),
        ({"action": "split"}, "chunk_bytes"),
        ({"action": "hold", "chunk_bytes": 5}, "chunk_bytes"),
        ({"action": "error", "api": "EndTxn"}, "error"),
        ({"action": "drop", "error": "NOT_COORDINATOR"}, "error"),
        ({"action": "drop", "overtake": True}, "overtake"),
        ({"action": "error", "api": "Fetch", "error": "NOT_COORDINATOR"}, "api"),
        ({"action": "error", "error": "NOT_COORDINATOR"}, "api"),
    ],
)
def test_what_does_not_go_together_is_refused(fields: dict[str, object], field: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        Rule.model_validate({"on": "request", **fields})

    assert [error["loc"] for error in refusal.value.errors()] == [(field,)]


@pytest.mark.parametrize("api", sorted(REFUSABLE))
def test_every_api_that_can_be_refused_may_stand_with_an_error(api: str) -> None:
    rule = Rule(api=api, on="request", action="error", error="UNKNOWN_SERVER_ERROR")

    assert rule.api == api


def test_a_rule_does_not_change() -> None:
    rule = Rule(on="request", action="drop")

    with pytest.raises(ValidationError, match="frozen"):
        rule.skip = 3


def test_any_transactional_id_of_a_request_may_match() -> None:
    rule = Rule(on="request", action="drop", transactional_id="b*")
    traffic = Traffic("request", "AddPartitionsToTxn", "me", ("a1", "b1"), 1)

    assert rule.matches(traffic)
    assert not rule.matches(Traffic("request", "AddPartitionsToTxn", "me", ("a1",), 1))
    assert not rule.matches(Traffic("request", "Fetch", "me", (), 1))
