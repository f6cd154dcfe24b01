"""Settings of Kafka's Java client, from those that users give by librdkafka's names.

A name is Java's own, is translated, or is refused: a property that has no effect would be a promise
that is not kept. Names that say nothing about reading stay with the clients that they are for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from onceflow.contracts.connector import Connection
from onceflow.errors import ConfigError, Fault
from onceflow.foreign_settings import names_in
from onceflow_connectors.kafka.client.keys import in_pkcs8

_DEFAULTS: Mapping[str, str] = {
    "client.id": "onceflow",
    "reconnect.backoff.max.ms": "1000",
    # As librdkafka: checksums of the network and of disks are below it.
    "check.crcs": "false",
    # Brokers collect for this long before they answer, unless there is much: answers at once would
    # be hundreds a second. Longer would delay the first fetch of another partition.
    "fetch.min.bytes": "1000000",
    "fetch.max.wait.ms": "20",
    "max.partition.fetch.bytes": str(4 * 1024 * 1024),
    "fetch.max.bytes": str(16 * 1024 * 1024),
    "receive.buffer.bytes": str(1024 * 1024),
}
_INSISTED: Mapping[str, str] = {
    "isolation.level": "read_committed",
    "enable.auto.commit": "false",
    # An offset that does not exist is an error to explain, never a place to jump from.
    "auto.offset.reset": "none",
    "group.protocol": "classic",
}
_SAME = names_in("""
    client.id client.rack enable.metrics.push client.dns.lookup metadata.max.age.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy
    reconnect.backoff.ms reconnect.backoff.max.ms retry.backoff.ms retry.backoff.max.ms
    socket.connection.setup.timeout.ms
    check.crcs fetch.min.bytes fetch.max.bytes max.partition.fetch.bytes
    sasl.kerberos.service.name ssl.key.password
""")
_RENAMED: Mapping[str, str] = {
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "socket.timeout.ms": "request.timeout.ms",
    "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.mechanism": "sasl.mechanism",
}
_OF_OTHERS = names_in("""
    log_level debug statistics.interval.ms
    message.max.bytes batch.num.messages batch.size compression.codec compression.level
    compression.type linger.ms queue.buffering.backpressure.threshold queue.buffering.max.kbytes
    queue.buffering.max.messages queue.buffering.max.ms request.timeout.ms
""")
"""How librdkafka logs, and how clients write."""
_PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_MODULES = "org.apache.kafka.common.security"
_BY_PASSWORD: Mapping[str, str] = {
    "PLAIN": f"{_MODULES}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_MODULES}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_MODULES}.scram.ScramLoginModule",
}
_BY_TOKEN = "OAUTHBEARER"  # noqa: S105  the name of a mechanism
_TOKEN_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105  the name of a property
_LOGIN: Mapping[str, str] = {
    "sasl.username": "username",
    "sasl.password": "password",
    "sasl.oauthbearer.client.id": "clientId",
    "sasl.oauthbearer.client.secret": "clientSecret",
    "sasl.oauthbearer.scope": "scope",
    "https.ca.location": "ssl.truststore.certificates",
}
"""Options of a login module."""
_IN_FILES: Mapping[str, str] = {
    "ssl.ca.location": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.certificate.chain",
    "ssl.key.location": "ssl.keystore.key",
}
_AS_TEXT: Mapping[str, str] = {
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}
AUTHORITIES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Where machines have the authorities that they trust: Java would take those that it comes with."""


def reader_settings(connection: Connection) -> Mapping[str, str]:
    """Settings of a read_committed consumer without group membership. Has secrets.

    Raises:
        ConfigError: names each property that Java's client does not have, or cannot use.
    """
    found: dict[str, str] = {}
    login: dict[str, str] = {}
    faults = []
    for name, value in connection.properties.items():
        try:
            if name in _LOGIN:
                login[_LOGIN[name]] = _pem(value) if name == "https.ca.location" else value
            else:
                found |= _translated(name, value)
        except (ValueError, OSError) as error:
            faults.append(Fault(str(error), where=name, suggestion="Remove or correct it."))
    mechanism = found.get("sasl.mechanism", "")
    if mechanism in _BY_PASSWORD:
        found["sasl.jaas.config"] = _jaas(_BY_PASSWORD[mechanism], login)
    elif mechanism == _BY_TOKEN:
        found |= _token_login(login)
    elif mechanism or login:
        known = " or ".join([*_BY_PASSWORD, _BY_TOKEN])
        what = f"Kafka's Java client cannot log in with mechanism {mechanism or '(none)'}"
        faults.append(Fault(what, where="sasl.mechanism", expected=known))
    if "ENCRYPTED" not in found.get("ssl.keystore.key", ""):
        # librdkafka takes no notice of it; Java would look for a key that it opens.
        found.pop("ssl.key.password", None)
    if faults:
        raise ConfigError("client properties that Java's client does not have", faults=(*faults,))
    return {
        **_DEFAULTS,
        **found,
        **_stores(found),
        **_INSISTED,
        "bootstrap.servers": connection.bootstrap_servers,
    }


def _translated(name: str, value: str) -> Mapping[str, str]:
    """One property by Java's name.

    Raises:
        ValueError: says why Java's client cannot have it.
        OSError: a file cannot be read.
    """
    if name in _SPECIAL:
        return _SPECIAL[name](value)
    if name in _SAME:
        return {name: value}
    if name in _RENAMED:
        return {_RENAMED[name]: value}
    if name in _IN_FILES:
        return {_IN_FILES[name]: _pem(value)}
    if name in _AS_TEXT:
        return {_AS_TEXT[name]: in_pkcs8(value)}
    if name in _OF_OTHERS:
        return {}
    raise ValueError("Kafka's Java client, which reads the sources, has no such property")


def _pem(path: str) -> str:
    # Bundles of authorities have their names next to them, in any alphabet.
    return in_pkcs8(Path(path).read_text(encoding="utf-8", errors="replace"))


def _stores(found: Mapping[str, str]) -> Mapping[str, str]:
    """The kinds of certificate stores; the authorities of the machine where none are given."""
    made: dict[str, str] = {}
    if "ssl.keystore.key" in found:
        made["ssl.keystore.type"] = "PEM"
    if "ssl.truststore.certificates" in found:
        made["ssl.truststore.type"] = "PEM"
    elif found.get("security.protocol", "").endswith("SSL"):
        made |= _authorities()
    return made


def _authorities() -> Mapping[str, str]:
    """The store of the machine. Executors read the file, too: not its content is sent."""
    found = next((path for path in AUTHORITIES if Path(path).is_file()), None)
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": found} if found else {}


def _token_login(login: Mapping[str, str]) -> Mapping[str, str]:
    """Fetch tokens by client credentials, and renew them before they end."""
    store = _stores({**login, "security.protocol": "SSL"})
    package = f"{_MODULES}.oauthbearer"
    return {
        "sasl.jaas.config": _jaas(f"{package}.OAuthBearerLoginModule", {**login, **store}),
        "sasl.login.callback.handler.class": f"{package}.OAuthBearerLoginCallbackHandler",
        # By default, Kafka takes classes that need jars for other ways to get a token.
        "sasl.oauthbearer.jwt.retriever.class": f"{package}.ClientCredentialsJwtRetriever",
        "sasl.oauthbearer.jwt.validator.class": f"{package}.ClientJwtValidator",
    }


def _jaas(module: str, options: Mapping[str, str]) -> str:
    told = "".join(f' {name}="{_quoted(value)}"' for name, value in options.items())
    return f"{module} required{told};"


def _quoted(text: str) -> str:
    for character, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(character, escape)
    return text


def _protocol(value: str) -> Mapping[str, str]:
    if value.lower() not in _PROTOCOLS:
        raise ValueError(f"is none of {', '.join(_PROTOCOLS)}")
    return {"security.protocol": value.upper()}


def _identification(value: str) -> Mapping[str, str]:
    return {"ssl.endpoint.identification.algorithm": "" if value == "none" else value}


def _only(wanted: str, why: str) -> Callable[[str], Mapping[str, str]]:
    """A property of which Java's client knows one value."""

    def translate(value: str) -> Mapping[str, str]:
        if value.lower() != wanted:
            raise ValueError(f"Java's client {why}")
        return {}

    return translate


def _number(name: str, zero: str) -> Callable[[str], Mapping[str, str]]:
    """A number by Java's name, which has another one for `0`."""
    return lambda value: {name: zero if value == "0" else value}


_TLS_1_3 = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
"""OpenSSL leaves them on whatever the list of suites says."""
_SUITE = re.compile(
    r"(?:(ECDHE|DHE)-(RSA|ECDSA)-)?(?:AES(128|256)(-GCM)?-(SHA\d*)|CHACHA20-POLY1305)"
)


def _suites(value: str) -> Mapping[str, str]:
    names = [_suite(name) for name in re.split(r"[:, ]+", value.strip())]
    return {"ssl.cipher.suites": ",".join([*_TLS_1_3, *names])}


def _suite(name: str) -> str:
    """The standard's name of a suite that OpenSSL names in its own way."""
    if name.startswith("TLS_"):
        return name
    found = _SUITE.fullmatch(name)
    if found is None:
        raise ValueError(f"Java has no cipher suite {name}; expected names of single suites")
    exchange, signature, bits, is_gcm, digest = found.groups()
    keys = f"{exchange}_{signature}" if exchange else "RSA"
    cipher = f"AES_{bits}_{'GCM' if is_gcm else 'CBC'}_{digest}" if bits else None
    return f"TLS_{keys}_WITH_{cipher or 'CHACHA20_POLY1305_SHA256'}"


_SPECIAL: Mapping[str, Callable[[str], Mapping[str, str]]] = {
    "security.protocol": _protocol,
    "ssl.endpoint.identification.algorithm": _identification,
    "enable.ssl.certificate.verification": _only("true", "always verifies certificates"),
    "broker.address.family": _only("any", "takes addresses of every family"),
    "socket.keepalive.enable": _only("true", "always keeps connections alive"),
    "socket.nagle.disable": _only("true", "never waits for small packets"),
    "sasl.oauthbearer.method": _only("oidc", "fetches tokens by client credentials only"),
    "connections.max.idle.ms": _number("connections.max.idle.ms", "-1"),
    "socket.receive.buffer.bytes": _number("receive.buffer.bytes", "-1"),
    "socket.send.buffer.bytes": _number("send.buffer.bytes", "-1"),
    "ssl.cipher.suites": _suites,
    _TOKEN_ENDPOINT: lambda value: {_TOKEN_ENDPOINT: value},
}
