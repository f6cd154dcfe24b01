"""The block `http` of an enrichment file. Imports no client: a file is checked without one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from onceflow.clock import Clock
from onceflow.columns import Columns, Scalar
from onceflow.contracts.block import Combination
from onceflow.contracts.service import Service
from onceflow.contracts.values import SizeBytes, fault, without_default
from onceflow.errors import ConfigError, Fault, unknown_name
from onceflow_connectors.http.endpoint import (
    Endpoint,
    FinalStatuses,
    Url,
    unreachable,
)
from onceflow_connectors.http.names import shown_url
from onceflow_connectors.http.statuses import REJECT
from onceflow_connectors.http.template import checked_template, columns_in

MAX_ANSWER_BYTES = 1024 * 1024


def _checked_size(size_bytes: int) -> int:
    if size_bytes > MAX_ANSWER_BYTES:
        raise fault("too large", expected="at most 1 MiB")
    return size_bytes


AnswerBytes = Annotated[SizeBytes, AfterValidator(_checked_size)]


class AskBlock(Endpoint):
    """A service that is asked by HTTP and answers with a JSON object."""

    url: Annotated[str, AfterValidator(checked_template)] = Field(
        description="Where questions go: `https://...`, with columns in braces in its path and its"
        " query, such as `https://rates.example/v1/{currency}?day={day}`; values are"
        " percent-encoded. `http://...` only on this machine, or with `insecure: true`. Redirects"
        " are not followed."
    )
    method: Literal["GET", "POST"] = Field(
        default="GET", description="`POST` sends the record's value as the body, as it came."
    )
    max_answer_bytes: AnswerBytes = Field(
        default=64 * 1024,
        alias="max_answer",
        json_schema_extra=without_default,
        description="Longer answers are of no use. Left out: 64 KiB. At most 1 MiB.",
    )
    final: FinalStatuses = Field(
        default=REJECT,
        json_schema_extra=without_default,
        description="Statuses by which there will never be an answer to a question. Left out:"
        " `[400, 413, 422]`. Add 404 if it says that the service does not know a thing; else it"
        " means that `url` is wrong, and ends the enrichment.",
    )
    health_url: Url | None = Field(
        default=None,
        description="Asked by GET whether the service is well, without the headers of"
        " `headers_file`. Left out: the part of `url` before its first column is asked by OPTIONS.",
    )

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """Keys that would send secrets in clear text, or have no effect."""
        yield from unreachable(given)

    def service(
        self, columns: Columns, folder: Path, concurrency: int, clock: Clock
    ) -> Service[Any]:
        """Make the service. Connects to nothing before the first question."""
        try:
            from onceflow_connectors.http.service import HttpService  # noqa: PLC0415
        except ImportError as error:
            raise ConfigError(
                "the client of HTTP is missing",
                found=f"{type(error).__name__}: {error}",
                then="run `pip install 'onceflow[http]'`",
            ) from error
        return HttpService(self, columns, folder, concurrency, clock)

    def faults(self, columns: Columns) -> Iterator[Fault]:
        """Find columns in `url` that the records do not have, or that have no text."""
        for name in columns_in(self.url):
            kind = columns.by_name.get(name)
            if kind is None:
                yield unknown_name("no column", name, columns.names)
            elif not isinstance(kind, Scalar) or kind.name == "binary":
                what = f"`{name}` is of type {kind.ddl}, which has no text in a URL"
                yield Fault(what, expected="a column without parts, and not BINARY")

    def describe(self) -> str:
        """Say in a few words who is asked."""
        return f"HTTP, {self.method} {shown_url(self.url)}"
