"""Rows of the fault matrix for what runs without Spark: gateways, enrichments and deliveries."""

from __future__ import annotations

from tests.faults.row import REFUSED, Row

EQUAL = "what is in the target equals the topic, record by record, each once"
"""What is demanded of deliveries."""


def _out(file: str, *names: str) -> tuple[str, ...]:
    return tuple(f"tests/integration/test_{file}.py::test_{name}" for name in names)


BEYOND_PIPELINES: tuple[Row, ...] = (
    Row(
        "T",
        "kill -9 of a delivery at each point between reading and the acknowledged position, to"
        " PostgreSQL, Delta Lake, another Kafka and HTTP",
        f"{EQUAL}; HTTP: no second effect at a receiver that keeps its promise",
        (
            *_out("deliveries", "a_kill_at_each_point_loses_and_repeats_no_row"),
            *_out("delivery_kafka", "a_kill_at_each_point_loses_and_repeats_no_record"),
            *_out("delivery_http", "a_kill_at_each_point_loses_and_repeats_no_effect"),
            *_out(
                "delivery_sender",
                "a_kill_at_each_point_loses_no_record_and_repeats_only_the_batch_under_way",
            ),
        ),
    ),
    Row(
        "U",
        "two instances of a delivery, a rebalance, an instance that was frozen and wakes up late",
        EQUAL,
        (
            *_out(
                "deliveries",
                "two_instances_share_the_partitions_and_one_goes_on_alone",
                "a_frozen_instance_that_wakes_up_late_writes_nothing_twice",
            ),
            *_out(
                "delivery_kafka",
                "two_instances_share_the_partitions_and_one_goes_on_alone",
                "a_frozen_instance_that_wakes_up_late_writes_nothing_twice",
            ),
            *_out("delivery_http", "a_frozen_instance_that_wakes_up_late_has_no_second_effect"),
            *_out("delta_target", "two_writers_that_race_write_each_row_once"),
        ),
    ),
    Row(
        "V",
        "a target that is down, slow or frozen; a connection cut in the middle of a transaction; a"
        " commit that is carried out and whose answer is lost",
        f"the delivery waits and goes on; {EQUAL}",
        (
            *_out("deliveries", "a_store_that_is_down_for_a_while_delays_and_loses_nothing"),
            *_out("delivery_kafka", "brokers_that_are_down_for_a_while_delay_and_lose_nothing"),
            *_out("delivery_http", "whatever_the_receiver_does_each_record_has_its_effect_once"),
            *_out("delivery_postgres", "a_connection_that_is_cut_neither_loses_nor_repeats_a_row"),
            *_out("postgres_target", "a_commit_without_an_answer_is_found_by_writing_again"),
            *_out("delta_store", "an_answer_that_is_lost_neither_loses_nor_repeats_a_row"),
            *_out(
                "kafka_target",
                "a_commit_without_an_answer_is_settled_by_writing_again",
                "a_commit_that_arrives_late_does_not_commit_a_later_transaction",
            ),
            *_out("http_answers", "a_lost_answer_is_settled_by_the_same_key_and_the_same_bytes"),
        ),
    ),
    Row(
        "W",
        "a target that refuses one record, or all of them",
        "what it refuses is in the dead letters, or the delivery stops; the rest is there once",
        (
            *_out(
                "delivery_postgres",
                "records_that_the_table_refuses_go_to_the_dead_letters",
                "a_refused_record_stops_a_delivery_without_dead_letters",
            ),
            *_out("delivery_delta", "records_that_the_table_refuses_go_to_the_dead_letters"),
            *_out("kafka_target", "records_that_are_refused_are_found_and_nothing_is_written"),
            *_out(
                "http_answers",
                "a_status_about_the_record_refuses_it_and_those_after_it_go_on",
                "a_status_that_no_retry_changes_ends_the_delivery",
            ),
        ),
    ),
    Row(
        "X",
        "a power cut under the files of a table, with five kinds of loss; a full disk under it",
        EQUAL,
        (
            *_out(
                "delta_power_cut",
                "after_a_power_cut_rows_equal_the_position_and_nothing_written_is_lost",
            ),
            *_out("delta_target", "a_disk_that_is_full_delays_and_leaves_nothing_half_written"),
        ),
    ),
    Row(
        "Y",
        "a pipeline that writes records again to the topic of a delivery; a topic or a table that"
        " was created again",
        f"{EQUAL}; another topic or table is {REFUSED}",
        (
            *_out("deliveries", "the_store_equals_the_topic_and_repeats_are_not_written"),
            *_out("delivery_kafka", "the_copy_equals_the_topic_and_repeats_are_not_written"),
            *_out("kafka_target", "a_topic_that_was_created_again_is_refused"),
            *_out("postgres_target", "a_table_that_was_created_again_is_refused"),
        ),
    ),
    Row(
        "G",
        "kill -9 of a gateway at each point between receipt and answer; posts without an answer are"
        " sent again with their keys",
        "each record that was acknowledged is in the topic once, and each try has the same answer",
        _out("gateway", "a_kill_at_each_point_loses_and_repeats_no_record"),
    ),
    Row(
        "H",
        "instances of a gateway that freeze and wake up, join and leave; answers of brokers that"
        " are lost, repeated or refused; brokers that restart",
        "the same",
        (
            *_out(
                "gateway",
                "a_frozen_instance_that_wakes_up_writes_nothing_twice",
                "slots_move_between_instances_while_clients_post",
                "a_commit_whose_answer_is_lost_is_found_out",
                "brokers_that_restart_lose_and_repeat_no_record",
            ),
            *_out(
                "gateway_slots",
                "a_new_owner_knows_what_was_written_and_the_old_one_writes_no_more",
                "one_that_initialises_an_id_after_it_was_fenced_sees_the_newer_claim",
            ),
        ),
    ),
    Row(
        "I",
        "kill -9 of an enrichment at each point, also while it asks; one that was frozen; two"
        " instances, one of them killed",
        "each record has one answer, once; at most a batch is asked about again",
        _out(
            "enrichment",
            "a_kill_at_each_point_loses_no_record_and_records_no_answer_twice",
            "a_frozen_instance_that_wakes_up_late_writes_no_answer",
            "two_instances_share_the_partitions_and_one_goes_on_alone",
        ),
    ),
    Row(
        "K",
        "a service that is down, slow or overloaded, hangs up, refuses, or gives answers that are"
        " malformed, oversized or of another shape",
        "each record has one answer, or is in the dead letters",
        _out(
            "enrichment",
            "whatever_the_service_does_each_record_has_one_answer",
            "a_service_that_is_down_for_a_while_delays_and_loses_nothing",
            "records_without_a_usable_answer_are_set_aside",
        ),
    ),
)
