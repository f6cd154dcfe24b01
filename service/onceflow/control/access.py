"""Who may do what: tokens, client certificates, sessions of the page; bounds; the audit log."""

from __future__ import annotations

import hmac
import json
import secrets
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from starlette.datastructures import Headers

from onceflow.clock import Clock
from onceflow.control.limits import RateLimit
from onceflow.control.tokens import Caller, Role, Tokens
from onceflow.errors import ConfigError
from onceflow.settings import Control

MAX_BODY_BYTES = 4_096
"""Only signing in has a body."""
BURST, PER_S = 60, 20
"""Requests of one address."""
FAILURES, FAILURES_PER_S = 5, 0.1
"""Failures to sign in of one address: five at once, then six a minute."""
COOKIE = "onceflow-session"
SESSION_S = 8 * 3600.0
MAX_SESSIONS = 100
UNSAFE = frozenset({"POST", "PUT", "PATCH", "DELETE"})

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Audit = Callable[..., None]


@dataclass
class Session:
    """Somebody who signed in at the page.

    Args:
        caller: who.
        csrf: what forms of this session must repeat.
        until_s: when it ends, on the monotonic scale.
    """

    caller: Caller
    csrf: str
    until_s: float


@dataclass
class Gate:
    """Lets callers in.

    Args:
        settings: of the control API.
        clock: measures sessions and bounds.
        audit: told every order and every failure to come in.
    """

    settings: Control
    clock: Clock
    audit: Audit
    _sessions: OrderedDict[str, Session] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        file = self.settings.tokens_file
        self._tokens = Tokens(Path(file) if file else None)
        self._requests = RateLimit(BURST, PER_S, self.clock)
        self._failures = RateLimit(FAILURES, FAILURES_PER_S, self.clock)

    def caller_of(self, request: Request) -> Caller:
        """Who asks.

        Raises:
            HTTPException: 401, nobody known; 429, too many wrong tokens from this address.
        """
        name = getattr(request.state, "client_name", None)
        role = self.settings.client_roles.get(name) if name else None
        if name and role:
            return Caller(name, Role(role))
        session = self.session_of(request)
        if session is not None:
            return session.caller
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise HTTPException(401, "a bearer token is needed", {"WWW-Authenticate": "Bearer"})
        caller = self.by_token(request, token.strip())
        if caller is None:
            raise HTTPException(401, "no such token", {"WWW-Authenticate": "Bearer"})
        return caller

    def by_token(self, request: Request, token: str) -> Caller | None:
        """Whose token it is; None for nobody's, which is counted.

        Raises:
            HTTPException: 429, too many wrong ones from this address; 503, nobody can be let in.
        """
        address = address_of(request)
        with self._lock:
            is_allowed = self._failures.allows(address)
            wait_s = self._failures.wait_s(address)
        if not is_allowed:
            raise HTTPException(429, "too many wrong tokens", {"Retry-After": str(wait_s)})
        try:
            caller = self._tokens.caller_of(token)
        except ConfigError as error:
            self.audit("tokens_unreadable", text=str(error))
            raise HTTPException(503, "the tokens cannot be read") from error
        if caller is None:
            with self._lock:
                self._failures.count(address)
            self.audit("refused", address=address, path=request.url.path, why="wrong token")
        return caller

    def sign_in(self, caller: Caller) -> str:
        """Begin a session; returns its secret name."""
        name = secrets.token_urlsafe(32)
        until_s = self.clock.monotonic_s() + SESSION_S
        with self._lock:
            self._sessions[name] = Session(caller, secrets.token_urlsafe(32), until_s)
            while len(self._sessions) > MAX_SESSIONS:
                self._sessions.popitem(last=False)
        return name

    def sign_out(self, request: Request) -> None:
        """End the session of a request, if it has one."""
        with self._lock:
            self._sessions.pop(request.cookies.get(COOKIE, ""), None)

    def session_of(self, request: Request) -> Session | None:
        """The session of a request; for orders, only if it repeats what the page was given."""
        with self._lock:
            session = self._sessions.get(request.cookies.get(COOKIE, ""))
        if session is None or self.clock.monotonic_s() >= session.until_s:
            return None
        if request.method in UNSAFE:
            given = request.headers.get("x-csrf-token", "")
            if not hmac.compare_digest(given.encode(), session.csrf.encode()):
                return None
        return session

    def guard(self, app: FastAPI) -> None:
        """Put the bounds in front of an application, and headers behind it."""
        app.add_middleware(_Guard, gate=self)

    def admits(self, address: str) -> tuple[bool, int]:
        """Whether an address may ask once more, and else the seconds until it may."""
        with self._lock:
            return self._requests.count(address), self._requests.wait_s(address)


def needs(gate: Gate, role: Role) -> Callable[[Request], Caller]:
    """A dependency: the caller, if they may do what needs this role.

    Raises:
        HTTPException: 401, 403 or 429.
    """

    def check(request: Request) -> Caller:
        caller = gate.caller_of(request)
        is_order = request.method in UNSAFE
        is_allowed = caller.role.covers(role)
        if is_order or not is_allowed:
            gate.audit(
                "order" if is_allowed else "refused",
                who=caller.name,
                role=str(caller.role),
                address=address_of(request),
                method=request.method,
                path=request.url.path,
            )
        if not is_allowed:
            raise HTTPException(403, f"{caller.name} may {caller.role}; this needs {role}")
        return caller

    return check


def address_of(request: Request) -> str:
    """Where a request comes from. No header is believed."""
    return request.client.host if request.client else ""


_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src"
    " 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", _POLICY.encode()),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)


class _Guard:
    """ASGI middleware: bounds before, headers behind."""

    def __init__(self, app: Any, gate: Gate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        address = scope["client"][0] if scope.get("client") else ""
        is_admitted, wait_s = self._gate.admits(address)
        if not is_admitted:
            await _answer(send, 429, "too many requests", (b"retry-after", str(wait_s).encode()))
            return
        if not _has_small_body(scope):
            await _answer(send, 413, f"a body of at most {MAX_BODY_BYTES} bytes is expected")
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        await self._app(scope, receive, send_with_headers)


def _has_small_body(scope: Message) -> bool:
    headers = Headers(scope=scope)
    if "transfer-encoding" in headers:
        return False
    length = headers.get("content-length", "0")
    return length.isdigit() and int(length) <= MAX_BODY_BYTES


async def _answer(send: Send, status: int, detail: str, *headers: tuple[bytes, bytes]) -> None:
    body = json.dumps({"detail": detail}).encode()
    kind = (b"content-type", b"application/json")
    length = (b"content-length", str(len(body)).encode())
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [kind, length, *_HEADERS, *headers],
        }
    )
    await send({"type": "http.response.body", "body": body})
