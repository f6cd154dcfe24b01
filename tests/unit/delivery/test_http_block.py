"""The block `http` of a delivery file: what it means, what is promised, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onceflow.delivery.loader import load_delivery
from onceflow.errors import ConfigError
from onceflow_connectors.http.block import HttpBlock

GOOD = """\
apiVersion: onceflow/v1
kind: delivery
name: views-to-shop
from: {topics: [page-views]}
to:
  http: {url: "https://shop.example/views?tenant=7"}
"""
URL = '{url: "https://shop.example/views?tenant=7"'


def written(folder: Path, more: str, url: str = URL) -> Path:
    file = folder / "delivery.yaml"
    file.write_text(GOOD.replace(URL, f"{url}, {more}" if more else url))
    return file


def faults_of(folder: Path, more: str, url: str = URL) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        load_delivery(written(folder, more, url))
    return [str(fault) for fault in refused.value.faults]


def test_a_file_with_nothing_but_a_url(tmp_path: Path) -> None:
    delivery = load_delivery(written(tmp_path, "")).delivery
    block = delivery.to.block
    assert isinstance(block, HttpBlock)
    assert block.takes == "records"
    assert (block.method, block.order, block.in_flight, block.timeout_ms) == (
        "POST",
        "key",
        8,
        30000,
    )
    assert block.type_of_content == "application/json"
    assert block.success == {*range(200, 300)}
    assert block.reject == {400, 413, 422}
    assert block.key_lifetime_ms is None
    assert block.describe() == "HTTP, POST https://shop.example/views"
    assert str(delivery.guarantee()) == "at least once from the topic to https://shop.example/views"
    [reason] = delivery.guarantee().reasons
    assert "sent again" in str(reason)


def test_what_is_promised_depends_on_the_receivers_memory(tmp_path: Path) -> None:
    keys = 'idempotency: {lifetime: "24 hours"}'
    delivery = load_delivery(written(tmp_path, keys)).delivery
    assert str(delivery.guarantee()).startswith("exactly once from the topic to https://")
    assert "cannot be seen from here" in str(delivery.guarantee().reasons[0])
    block = delivery.to.block
    assert isinstance(block, HttpBlock)
    assert block.key_lifetime_ms == 24 * 3_600_000
    several = f"{keys}, records_per_request: 10, body: ndjson"
    delivery = load_delivery(written(tmp_path, several)).delivery
    assert str(delivery.guarantee()).startswith("exactly once")
    assert "made again with the same records" in str(delivery.guarantee().reasons[1])


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ("metod: PUT", "to.http.metod: unknown key `metod`. Did you mean `method`?"),
        ("timeout: 11 min", "to.http.timeout: not possible; expected 1 ms to 10 min"),
        ("timeout: 0 s", "to.http.timeout: not possible; expected 1 ms to 10 min"),
        ("success: [199]", "to.http.success: not a status"),
        ("success: [301]", "to.http.success: not possible here: 301; expected 200 to 299, or"),
        ("success: [429]", "to.http.success: not possible here: 429"),
        ("success: []", "to.http.success: not possible here: no status at all"),
        ("success: [true]", "to.http.success: not a status"),
        ("success: 200", "to.http.success: not a list; expected such as `[200-299]`"),
        ("reject: [200]", "to.http.reject: not possible here: 200; expected 400 to 599, but not"),
        ("reject: [400-499]", "to.http.reject: not possible here: 401, 407, 408, 425, 429"),
        ("reject: [409], success: [409]", "reject: 409 is in `success` and in `reject`. Remove it"),
        (
            "headers: {Authorization: x}",
            "headers: `Authorization` is for a secret. Put it into `headers_file`.",
        ),
        ("headers: {X-Api-Key: x}", "headers: `X-Api-Key` is for a secret"),
        ("headers: {Host: x}", "headers: the delivery writes `Host` itself. Remove it."),
        ("headers: {Onceflow-Topic: x}", "headers: the delivery writes `Onceflow-Topic` itself"),
        ("headers: {Content-Length: '3'}", "headers: the delivery writes `Content-Length`"),
        ("headers: {'X Y': x}", "headers: not the name of a header"),
        ('headers: {X-Y: "a\\r\\nX-Z: b"}', "headers: `X-Y` has a value that cannot be sent"),
        ("headers: {X-Y: a, x-y: b}", "headers: a header is named twice"),
        ("headers: {X-Y: a}, key_header: x-y", "key_header: a header is named twice"),
        (
            "key_header: idempotency-key, idempotency: {lifetime: 1 h}",
            "to.http.idempotency.header: a header is named twice. Name another one.",
        ),
        ("key_header: 'a:b'", "key_header: not the name of a header"),
        ('content_type: "a\\nb"', "content_type: not a type of content"),
        ("idempotency: {}", "to.http.idempotency.lifetime"),
        (
            "idempotency: {lifetime: 30 s}",
            "idempotency.lifetime: a key would be forgotten before its request is given up",
        ),
        (
            "certificate_file: a",
            "certificate_file: `certificate_file` without `key_file`. Name both",
        ),
        ("key_file: a", "key_file: `key_file` without `certificate_file`. Name both files."),
        ("records_per_request: 2", "records_per_request: several records without `body`; expected"),
        ("body: ndjson", "body: `body` means nothing to requests of one record"),
        (
            "records_per_request: 2, body: ndjson, key_header: X-Key",
            "key_header: `key_header` means nothing to requests of several records",
        ),
        (
            "records_per_request: 2, body: ndjson, tombstones: send",
            "tombstones: `tombstones` means nothing to requests of several records",
        ),
        ("tombstones: send", "tombstones: a record without a value says something only about its"),
        ("in_flight: 0", "to.http.in_flight"),
        ('health_url: "http://shop.example/"', "health_url: records and credentials would pass a"),
    ],
)
def test_a_fault_is_named_where_it_is(tmp_path: Path, more: str, fault: str) -> None:
    found = faults_of(tmp_path, more)
    assert any(fault in each for each in found), found
    assert len(found) == 1


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("http://shop.example/views", "would pass a network unencrypted; expected `https://`, or"),
        ("http://10.0.0.1/", "would pass a network unencrypted"),
        ("http://localhost.example/", "would pass a network unencrypted"),
        ("ftp://shop.example/", "not a URL; expected `https://host/path`"),
        ("shop.example/views", "not a URL"),
        ("https:///views", "not a URL"),
        ("https://shop.example:99999/", "not a URL"),
        ("https://shop.example/ü", "not a URL"),
        ("https://shop.example/a b", "not a URL"),
        ("https://ann:secret@shop.example/", "a user or a password in a URL. Use `headers_file`."),
        ("https://shop.example/#views", "a URL with a fragment"),
    ],
)
def test_a_url_that_is_not_allowed(tmp_path: Path, url: str, fault: str) -> None:
    [found] = faults_of(tmp_path, "", f'{{url: "{url}"')
    assert f"line 6, to.http.url: {fault}" in found.replace("records and credentials ", "")
    assert "secret" not in found


@pytest.mark.parametrize(
    ("url", "more"),
    [
        ("http://127.0.0.1:8080/", ""),
        ("http://[::1]/", ""),
        ("http://localhost/", ""),
        ("http://shop.example/views", "insecure: true"),
        ("https://shop.example", "ca_file: a, certificate_file: b, key_file: c"),
    ],
)
def test_a_url_that_is_allowed(tmp_path: Path, url: str, more: str) -> None:
    load_delivery(written(tmp_path, more, f'{{url: "{url}"'))


def test_certificates_mean_nothing_without_tls(tmp_path: Path) -> None:
    [found] = faults_of(tmp_path, "ca_file: a", '{url: "http://localhost/"')
    assert "ca_file: `ca_file` means nothing to a `url` without TLS" in found


def test_all_faults_are_named_at_once(tmp_path: Path) -> None:
    more = "body: ndjson, timeout: 11 min, success: [1]"
    assert len(faults_of(tmp_path, more, '{url: "http://shop.example"')) == 4


def test_a_schema_is_not_needed_and_may_be_given(tmp_path: Path) -> None:
    file = written(tmp_path, "")
    text = file.read_text().replace("[page-views]", '[page-views], schema: "page STRING"')
    file.write_text(text)
    assert load_delivery(file).delivery.source.columns.names == ("page",)


def test_statuses_are_numbers_and_ranges() -> None:
    given: dict[str, Any] = {"success": [200, "202-204"], "reject": [400]}
    block = HttpBlock.model_validate({"url": "https://shop.example", **given})
    assert block.success == {200, 202, 203, 204}
    assert block.reject == {400}
