"""The meaning of the bytes of a state, by the forms that a checkpoint names."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from onceflow.aggregates import Max
from onceflow.errors import CorruptionError
from onceflow.processing import Aggregated, List, Map, Processor, Value
from onceflow.processing.codec import Codec
from onceflow.runtime.state.forms import Form, Forms

AT = datetime(2026, 1, 2, tzinfo=UTC)
WAKE_MS = int(AT.timestamp()) * 1000


class Kinds(Processor):
    one = Value("n bigint, part struct<at:timestamp,sum:decimal(5,2)>")
    short = Value("array<map<int,string>>", ttl="1 hour")
    many = List("date")
    by_day = Map("day bigint, shop string", "double", ttl="1 hour")
    by_flag = Map("boolean", "bigint")
    added = Aggregated(Max("n bigint, shop string"))


NAMES = ("one", "short", "many", "by_day", "by_flag", "added")


def form() -> Mapping[str, Any]:
    states = {name: getattr(Kinds, name) for name in NAMES}
    timer = {
        "type": "record",
        "name": "timer",
        "fields": [
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "name", "type": "string"},
        ],
    }
    fields = [{"name": name, "type": each.avro(name)} for name, each in states.items()]
    fields.append({"name": "_timers", "type": {"type": "array", "items": timer}})
    fields.append({"name": "_wake_ms", "type": ["null", "long"]})
    declared = {name: each.declared() for name, each in states.items()}
    return {
        "declared": declared,
        "schema": {"type": "record", "name": "state", "fields": fields},
    }


def stored() -> bytes:
    live = {name: getattr(Kinds, name).live(None, lambda: AT) for name in NAMES}
    live["one"].set(n=1, part=(AT, Decimal("1.50")))
    live["short"].set([{2: "b"}])
    live["many"].append(AT.date())
    live["by_day"][1, "a"] = 0.5
    live["by_flag"][True] = 3
    live["added"].add((7, "a"))
    state = {name: each.stored() for name, each in live.items()}
    own = {"_timers": [{"at": AT, "name": "soon"}], "_wake_ms": WAKE_MS}
    return Codec(form()["schema"]).encode({**state, **own})


def test_state_is_shown_by_name_as_json_has_it() -> None:
    end = "2026-01-02T01:00:00+00:00"
    assert Forms("kinds", lambda: [form()]).decode(stored()) == {
        "one": {"n": 1, "part": {"at": AT.isoformat(), "sum": "1.50"}},
        "short": {"value": [{"2": "b"}], "expires": end},
        "many": ["2026-01-02"],
        "by_day": {'{"day": 1, "shop": "a"}': {"value": 0.5, "expires": end}},
        "by_flag": {"true": 3},
        "added": {"n": 7, "shop": "a"},
        "_timers": [{"at": AT.isoformat(), "name": "soon"}],
    }


def test_a_form_that_came_meanwhile_is_found_and_another_is_not_guessed() -> None:
    other = {"declared": {}, "schema": {"type": "record", "name": "state", "fields": []}}
    named = [other]
    forms = Forms("kinds", lambda: named)
    with pytest.raises(CorruptionError, match=r"does not name the form.*processors/kinds\.json"):
        forms.decode(stored())
    named.append(dict(form()))
    assert forms.decode(stored())["many"] == ["2026-01-02"]
    with pytest.raises(CorruptionError, match="damaged"):
        forms.decode(stored()[:-3])


def test_state_as_python_has_it_is_written_as_it_was() -> None:
    end = datetime(2026, 1, 2, 1, tzinfo=UTC)
    values = Form(form()).values(stored())
    assert values == {
        "one": {"n": 1, "part": {"at": AT, "sum": Decimal("1.50")}},
        "short": {"value": [{2: "b"}], "expires": end},
        "many": [AT.date()],
        "by_day": {(1, "a"): {"value": 0.5, "expires": end}},
        "by_flag": {True: 3},
        "added": {"n": 7, "shop": "a"},
        "_timers": [{"at": AT, "name": "soon"}],
    }
    assert Form(form()).encode(values, "at") == (stored(), WAKE_MS)
    assert Form(form()).wake_ms(stored()) == WAKE_MS


def test_what_is_left_out_begins_empty_and_the_key_wakes_when_something_ends() -> None:
    end = datetime(2026, 1, 2, 1, tzinfo=UTC)
    kept = Form(form()).encode({"by_day": {(1, "a"): {"value": 0.5, "expires": end}}}, "at")
    assert kept is not None
    assert kept[1] == WAKE_MS + 3_600_000
    assert Form(form()).values(kept[0])["many"] == []
    assert Form(form()).encode({"many": [], "one": None}, "at") is None


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"ones": 1}, "no state ones; expected one, short, many, by_day, by_flag, added, _timers"),
        ({"one": {"n": "a", "part": None}}, "one: n: expected bigint, found .*'a'"),
        ({"short": [{2: "b"}]}, "short: expected 2 values .value, expires., found 1"),
        ({"short": {"value": [], "expires": None}}, "short: expires: expected a value, found null"),
        ({"many": ["2026-01-02"]}, "many: expected date, found .*'2026-01-02'"),
        ({"by_flag": {None: 1}}, "by_flag: the key of an entry is null"),
        ({"by_flag": 1}, "by_flag: "),
        ({"_timers": [{"at": AT}]}, "name missing"),
    ],
)
def test_values_that_do_not_fit_are_told_with_their_state(
    values: Mapping[str, Any], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        Form(form()).encode(values, "at")
