"""Which state goes on as which: what the user says, and what is missing."""

from __future__ import annotations

import pytest

from onceflow.errors import ConfigError
from onceflow.runtime.state.layout import Operator
from onceflow.runtime.state.transfer import Carry, Transfer


def operators(*names: str) -> list[Operator]:
    return [Operator(n, name, name.partition("-")[0], 2, ()) for n, name in enumerate(names)]


@pytest.mark.parametrize(
    ("text", "carry"),
    [
        ("m:f", Carry("", "", "m:f")),
        ("a=m.n:f", Carry("a", "a", "m.n:f")),
        ("a:b=m:f", Carry("a", "b", "m:f")),
    ],
)
def test_a_function_names_its_operators(text: str, carry: Carry) -> None:
    assert Carry.changed(text) == carry


@pytest.mark.parametrize("text", ["m", "m:", ":f", "=m:f", "a:=m:f", "a=f", ""])
def test_a_function_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--with; expected `module:function`"):
        Carry.changed(text)


@pytest.mark.parametrize("text", ["a", "a:", ":b"])
def test_a_move_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--move; expected `old:new`"):
        Carry.moved(text)


def sources(transfer: Transfer, before: list[Operator], after: list[Operator]) -> dict[str, object]:
    found = transfer.sources(before, after).items()
    return {new: (old.name if old else None, function) for new, (old, function) in found}


def test_state_goes_on_under_its_name_unless_it_is_said() -> None:
    before, after = operators("join", "cards", "limit"), operators("cards", "aggregation", "shops")
    transfer = Transfer(
        [Carry("cards", "cards", "m:f"), Carry("cards", "shops")],
        ["join", "limit"],
        ["aggregation"],
    )
    assert sources(transfer, before, after) == {
        "cards": ("cards", "m:f"),
        "shops": ("cards", ""),
        "aggregation": (None, ""),
    }
    assert sources(Transfer(), before, before) == {each.name: (each.name, "") for each in before}
    assert sources(Transfer([Carry(function="m:f")]), operators("join"), operators("cards")) == {
        "cards": ("join", "m:f")
    }


@pytest.mark.parametrize(
    ("transfer", "why"),
    [
        (Transfer(), "join has state that nothing goes on with; expected `--drop join`"),
        (Transfer(), "sessions is new, and has no state; expected `--begin sessions`"),
        (Transfer([Carry(function="m:f")]), "m:f is for no operator; expected one of join, cards"),
        (Transfer([Carry("jion", "cards")]), "before, the query had no state called `jion`"),
        (Transfer([Carry("join", "session")]), "now, the query keeps no state called `session`"),
        (Transfer(dropped=["cord"]), "had no state called `cord`"),
        (Transfer(begun=["cord"]), "keeps no state called `cord`"),
        (
            Transfer([Carry("join", "sessions"), Carry("cards", "sessions")]),
            "sessions gets state twice",
        ),
        (Transfer([Carry("join", "cards")]), "cards has state that nothing goes on with"),
        (Transfer(dropped=["cards"]), "cards is new, and has no state"),
    ],
)
def test_what_is_not_said_is_listed(transfer: Transfer, why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        transfer.sources(operators("join", "cards"), operators("sessions", "cards"))
    assert why in str(refused.value)
