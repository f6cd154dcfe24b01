"""An instance that stands by takes over when the other is gone, and only then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from onceflow.clock import Deadline
from onceflow.errors import DeadlineError
from onceflow.protocol.bulletin import END_KIND, RUNNING_KIND, Bulletin, Ending
from onceflow.serve.standby import LOOK_INTERVAL_S, PATIENCE_S, Standby
from tests.support.clock import ManualClock


@dataclass
class Other:
    """The instance that is watched, as its board shows it."""

    clock: ManualClock = field(default_factory=ManualClock)
    posted: dict[int, str] = field(default_factory=dict)
    is_deaf: bool = False

    def beat(self, run_id: str = "first") -> None:
        self.posted[RUNNING_KIND] = Bulletin(run_id, "there", self.clock.unix_ms()).to_json()

    def read(self, deadline: Deadline) -> Mapping[int, str]:
        if self.is_deaf:
            raise DeadlineError("no answer")
        return dict(self.posted)

    def post(self, kind: int, text: str) -> None:
        raise AssertionError("who stands by posts nothing")

    def settle(self, deadline: Deadline) -> None:
        """Nothing was posted."""

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def other() -> Other:
    return Other()


@pytest.fixture
def standby(other: Other) -> Standby:
    return Standby(other, other.clock)


def looks(standby: Standby, other: Other, seconds: float, *, is_beating: bool) -> str:
    """Return the first finding within this many seconds, or an empty string."""
    for _ in range(round(seconds / LOOK_INTERVAL_S)):
        if is_beating:
            other.beat()
        if why := standby.look():
            return why
        other.clock.sleep(LOOK_INTERVAL_S)
    return ""


def test_a_beating_instance_is_left_alone(standby: Standby, other: Other) -> None:
    assert looks(standby, other, 3600, is_beating=True) == ""


def test_silence_is_borne_for_a_while(standby: Standby, other: Other) -> None:
    looks(standby, other, 10, is_beating=True)
    began_s = other.clock.monotonic_s()
    assert "nothing was heard" in looks(standby, other, 60, is_beating=False)
    assert PATIENCE_S - 2 * LOOK_INTERVAL_S <= other.clock.monotonic_s() - began_s <= PATIENCE_S


def test_where_nothing_ever_ran_it_begins(standby: Standby, other: Other) -> None:
    assert looks(standby, other, PATIENCE_S - LOOK_INTERVAL_S, is_beating=False) == ""
    assert looks(standby, other, 60, is_beating=False)


@pytest.mark.parametrize(
    ("ending", "seen"),
    [
        (Ending("first", "there", 1).to_json(), "it has ended"),
        (Ending("earlier", "there", 1).to_json(), ""),
        ("no JSON", ""),
        ('{"v":1,"run_id":"first"}', ""),
    ],
)
def test_an_end_of_this_run_needs_no_patience(
    standby: Standby, other: Other, ending: str, seen: str
) -> None:
    other.beat()
    assert standby.look() == ""
    other.posted[END_KIND] = ending
    assert standby.look() == seen


def test_brokers_that_do_not_answer_are_not_the_others_silence(
    standby: Standby, other: Other
) -> None:
    looks(standby, other, 1, is_beating=True)
    other.is_deaf = True
    assert looks(standby, other, 600, is_beating=False) == ""
    other.is_deaf = False
    assert looks(standby, other, PATIENCE_S - LOOK_INTERVAL_S, is_beating=False) == ""
    assert looks(standby, other, 60, is_beating=False)


def test_a_wall_clock_that_is_wrong_does_not_matter(standby: Standby, other: Other) -> None:
    for jump_s in (3600, -7200, 0) * 20:
        other.clock.set_by(jump_s)
        assert looks(standby, other, LOOK_INTERVAL_S, is_beating=True) == ""


def test_waiting_ends_when_it_is_given_up(standby: Standby, other: Other) -> None:
    answers = iter([False, False, True])
    other.beat()
    assert standby.wait(lambda: next(answers)) == ""
    assert next(answers, None) is None
    assert "nothing was heard" in standby.wait(lambda: False)
