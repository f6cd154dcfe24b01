"""Settings of Kafka's Java client, from those that users give by librdkafka's names.

A name is Java's own, is translated, or is refused: a property that has no effect would be a promise
that is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from onceflow.contracts.connector import Connection
from onceflow.errors import ConfigError, Fault

_DEFAULTS: Mapping[str, str] = {
    "client.id": "onceflow",
    "reconnect.backoff.max.ms": "1000",
    # As librdkafka: checksums of the network and of disks are below it.
    "check.crcs": "false",
    # Brokers collect for this long before they answer, unless there is much: answers at once would
    # be hundreds a second. Longer would delay the first fetch of another partition.
    "fetch.min.bytes": "1000000",
    "fetch.max.wait.ms": "20",
    "max.poll.records": "10000",
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
_SAME = frozenset(
    [
        "client.id",
        "client.rack",
        "check.crcs",
        "fetch.min.bytes",
        "fetch.max.bytes",
        "max.partition.fetch.bytes",
        "metadata.max.age.ms",
        "connections.max.idle.ms",
        "reconnect.backoff.ms",
        "reconnect.backoff.max.ms",
        "retry.backoff.ms",
        "retry.backoff.max.ms",
        "socket.connection.setup.timeout.ms",
        "sasl.kerberos.service.name",
        "ssl.cipher.suites",
        "ssl.key.password",
    ]
)
_RENAMED: Mapping[str, str] = {
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "socket.timeout.ms": "request.timeout.ms",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.mechanism": "sasl.mechanism",
}
_PROTOCOLS = ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")
_LOGINS: Mapping[str, str] = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
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
_STORES = ("ssl.truststore.certificates", "ssl.keystore.certificate.chain")
_OLD_KEY = "BEGIN RSA PRIVATE KEY"


def reader_settings(connection: Connection) -> Mapping[str, str]:
    """Settings of a read_committed consumer without group membership. Has secrets.

    Raises:
        ConfigError: names each property that Java's client does not have, or cannot use.
    """
    given = dict(connection.properties)
    login = [given.pop(name, "") for name in ("sasl.username", "sasl.password")]
    found: dict[str, str] = {}
    faults = []
    for name, value in given.items():
        try:
            found |= _translated(name, value)
        except (ValueError, OSError) as error:
            faults.append(Fault(str(error), where=name, suggestion="Remove or correct it."))
    if any(login):
        mechanism = found.get("sasl.mechanism", "")
        if mechanism in _LOGINS:
            found["sasl.jaas.config"] = _jaas(_LOGINS[mechanism], *login)
        else:
            what = f"Kafka's Java client cannot log in with mechanism {mechanism or '(none)'}"
            faults.append(Fault(what, where="sasl.mechanism", expected=" or ".join(_LOGINS)))
    if faults:
        raise ConfigError("client properties that Java's client does not have", faults=(*faults,))
    for store in _STORES:
        if store in found:
            found[f"{store.rsplit('.', 1)[0].removesuffix('.certificate')}.type"] = "PEM"
    return {**_DEFAULTS, **found, **_INSISTED, "bootstrap.servers": connection.bootstrap_servers}


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
        return {_IN_FILES[name]: _key(Path(value).read_text(encoding="ascii"))}
    if name in _AS_TEXT:
        return {_AS_TEXT[name]: _key(value)}
    raise ValueError("Kafka's Java client has no such property")


def _key(text: str) -> str:
    if _OLD_KEY in text:
        raise ValueError("Java reads keys in PKCS#8 only; `openssl pkcs8 -topk8 -nocrypt` makes it")
    return text


def _protocol(value: str) -> Mapping[str, str]:
    if value.lower() not in _PROTOCOLS:
        raise ValueError(f"is none of {', '.join(_PROTOCOLS)}")
    return {"security.protocol": value.upper()}


def _identification(value: str) -> Mapping[str, str]:
    return {"ssl.endpoint.identification.algorithm": "" if value == "none" else value}


def _verification(value: str) -> Mapping[str, str]:
    if value.lower() != "true":
        raise ValueError("Java's client always verifies certificates")
    return {}


_SPECIAL: Mapping[str, Callable[[str], Mapping[str, str]]] = {
    "security.protocol": _protocol,
    "ssl.endpoint.identification.algorithm": _identification,
    "enable.ssl.certificate.verification": _verification,
}


def _jaas(module: str, user: str, password: str) -> str:
    quoted = [text.replace("\\", "\\\\").replace('"', '\\"') for text in (user, password)]
    return f'{module} required username="{quoted[0]}" password="{quoted[1]}";'
