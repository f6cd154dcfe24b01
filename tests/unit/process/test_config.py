"""Settings of the process: rising order, the origin of each fault, secrets from files only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from onceflow.config import load_settings, read_settings
from onceflow.errors import ConfigError, Fault
from onceflow.foreign_settings import CLIENT, names_in
from onceflow.settings import Settings
from tests.support.pipelines import pipeline_text, write_pipeline

ROOT = Path(__file__).parents[3]
SECRET = "hush-hush"
PLAIN = "mechanism: PLAIN, username: app, password_file: pw"
TOKEN = "mechanism: OAUTHBEARER, client_id: us, client_secret_file: pw"
ISSUER = "token_endpoint: 'https://issuer/token'"


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

    assert load(bootstrap_servers=None).bootstrap_servers == "file:1"
    assert load(environment).bootstrap_servers == "env:1"
    assert settings.bootstrap_servers == "line:1"
    assert (settings.spark.master, settings.spark.driver_memory) == ("local[1]", "3g")


def test_values_are_read_as_people_write_them() -> None:
    write(
        "client: {queued.max.messages.kbytes: 65536}\n"
        "spark: {conf: {spark.x: true}, max_result_bytes: 64 MiB}\n"
    )
    in_file = load()
    environment = {
        "ONCEFLOW_CLIENT": '{"client.rack": "a", "socket.keepalive.enable": true}',
        "ONCEFLOW_SPARK__MAX_RESULT_BYTES": "2 GB",
    }
    above = load(environment)

    assert in_file.client == {"queued.max.messages.kbytes": "65536"}
    assert in_file.spark.conf == {"spark.x": "true"}
    assert in_file.spark.max_result_bytes == 64 * 1024 * 1024
    assert above.client == {
        **in_file.client,
        "client.rack": "a",
        "socket.keepalive.enable": "true",
    }
    assert above.spark.max_result_bytes == 2 * 10**9


def test_the_file_may_be_named_and_must_exist_then() -> None:
    Path("other.yaml").write_text("bootstrap_servers: other:1\n")

    by_option = load_settings({}, {}, Path("other.yaml"))
    by_variable = load({"ONCEFLOW_CONFIG": "other.yaml"})

    assert by_option.bootstrap_servers == by_variable.bootstrap_servers == "other:1"
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


def test_variables_that_are_not_settings_are_left_alone() -> None:
    ours = ("CACHE", "CRASH_POINT", "CRASH_PROOF", "TRACEBACK", "TEST_SEED")
    load({"PATH": "x", **{f"ONCEFLOW_{name}": "x" for name in ours}})


@pytest.mark.parametrize("text", ["- a\n", "text\n", "a: [\n", ""])
def test_a_file_that_holds_no_settings_is_refused(text: str) -> None:
    write(text)

    assert faults()


SECRETS = names_in("""
    sasl.password ssl.key.password ssl.key.pem ssl.keystore.password sasl.oauthbearer.config
""")
NOT_JUDGED = names_in("""
    isolation.level transactional.id bootstrap.servers security.protocol
    enable.ssl.certificate.verification ssl.endpoint.identification.algorithm
    enable.sasl.oauthbearer.unsecure.jwt sasl.jaas.config https.ca.pem
    sasl.oauthbearer.assertion.private.key.passphrase plugin.library.paths no.one.has.judged.this
""")


@pytest.mark.parametrize("name", sorted(SECRETS | NOT_JUDGED))
def test_client_settings_that_were_not_judged_are_refused_and_not_repeated(name: str) -> None:
    write(f"client: {{{name}: {SECRET}}}\n")

    (fault,) = faults()

    assert fault.where == f"client.{name}"
    assert (fault.what == "a secret outside a file") == (name in SECRETS)
    assert SECRET not in str(fault)


def test_the_page_lists_the_client_settings_that_may_be_set() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    listed = page.split("<!-- client settings -->")[1].split("```")[1].split()[1:]
    assert sorted(listed) == sorted(CLIENT)


@pytest.mark.parametrize("allow", ["", "allow_clear_text: false", "allow_clear_text: nonsense"])
@pytest.mark.parametrize("how", [PLAIN, f"{TOKEN}, {ISSUER}"])
def test_no_process_signs_in_where_others_can_listen(how: str, allow: str) -> None:
    write(f"sasl: {{{how}, {allow}}}\n")

    assert "would cross the network in clear text" in str(faults())


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("tls: {}", {"security.protocol": "SSL"}),
        (
            "tls: {ca_file: ca, certificate_file: c, key_file: k, key_password_file: pw}",
            {
                "security.protocol": "SSL",
                "ssl.ca.location": "ca",
                "ssl.certificate.location": "c",
                "ssl.key.location": "k",
                "ssl.key.password": f" {SECRET}",
            },
        ),
        (
            f"sasl: {{{PLAIN}, allow_clear_text: true}}",
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "app",
                "sasl.password": f" {SECRET}",
            },
        ),
        (
            f"{{tls: {{}}, sasl: {{{TOKEN}, {ISSUER}, scope: kafka}}}}",
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": "https://issuer/token",
                "sasl.oauthbearer.client.id": "us",
                "sasl.oauthbearer.client.secret": f" {SECRET}",
                "sasl.oauthbearer.scope": "kafka",
            },
        ),
    ],
    ids=["encryption", "certificate", "password", "token"],
)
def test_the_client_gets_what_is_configured_and_shows_no_secret(
    text: str, properties: dict[str, str]
) -> None:
    """A secret is the content of its file, without the line end."""
    write(f"{text}\n")
    Path("pw").write_text(f" {SECRET}\n")

    connection = load().connection()

    assert connection.properties == properties
    assert SECRET not in repr(connection) + repr(load())


def test_a_secret_that_cannot_be_read_names_the_setting_and_the_file() -> None:
    write("tls: {key_password_file: nowhere, key_file: k, certificate_file: c}\n")

    with pytest.raises(ConfigError, match=r"tls\.key_password_file: nowhere"):
        load().connection()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("tls: {certificate_file: c}", "tls: half a key pair"),
        ("sasl: {mechanism: OAUTHBEARER, username: a}", "sasl.username: means nothing to"),
        ("sasl: {mechanism: OAUTHBEARER}", "sasl.token_endpoint: missing"),
        (f"sasl: {{{PLAIN}, scope: c}}", "sasl.scope: means nothing"),
        *(
            (f"sasl: {{{TOKEN}, token_endpoint: '{address}'}}", "not an address with TLS")
            for address in (
                *("file:///x", "http://issuer/token", "https://us:pw@issuer/token"),
                *("https://issuer/token?key=1", "https://"),
            )
        ),
        ("control: {}", "`tokens_file` is missing"),
        ("control: {tokens_file: t, trusted_proxies: ['*']}", "not an address or a network"),
        ("control: {tokens_file: t, shown_columns: ['*']}", "should match pattern"),
        ("control: {tokens_file: t, client_ca_file: ca.pem}", "unknown key"),
        ("control: {tokens_file: t, certificate_file: c.pem}", "half a key pair"),
        ("control: {tokens_file: t, address: 10.1.2.3}", "would cross the network in clear text"),
        ("control: {tokens_file: t, address: kafka}", "not an address"),
        ("control: {tokens_file: t, port: 70_000}", "less than or equal to 65535"),
    ],
)
def test_what_does_not_fit_together_is_refused(text: str, what: str) -> None:
    write(f"{text}\n")
    found = faults()
    assert any(what in str(fault) for fault in found), found


def test_a_door_with_a_lock_is_accepted() -> None:
    write(
        "control: {tokens_file: t, certificate_file: c, key_file: k, address: 10.1.2.3,"
        " trusted_proxies: [10.0.0.0/8, '::1']}\n"
    )
    control = load().control
    assert control is not None
    assert control.trusted_proxies == ["10.0.0.0/8", "::1/128"]


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
    step = "process: {fraud: {class: module:Fraud, input: clicks}}\nquery: |\n  unused"
    with_step = pipeline_text("unused").replace("query: |\n  unused", step)
    with pytest.raises(ConfigError, match=r"process.fraud.class: .* not bring Python code here"):
        Settings(transforms=False).require_allowed(
            write_pipeline(tmp_path, with_step), is_trusted=True
        )
    without_code = write_pipeline(tmp_path, pipeline_text())
    allowed = Settings(transforms=False).require_allowed(without_code, is_trusted=False)
    assert allowed is without_code


@pytest.mark.parametrize(
    ("rule", "is_gate"), [("ND-EFFECT", True), ("ND-SOURCE", True), ("ND-ORDER", False)]
)
def test_what_keeps_code_out_is_not_waived_by_who_may_not_run_it(
    tmp_path: Path, rule: str, is_gate: bool
) -> None:
    waiver = f"{{rule: {rule}, place: x, reason: because I say so, until: 2099-01-01}}"
    loaded = write_pipeline(tmp_path, pipeline_text() + f"waivers: [{waiver}]\n")
    assert Settings().require_allowed(loaded, is_trusted=True) is loaded
    if is_gate:
        with pytest.raises(ConfigError, match=rf"{rule} .* may not be waived here"):
            Settings().require_allowed(loaded, is_trusted=False)
    else:
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
