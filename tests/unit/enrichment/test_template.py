"""URLs of questions: values of records change nothing but what their column stands for."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from onceflow_connectors.http.template import checked_template, columns_in, filled, fixed_part

URL = "https://rates.example:8443/v1/{currency}/of-{day}?q={text}&fixed=1"


@given(st.text(min_size=1), st.text())
def test_values_stay_where_they_are_put(currency: str, text: str) -> None:
    try:
        (currency + text).encode()
    except UnicodeEncodeError:
        return
    values = {"currency": currency, "day": date(2026, 11, 27), "text": text}
    if currency in {".", ".."}:
        with pytest.raises(ValueError, match="another path"):
            filled(URL, values)
        return
    parts = urlsplit(filled(URL, values))
    assert (parts.scheme, parts.netloc) == ("https", "rates.example:8443")
    assert [unquote(each) for each in parts.path.split("/")] == [
        "",
        "v1",
        currency,
        "of-2026-11-27",
    ]
    assert parse_qsl(parts.query, keep_blank_values=True) == [("q", text), ("fixed", "1")]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a/b?c#d&e=%2e é", "a%2Fb%3Fc%23d%26e%3D%252e%20%C3%A9"),
        (True, "true"),
        (7, "7"),
        (0.5, "0.5"),
        (Decimal("1E+3"), "1000"),
        (date(2026, 1, 2), "2026-01-02"),
        (datetime(2026, 1, 2, 3, tzinfo=UTC), "2026-01-02T03%3A00%3A00Z"),
        (datetime(2026, 1, 2, 3), "2026-01-02T03%3A00%3A00"),  # noqa: DTZ001  of TIMESTAMP_NTZ
    ],
)
def test_each_type_has_its_text(value: Any, text: str) -> None:
    assert filled("https://a.example/{x}", {"x": value}) == f"https://a.example/{text}"


@pytest.mark.parametrize(
    ("url", "value"),
    [
        ("https://a.example/{x}", None),
        ("https://a.example/{x}", ""),
        ("https://a.example/{x}{x}", "."),
        ("https://a.example/.{x}/b", "."),
        ("https://a.example/?q={x}", float("nan")),
        ("https://a.example/?q={x}", "x" * 8000),
        ("https://a.example/?q={x}", "\ud800"),
    ],
)
def test_a_value_that_cannot_be_asked_about_is_refused(url: str, value: Any) -> None:
    with pytest.raises(ValueError, match=r"x: |: .*another path|characters|surrogates"):
        filled(url, {"x": value})


@pytest.mark.parametrize(
    "url",
    [
        "https://{host}/a",
        "https://a.example:{port}/",
        "https://a{x}.example/",
        "https://a.example/{",
        "https://a.example/}x{",
        "https://a.example/{}",
        "https://a.example/{{x}}",
        "{url}",
        "ftp://a.example/{x}",
        "https://me:secret@a.example/{x}",
        "https://a.example/{x}#y",
    ],
)
def test_a_template_that_could_lead_elsewhere_is_refused(url: str) -> None:
    with pytest.raises(PydanticCustomError):
        checked_template(url)


def test_what_is_known_of_a_template() -> None:
    assert columns_in(checked_template(URL)) == ["currency", "day", "text"]
    assert fixed_part(URL) == "https://rates.example:8443/v1/"
    assert fixed_part("https://a.example/x?q={y}") == "https://a.example/x"
    assert fixed_part("https://a.example/{x}") == "https://a.example/"
    assert fixed_part("https://a.example/v-{x}/y") == "https://a.example/"
