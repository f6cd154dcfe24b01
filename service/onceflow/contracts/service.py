"""Contract of a service that an enrichment asks about records."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol, TypeVar

from onceflow.contracts.record import Record
from onceflow.contracts.target import Values

Q = TypeVar("Q", bound=Hashable)


class Service(Protocol[Q]):
    """One service, asked by one enrichment. Questions are equal if their answers may be.

    Its coroutines run in one event loop. Messages hold no secret.
    """

    def question(self, record: Record, row: Values) -> Q:
        """Make the question about a record. Asks nothing.

        Raises:
            ValueError: no question can be made of it; says why.
        """

    async def ask(self, question: Q) -> bytes:
        """Ask, and return the answer: the text of a JSON value, of a bounded size.

        Raises:
            ValueError: the service will never answer this question, or its answer is of no use.
            OutcomeUnknownError: this question has no answer now. Others may have one.
            RetriableError: the service takes no questions now.
            ConfigError: no retry changes what is wrong, and it is not about one question.
        """

    async def probe(self) -> None:
        """Find out whether the service is well, without a question about a record.

        Raises:
            RetriableError, OutcomeUnknownError: it is not, or not now.
        """

    async def close(self) -> None:
        """Free its connections. The next question opens others."""
