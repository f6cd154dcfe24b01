"""Settings of the process: rising order, the origin of each fault, secrets from files only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from onceflow.config import load_settings, read_settings
from onceflow.errors import ConfigError, Fault
from onceflow.foreign_settings import CLIENT
from onceflow.settings import Settings
from tests.support.pipelines import pipeline_text, write_pipeline

ROOT = Path(__file__).parents[3]
SECRET = "hush-hush"


@pytest.fixture(autouse=True)
def _working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(text: str) -> None:
    Path("onceflow.yaml").write_text(text)


def load(environment: Mapping[str, str] | None = None, **overrides: Any) -> Settings:
    return load_settings(environment or {}, overrides)


def faults(environment: Mapping[str, str] | None = None, **overrides: Any) -> tuple[Fault, ...]:
    with pytest.raises(ConfigError) as refused:
        load(environment, **overrides)
    return refused.value.faults


def test_without_any_setting_kafka_is_on_this_machine() -> None:
    connection = load().connection()

    assert connection.bootstrap_servers == "localhost:9092"
    assert connection.properties == {}


def test_environment_wins_over_file_and_command_line_over_both() -> None:
    write("bootstrap_servers: file:1\nspark: {master: 'local[1]', driver_memory: 1g}\n")
    environment = {"ONCEFLOW_SPARK__DRIVER_MEMORY": "3g", "ONCEFLOW_BOOTSTRAP_SERVERS": "env:1"}

    settings = load(environment, bootstrap_servers="line:1")

    assert load().bootstrap_servers == "file:1"
    assert load(environment).bootstrap_servers == "env:1"
    assert settings.bootstrap_servers == "line:1"
    assert (settings.spark.master, settings.spark.driver_memory) == ("local[1]", "3g")


def test_what_the_command_line_leaves_out_changes_nothing() -> None:
    write("bootstrap_servers: file:1\n")

    assert load(bootstrap_servers=None).bootstrap_servers == "file:1"


def test_a_mapping_in_the_environment_is_json() -> None:
    environment = {"ONCEFLOW_CLIENT": '{"client.rack": "a", "socket.keepalive.enable": true}'}

    assert load(environment).client == {"client.rack": "a", "socket.keepalive.enable": "true"}


def test_foreign_settings_may_be_written_as_numbers() -> None:
    write("client: {queued.max.messages.kbytes: 65536}\nspark: {conf: {spark.x: true}}\n")

    assert load().client == {"queued.max.messages.kbytes": "65536"}
    assert load().spark.conf == {"spark.x": "true"}


def test_sizes_are_written_as_people_do() -> None:
    write("spark: {max_result_bytes: 64 MiB}\n")

    assert load().spark.max_result_bytes == 64 * 1024 * 1024
    assert load({"ONCEFLOW_SPARK__MAX_RESULT_BYTES": "2 GB"}).spark.max_result_bytes == 2 * 10**9


def test_the_file_may_be_named() -> None:
    Path("other.yaml").write_text("bootstrap_servers: other:1\n")

    by_option = load_settings({}, {}, Path("other.yaml"))
    by_variable = load({"ONCEFLOW_CONFIG": "other.yaml"})

    assert by_option.bootstrap_servers == by_variable.bootstrap_servers == "other:1"


def test_a_named_file_must_exist() -> None:
    with pytest.raises(ConfigError, match=r"cannot read the settings: nowhere\.yaml"):
        load({"ONCEFLOW_CONFIG": "nowhere.yaml"})


def test_every_fault_names_where_its_value_was_set() -> None:
    write("sasl: {mechanism: PLAIN, username: a}\nspark: {driver_memory: much}\ntls: {}\n")

    found = faults(
        {
            "ONCEFLOW_SPARK__SHUFFLE_PARTITIONS": "many",
            "ONCEFLOW_FOO": "1",
            "ONCEFLOW_CLIENT": "{",
            "ONCEFLOW_SASL__MECHANISM": "PLANE",
        },
        bootstrap_servers="kafka://x",
    )

    assert {(fault.where, fault.line) for fault in found} == {
        ("ONCEFLOW_CLIENT", None),
        ("ONCEFLOW_FOO", None),
        ("ONCEFLOW_SASL__MECHANISM", None),
        ("ONCEFLOW_SPARK__SHUFFLE_PARTITIONS", None),
        ("--bootstrap-servers", None),
        ("sasl.password_file", 1),
        ("spark.driver_memory", 2),
    }


@pytest.mark.parametrize(
    "name",
    [
        "ONCEFLOW_CACHE",
        "ONCEFLOW_CRASH_POINT",
        "ONCEFLOW_CRASH_PROOF",
        "ONCEFLOW_TRACEBACK",
        "ONCEFLOW_TEST_SEED",
        "PATH",
    ],
)
def test_variables_that_are_no_settings_are_left_alone(name: str) -> None:
    load({name: "x"})


@pytest.mark.parametrize("text", ["- a\n", "text\n", "a: [\n", ""])
def test_a_file_that_holds_no_settings_is_refused(text: str) -> None:
    write(text)

    assert faults()


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.password",
        "sasl.oauthbearer.config",
    ],
)
def test_a_secret_outside_a_file_is_refused_and_not_repeated(name: str) -> None:
    write(f"client: {{{name}: {SECRET}}}\n")

    (fault,) = faults()

    assert fault.what == "a secret outside a file"
    assert SECRET not in str(fault)


@pytest.mark.parametrize(
    "name",
    [
        "isolation.level",
        "transactional.id",
        "bootstrap.servers",
        "enable.ssl.certificate.verification",
        "ssl.endpoint.identification.algorithm",
        "enable.sasl.oauthbearer.unsecure.jwt",
        "sasl.jaas.config",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "https.ca.pem",
        "security.protocol",
        "plugin.library.paths",
        "nobody.has.judged.this",
    ],
)
def test_client_settings_that_were_not_judged_are_refused(name: str) -> None:
    write(f"client: {{{name}: {SECRET}}}\n")

    (fault,) = faults()

    assert fault.where == f"client.{name}"
    assert SECRET not in str(fault)


def test_the_page_lists_the_client_settings_that_may_be_set() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    listed = page.split("<!-- client settings -->")[1].split("```")[1].split()[1:]
    assert sorted(listed) == sorted(CLIENT)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
@pytest.mark.parametrize("allow", ["", "allow_clear_text: false", "allow_clear_text: nonsense"])
def test_nobody_signs_in_where_anybody_can_listen(mechanism: str, allow: str) -> None:
    how = "username: a, password_file: pw"
    if mechanism == "OAUTHBEARER":
        how = "client_id: a, client_secret_file: pw, token_endpoint: 'https://issuer/token'"
    write(f"sasl: {{mechanism: {mechanism}, {how}, {allow}}}\n")

    assert "would cross the network in clear text" in str(faults())


@pytest.mark.parametrize(
    "address",
    ["http://issuer/token", "https://us:pw@issuer/token", "https://issuer/token?key=1", "https://"],
)
def test_tokens_come_from_an_endpoint_with_tls_that_holds_no_secret(address: str) -> None:
    write(
        "tls: {}\nsasl: {mechanism: OAUTHBEARER, client_id: a, client_secret_file: pw,"
        f" token_endpoint: '{address}'}}\n"
    )

    (fault,) = faults()

    assert fault.what == "not an address with TLS"


PLAIN = "mechanism: PLAIN, username: a, password_file: pw"


@pytest.mark.parametrize(
    ("text", "protocol"),
    [
        ("tls: {}\n", "SSL"),
        (f"sasl: {{{PLAIN}, allow_clear_text: true}}\n", "SASL_PLAINTEXT"),
        ("tls: {}\nsasl: {mechanism: PLAIN, username: a, password_file: pw}\n", "SASL_SSL"),
    ],
)
def test_the_security_protocol_follows_from_what_is_configured(text: str, protocol: str) -> None:
    write(text)
    Path("pw").write_text(f"{SECRET}\n")

    assert load().connection().properties["security.protocol"] == protocol


def test_the_password_is_the_file_without_its_line_end() -> None:
    write("tls: {}\nsasl: {mechanism: SCRAM-SHA-512, username: app, password_file: pw}\n")
    Path("pw").write_text(f" {SECRET}\n")

    properties = load().connection().properties

    assert properties["sasl.password"] == f" {SECRET}"
    assert properties["sasl.username"] == "app"
    assert properties["sasl.mechanism"] == "SCRAM-SHA-512"


def test_no_secret_shows_where_a_connection_is_printed() -> None:
    write(f"tls: {{}}\nsasl: {{{PLAIN}}}\n")
    Path("pw").write_text(SECRET)

    assert SECRET not in repr(load().connection()) + repr(load())


def test_a_secret_that_cannot_be_read_names_the_setting_and_the_file() -> None:
    write("tls: {key_password_file: nowhere, key_file: k, certificate_file: c}\n")

    with pytest.raises(ConfigError, match=r"tls\.key_password_file: nowhere"):
        load().connection()


def test_certificates_reach_the_client() -> None:
    write("tls: {ca_file: ca, certificate_file: c, key_file: k, key_password_file: pw}\n")
    Path("pw").write_text(SECRET)

    assert load().connection().properties == {
        "security.protocol": "SSL",
        "ssl.ca.location": "ca",
        "ssl.certificate.location": "c",
        "ssl.key.location": "k",
        "ssl.key.password": SECRET,
    }


def test_half_a_key_pair_is_refused() -> None:
    write("tls: {certificate_file: c}\n")

    (fault,) = faults()

    assert (fault.where, fault.what) == ("tls", "half a key pair")


def test_the_engines_settings_are_those_of_a_session() -> None:
    session = pytest.importorskip("onceflow.runtime.spark.session")

    assert session.SessionSettings(**load().spark.model_dump()) == session.SessionSettings()


def test_code_in_pipeline_files_can_be_forbidden(tmp_path: Path) -> None:
    with_code = pipeline_text("unused").replace("query: |\n  unused", "transform: module:function")
    loaded = write_pipeline(tmp_path, with_code)
    assert Settings().require_allowed(loaded, is_trusted=True) is loaded
    assert Settings(transforms=True).require_allowed(loaded, is_trusted=False) is loaded
    with pytest.raises(ConfigError):
        Settings().require_allowed(loaded, is_trusted=False)
    with pytest.raises(ConfigError, match=r"line 3, transform: .* not bring Python code here"):
        Settings(transforms=False).require_allowed(loaded, is_trusted=True)
    without_code = write_pipeline(tmp_path, pipeline_text())
    allowed = Settings(transforms=False).require_allowed(without_code, is_trusted=False)
    assert allowed is without_code


@pytest.mark.parametrize("rule", ["ND-EFFECT", "ND-SOURCE"])
def test_what_keeps_code_out_is_not_waived_by_who_may_not_run_it(tmp_path: Path, rule: str) -> None:
    waiver = f"{{rule: {rule}, place: x, reason: because I say so, until: 2099-01-01}}"
    loaded = write_pipeline(tmp_path, pipeline_text() + f"waivers: [{waiver}]\n")
    with pytest.raises(ConfigError, match=rf"{rule} .* may not be waived here"):
        Settings().require_allowed(loaded, is_trusted=False)
    assert Settings().require_allowed(loaded, is_trusted=True) is loaded


def test_other_rules_may_be_waived_by_anybody(tmp_path: Path) -> None:
    waiver = "{rule: ND-ORDER, place: x, reason: because I say so, until: 2099-01-01}"
    loaded = write_pipeline(tmp_path, pipeline_text() + f"waivers: [{waiver}]\n")
    assert Settings().require_allowed(loaded, is_trusted=False) is loaded


@pytest.mark.parametrize("place", ["/etc/schema.avsc", "../schema.avsc", "a/../../schema.avsc"])
def test_a_schema_lies_beside_the_pipeline_file(tmp_path: Path, place: str) -> None:
    target = (tmp_path / "files" / place).resolve()
    if target.is_relative_to(tmp_path):
        target.write_text('{"type": "record", "name": "a", "fields": []}')
    text = pipeline_text().replace(
        "sink:\n", f"sink:\n  format: avro\n  avro: {{schema_file: {place}}}\n"
    )
    (tmp_path / "files" / "a").mkdir(parents=True)
    with pytest.raises(ConfigError, match="outside of the folder"):
        write_pipeline(tmp_path / "files", text)


@pytest.mark.parametrize(
    ("root", "place", "is_refused"),
    [
        ("/data/here", "/data/here/views", False),
        ("/data/here", "/data/herenot/views", True),
        ("/data/here", "/data/here/../there", True),
        ("/data/here", "s3a://bucket/views", True),
        ("s3a://bucket/onceflow", "s3a://bucket/onceflow/views", False),
        ("s3a://bucket/onceflow", "s3a://bucket/other", True),
        ("s3a://bucket/onceflow", "s3a://bucket/onceflow/../other", True),
        ("s3a://bucket/onceflow", "/data/views", True),
    ],
)
def test_checkpoints_may_be_kept_to_a_place(
    tmp_path: Path, root: str, place: str, is_refused: bool
) -> None:
    loaded = write_pipeline(tmp_path, pipeline_text() + f"checkpoint: {place}\n")
    settings = Settings(checkpoint_root=root)
    if is_refused:
        with pytest.raises(ConfigError, match="checkpoint: not at"):
            settings.require_allowed(loaded, is_trusted=True)
    else:
        assert settings.require_allowed(loaded, is_trusted=True) is loaded


@pytest.mark.parametrize(
    ("sasl", "told"),
    [
        ("{mechanism: OAUTHBEARER, username: a}", "sasl.username: means nothing to OAUTHBEARER"),
        ("{mechanism: OAUTHBEARER}", "sasl.token_endpoint: missing"),
        (
            "{mechanism: PLAIN, username: a, password_file: b, scope: c}",
            "sasl.scope: means nothing",
        ),
        (
            "{mechanism: OAUTHBEARER, client_id: a, client_secret_file: b, token_endpoint: 'file:///x'}",
            "not an address with TLS",
        ),
    ],
)
def test_each_way_to_sign_in_has_words_of_its_own(sasl: str, told: str) -> None:
    write(f"sasl: {sasl}\n")
    with pytest.raises(ConfigError, match=told):
        load()


def test_tokens_are_asked_for_by_name_and_secret(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hush\n")
    write(
        "tls: {}\nsasl:\n  mechanism: OAUTHBEARER\n  token_endpoint: https://issuer/token\n"
        f"  client_id: us\n  client_secret_file: {tmp_path / 'secret'}\n  scope: kafka\n"
    )
    assert load().connection().properties == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "https://issuer/token",
        "sasl.oauthbearer.client.id": "us",
        "sasl.oauthbearer.client.secret": "hush",
        "sasl.oauthbearer.scope": "kafka",
    }


def test_values_in_force_name_their_origin() -> None:
    write("bootstrap_servers: from-file:1\nspark:\n  driver_memory: 3g\n")
    environment = {"ONCEFLOW_SPARK__MASTER": "local[3]"}
    found = {
        row["name"]: (row["value"], row["origin"])
        for row in read_settings(environment, {"bootstrap_servers": "said:1"})[1]
    }
    assert found["bootstrap_servers"] == ("said:1", "--bootstrap-servers")
    assert found["spark.master"] == ("local[3]", "ONCEFLOW_SPARK__MASTER")
    assert found["spark.driver_memory"] == ("3g", "onceflow.yaml, line 3")
    assert found["spark.shuffle_partitions"] == (0, "default")


CONTROL = {"tokens_file": "tokens"}


@pytest.mark.parametrize(
    ("control", "what"),
    [
        ({}, "`tokens_file` is missing"),
        (CONTROL | {"trusted_proxies": ["*"]}, "not an address or a network"),
        (CONTROL | {"shown_columns": ["*"]}, "should match pattern"),
        (CONTROL | {"client_ca_file": "ca.pem"}, "unknown key"),
        (CONTROL | {"certificate_file": "c.pem"}, "half a key pair"),
        (CONTROL | {"address": "10.1.2.3"}, "tokens would cross the network in clear text"),
        (CONTROL | {"address": "kafka"}, "not an address"),
        (CONTROL | {"port": 70_000}, "less than or equal to 65535"),
    ],
)
def test_a_door_that_is_open_is_refused(control: dict[str, object], what: str) -> None:
    found = faults(control=control)
    assert any(what in str(fault) for fault in found), found


def test_a_door_with_a_lock_is_not() -> None:
    pair = {"certificate_file": "c.pem", "key_file": "k.pem"}
    outside = load(control=CONTROL | pair | {"address": "10.1.2.3"}).control
    assert outside is not None
    assert outside.trusted_proxies == []
    assert load(control=CONTROL | {"trusted_proxies": ["10.0.0.0/8", "::1"]}).control is not None
