"""A real broker that requires a login and allows only what was granted.

Besides the ordinary listener, over which tests administer it, it has two: `SIGNED` with SASL over
TLS, `MUTUAL` with client certificates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from onceflow.cli.operate.acls import topics_of
from onceflow.clock import SystemClock
from onceflow.contracts.connector import Connection, Task, find_connector
from onceflow.pipeline.file.loader import load_pipeline
from tests.support.brokers.children import ChildProcessCluster, ClusterOptions
from tests.support.eventually import eventually
from tests.support.outside.topics import ANSWER_TIMEOUT_S, administration
from tests.support.sites.certificates import Authority
from tests.support.sites.token_endpoint import AUDIENCE, ISSUER, TokenEndpoint

SIGNED, MUTUAL = "SIGNED", "MUTUAL"
PLAIN_USER, PLAIN_PASSWORD = "peter", "plain-marker-4c1"
"""Who signs in by PLAIN."""
CONSUMERS = "readers"
"""Group of those that `grant_to_run` lets consume."""
_MODULES = "org.apache.kafka.common.security"
# Its annotations do not know that None means any.
_ANYTHING: Any = None


@dataclass(frozen=True)
class SecuredBroker:
    """The broker, and how to get in."""

    cluster: ChildProcessCluster
    authority: Authority
    tokens: TokenEndpoint

    @property
    def bootstrap_servers(self) -> str:
        """Address of the listener without authentication, for tests' own tools."""
        return self.cluster.bootstrap_servers

    def address_of(self, listener: str) -> str:
        return self.cluster.address_of(1, listener)

    def set_password(self, name: str, password: str) -> None:
        """Set a password for SCRAM; a new one replaces the old."""
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            info = ScramCredentialInfo(mechanism, 4096)
            wanted = UserScramCredentialUpsertion(name, info, password.encode())
            with administration(self.bootstrap_servers) as admin:
                admin.alter_user_scram_credentials([wanted])[name].result(ANSWER_TIMEOUT_S)

    def revoke_all(self, principal: str = _ANYTHING) -> None:
        """Take all rights from everyone or one principal, except over the ordinary listener."""
        every = AclBindingFilter(
            ResourceType.ANY,
            _ANYTHING,
            ResourcePatternType.ANY,
            principal,
            _ANYTHING,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        with administration(self.bootstrap_servers) as admin:
            for done in admin.delete_acls([every]).values():
                done.result(ANSWER_TIMEOUT_S)
            # The broker hears of it from its controller, a moment after the answer.
            eventually(lambda: not admin.describe_acls(every).result(ANSWER_TIMEOUT_S))


@contextmanager
def secured_broker(folder: Path, tokens: TokenEndpoint) -> Iterator[SecuredBroker]:
    """Start it inside the block.

    Args:
        tokens: issues what it lets in by `OAUTHBEARER`.
    """
    authority = Authority.in_folder(folder)
    store = authority.issue("broker").as_one_file(folder / "broker-store.pem")
    key_set = tokens.write_key_set(folder / "keys.json").as_uri()
    options = ClusterOptions(
        settings=_settings(authority, store, key_set),
        listeners=(SIGNED, MUTUAL),
        jvm_options=[f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={key_set}"],
    )
    with ChildProcessCluster(options) as cluster:
        yield SecuredBroker(cluster, authority, tokens)


def _settings(authority: Authority, store: Path, key_set: str) -> Mapping[str, str]:
    signed = f"listener.name.{SIGNED.lower()}"
    mutual = f"listener.name.{MUTUAL.lower()}"
    protocols = f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{SIGNED}:SASL_SSL,{MUTUAL}:SSL"
    return {
        "listener.security.protocol.map": protocols,
        "inter.broker.listener.name": "PLAINTEXT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.certificate),
        "ssl.principal.mapping.rules": "RULE:^.*CN=([a-zA-Z0-9.-]+).*$/$1/,DEFAULT",
        f"{mutual}.ssl.client.auth": "required",
        f"{signed}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        f"{signed}.plain.sasl.jaas.config": f"{_MODULES}.plain.PlainLoginModule required"
        f' user_{PLAIN_USER}="{PLAIN_PASSWORD}";',
        f"{signed}.scram-sha-256.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
        f"{signed}.scram-sha-512.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
        f"{signed}.oauthbearer.sasl.jaas.config": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule"
        " required;",
        f"{signed}.oauthbearer.sasl.server.callback.handler.class": f"{_MODULES}.oauthbearer"
        ".OAuthBearerValidatorCallbackHandler",
        f"{signed}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": key_set,
        f"{signed}.oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
        f"{signed}.oauthbearer.sasl.oauthbearer.expected.issuer": ISSUER,
    }


def grant_to_run(broker: SecuredBroker, file: Path, *names: str) -> None:
    """Let these users run a pipeline and consume its output, and no one else do anything."""
    topics = topics_of(load_pipeline(file))
    connector = find_connector("kafka")
    broker.revoke_all()
    tasks = [(Task.RUN, ""), (Task.CREATE, ""), (Task.CONSUME, CONSUMERS)]
    rights = [right for task, group in tasks for right in connector.rights(topics, task, group)]
    admin = Connection(broker.bootstrap_servers)
    for name in names:
        deadline = SystemClock().within(ANSWER_TIMEOUT_S)
        connector.grant(f"User:{name}", rights, admin, deadline)


def settings_by_certificate(
    broker: SecuredBroker, folder: Path, name: str = "jane"
) -> dict[str, Any]:
    """Settings of a user who signs in with a new certificate, written to files in a folder.

    The authority's certificate is next to them.
    """
    issued = broker.authority.issue(name)
    files = {
        "ca_file": broker.authority.certificate,
        "key_file": issued.key,
        "certificate_file": issued.certificate,
    }
    for kind, file in files.items():
        (folder / f"{kind}.pem").write_bytes(file.read_bytes())
    return {
        "bootstrap_servers": broker.address_of(MUTUAL),
        "tls": {kind: str(folder / f"{kind}.pem") for kind in files},
    }
