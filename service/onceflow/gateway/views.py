"""Looks at a gateway, for the API and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from onceflow.control.showing import count
from onceflow.control.views import Json, Look, Name, Views, with_origins
from onceflow.errors import OnceflowError
from onceflow.gateway.diagnosis import diagnose
from onceflow.gateway.loader import load_gateway
from onceflow.gateway.model import Gateway
from onceflow.gateway.serving import GatewayService
from onceflow.gateway.survey import GatewayFacts, GatewaySurvey, fields_of, opened_survey
from onceflow.observe.diagnosis import Diagnosis
from onceflow.observe.diagnosis import fields_of as cause_fields
from onceflow.pipeline.file.kinds import FileKind
from onceflow.pipeline.text.files import MAX_PIPELINE_BYTES, read_text
from onceflow.pipeline.text.yaml_text import parse_yaml


class GatewayViews(Views):
    """Answers questions about the gateway of a process."""

    kind = FileKind.GATEWAY
    template = "gateway"
    ending = "Posts that wait are answered first."
    trend = "posted"

    def __init__(self, service: GatewayService) -> None:
        super().__init__(service)
        self._service = service
        self._looks: Mapping[str, Look[GatewayFacts]] = {
            name: Look(service.clock) for name in service.files
        }

    def why_stuck(self, name: Name) -> Json:
        """Causes that hold it up, the most serious first."""
        facts = self.facts(name)
        return {"gateway": name, **cause_fields(diagnose(facts), facts.lag, facts.blind)}

    def configuration_of(self, name: Name) -> Sequence[Json]:
        """Every value of its file that is in force, and where it comes from. No secrets."""
        path = self._service.files[name]
        document = parse_yaml(read_text(path, MAX_PIPELINE_BYTES))
        return [*with_origins(self._load(name), document, path.name)]

    def analyse(self, name: str) -> None:
        """Find everything that is wrong with a file before a run."""
        self._load(name)

    def seen(self, name: str) -> Json:
        """Its promise, instances, owners of slots and refused posts; figures of this instance."""
        figures = self._service.histories[name].figures
        return {**fields_of(self.facts(name)), "run": dict(figures)}

    def facts(self, name: str) -> GatewayFacts:
        """A look that is fresh enough."""

        def look() -> GatewayFacts:
            with self._surveyed(name) as survey:
                return survey.facts()

        return self._looks[name].get(look)

    def row(self, name: str) -> Json:
        """Its part of the overview: from its file and its metrics, without a request."""
        try:
            gateway = self._load(name)
        except OnceflowError as error:
            return {"figures": (), "long": (), "why": str(error)}
        restarts = count(self.status(name).restarts)
        long = [
            ("Topics", ", ".join(gateway.topics)),
            ("Promise", str(gateway.guarantee())),
        ]
        figures = (*self._run_figures(name), ("Restarts", restarts))
        return {"figures": figures, "long": long, "why": ""}

    def panel(self, name: str) -> Json:
        """Collect what its page shows."""
        why, seen, findings = "", _UNSEEN, list[Diagnosis]()
        try:
            gateway = self._load(name)
            facts = self.facts(name)
            findings, seen = diagnose(facts), fields_of(facts)
        except OnceflowError as error:
            return {**_NOTHING, "why": str(error), "findings": findings, "slots": seen["slots"]}
        figures = [
            *self._run_figures(name),
            ("Instances", count(facts.instances)),
            ("Promise", str(gateway.guarantee())),
        ]
        return {
            "why": why,
            "findings": findings,
            "figures": figures,
            "way": _way(gateway),
            "slots": seen["slots"],
            "not_ready": seen["not_ready"],
            "not_seen": seen["not_seen"],
        }

    def _run_figures(self, name: str) -> Sequence[tuple[str, str]]:
        """Figures of this instance."""
        history = self._service.histories[name]
        figures, metrics = history.figures, self._service.metrics.totals()
        refused = sum(history.refused().values())
        return (
            ("Records", count(metrics.records)),
            ("Posts", count(metrics.posts.total())),
            ("Refused lately", count(refused)),
            ("Slots here", count(figures.get("slots"))),
            ("Keys here", count(figures.get("keys"))),
            ("Bytes in flight", count(figures.get("in_flight_bytes"))),
        )

    def _load(self, name: str) -> Gateway:
        return load_gateway(self._service.files[name])

    def _surveyed(self, name: str) -> AbstractContextManager[GatewaySurvey]:
        settings, around = self._service.settings, self._service.around
        return opened_survey(
            self._load(name),
            around.connector,
            settings.connection(),
            around.clock,
            settings.gateway.ca_file,
        )


_UNSEEN: Json = {"slots": {}}
_NOTHING: Json = {"figures": (), "way": None, "not_ready": {}, "not_seen": {}}


def _way(gateway: Gateway) -> Json:
    """From posts to topics."""
    remember = gateway.remember
    return {
        "sources": [(f"POST /v1/{name}", "JSON or NDJSON") for name in gateway.topics],
        "middle": [(gateway.name, f"keys in {remember.slots} slots")],
        "sinks": [
            (name, f"key: {block.key}" if block.key else "no key")
            for name, block in gateway.topics.items()
        ],
    }
