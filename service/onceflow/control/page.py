"""The status page: rendered here, refreshed by a small script, complete without internet."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from onceflow.control.access import Gate, Session, address_of, cookie_of
from onceflow.control.drawing import timeline_of, trend_of
from onceflow.control.tokens import Role
from onceflow.control.views import Views, status_fields
from onceflow.errors import OnceflowError
from onceflow.observe.diagnosis import diagnose
from onceflow.observe.facts import Facts
from onceflow.observe.summary import summary_of
from onceflow.protocol.ledger import HeadEntry
from onceflow.serve.fleet import Observed
from onceflow.serving import Service
from onceflow.texts import iso_text, span_text, time_text, visible

HERE = Path(__file__).parent
STATIC = {
    "charts.js": "text/javascript",
    "page.css": "text/css",
    "page.js": "text/javascript",
    "uPlot.LICENSE": "text/plain",
    "uPlot.iife.min.js": "text/javascript",
    "uPlot.min.css": "text/css",
}
MAX_LETTERS = 10
"""Dead letters on a pipeline's page, the newest first."""
MAX_BATCHES = 12
"""Batches in the list; the bars show the newest 60."""
MAX_MARKS = 12


def add_page(app: FastAPI, service: Service, views: Views, gate: Gate) -> None:
    """Add the page's routes to the control API."""
    pages = _Pages(service, views)

    @app.get("/static/{file}", include_in_schema=False)
    def static(file: str) -> Response:
        if file not in STATIC:
            return HTMLResponse("not found", 404)
        return FileResponse(HERE / "static" / file, media_type=STATIC[file])

    @app.get("/sign-in", include_in_schema=False)
    def sign_in_form() -> HTMLResponse:
        return pages.render("sign_in.html", wrong=False)

    @app.post("/sign-in", include_in_schema=False)
    async def sign_in(request: Request) -> Response:
        form = parse_qs((await request.body()).decode("utf-8", "replace"))
        token = form.get("token", [""])[0].strip()
        caller = gate.by_token(request, token)
        if caller is None:
            return pages.render("sign_in.html", wrong=True, status=401)
        gate.audit("signed_in", who=caller.name, address=address_of(request))
        response = RedirectResponse("/", 303)
        response.set_cookie(
            cookie_of(request),
            gate.sign_in(token),
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return response

    @app.get("/sign-out", include_in_schema=False)
    def sign_out(request: Request) -> Response:
        gate.sign_out(request)
        return RedirectResponse("/sign-in", 303)

    @app.get("/", include_in_schema=False)
    def overview(request: Request) -> Response:
        session = gate.session_of(request)
        if session is None:
            return RedirectResponse("/sign-in", 303)
        with gate.working(session.caller):
            return pages.overview(session)

    @app.get("/pipelines/{name}", include_in_schema=False)
    def pipeline(request: Request, name: str) -> Response:
        session = gate.session_of(request)
        if session is None:
            return RedirectResponse("/sign-in", 303)
        if name not in service.entries:
            return HTMLResponse("there is no such pipeline here", 404)
        with gate.working(session.caller):
            return pages.pipeline(session, name)


class _Pages:
    def __init__(self, service: Service, views: Views) -> None:
        self._service = service
        self._views = views
        self._templates = Environment(
            loader=PackageLoader("onceflow.control"),
            autoescape=select_autoescape(default=True),
            undefined=StrictUndefined,
            finalize=_visible,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "count": _count,
            "moment": moment,
            "duration": span_text,
            "path": lambda text: quote(text, safe=""),
        }

    def render(self, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
        return HTMLResponse(self._templates.get_template(template).render(values), status)

    def overview(self, session: Session) -> HTMLResponse:
        rows = [
            {
                **status_fields(status),
                "seen": _seen(self._facts(status.name)),
                "trend": trend_of(self._service.histories[status.name].read_per_s()),
            }
            for status in self._service.fleet.statuses()
        ]
        return self.render("overview.html", rows=rows, **_signed_in(session))

    def pipeline(self, session: Session, name: str) -> HTMLResponse:
        facts, history = self._facts(name), self._views.history(name)
        replayed = self._service.histories[name].replayed
        recent = facts.recent if isinstance(facts, Facts) else ()
        seen = _seen(facts)
        return self.render(
            "pipeline.html",
            pipeline=status_fields(self._views.status(name)),
            seen=seen,
            findings=diagnose(facts) if isinstance(facts, Facts) else (),
            way=self._way(name, seen, history),
            marks=history["marks"][: -MAX_MARKS - 1 : -1],
            bars=timeline_of(recent, replayed) if recent else "",
            batches=[_batch(entry, replayed) for entry in recent[: -MAX_BATCHES - 1 : -1]],
            letters=self._letters(name),
            state=self._state(name),
            **_signed_in(session),
        )

    def _facts(self, name: str) -> Facts | OnceflowError:
        """A look at a pipeline, or why it cannot be seen."""
        try:
            return self._views.facts(name)
        except OnceflowError as error:
            return error

    def _way(
        self, name: str, seen: Mapping[str, Any], newest: Mapping[str, Any]
    ) -> Mapping[str, Any] | None:
        """From topics through the query to topics; None if its file is faulty."""
        try:
            pipeline = self._views.file(name).pipeline
        except OnceflowError:
            return None
        records, read = seen.get("records", {}), newest["source_records"]
        # A batch that only lets time pass has no source in its plan.
        unread = 0 if read or newest["operators"] else None
        sources = [
            (
                source.block.describe(),
                view,
                _lag_of(view, seen.get("sources", ())),
                read.get(view, unread),
            )
            for view, source in pipeline.sources.items()
        ]
        sinks = [
            (block.topic, what, records.get(count))
            for block, what, count in (
                (pipeline.sink.kafka, "output", "written"),
                (pipeline.dead_letter, "dead letters", "rejected"),
                (pipeline.late, "late records", "late"),
            )
            if block is not None
        ]
        kind = "transform" if pipeline.transform else "query"
        return {"sources": sources, "kind": kind, "operators": newest["operators"], "sinks": sinks}

    def _letters(self, name: str) -> Mapping[str, Any]:
        try:
            return {"rows": self._views.newest_dead_letters(name, MAX_LETTERS), "why": ""}
        except OnceflowError as error:
            return {"rows": (), "why": str(error)}

    def _state(self, name: str) -> Mapping[str, Any]:
        """List the state. Spark is not started only to look."""
        if self._views.status(name).observed is not Observed.RUNNING:
            return {"operators": (), "why": "Shown while the pipeline runs."}
        try:
            return {"operators": self._views.state(name), "why": ""}
        except OnceflowError as error:
            return {"operators": (), "why": str(error)}


def _seen(facts: Facts | OnceflowError) -> Mapping[str, Any]:
    if isinstance(facts, OnceflowError):
        return {"is_seen": False, "why": str(facts)}
    bulletin = facts.bulletin
    return {
        **summary_of(facts, moment),
        "is_seen": True,
        "lag": facts.lag,
        "records_per_second": bulletin.records_per_second if bulletin else None,
        # Before its first batch, a run does not know.
        "state_rows": bulletin.state.rows if bulletin and bulletin.batch_id >= 0 else None,
        "retention_left_s": bulletin.retention_left_s if bulletin else None,
    }


def _signed_in(session: Session) -> Mapping[str, Any]:
    return {
        "csrf": session.csrf,
        "who": session.caller.name,
        "may_write": session.caller.role is Role.WRITE,
    }


def _visible(value: Any) -> Any:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def moment(unix_ms: int) -> str:
    """A time in UTC, which the page's script shows in the browser's time zone."""
    iso = iso_text(unix_ms)
    if "T" not in iso:  # there is none, or it is out of range
        return iso
    return Markup('<time datetime="{}">{}</time>').format(iso, time_text(unix_ms))


def _lag_of(source: str, places: Sequence[Mapping[str, Any]]) -> int | None:
    """The lag of all partitions together; None if one is unknown."""
    found = [place["lag"] for place in places if place["source"] == source]
    return sum(found) if found and None not in found else None


def _batch(entry: HeadEntry, replayed: Collection[int]) -> Mapping[str, Any]:
    records = entry.records
    return {
        "batch_id": entry.batch.batch_id,
        "at_ms": entry.plan.batch_timestamp_ms,
        "read": records.read,
        "written": records.written,
        "left_out": records.rejected + records.refused + records.late,
        "generation": entry.generation,
        "token": entry.token,
        "note": entry.note,
        "is_replayed": entry.batch.batch_id in replayed,
    }


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
