"""Looks at deliveries and enrichments, for the API and the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import asdict, dataclass, replace

from onceflow.clock import Deadline
from onceflow.contracts.connector import Broker
from onceflow.contracts.target_block import installed_targets
from onceflow.control.letters import LetterViews
from onceflow.control.showing import MASK, count, moment, span
from onceflow.control.views import REPLAY_TIMEOUT_S, WATCH_S, Json, Look, Name, with_origins
from onceflow.delivery.diagnosis import diagnose
from onceflow.delivery.history import TRIES_FAILED, CarriageHistory, Wait
from onceflow.delivery.letters import deliver_letters
from onceflow.delivery.model import Carriage, Delivery, Lent
from onceflow.delivery.serving import CarriageService
from onceflow.delivery.survey import DeliveryFacts, DeliverySurvey, fields_of, opened_survey
from onceflow.errors import InvariantError, OnceflowError
from onceflow.foreign_settings import names_in
from onceflow.observe.diagnosis import Diagnosis
from onceflow.observe.diagnosis import fields_of as cause_fields
from onceflow.pipeline.file.kinds import FileKind
from onceflow.pipeline.text.files import MAX_PIPELINE_BYTES, read_text
from onceflow.pipeline.text.yaml_text import parse_yaml
from onceflow.repair.dead_letters import letter_topic_of
from onceflow.texts import iso_text

KINDS = frozenset({*installed_targets(), "http", "python"})
"""Blocks of which one says where records go, or who is asked."""
FRESH_S = 5.0
"""A look is reused for this long: each connects to the target."""
SHOWN = names_in("""
    bootstrap_servers body ca_file certificate_file concurrency content_type coroutine create
    deletes dsn_file headers_file in_flight insecure key key_file max_answer_bytes method mode order
    partition partition_by properties_file questions_per_second records_per_request reject revision
    table timeout tombstones topic
    cache.at_most cache.by cache.for idempotency.for idempotency.header idempotency.quoted
    storage.allow_http storage.credentials_file storage.endpoint storage.region
""")
"""Keys below a target and below who is asked that hold no secret: a URL may, and a header."""


class CarriageViews(LetterViews):
    """Answers questions about deliveries, or about enrichments."""

    template = "carriage"
    ending = "Its running batch is written first."
    trend = "written"

    def __init__(self, service: CarriageService, kind: FileKind) -> None:
        super().__init__(service)
        self.kind = kind
        self._service = service
        self._looks: Mapping[str, Look[DeliveryFacts]] = {
            name: Look(service.clock, FRESH_S) for name in service.files
        }
        self.looks = {"/dead-letters": self.dead_letters}
        if kind is FileKind.DELIVERY:
            self.orders = {"/dead-letters/replay": self.replay}

    def why_stuck(self, name: Name) -> Json:
        """Causes that hold it up, the most serious first; takes two seconds."""
        with self._surveyed(name) as survey:
            facts = survey.watched(survey.facts(), WATCH_S)
        found = cause_fields(diagnose(facts), facts.lag, facts.blind)
        return {str(self.kind): name, **found}

    def configuration_of(self, name: Name) -> Sequence[Json]:
        """Every value of its file that is in force, and where it comes from. No secrets."""
        path = self._service.files[name]
        document = parse_yaml(read_text(path, MAX_PIPELINE_BYTES))
        values = with_origins(self._service.load(name), document, path.name)
        return [
            value if _may_be_shown(value["name"]) else {**value, "value": MASK} for value in values
        ]

    def analyse(self, name: str) -> None:
        """Find everything that is wrong with a file before a run."""
        self._service.load(name)

    def seen(self, name: str) -> Json:
        """Its promise, target, instances, positions and lag; figures of its run in this process."""
        return {**fields_of(self.facts(name)), "run": self._run_fields(name)}

    def facts(self, name: str) -> DeliveryFacts:
        """A look that is fresh enough."""

        def look() -> DeliveryFacts:
            with self._surveyed(name) as survey:
                return survey.facts()

        return self._looks[name].get(look)

    def replay(self, name: Name) -> Json:
        """Send its dead letters that were not sent before to the target, each once.

        Answers when they are sent. After an error, call it again: it continues.
        """
        delivery = self._service.load(name)
        if not isinstance(delivery, Delivery):
            raise InvariantError("only deliveries send their dead letters again")
        deadline = self.service.clock.within(REPLAY_TIMEOUT_S)
        connection = self._service.settings.connection()
        around = replace(self._service.around, connection=connection, stop=OverAt(deadline))
        return asdict(deliver_letters(delivery, around, deadline))

    @contextmanager
    def letter_topic(self, name: str) -> Iterator[tuple[Broker, str]]:
        """Lend brokers, and the topic of dead letters."""
        carriage, around = self._service.load(name), self._service.around
        topic = letter_topic_of(str(self.kind), carriage.name, carriage.dead_letter)
        with closing(around.connector.broker(self._service.settings.connection())) as broker:
            broker.brokers(self.deadline())
            yield broker, topic

    def row(self, name: str) -> Json:
        """Its part of the overview: from its file and what its run reports, without a request."""
        try:
            carriage = self._service.load(name)
        except OnceflowError as error:
            return {"figures": (), "long": (), "why": str(error)}
        long = [("To", carriage.describe()), ("Promise", str(carriage.guarantee()))]
        if wait := self._history(name).wait:
            long.append(("Waits", _wait_text(wait)))
        restarts = count(self.status(name).restarts)
        figures = (*self._run_figures(name), ("Restarts", restarts))
        return {"figures": figures, "long": long, "why": ""}

    def panel(self, name: str) -> Json:
        """Collect what its page shows."""
        wait = self._history(name).wait
        try:
            carriage = self._service.load(name)
        except OnceflowError as error:
            return {**_NOTHING, "why": str(error), "letters": {"rows": (), "why": ""}}
        why, seen, findings = "", _UNSEEN, list[Diagnosis]()
        try:
            facts = self.facts(name)
        except OnceflowError as error:
            why = str(error)
        else:
            seen, findings = fields_of(facts, moment), diagnose(facts)
        if wait is not None:
            why = _wait_text(wait)
        figures = [
            *self._run_figures(name),
            ("Tries that failed", count(self._history(name).counts[TRIES_FAILED])),
            ("Waits in the topics", count(seen["lag"])),
            ("Instances", count(seen["instances"])),
            ("Target", seen["target"]),
            ("Promise", str(carriage.guarantee())),
        ]
        return {
            "why": why,
            "findings": findings,
            "figures": figures,
            "way": self._way(carriage, seen),
            "places": seen["topics"],
            "not_seen": seen["not_seen"],
            "letters": self.letters_panel(name),
        }

    def _history(self, name: str) -> CarriageHistory:
        return self._service.histories[name]

    def _run_figures(self, name: str) -> Sequence[tuple[str, str]]:
        history = self._history(name)
        figures, counts = history.figures, history.counts
        return (
            ("Records/s", count(figures.get("records_per_second"))),
            ("Lag", count(figures.get("lag"))),
            ("Oldest waits for", span(figures.get("lag_s"))),
            ("Written", count(counts["written"])),
            ("Rejected", count(counts["rejected"])),
            ("Dropped", count(counts["dropped"])),
        )

    def _run_fields(self, name: str) -> Json:
        """Figures of the run of this process, since this service started."""
        history = self._history(name)
        wait = history.wait
        waiting = wait and {
            "reason": wait.reason,
            "failures": wait.failures,
            "next_try": iso_text(wait.next_try_ms),
        }
        counts = {each: history.counts[each] for each in (*history.rates, TRIES_FAILED)}
        return {**history.figures, **counts, "waiting": waiting}

    def _way(self, carriage: Carriage, seen: Json) -> Json:
        """From topics to the target."""
        counts = self._history(carriage.name).counts
        lags: dict[str, int] = {}
        for place in seen["topics"]:
            lags[place["topic"]] = lags.get(place["topic"], 0) + place["lag"]
        sources = [
            (topic, f"{lags[topic]:,} wait" if topic in lags else "lag unknown")
            for topic in carriage.source.topics
        ]
        sinks = [(carriage.describe(), f"{counts['written']:,} written")]
        if carriage.dead_letter:
            told = f"dead letters: {counts['rejected']:,}"
            sinks.append((carriage.dead_letter.topic, told))
        middle = [(carriage.name, str(self.kind))]
        return {"sources": sources, "middle": middle, "sinks": sinks}

    def _surveyed(self, name: str) -> AbstractContextManager[DeliverySurvey]:
        around = self._service.around
        connection = self._service.settings.connection()
        lent = Lent(around.connector, connection, around.clock, lambda event, /, **facts: None)
        return opened_survey(self._service.load(name), lent)


@dataclass(frozen=True)
class OverAt:
    """Ends what runs when the time is up. Implements `delivery.carrier.Stop`."""

    deadline: Deadline

    def is_set(self) -> bool:
        """Whether to end after the batch that is under way."""
        return self.deadline.is_over


_UNSEEN: Json = {"lag": None, "instances": None, "target": "-", "topics": (), "not_seen": {}}
_NOTHING: Json = {"findings": (), "figures": (), "way": None, "places": (), "not_seen": {}}


def _wait_text(wait: Wait) -> str:
    text = f"{wait.reason} ({wait.failures} failures in a row; next try at "
    return moment(wait.next_try_ms).join((text, ")"))


def _may_be_shown(name: str) -> bool:
    """Whether a value of the file is known not to be a secret."""
    block, _, key = name.partition(".")
    if block not in {"to", "ask"}:
        return True
    kind, _, rest = key.partition(".")
    return key in SHOWN or (kind in KINDS and rest in SHOWN)
