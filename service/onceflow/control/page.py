"""The status page: rendered here, refreshed by a small script, complete without internet."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from onceflow.control.access import Gate, Session, address_of, cookie_of
from onceflow.control.drawing import trend_of
from onceflow.control.showing import count, moment
from onceflow.control.tokens import Role
from onceflow.control.views import MAX_MARKS, Views, status_fields
from onceflow.texts import visible

HERE = Path(__file__).parent
STATIC = {
    "charts.js": "text/javascript",
    "page.css": "text/css",
    "page.js": "text/javascript",
    "uPlot.LICENSE": "text/plain",
    "uPlot.iife.min.js": "text/javascript",
    "uPlot.min.css": "text/css",
}


def add_page(app: FastAPI, views: Views, gate: Gate) -> None:
    """Add the page's routes to the control API."""
    pages = _Pages(views)

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

    @app.get(f"/{views.kind.plural}/{{name}}", include_in_schema=False)
    def one(request: Request, name: str) -> Response:
        session = gate.session_of(request)
        if session is None:
            return RedirectResponse("/sign-in", 303)
        if name not in views.service.fleet.members:
            return HTMLResponse(f"there is no such {views.kind} here", 404)
        with gate.working(session.caller):
            return pages.one(session, name)


class _Pages:
    def __init__(self, views: Views) -> None:
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
            "count": count,
            "moment": moment,
            "path": lambda text: quote(text, safe=""),
        }

    def render(self, template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
        return HTMLResponse(self._templates.get_template(template).render(values), status)

    def overview(self, session: Session) -> HTMLResponse:
        histories = self._views.service.histories
        rows = [
            {
                **status_fields(status),
                **self._views.row(status.name),
                "trend": trend_of(histories[status.name].trend_per_s(), self._views.trend),
            }
            for status in self._views.service.fleet.statuses()
        ]
        return self.render("overview.html", rows=rows, **self._around(session))

    def one(self, session: Session, name: str) -> HTMLResponse:
        views = self._views
        marks = views.service.histories[name].fields()["marks"]
        return self.render(
            f"{views.template}.html",
            one=status_fields(views.status(name)),
            marks=marks[: -MAX_MARKS - 1 : -1],
            **views.panel(name),
            **self._around(session),
        )

    def _around(self, session: Session) -> Mapping[str, Any]:
        return {
            "kind": self._views.kind,
            "ending": self._views.ending,
            "csrf": session.csrf,
            "who": session.caller.name,
            "may_write": session.caller.role is Role.WRITE,
        }


def _visible(value: Any) -> Any:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
