"""Settings of the process: where Kafka is, how to sign in, how large Spark may be.

In rising order: `onceflow.yaml` in the working directory (or the file that `--config` or
`ONCEFLOW_CONFIG` names), the environment (`ONCEFLOW_BOOTSTRAP_SERVERS`, and with two underscores
between levels `ONCEFLOW_SASL__USERNAME`), the command line. None of it belongs to a pipeline.
Secrets are read from files and stand nowhere else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationError

from onceflow.contracts.connector import Connection
from onceflow.errors import ConfigError, Fault
from onceflow.pipeline.block import Block, Combination
from onceflow.pipeline.keys import KeyIndex
from onceflow.pipeline.loader import validation_faults
from onceflow.pipeline.values import SizeBytes, fault
from onceflow.pipeline.yaml_text import Document, parse_yaml

PREFIX = "ONCEFLOW_"
FILE_VARIABLE = "ONCEFLOW_CONFIG"
DEFAULT_FILE = Path("onceflow.yaml")
_OTHER_VARIABLES = re.compile(r"ONCEFLOW_(CONFIG|CACHE|CRASH_POINT|CRASH_PROOF|TRACEBACK|TEST_\w+)")
"""Variables with our prefix that are no settings."""

_SECRETS: Mapping[str, str] = {
    "sasl.password": "sasl.password_file",
    "ssl.key.password": "tls.key_password_file",
    "ssl.key.pem": "tls.key_file",
}
"""Client settings that hold a secret -> our setting that names its file."""
_OURS = frozenset(
    {
        "bootstrap.servers",
        "security.protocol",
        "transactional.id",
        "group.id",
        "enable.idempotence",
        "enable.auto.commit",
        "isolation.level",
        "acks",
        "auto.offset.reset",
    }
)
"""Client settings that the guarantee rests on, or that follow from other settings here."""


class SettingsBlock(Block):
    """A block whose values may also come as text, from the environment."""

    model_config = ConfigDict(strict=False, coerce_numbers_to_str=True)


def _as_client_text(value: object) -> object:
    """Both librdkafka and Spark write `true`, not `True`."""
    return str(value).lower() if isinstance(value, bool) else value


ForeignSettings = dict[str, Annotated[str, BeforeValidator(_as_client_text)]]


class Sasl(SettingsBlock):
    """How to sign in."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        description="SASL mechanism."
    )
    username: str = Field(min_length=1, description="Name to sign in with.")
    password_file: str = Field(min_length=1, description="File that holds the password.")


class Tls(SettingsBlock):
    """Encryption. An empty block trusts the authorities that the machine trusts."""

    ca_file: str | None = Field(default=None, description="PEM file with trusted authorities.")
    certificate_file: str | None = Field(default=None, description="PEM file with our certificate.")
    key_file: str | None = Field(default=None, description="PEM file with our private key.")
    key_password_file: str | None = Field(
        default=None, description="File that holds the private key's password."
    )

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """A certificate is of no use without its key."""
        if ("certificate_file" in given) != ("key_file" in given):
            yield (), fault("half a key pair", expected="`certificate_file` and `key_file`")


def _checked_memory(text: str) -> str:
    if not re.fullmatch(r"[1-9]\d*[kmgKMG]", text):
        raise fault("not an amount of memory", expected="a number and k, m or g, such as `2g`")
    return text


class Spark(SettingsBlock):
    """The engine of this process; the same names as `runtime.session.SessionSettings`."""

    master: str = Field(default="local[*]", min_length=1, description="Spark master URL.")
    driver_memory: Annotated[str, AfterValidator(_checked_memory)] = Field(
        default="2g", description="Heap of the driver, e.g. `2g`."
    )
    shuffle_partitions: int = Field(
        default=0,
        ge=0,
        description="Partitions of stateful operators; 0 for as many as cores. Pinned at the"
        " first start.",
    )
    max_result_bytes: SizeBytes = Field(
        default=256 * 1024 * 1024,
        description="Memory budget for the output of one batch, e.g. `256 MiB`. A batch with more"
        " is refused before anything is written.",
    )
    conf: ForeignSettings = Field(default_factory=dict, description="Further settings of Spark.")

    @property
    def driver_memory_bytes(self) -> int:
        """`driver_memory` as a number."""
        size, unit = self.driver_memory[:-1], self.driver_memory[-1].lower()
        return int(size) << 10 * ("kmg".index(unit) + 1)


def _checked_servers(text: str) -> str:
    if not re.fullmatch(r"[^\s,/]+(,[^\s,/]+)*", text):
        raise fault("not a list of brokers", expected="host:port, separated by commas")
    return text


class Settings(SettingsBlock):
    """Everything about this process."""

    bootstrap_servers: Annotated[str, AfterValidator(_checked_servers)] = Field(
        default="localhost:9092", description="Brokers to begin with: `host:port`, comma separated."
    )
    sasl: Sasl | None = Field(default=None, description="How to sign in; left out: without.")
    tls: Tls | None = Field(default=None, description="Encryption; left out: none.")
    client: ForeignSettings = Field(
        default_factory=dict,
        description="Further settings of the Kafka clients, by librdkafka's names.",
    )
    spark: Spark = Field(default=Spark(), description="The engine.")

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """Client settings with a place of their own, or with none."""
        client = given.get("client")
        if not isinstance(client, Mapping):
            return
        for name in client:
            if name in _SECRETS:
                yield (
                    ("client", name),
                    fault("a secret outside a file", suggestion=f"Use `{_SECRETS[name]}`."),
                )
            if name in _OURS:
                yield (
                    ("client", name),
                    fault("this client setting is decided elsewhere", suggestion="Remove it."),
                )

    def connection(self) -> Connection:
        """How to reach the brokers. Reads the secrets.

        Raises:
            ConfigError: a secret's file cannot be read.
        """
        properties = dict(self.client)
        if self.tls is not None:
            properties |= _tls_properties(self.tls)
        if self.sasl is not None:
            properties |= {
                "sasl.mechanism": self.sasl.mechanism,
                "sasl.username": self.sasl.username,
                "sasl.password": _secret("sasl.password_file", self.sasl.password_file),
            }
        protocol = "SSL" if self.tls is not None else "PLAINTEXT"
        if self.sasl is not None:
            protocol = f"SASL_{protocol}"
        if protocol != "PLAINTEXT":
            properties["security.protocol"] = protocol
        return Connection(self.bootstrap_servers, properties)


def load_settings(
    environment: Mapping[str, str],
    overrides: Mapping[str, Any],
    file: Path | None = None,
) -> Settings:
    """Put the settings of this process together.

    Args:
        environment: variables, such as `os.environ`.
        overrides: settings from the command line, by name; None where nothing was said.
        file: as the command line names it; it must exist then.

    Raises:
        ConfigError: lists every fault, each with where it was set.
    """
    path = file or Path(environment.get(FILE_VARIABLE, DEFAULT_FILE))
    is_named = file is not None or FILE_VARIABLE in environment
    document = _parse_file(path) if is_named or path.exists() else Document({})
    if not isinstance(document.data, dict):
        found = Fault("not settings", line=1, expected="a mapping")
        raise _refused(path, document.faults or (found,))
    said = {name: value for name, value in overrides.items() if value is not None}
    from_environment, faults = _from_environment(environment)
    faults += document.faults
    merged = _merged(_merged(document.data, from_environment), said)
    try:
        settings = Settings.model_validate(merged)
    except ValidationError as error:
        for found in validation_faults(error, document, KeyIndex.of_model(Settings)):
            faults.append(_with_origin(found, said, from_environment))
        raise _refused(path, faults) from None
    if faults:
        raise _refused(path, faults)
    return settings


def _parse_file(path: Path) -> Document:
    try:
        return parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            "cannot read the settings",
            subject=str(path),
            expected="a YAML file in UTF-8",
            found=getattr(error, "strerror", None) or type(error).__name__,
        ) from error


def _from_environment(environment: Mapping[str, str]) -> tuple[dict[str, Any], list[Fault]]:
    values: dict[str, Any] = {}
    faults: list[Fault] = []
    for name, text in sorted(environment.items()):
        if not name.startswith(PREFIX) or _OTHER_VARIABLES.fullmatch(name):
            continue
        value: Any = text
        if text.startswith("{"):
            try:
                value = json.loads(text)
            except ValueError:
                faults.append(Fault("not JSON", name, expected='such as {"client.rack": "a"}'))
                continue
        for part in reversed(name.removeprefix(PREFIX).lower().split("__")):
            value = {part: value}
        values = _merged(values, value)
    return values, faults


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for name, value in above.items():
        old = merged.get(name)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            merged[name] = _merged(old, value)
        else:
            merged[name] = value
    return merged


def _with_origin(found: Fault, said: Mapping[str, Any], environment: Mapping[str, Any]) -> Fault:
    """The fault with the place where the value was set, rather than where it ended up."""
    path = found.where.split(".")
    if _has(said, path):
        where = "--" + path[0].replace("_", "-")
    elif _has(environment, path):
        where = PREFIX + "__".join(path).upper()
    else:
        return found
    return replace(found, where=where, line=None)


def _has(values: Any, path: Sequence[str]) -> bool:
    for part in path:
        if not isinstance(values, Mapping) or part not in values:
            return False
        values = values[part]
    return True


def _refused(path: Path, faults: Sequence[Fault]) -> ConfigError:
    return ConfigError("settings refused", subject=str(path), faults=tuple(faults))


def _tls_properties(tls: Tls) -> Mapping[str, str]:
    properties = {
        "ssl.ca.location": tls.ca_file,
        "ssl.certificate.location": tls.certificate_file,
        "ssl.key.location": tls.key_file,
    }
    if tls.key_password_file is not None:
        properties["ssl.key.password"] = _secret("tls.key_password_file", tls.key_password_file)
    return {name: value for name, value in properties.items() if value is not None}


def _secret(setting: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            "a secret cannot be read",
            subject=f"{setting}: {path}",
            expected="a file that this process may read",
            found=getattr(error, "strerror", None) or type(error).__name__,
        ) from None
