"""Where and how requests go: what all blocks share that reach a server by HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from onceflow.contracts.block import Block, Combination
from onceflow.contracts.values import DurationMs, duration_text, fault, without_default
from onceflow_connectors.http.names import (
    checked_header_name,
    checked_plain_header,
    checked_url,
    is_loopback,
)
from onceflow_connectors.http.statuses import allowed_reject, parse_statuses

DEFAULT_TIMEOUT_MS = 30_000
MAX_TIMEOUT_MS = 10 * 60_000


def _checked_headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        checked_plain_header(name, value)
    if len({name.lower() for name in headers}) < len(headers):
        raise fault("a header is named twice", expected="each name once, in upper or lower case")
    return headers


def _checked_timeout(duration_ms: int) -> int:
    if not 1 <= duration_ms <= MAX_TIMEOUT_MS:
        raise fault("not possible", expected=f"1 ms to {duration_text(MAX_TIMEOUT_MS)}")
    return duration_ms


STATUSES_SCHEMA = WithJsonSchema(
    {"type": "array", "items": {"type": ["integer", "string"]}, "minItems": 1}
)
FinalStatuses: TypeAlias = Annotated[
    frozenset[int],
    AfterValidator(allowed_reject),
    BeforeValidator(parse_statuses),
    STATUSES_SCHEMA,
]
"""Statuses after which the same request is of no use."""
Url: TypeAlias = Annotated[str, AfterValidator(checked_url)]
HeaderName: TypeAlias = Annotated[str, AfterValidator(checked_header_name)]


class Endpoint(Block):
    """A server that is reached by HTTP, and how we prove who we are.

    A block that derives from it describes `url` and `method`.
    """

    url: str
    method: str
    insecure: bool = Field(
        default=False,
        description="Whether records and credentials may pass a network unencrypted.",
    )
    headers: Annotated[dict[str, str], AfterValidator(_checked_headers)] = Field(
        default={}, description="Headers of every request. No secrets."
    )
    headers_file: str | None = Field(
        default=None,
        min_length=1,
        description="File with secret headers, one a line, such as `Authorization: Bearer ...`."
        " Relative to this file. Read again for every batch.",
    )
    ca_file: str | None = Field(
        default=None,
        min_length=1,
        description="PEM file with the authorities that may have signed the receiver's"
        " certificate. Left out: those of this machine.",
    )
    certificate_file: str | None = Field(
        default=None, min_length=1, description="PEM file with our own certificate and its chain."
    )
    key_file: str | None = Field(
        default=None,
        min_length=1,
        description="PEM file with the key of that certificate, without a password.",
    )
    timeout_ms: Annotated[DurationMs, AfterValidator(_checked_timeout)] = Field(
        default=DEFAULT_TIMEOUT_MS,
        alias="timeout",
        json_schema_extra=without_default,
        description="For one request, with its answer. Left out: 30 seconds. At most 10 minutes.",
    )

    @property
    def own_headers(self) -> frozenset[str]:
        """Names of the headers that the file fills, in lower case."""
        return frozenset(name.lower() for name in self.headers)


def unreachable(given: Mapping[str, Any]) -> Iterator[Combination]:
    """Find keys that would send secrets in clear text, or have no effect."""
    yield from _unencrypted(given)
    yield from _half_a_key_pair(given)


def _unencrypted(given: Mapping[str, Any]) -> Iterator[Combination]:
    for name in ("url", "health_url"):
        url = given.get(name)
        if not isinstance(url, str) or not url.startswith("http:"):
            continue
        # What is not a URL is refused as such.
        if (
            is_parsed(checked_url, url)
            and not is_loopback(url)
            and given.get("insecure") is not True
        ):
            yield (
                (name,),
                fault(
                    "records and credentials would pass a network unencrypted",
                    expected="`https://`, or an address of this machine",
                    suggestion="If that network is yours alone, set `insecure: true`.",
                ),
            )
    url = given.get("url")
    if isinstance(url, str) and url.startswith("http:"):
        for name in ("ca_file", "certificate_file", "key_file"):
            if given.get(name) is not None:
                yield (name,), fault(f"`{name}` means nothing to a `url` without TLS")


def _half_a_key_pair(given: Mapping[str, Any]) -> Iterator[Combination]:
    names = ("certificate_file", "key_file")
    missing = [name for name in names if given.get(name) is None]
    if len(missing) == 1:
        [there] = {*names} - {*missing}
        yield (there,), fault(f"`{there}` without `{missing[0]}`", suggestion="Name both files.")


def is_parsed(parse: Callable[[Any], object], value: object) -> bool:
    """Whether a value is what `parse` takes."""
    try:
        parse(value)
    except ValueError:
        return False
    return True
