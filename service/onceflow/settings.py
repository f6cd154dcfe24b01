"""Settings of the process as models: where Kafka is, how to sign in, how large Spark may be.

None of it belongs to a pipeline. Secrets are read from files and stand nowhere else.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer
from pydantic_core import PydanticCustomError

from onceflow.contracts.block import Combination
from onceflow.contracts.connector import Connection
from onceflow.contracts.values import DurationMs, SizeBytes, duration_text, fault
from onceflow.errors import ConfigError, Fault
from onceflow.foreign_settings import CLIENT
from onceflow.pipeline.allow_list.bounds import DEFAULT_MAX_MADE
from onceflow.pipeline.file.aggregate import parse_call
from onceflow.pipeline.file.loader import PipelineFile
from onceflow.pipeline.file.policies import CheckpointWaiver
from onceflow.ports import TRUE, Control, GatewayServer, Monitoring, SettingsBlock, half_key_pair

_SECRETS: Mapping[str, str] = {
    "sasl.password": "sasl.password_file",
    "sasl.oauthbearer.client.secret": "sasl.client_secret_file",
    "ssl.key.password": "tls.key_password_file",
    "ssl.key.pem": "tls.key_file",
    "ssl.keystore.location": "tls.key_file",
    "ssl.keystore.password": "tls.key_file",
    "sasl.oauthbearer.config": "sasl.client_secret_file",
}
"""Client settings that hold or name a secret -> our setting that names its file."""
_TRANSACTION_TIMEOUT = "transaction.timeout.ms"
MIN_TRANSACTION_MS = 1_000
"""Kafka clients take no less."""


_GATES = frozenset({"ND-EFFECT", "ND-SOURCE"})
"""Rules of determinism that also refuse SQL which runs a program, or reads what is not a source."""


def _as_client_text(value: object) -> object:
    """Both librdkafka and Spark write `true`, not `True`."""
    return str(value).lower() if isinstance(value, bool) else value


ForeignSettings = dict[str, Annotated[str, BeforeValidator(_as_client_text)]]


def _checked_url(text: str) -> str:
    # No user, no query: both may hold secrets, which belong in files only.
    if not re.fullmatch(r"https://[^\s/@?#]+(/[^\s?#]*)?", text):
        raise fault("not an address with TLS", expected="`https://host/path` and no more")
    return text


_BY_PASSWORD = ("username", "password_file")
_BY_TOKEN = ("token_endpoint", "client_id", "client_secret_file")


class Sasl(SettingsBlock):
    """How to sign in: by name and password, or with tokens (`OAUTHBEARER`)."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = Field(
        description="SASL mechanism."
    )
    username: str | None = Field(default=None, min_length=1, description="Name to sign in with.")
    password_file: str | None = Field(
        default=None, min_length=1, description="File that holds the password."
    )
    token_endpoint: Annotated[str, AfterValidator(_checked_url)] | None = Field(
        default=None, description="Where `OAUTHBEARER` gets its tokens, by client credentials."
    )
    client_id: str | None = Field(
        default=None, min_length=1, description="Who asks for the tokens."
    )
    client_secret_file: str | None = Field(
        default=None, min_length=1, description="File that holds the secret of `client_id`."
    )
    scope: str | None = Field(default=None, min_length=1, description="Scope to ask tokens for.")
    token_ca_file: str | None = Field(
        default=None,
        min_length=1,
        description="PEM file with authorities of the token endpoint; left out: the machine's.",
    )
    allow_clear_text: bool = Field(
        default=False,
        description="Sign in although `tls` is left out. A listener on the network gets the"
        " password or token.",
    )

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """Each way to sign in has words of its own."""
        is_by_token = given.get("mechanism") == "OAUTHBEARER"
        needed = _BY_TOKEN if is_by_token else _BY_PASSWORD
        foreign = _BY_PASSWORD if is_by_token else (*_BY_TOKEN, "scope", "token_ca_file")
        for name in needed:
            if name not in given:
                yield (name,), fault("missing", expected=f"`{'`, `'.join(needed)}`")
        for name in foreign:
            if name in given:
                yield (name,), fault(f"means nothing to {given.get('mechanism')}")

    def properties(self) -> Mapping[str, str]:
        """The same by librdkafka's names. Reads the secret.

        Raises:
            ConfigError: the secret's file cannot be read.
        """
        if self.mechanism != "OAUTHBEARER":
            return {
                "sasl.mechanism": self.mechanism,
                "sasl.username": str(self.username),
                "sasl.password": _secret("sasl.password_file", str(self.password_file)),
            }
        secret = _secret("sasl.client_secret_file", str(self.client_secret_file))
        given = {
            "sasl.mechanism": self.mechanism,
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": self.token_endpoint,
            "sasl.oauthbearer.client.id": self.client_id,
            "sasl.oauthbearer.client.secret": secret,
            "sasl.oauthbearer.scope": self.scope,
            "https.ca.location": self.token_ca_file,
        }
        return {name: value for name, value in given.items() if value is not None}


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
        """Half a key pair."""
        yield from half_key_pair(given)


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
    max_made: int = Field(
        default=DEFAULT_MAX_MADE,
        ge=1,
        description="Characters, elements or rows that a function of a query may make of one value,"
        " as in `repeat` or `sequence`. A query that says more, or computes how many, is refused.",
    )
    max_rows: int = Field(
        default=100_000_000,
        ge=1,
        le=2**32,
        description="Rows that one task may make at one step of a query, as in `explode` or a join."
        " A batch with more fails.",
    )
    max_batch_s: int = Field(
        default=900,
        ge=1,
        description="Seconds that Spark may compute one batch. Then its jobs are cancelled, and the"
        " pipeline fails; other pipelines go on.",
    )
    conf: ForeignSettings = Field(default_factory=dict, description="Further settings of Spark.")


def _checked_servers(text: str) -> str:
    if not re.fullmatch(r"[^\s,/]+(,[^\s,/]+)*", text):
        raise fault("not a list of brokers", expected="host:port, separated by commas")
    return text


def _checked_transaction(duration_ms: int) -> int:
    if duration_ms < MIN_TRANSACTION_MS:
        raise fault("too short", expected=f"at least {duration_text(MIN_TRANSACTION_MS)}")
    return duration_ms


class Settings(SettingsBlock):
    """Everything about this process."""

    bootstrap_servers: Annotated[str, AfterValidator(_checked_servers)] = Field(
        default="localhost:9092", description="Brokers to begin with: `host:port`, comma separated."
    )
    sasl: Sasl | None = Field(default=None, description="How to sign in; left out: without.")
    tls: Tls | None = Field(default=None, description="Encryption; left out: none.")
    client: ForeignSettings = Field(
        default_factory=dict,
        description="Further settings of the Kafka clients, by librdkafka's names: those that"
        " security.md lists.",
    )
    transaction_timeout_ms: Annotated[
        DurationMs,
        AfterValidator(_checked_transaction),
        PlainSerializer(duration_text, when_used="json"),
    ] = Field(
        default=60_000,
        alias="transaction_timeout",
        json_schema_extra={"default": "60 s"},
        description="How long it may take to write one batch, e.g. `5 minutes`; at most the"
        " broker's `transaction.max.timeout.ms`. Readers wait this long after a driver that"
        " died.",
    )
    spark: Spark = Field(default=Spark(), description="The engine.")
    monitoring: Monitoring = Field(
        default=Monitoring(), description="Where `onceflow serve` is watched."
    )
    control: Control | None = Field(
        default=None, description="Where `onceflow serve` is controlled; left out: nowhere."
    )
    gateway: GatewayServer = Field(
        default=GatewayServer(), description="Where a gateway answers; only for gateways."
    )
    transforms: bool | None = Field(
        default=None,
        description="Whether pipeline files may run code and read files: name Python (`transform`,"
        " `process`, `aggregates`, `ask`), or waive the rules that refuse it in SQL. Left out:"
        " `onceflow run` lets them, because its user has a shell anyway; `onceflow serve` does"
        " not.",
    )
    checkpoint_root: str | None = Field(
        default=None,
        min_length=1,
        description="Folder, or beginning of a URL, below which the checkpoints of pipeline files"
        " must lie; left out: wherever this process may write.",
    )
    ephemeral_checkpoints: CheckpointWaiver | None = Field(
        default=None,
        description="Waiver for checkpoints that would be lost with the process: in memory, on an"
        " emptyDir, in a container's own layer. Left out: they are refused.",
    )

    @classmethod
    def wrong_combinations(cls, given: Mapping[str, Any]) -> Iterator[Combination]:
        """Client settings that were not judged; signing in over a connection in clear text."""
        client, sasl = given.get("client"), given.get("sasl")
        for name in client if isinstance(client, Mapping) else ():
            if found := _client_fault(name):
                yield ("client", name), found
        is_clear = given.get("tls") is None and isinstance(sasl, Mapping)
        allowed = sasl.get("allow_clear_text") if isinstance(sasl, Mapping) else None
        if is_clear and str(allowed).lower() not in TRUE:
            wrong = fault(
                "the password or token would cross the network in clear text",
                suggestion="Add `tls: {}`, or `sasl.allow_clear_text: true` if no one can listen.",
            )
            yield ("sasl",), wrong

    def require_allowed(self, file: PipelineFile, *, is_trusted: bool) -> PipelineFile:
        """The file, if this process may do what it says.

        Args:
            file: to look at; none of its code was imported.
            is_trusted: whether it may run code where `transforms` says nothing.

        Raises:
            ConfigError: lists what it may not.
        """
        may_run_code = is_trusted if self.transforms is None else self.transforms
        faults = [] if may_run_code else [*_code_faults(file)]
        root, location = self.checkpoint_root, file.pipeline.checkpoint_location
        if root is not None and not _is_below(location, root):
            expected = f"a place below {root}, as `checkpoint_root` says"
            line = file.document.place(("checkpoint",)).line
            faults.append(Fault(f"not at {location} here", "checkpoint", line, expected))
        if faults:
            raise ConfigError("pipeline refused", subject=str(file.path), faults=tuple(faults))
        return file

    @property
    def transaction_timeout_s(self) -> float:
        """`transaction_timeout` in seconds."""
        return self.transaction_timeout_ms / 1000

    def secret_files(self) -> Sequence[Path]:
        """Files with certificates and secrets by which brokers are reached; they may be renewed."""
        fields = [field for block in (self.sasl, self.tls) if block is not None for field in block]
        return sorted({Path(value) for name, value in fields if name.endswith("_file") and value})

    def connection(self) -> Connection:
        """How to reach the brokers. Reads the secrets.

        Raises:
            ConfigError: a secret's file cannot be read.
        """
        properties = dict(self.client)
        if self.tls is not None:
            properties |= _tls_properties(self.tls)
        if self.sasl is not None:
            properties |= self.sasl.properties()
        protocol = "PLAINTEXT" if self.tls is None else "SSL"
        if self.sasl is not None:
            protocol = f"SASL_{protocol}"
        if protocol != "PLAINTEXT":
            properties["security.protocol"] = protocol
        return Connection(self.bootstrap_servers, properties, files_digest(self.secret_files()))


def _client_fault(name: str) -> PydanticCustomError | None:
    """Why a setting of the clients may not be set."""
    if name in _SECRETS:
        return fault("a secret outside a file", suggestion=f"Use `{_SECRETS[name]}`.")
    if name == _TRANSACTION_TIMEOUT:
        what = "this client setting follows from another one"
        return fault(what, suggestion="Use `transaction_timeout`.")
    if name in CLIENT:
        return None
    return fault(
        "this client setting may not be set: it could weaken the connection or the guarantee, or"
        " it was never judged",
        expected="one that docs/security.md lists",
        suggestion="Remove it.",
    )


def _code_faults(file: PipelineFile) -> Iterator[Fault]:
    """Settings that run code of the pipeline file's author."""
    allow = "Set `transforms: true` if you trust the authors of pipeline files."
    pipeline = file.pipeline
    brought: list[tuple[tuple[str, ...], str]] = []
    brought += [(("transform",), "a `query`")] if pipeline.transform is not None else []
    brought += [(("process", name, "class"), "a `query`") for name in pipeline.process]
    brought += [
        (("aggregates", name), "one of onceflow.aggregates")
        for name, text in pipeline.aggregates.items()
        if not parse_call(text).is_ready
    ]
    for path, expected in brought:
        yield Fault(
            "pipeline files may not bring Python code here",
            ".".join(path),
            line=file.document.place(path).line,
            expected=expected,
            suggestion=allow,
        )
    for number, waiver in enumerate(pipeline.waivers):
        if waiver.rule in _GATES:
            yield Fault(
                f"{waiver.rule} keeps code and files of others out, and may not be waived here",
                f"waivers.{number}.rule",
                line=file.document.place(("waivers", number, "rule")).line,
                suggestion=allow,
            )


def _is_below(location: str, root: str) -> bool:
    """Whether one of two folders or URLs is inside the other; no `..` gets out."""
    if "://" in root or "://" in location:
        beginning = root.rstrip("/") + "/"
        return location.startswith(beginning) and ".." not in location.split("/")
    return Path(location).resolve().is_relative_to(Path(root).resolve())


def files_digest(files: Sequence[Path]) -> str:
    """The same as long as the files hold the same. One that cannot be read holds nothing."""
    content = hashlib.sha256()
    for file in files:
        with suppress(OSError):
            content.update(hashlib.sha256(file.read_bytes()).digest())
    return content.hexdigest()


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
