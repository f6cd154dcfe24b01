"""Looks at dead letters, for kinds that have them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import Annotated, Any

from fastapi import Query

from onceflow.contracts.connector import Broker
from onceflow.control.records import letter_fields
from onceflow.control.views import MAX_ENTRIES, Json, Name, Views
from onceflow.errors import OnceflowError
from onceflow.repair.dead_letters import read_letters

MAX_LETTERS = 10
"""On the page, the newest first."""


class LetterViews(Views):
    """Answers questions about dead letters too."""

    @abstractmethod
    def letter_topic(self, name: str) -> AbstractContextManager[tuple[Broker, str]]:
        """Lend brokers, and the topic of dead letters.

        Raises:
            ConfigError: the file names none.
        """

    def dead_letters(
        self,
        name: Name,
        reason: Annotated[str, Query(max_length=100)] = "",
        most: Annotated[int, Query(alias="max", ge=1, le=MAX_ENTRIES)] = 100,
    ) -> Sequence[Json]:
        """Rejected records, oldest first.

        Shows the values of columns that the setting `control.shown_columns` names.
        """
        shown = self.shown_columns(name)
        with self.letter_topic(name) as (broker, topic):
            found = read_letters(broker, topic, {}, self.deadline())
            wanted = (filed for filed in found if reason in {"", filed[1].reason})
            return [letter_fields(filed, shown) for filed in islice(wanted, most)]

    def newest_dead_letters(self, name: str, most: int) -> Sequence[Json]:
        """The newest rejected records, newest first."""
        shown = self.shown_columns(name)
        with self.letter_topic(name) as (broker, topic):
            offsets = broker.offsets(topic, self.deadline())
            starts = {partition: end - most for partition, (_, end, _) in offsets.items()}
            found = sorted(
                read_letters(broker, topic, starts, self.deadline()),
                key=lambda filed: (filed[0].timestamp_ms, filed[0].partition, filed[0].offset),
            )
        return [letter_fields(filed, shown) for filed in found[: -most - 1 : -1]]

    def letters_panel(self, name: str) -> Mapping[str, Any]:
        """Collect what the page shows of them."""
        try:
            return {"rows": self.newest_dead_letters(name, MAX_LETTERS), "why": ""}
        except OnceflowError as error:
            return {"rows": (), "why": str(error)}
