"""Settings on which correctness or a deadline depends, whatever the user's properties say."""

from __future__ import annotations

from onceflow.contracts.connector import Connection
from onceflow_connectors.kafka.admin.reading import SETTINGS
from onceflow_connectors.kafka.client.librdkafka import Settings, consumer_config
from onceflow_connectors.kafka.sink.incarnation import REQUEST_TIMEOUT_MS, KafkaIncarnation


def producer_settings(**properties: str) -> Settings:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return KafkaIncarnation("id", Connection("address", named)).settings()


def test_ledger_and_output_are_read_committed_and_from_the_leader() -> None:
    careless = {"isolation.level": "read_uncommitted", "client.rack": "here"}
    settings = consumer_config(Connection("address", careless), SETTINGS)
    assert settings["isolation.level"] == "read_committed"
    assert settings["client.rack"] == ""


def test_nobody_changes_the_transactional_id_or_the_acknowledgement() -> None:
    settings = producer_settings(transactional_id="mine", acks="0", enable_idempotence="false")
    assert settings["transactional.id"] == "id"
    assert settings["acks"] == "all"
    assert settings["enable.idempotence"] is True


def test_tuning_gives_way_to_the_user() -> None:
    settings = producer_settings(linger_ms="100", compression_type="zstd")
    assert (settings["linger.ms"], settings["compression.type"]) == ("100", "zstd")


def test_a_request_never_outlives_its_transaction() -> None:
    assert producer_settings()["socket.timeout.ms"] == REQUEST_TIMEOUT_MS
    assert producer_settings(transaction_timeout_ms="3000")["socket.timeout.ms"] == 3000
    assert producer_settings(socket_timeout_ms="500")["socket.timeout.ms"] == "500"
    assert "socket.timeout.ms" not in producer_settings(transaction_timeout_ms="?")
