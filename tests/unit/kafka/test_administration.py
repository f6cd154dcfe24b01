"""Questions to brokers end at their deadline, whatever the client does."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any, Self

import pytest
from confluent_kafka.admin import AdminClient

from onceflow.clock import SystemClock
from onceflow.contracts.connector import Connection
from onceflow.errors import DeadlineError
from onceflow_connectors.kafka.admin import administration


class Silent:
    """A client that forgets its time-outs, and does not end either."""

    made: list[Silent]

    def __init__(self) -> None:
        self.is_left = threading.Event()
        self.made.append(self)

    def poll(self, timeout_s: float) -> None:
        """Ignores all troubles."""

    def describe_topics(self, topics: Any, request_timeout: float) -> dict[str, Future[Any]]:
        return {"t": Future()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_left.set()
        threading.Event().wait()


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list[Silent]:
    Silent.made = []
    monkeypatch.setattr(administration, "open_client", lambda *_, **__: Silent())
    monkeypatch.setattr(administration, "LATE_ANSWER_S", 0.0)
    return Silent.made


@pytest.mark.timeout(30)
def test_a_client_that_forgets_its_timeout_is_left_and_another_one_asked(
    clients: list[Silent],
) -> None:
    asking = administration.Administration(Connection("127.0.0.1:1"))
    deadline = SystemClock().within(2.0)
    with pytest.raises(DeadlineError, match="an answer within 2 s"):
        asking.topics(["t"], deadline)
    assert len(clients) >= 2
    assert all(each.is_left.wait(10) for each in clients[:-1])


def test_an_answer_in_time_is_given() -> None:
    answer: Future[str] = Future()
    answer.set_result("here")
    assert administration.answered(answer, 0) == "here"


def test_the_real_client_has_what_the_silent_one_stands_for() -> None:
    assert all(hasattr(AdminClient, name) for name in ("describe_topics", "__exit__"))
