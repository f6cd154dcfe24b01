"""Access control: tokens, sessions of the page, limits, the audit log."""

from __future__ import annotations

import hmac
import json
import secrets
import threading
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fastapi import HTTPException, Request
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect

from onceflow.clock import Clock
from onceflow.control.limits import RateLimit
from onceflow.control.tokens import Caller, Role, Tokens, digest_of
from onceflow.errors import ConfigError
from onceflow.serve.http_server import network_of

MAX_BODY_BYTES = 4_096
"""Only signing in has a body."""
BURST, PER_S = 60, 20
"""Requests from one address."""
FAILURES, FAILURES_PER_S = 5, 0.1
"""Failures to sign in from one address: five at once, then six a minute."""
MAX_CALLS = 8
"""At once of one name: some wait for brokers, each in a thread."""
MAX_CALLS_OF_ALL = 32
"""Calls at once, so that threads are left (of 40) to sign in and to refuse."""
RETRY_S = 2
COOKIE = "onceflow-session"
SECURE_COOKIE = f"__Host-{COOKIE}"
"""The same over TLS: under this name, no other site of the domain can set it."""
SESSION_S = 8 * 3600.0
MAX_SESSIONS = 100
MAX_SESSIONS_OF_ONE = 10
"""Of one token, so that signing in does not end the sessions of all others."""
UNSAFE = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_OWN_SITE = frozenset({"same-origin", "none"})
"""`Sec-Fetch-Site` of requests from the page itself, and of addresses that the user typed."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Audit = Callable[..., None]


@dataclass(frozen=True)
class Session:
    """A user who signed in at the page."""

    caller: Caller
    """With the role that the tokens give now."""
    csrf: str
    """A token that orders of this session must repeat."""


class _Kept(NamedTuple):
    """A session as it is kept; its caller is looked up at each request."""

    digest: str
    csrf: str
    until_s: float


@dataclass
class Gate:
    """Lets callers in. `audit` is called for every order and every refusal."""

    tokens: Tokens
    clock: Clock
    audit: Audit
    _sessions: OrderedDict[str, _Kept] = field(default_factory=OrderedDict)
    _calls: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._requests = RateLimit(BURST, PER_S, self.clock)
        self._failures = RateLimit(FAILURES, FAILURES_PER_S, self.clock)

    def caller_of(self, request: Request) -> Caller:
        """The caller of a request.

        Raises:
            HTTPException: 401, unknown; 429, too many wrong tokens from this address; 503,
                the tokens cannot be read.
        """
        session = self.session_of(request)
        if session is not None:
            return session.caller
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        wanted = {"WWW-Authenticate": "Bearer"}
        if scheme.lower() != "bearer":
            raise HTTPException(401, "a bearer token is needed", wanted)
        if (caller := self.by_token(request, token.strip())) is None:
            raise HTTPException(401, "no such token", wanted)
        return caller

    def by_token(self, request: Request, token: str) -> Caller | None:
        """Whose token it is; None for a wrong one, which is counted.

        Raises:
            HTTPException: 429, too many wrong ones from this address; 503, as `caller_of`.
        """
        address = address_of(request)
        source = network_of(address)
        with self._lock:
            wait_s = self._failures.wait_s(source)
        if wait_s:
            raise HTTPException(429, "too many wrong tokens", {"Retry-After": str(wait_s)})
        caller = self._known(digest_of(token))
        if caller is None:
            with self._lock:
                self._failures.count(source)
            self.audit("refused", address=address, path=request.url.path, why="wrong token")
        return caller

    def sign_in(self, token: str) -> str:
        """Begin a session for a known token; return its secret name."""
        name, digest = secrets.token_urlsafe(32), digest_of(token)
        until_s = self.clock.monotonic_s() + SESSION_S
        with self._lock:
            mine = [name for name, kept in self._sessions.items() if kept.digest == digest]
            for oldest in mine[: len(mine) + 1 - MAX_SESSIONS_OF_ONE]:
                del self._sessions[oldest]
            self._sessions[name] = _Kept(digest, secrets.token_urlsafe(32), until_s)
            while len(self._sessions) > MAX_SESSIONS:
                self._sessions.popitem(last=False)
        return name

    def sign_out(self, request: Request) -> None:
        """End the session of a request, if it has one."""
        with self._lock:
            self._sessions.pop(request.cookies.get(cookie_of(request), ""), None)

    def session_of(self, request: Request) -> Session | None:
        """The session of a request; for orders, only if the CSRF token is right.

        A session ends with its token, which is looked up each time.

        Raises:
            HTTPException: 503, as `caller_of`.
        """
        with self._lock:
            kept = self._sessions.get(request.cookies.get(cookie_of(request), ""))
        if kept is None or self.clock.monotonic_s() >= kept.until_s:
            return None
        if request.method in UNSAFE:
            given = request.headers.get("x-csrf-token", "")
            if not hmac.compare_digest(given.encode(), kept.csrf.encode()):
                return None
        caller = self._known(kept.digest)
        return None if caller is None else Session(caller, kept.csrf)

    @contextmanager
    def working(self, caller: Caller) -> Iterator[None]:
        """Answer a call inside the block.

        Raises:
            HTTPException: 429, too many calls are being answered.
        """
        with self._lock:
            is_crowded = self._calls.total() >= MAX_CALLS_OF_ALL
            if is_crowded or self._calls[caller.name] >= MAX_CALLS:
                whose = "all" if is_crowded else caller.name
                detail = f"too many calls of {whose} at once"
                raise HTTPException(429, detail, {"Retry-After": str(RETRY_S)})
            self._calls[caller.name] += 1
        try:
            yield
        finally:
            with self._lock:
                self._calls[caller.name] -= 1
                self._calls += Counter()  # forgets names without calls

    def wait_s(self, address: str) -> int:
        """Count a request of an address; returns the seconds until it may make one, 0: now."""
        with self._lock:
            return self._requests.count(network_of(address))

    def _known(self, digest: str) -> Caller | None:
        try:
            return self.tokens.caller_with(digest)
        except ConfigError as error:
            self.audit("tokens_unreadable", text=str(error))
            raise HTTPException(503, "the tokens cannot be read") from error


def needs(gate: Gate, role: Role) -> Callable[[Request], AsyncIterator[None]]:
    """A dependency: the caller must have this role. Takes no thread before that is known.

    Raises:
        HTTPException: 401, 403, 429 or 503.
    """

    async def check(request: Request) -> AsyncIterator[None]:
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
        with gate.working(caller):
            yield

    return check


def address_of(request: Request) -> str:
    """Address of the client. Only headers of proxies that the settings name are trusted."""
    return request.client.host if request.client else ""


def cookie_of(request: Request) -> str:
    """The name of the session's cookie."""
    return SECURE_COOKIE if request.url.scheme == "https" else COOKIE


_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src"
    " 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", _POLICY.encode()),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    # Under no-referrer, a browser sends `Origin: null` from our own forms, which is refused.
    (b"referrer-policy", b"same-origin"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)


class Guard:
    """Keeps bounds before an ASGI application; every answer has headers for browsers."""

    def __init__(self, app: Any, gate: Gate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        address = scope["client"][0] if scope.get("client") else ""
        wait_s = self._gate.wait_s(address)
        headers = Headers(scope=scope)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        if wait_s:
            await _answer(send, 429, "too many requests", (b"retry-after", str(wait_s).encode()))
        elif scope["method"] in UNSAFE and _is_foreign(headers):
            self._gate.audit("refused", address=address, path=scope["path"], why="foreign site")
            await _answer(send, 403, "orders from pages of other sites are refused")
        elif "transfer-encoding" in headers and "content-length" in headers:
            # A proxy in front of us may see the end of the request elsewhere.
            await _answer(send, 400, "a body has one length", (b"connection", b"close"))
        elif not _has_small_body(headers):
            await _answer(send, 413, f"a body of at most {MAX_BODY_BYTES} bytes is expected")
        else:
            with suppress(ClientDisconnect):  # in the middle of a body
                await self._app(scope, receive, send_with_headers)


def _is_foreign(headers: Headers) -> bool:
    """Whether a browser reports that a page of another site asks. Other clients report nothing."""
    site = headers.get("sec-fetch-site")
    if site is not None and site not in _OWN_SITE:
        return True
    origin = headers.get("origin")
    if origin is None:
        return False
    # The host only: behind a proxy with TLS we do not know the scheme that the browser used.
    host = origin.partition("://")[2].lower()
    return not host or host != headers.get("host", "").lower()


def _has_small_body(headers: Headers) -> bool:
    length = headers.get("content-length", "0")
    is_small = length.isdigit() and int(length) <= MAX_BODY_BYTES
    return is_small and "transfer-encoding" not in headers


async def _answer(send: Send, status: int, detail: str, *headers: tuple[bytes, bytes]) -> None:
    body = json.dumps({"detail": detail}).encode()
    kind = (b"content-type", b"application/json")
    length = (b"content-length", str(len(body)).encode())
    named = [kind, length, *_HEADERS, *headers]
    await send({"type": "http.response.start", "status": status, "headers": named})
    await send({"type": "http.response.body", "body": body})
