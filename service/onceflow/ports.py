"""Settings of the ports that this process answers at: where, to whom, with which certificate."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_address, ip_network
from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field

from onceflow.contracts.block import Block, Combination
from onceflow.contracts.values import fault

TRUE = frozenset({"true", "1", "yes", "on"})
"""Texts that mean true in the environment."""


class SettingsBlock(Block):
    """A block whose values may also come as text, from the environment."""

    model_config = ConfigDict(strict=False, coerce_numbers_to_str=True)


def _checked_base_url(text: str) -> str:
    if not re.fullmatch(r"https?://[^\s/@?#]+/?", text):
        raise fault("not an address", expected="`https://host:port` and no more")
    return text


def _checked_address(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError as error:
        raise fault("not an address", expected="an IP address, such as 127.0.0.1") from error


def _checked_network(text: str) -> str:
    try:
        return str(ip_network(text))
    except ValueError as error:
        raise fault("not an address or a network", expected="such as 10.0.0.0/8") from error


Address = Annotated[str, AfterValidator(_checked_address)]
Port = Annotated[int, Field(ge=0, le=65535)]
"""0 for any that is free, which is then reported."""


class Monitoring(SettingsBlock):
    """Where `onceflow serve` answers Prometheus and probes."""

    address: Address = Field(
        default="127.0.0.1", description="Address to listen at: of this machine alone, by default."
    )
    port: Port = Field(default=9464, description="Port of `/metrics`, `/livez` and `/readyz`.")


class Control(SettingsBlock):
    """Where `onceflow serve` takes orders and shows its page. Left out: nowhere."""

    address: Address = Field(
        default="127.0.0.1", description="Address to listen at: of this machine alone, by default."
    )
    port: Port = Field(default=9465, description="Port of the API and the status page.")
    tokens_file: str = Field(
        min_length=1,
        description="File with a line for each bearer token: its role (`read` or `write`), a name"
        " for the audit log, and the SHA-256 of the token. `onceflow control token` makes one.",
    )
    certificate_file: str | None = Field(
        default=None, description="PEM file with the server's certificate; left out: plain HTTP."
    )
    key_file: str | None = Field(default=None, description="PEM file with its private key.")
    trusted_proxies: list[Annotated[str, AfterValidator(_checked_network)]] = Field(
        default_factory=list,
        description="Addresses and networks of proxies whose `X-Forwarded-For` and"
        " `X-Forwarded-Proto` are believed; left out: none.",
    )
    shown_columns: list[Annotated[str, Field(pattern=r"^[a-z0-9-]+\..+$")]] = Field(
        default_factory=list,
        description="Columns of JSON records, as `PIPELINE.COLUMN`, whose values everybody who may"
        " read sees among the newest records of the pipeline's input and output; the column `_key`"
        " is the key. Left out: none.",
    )

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """Half a key pair; secrets in clear text."""
        yield from half_key_pair(given)
        address = given.get("address", "127.0.0.1")
        if "certificate_file" not in given and not _is_loopback(address):
            wrong = fault(
                "tokens would cross the network in clear text",
                suggestion="Add `certificate_file` and `key_file`, or listen at 127.0.0.1.",
            )
            yield ("address",), wrong


class GatewayServer(SettingsBlock):
    """Where a gateway of this process answers, and whom."""

    address: Address = Field(
        default="127.0.0.1", description="Address to listen at: of this machine alone, by default."
    )
    port: Port = Field(default=9466, description="Port that posts are sent to.")
    advertise: Annotated[str, AfterValidator(_checked_base_url)] | None = Field(
        default=None,
        description="How other instances reach this one, such as `https://gateway-0:9466`. Left"
        " out: by `address` and `port`.",
    )
    tokens_file: str | None = Field(
        default=None,
        min_length=1,
        description="File with a line for each bearer token, as for `control`; posts need the role"
        " `write`. Left out: everyone on this machine may post.",
    )
    certificate_file: str | None = Field(
        default=None, description="PEM file with the server's certificate; left out: plain HTTP."
    )
    key_file: str | None = Field(default=None, description="PEM file with its private key.")
    ca_file: str | None = Field(
        default=None,
        min_length=1,
        description="PEM file with the authorities of other instances' certificates; left out: the"
        " machine's.",
    )
    allow_clear_text: bool = Field(
        default=False,
        description="Listen beyond this machine although there is no certificate: a proxy in front"
        " has it, and no one else can listen.",
    )

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """Half a key pair; a door to the network that is open, or whose tokens can be read."""
        yield from half_key_pair(given)
        address = given.get("address", "127.0.0.1")
        if _is_loopback(address):
            return
        if "tokens_file" not in given:
            what = "everyone on the network could post"
            yield ("address",), fault(what, suggestion="Add `tokens_file`.")
        is_waived = str(given.get("allow_clear_text")).lower() in TRUE
        if "certificate_file" not in given and not is_waived:
            wrong = fault(
                "tokens would cross the network in clear text",
                suggestion="Add `certificate_file` and `key_file`, listen at 127.0.0.1, or set"
                " `allow_clear_text: true` if a proxy in front has TLS.",
            )
            yield ("address",), wrong
        if _is_unspecified(address) and "advertise" not in given:
            what = "other instances cannot reach this address"
            yield ("address",), fault(what, suggestion="Add `advertise`.")

    def address_for_others(self, port: int) -> str:
        """The URL under which other instances reach this one, if it listens at this port."""
        if self.advertise is not None:
            return self.advertise.rstrip("/")
        scheme = "http" if self.certificate_file is None else "https"
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{scheme}://{host}:{port}"


def _is_unspecified(address: object) -> bool:
    try:
        return ip_address(str(address)).is_unspecified
    except ValueError:
        return False  # which is a fault already


def half_key_pair(given: Mapping[str, Any]) -> Iterator[Combination]:
    """A certificate is of no use without its key."""
    if ("certificate_file" in given) != ("key_file" in given):
        yield (), fault("half a key pair", expected="`certificate_file` and `key_file`")


def _is_loopback(address: object) -> bool:
    try:
        return ip_address(str(address)).is_loopback
    except ValueError:
        return True  # which is a fault already
