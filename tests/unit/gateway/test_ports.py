"""Settings of a gateway's port: open to the network only with tokens, and with TLS."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from onceflow.ports import GatewayServer

TLS = {"certificate_file": "c", "key_file": "k"}
TOKENS = {"tokens_file": "t"}


def faults(**given: object) -> str:
    try:
        GatewayServer.model_validate(given)
    except ValidationError as error:
        return "\n".join(found["msg"] for found in error.errors())
    return ""


def test_on_this_machine_it_needs_nothing() -> None:
    assert faults() == faults(address="::1") == ""


def test_on_the_network_it_needs_tokens_and_tls() -> None:
    assert "everyone on the network could post" in faults(address="192.0.2.1", **TLS)
    assert "in clear text" in faults(address="192.0.2.1", **TOKENS)
    assert faults(address="192.0.2.1", **TOKENS, **TLS) == ""
    assert faults(address="192.0.2.1", **TOKENS, allow_clear_text="true") == ""
    assert "half a key pair" in faults(certificate_file="c")


def test_an_address_for_all_says_how_others_reach_it() -> None:
    assert "other instances cannot reach" in faults(address="0.0.0.0", **TOKENS, **TLS)
    found = GatewayServer.model_validate(
        {"address": "0.0.0.0", "advertise": "https://gateway-0:9466/", **TOKENS, **TLS}
    )
    assert found.address_for_others(1) == "https://gateway-0:9466"
    assert GatewayServer(port=0).address_for_others(7) == "http://127.0.0.1:7"
    assert GatewayServer(address="::1").address_for_others(7) == "http://[::1]:7"


@pytest.mark.parametrize("address", ["ftp://a", "http://a/b", "http://u@a", "a:1", "http://a?b"])
def test_what_is_not_an_address_is_refused(address: str) -> None:
    assert "not an address" in faults(advertise=address)
