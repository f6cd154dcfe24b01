"""The block `http` of a delivery file. Imports no client: a file is checked without one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from onceflow.clock import SystemClock
from onceflow.contracts.block import Block, Combination
from onceflow.contracts.target import Sender
from onceflow.contracts.target_block import SenderBlock, TargetSpec
from onceflow.contracts.values import DurationMs, fault, parse_duration_ms, without_default
from onceflow.errors import ConfigError
from onceflow.protocol.guarantee import Guarantee, Level, Weakness
from onceflow_connectors.http.endpoint import (
    STATUSES_SCHEMA,
    Endpoint,
    FinalStatuses,
    HeaderName,
    Url,
    is_parsed,
    unreachable,
)
from onceflow_connectors.http.names import is_header_value, shown_url
from onceflow_connectors.http.statuses import (
    REJECT,
    SUCCESS,
    allowed_success,
    parse_statuses,
)

NO_KEY = Weakness(
    "a request whose answer was lost is sent again, and nothing says that the receiver discards"
    " repeats",
    "If it discards repeats by a key, say so by `idempotency: {lifetime: ...}`.",
)
UNSEEN = Weakness(
    "two things cannot be seen from here: that the receiver keeps what it has acknowledged, and"
    " that it discards repeats of a key for as long as `lifetime` says",
    "Ask its operator for both.",
)
SAME_RECORDS = Weakness(
    "a request of several records is recognised only if it is made again with the same records, and"
    " a receiver that rejects it may not keep a part of it",
    "Let the delivery drain before you change `records_per_request`, `body` or `schema`.",
)


def _checked_content_type(text: str) -> str:
    if not text or not is_header_value(text) or not text.isascii():
        raise fault("not a type of content", expected="such as `application/json`")
    return text


class IdempotencyBlock(Block):
    """How the receiver recognises a request that it has had before."""

    lifetime_ms: DurationMs = Field(
        alias="lifetime",
        description="How long the receiver remembers a key, such as `24 hours`. Its documentation"
        " says so.",
    )
    header: HeaderName = Field(
        default="Idempotency-Key", description="Name of the header that holds the key."
    )
    quoted: bool = Field(
        default=True,
        description="Whether the key is in double quotes, as the draft of the IETF asks for. Many"
        " receivers do not expect them.",
    )


class HttpBlock(SenderBlock, Endpoint):
    """A receiver that is reached by HTTP. Values of records are the bodies of requests."""

    url: Url = Field(
        description="Where requests go: `https://...`; `http://...` only on this machine, or with"
        " `insecure: true`. Messages show it without its query. Redirects are not followed."
    )
    method: Literal["POST", "PUT"] = Field(default="POST", description="Method of the requests.")
    in_flight: int = Field(
        default=8, ge=1, le=1_000, description="Requests that wait for an answer at the same time."
    )
    order: Literal["key", "partition", "none"] = Field(
        default="key",
        description="Which records wait for the answer to the one before: those of one key of a"
        " partition (records without a key count as one key), those of one partition, or none.",
    )
    records_per_request: int = Field(
        default=1,
        ge=1,
        le=10_000,
        description="Most records of one request. With more than one, `body` says how they are"
        " joined.",
    )
    body: Literal["ndjson", "json_array"] | None = Field(
        default=None,
        description="With several records per request: one value a line, or one JSON array.",
    )
    content_type: Annotated[str, AfterValidator(_checked_content_type)] | None = Field(
        default=None,
        description="Left out: `application/json`, or `application/x-ndjson` for `body: ndjson`.",
    )
    idempotency: IdempotencyBlock | None = Field(
        default=None,
        description="Only for a receiver that discards repeats by a key. Left out: no key is sent,"
        " and a record may have its effect more than once.",
    )
    key_header: HeaderName | None = Field(
        default=None,
        description="Header that gets the record's key, percent-encoded. Left out: the key is not"
        " sent.",
    )
    attempt_header: HeaderName = Field(
        default="Onceflow-Attempt",
        description="Header that gets the number of the try: 1, and one more each time that the"
        " batch is tried again.",
    )
    tombstones: Literal["reject", "send"] = Field(
        default="reject",
        description="What becomes of a record without a value: rejected, or sent with an empty body"
        " and the header `Onceflow-Tombstone: true`.",
    )
    success: Annotated[
        frozenset[int],
        AfterValidator(allowed_success),
        BeforeValidator(parse_statuses),
        STATUSES_SCHEMA,
    ] = Field(
        default=SUCCESS,
        json_schema_extra=without_default,
        description="Statuses by which the receiver has the record. Left out: `[200-299]`.",
    )
    reject: FinalStatuses = Field(
        default=REJECT,
        json_schema_extra=without_default,
        description="Statuses by which it will never take the record. Left out: `[400, 413, 422]`.",
    )
    health_url: Url | None = Field(
        default=None,
        description="Asked by GET whether the receiver is well, without the headers of"
        " `headers_file`. Left out: `url` is asked by OPTIONS.",
    )

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """Keys that would have no effect, or a wrong one."""
        yield from unreachable(given)
        yield from _wrong_bodies(given)
        yield from _wrong_lifetime(given)
        yield from _repeated_headers(given)
        if both := sorted(_statuses(given, "success") & _statuses(given, "reject")):
            what = f"{', '.join(map(str, both[:5]))} is in `success` and in `reject`"
            yield ("reject",), fault(what, suggestion="Remove it from one of them.")

    def sender(self, spec: TargetSpec) -> Sender:
        try:
            from onceflow_connectors.http.sender import HttpSender  # noqa: PLC0415
        except ImportError as error:
            raise ConfigError(
                "the client of HTTP is missing",
                found=f"{type(error).__name__}: {error}",
                then="run `pip install 'onceflow[http]'`",
            ) from error
        return HttpSender(self, spec, SystemClock())

    def guarantee(self) -> Guarantee:
        scope = f"from the topic to {shown_url(self.url)}"
        if self.idempotency is None:
            return Guarantee(Level.AT_LEAST_ONCE, scope, (NO_KEY,))
        several = (SAME_RECORDS,) * (self.records_per_request > 1)
        return Guarantee(Level.EXACTLY_ONCE, scope, (UNSEEN, *several))

    def describe(self) -> str:
        return f"HTTP, {self.method} {shown_url(self.url)}"

    @property
    def own_headers(self) -> frozenset[str]:
        names = (
            self.key_header,
            self.attempt_header,
            self.idempotency and self.idempotency.header,
        )
        return super().own_headers | {name.lower() for name in names if name}

    @property
    def type_of_content(self) -> str:
        """The type of every body, as its header says it."""
        default = "application/x-ndjson" if self.body == "ndjson" else "application/json"
        return self.content_type or default

    @property
    def key_lifetime_ms(self) -> int | None:
        return None if self.idempotency is None else self.idempotency.lifetime_ms


def _wrong_bodies(given: Mapping[str, Any]) -> Iterator[Combination]:
    count = given.get("records_per_request", 1)
    is_several = isinstance(count, int) and count > 1
    if is_several and given.get("body") is None:
        expected = "`body: ndjson` or `body: json_array`"
        yield ("records_per_request",), fault("several records without `body`", expected=expected)
    if not is_several and given.get("body") is not None:
        what = "`body` means nothing to requests of one record"
        yield ("body",), fault(what, suggestion="Remove it, or set `records_per_request`.")
    if is_several:
        for name in ("key_header", "tombstones"):
            if given.get(name) not in (None, "reject"):
                what = f"`{name}` means nothing to requests of several records"
                yield (name,), fault(what, suggestion="Remove it, or `records_per_request`.")
    elif given.get("tombstones") == "send" and given.get("key_header") is None:
        yield (
            ("tombstones",),
            fault(
                "a record without a value says something only about its key",
                suggestion="Set `key_header`, too.",
            ),
        )


def _wrong_lifetime(given: Mapping[str, Any]) -> Iterator[Combination]:
    idempotency = given.get("idempotency")
    if not isinstance(idempotency, Mapping):
        return
    lifetime, timeout = idempotency.get("lifetime"), given.get("timeout", "30 s")
    if not is_parsed(parse_duration_ms, lifetime) or not is_parsed(parse_duration_ms, timeout):
        return
    if parse_duration_ms(lifetime) <= parse_duration_ms(timeout):
        expected = "a `lifetime` that is longer than the `timeout` of a request"
        what = "a key would be forgotten before its request is given up"
        yield ("idempotency", "lifetime"), fault(what, expected=expected)


def _repeated_headers(given: Mapping[str, Any]) -> Iterator[Combination]:
    headers, idempotency = given.get("headers"), given.get("idempotency")
    taken = [str(name).lower() for name in headers] if isinstance(headers, Mapping) else []
    named: list[tuple[tuple[str, ...], Any]] = [
        ((name,), given.get(name)) for name in ("key_header", "attempt_header")
    ]
    if isinstance(idempotency, Mapping):
        default = IdempotencyBlock.model_fields["header"].default
        named.append((("idempotency", "header"), idempotency.get("header", default)))
    for path, name in named:
        if not isinstance(name, str):
            continue
        if name.lower() in taken:
            yield path, fault("a header is named twice", suggestion="Name another one.")
        taken.append(name.lower())


def _statuses(given: Mapping[str, Any], name: str) -> frozenset[int]:
    """Those that the file names; none if they are refused anyway."""
    named = given.get(name)
    return parse_statuses(named) if is_parsed(parse_statuses, named) else frozenset()
