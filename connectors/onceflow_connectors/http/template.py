"""URLs with columns in braces, which a record's values are put into. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import quote, urlsplit

from onceflow.contracts.values import fault
from onceflow_connectors.http.names import checked_url

MAX_URL_CHARACTERS = 8000
"""What servers commonly take."""
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_NO_NAMES = frozenset({"", ".", ".."})
"""Of a part of a path: these lead to another place."""


def checked_template(url: str) -> str:
    """Return a URL with columns in braces, in its path and its query only.

    Raises:
        PydanticCustomError: it is not a URL, or has braces elsewhere.
    """
    checked_url(url)
    parts = urlsplit(url)
    if "{" in parts.netloc or "}" in parts.netloc:
        what = "a column in the address of the host"
        raise fault(what, expected="columns in the path and the query only")
    if re.search(r"[{}]", _PLACEHOLDER.sub("", url)) or "" in _PLACEHOLDER.findall(url):
        raise fault("braces that do not hold a column", expected="such as `{page}`")
    return url


def columns_in(url: str) -> Sequence[str]:
    """Names of the columns in a template, each once."""
    return [*dict.fromkeys(_PLACEHOLDER.findall(url))]


def fixed_part(url: str) -> str:
    """The folder before the first column, without a query: the same for every record."""
    parts = urlsplit(url)
    path, brace, _ = parts.path.partition("{")
    if brace:
        path = path[: path.rfind("/") + 1]
    return parts._replace(path=path, query="").geturl()


def filled(url: str, values: Mapping[str, Any]) -> str:
    """Put values into a template, percent-encoded.

    Raises:
        ValueError: a value is null, or cannot be put there; says which column.
    """

    def text(found: re.Match[str]) -> str:
        return quote(_text(found[1], values[found[1]]), safe="")

    path, mark, query = url.partition("?")
    segments = path.split("/")
    made = [_PLACEHOLDER.sub(text, segment) for segment in segments]
    for segment, before in zip(made, segments, strict=True):
        if segment != before and segment in _NO_NAMES:
            column = _PLACEHOLDER.findall(before)[0]
            raise ValueError(f"{column}: {segment!r} would lead to another path")
    whole = "/".join(made) + mark + _PLACEHOLDER.sub(text, query)
    if len(whole) > MAX_URL_CHARACTERS:
        raise ValueError(f"the URL of the question has more than {MAX_URL_CHARACTERS} characters")
    return whole


def _text(column: str, value: Any) -> str:
    match value:
        case None:
            raise ValueError(f"{column}: expected a value, which the question needs; found null")
        case bool():
            return str(value).lower()
        case float() if not math.isfinite(value):
            raise ValueError(f"{column}: expected a finite number, found {value}")
        case Decimal():
            return format(value, "f")
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
    return str(value)
