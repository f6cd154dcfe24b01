"""The fault matrix: each row, what is demanded of it, and the tests that play it.

The numbers 1 to 27 are those of the project's research on Kafka transactions; rows with a letter
came later. A test fails if a test named here does not exist, or if one of `tests/faults` is named
nowhere (`tests/unit/faults/test_fault_matrix.py`).
"""

from __future__ import annotations

from tests.faults.matrix_beyond import BEYOND_PIPELINES
from tests.faults.row import ONCE, REFUSED, Absent, Row


def _in(file: str, *names: str) -> tuple[str, ...]:
    return tuple(f"tests/faults/test_{file}.py::test_{name}" for name in names)


_PROCESSORS = "tests/integration/test_processors.py"
_LOST_LEDGER = "tests/integration/test_lost_ledger.py"
_EXECUTORS = _in("executors", "a_pipeline_goes_on_when_what_runs_its_tasks_is_killed")
_REQUESTS = _in("requests", "one_that_is_lost_or_late_or_repeated")

ROWS: tuple[Row, ...] = (
    Row(
        "1",
        "kill -9 of the Python worker that runs a task of a processor",
        ONCE,
        _EXECUTORS,
    ),
    Row("2", "kill -9 of an executor's JVM", ONCE, _EXECUTORS),
    Row(
        "3",
        "a death of the driver at four of 13 points of a take-over and a commit, which a seed"
        " draws; kill -9 of its process at some of them",
        ONCE,
        (
            *_in(
                "crash_points",
                "a_death_at_every_crash_point_loses_and_repeats_no_record",
                "no_crash_point_loses_or_repeats_a_record",
            ),
            f"{_PROCESSORS}::test_state_and_timers_lose_and_repeat_nothing_whatever_crashed",
        ),
    ),
    Row(
        "4",
        "a driver stopped beyond its transaction time-out, or between two steps, and continued",
        f"it writes nothing more and ends with 4; {ONCE}",
        (
            *_in(
                "processes",
                "a_driver_frozen_beyond_its_transaction_timeout_writes_nothing_when_thawed",
            ),
            *_in(
                "drivers",
                "a_zombie_held_before_its_commit_is_fenced_by_its_successor",
                "a_driver_that_was_taken_over_writes_nothing_more",
            ),
        ),
    ),
    Row(
        "5",
        "two drivers on one checkpoint, once or in turn",
        f"the first ends with 4; {ONCE}",
        (
            *_in("processes", "the_second_of_two_drivers_wins_and_the_first_ends_with_4"),
            *_in("rivals", "two_drivers_stopped_and_continued_in_turn"),
            *_in(
                "drivers",
                "two_drivers_in_turn_never_repeat_a_batch",
                "fewer_lanes_than_the_predecessor_fence_them_all",
                "a_death_between_claim_and_fence_keeps_the_larger_layout",
            ),
        ),
    ),
    Row(
        "6",
        "a foreign client initialises our transactional ids, once or again and again",
        f"{ONCE}; the driver goes on",
        (
            *_in("rivals", "a_stranger_who_keeps_initialising_our_transactional_ids"),
            *_in(
                "drivers",
                "a_foreign_client_on_our_lane_in_mid_transaction_loses_nothing",
                "an_answer_lost_while_another_process_initialises_the_lane",
            ),
        ),
    ),
    Row(
        "7",
        "the answer to a commit is lost",
        f"resolved by fence and ledger; {ONCE}",
        (
            *_REQUESTS,
            *_in(
                "drivers",
                "a_commit_whose_answer_is_lost_is_found_in_the_ledger",
                "an_outcome_that_nobody_can_tell_stops_the_driver",
                "a_death_before_finding_out_is_decided_by_the_next_start",
            ),
        ),
    ),
    Row(
        "8",
        "a request to commit is lost, repeated, or held until a later transaction (KAFKA-17754)",
        ONCE,
        (
            *_REQUESTS,
            *_in("requests", "a_commit_held_back_into_the_next_transaction_of_its_lane"),
            *_in("drivers", "what_was_not_committed_is_written_again"),
        ),
    ),
    Row(
        "9",
        "any other request of a transaction, or its answer, lost, late, repeated or falsified",
        ONCE,
        (
            *_REQUESTS,
            *_in(
                "requests",
                "a_refusal_in_place_of_an_answer",
                "records_held_back_beyond_the_abort_of_their_transaction",
                "a_claim_whose_answer_is_lost",
                "no_answer_to_any_fence_is_a_start_that_fails_and_says_so",
                "a_group_coordinator_that_is_not_found_holds_a_driver_until_its_deadline_only",
            ),
        ),
    ),
    Row(
        "10",
        "a broker killed or stopped: leader, coordinators, controller; each in turn; the"
        " coordinator between PrepareCommit and its markers",
        f"{ONCE}; the pipeline goes on",
        (
            *_in(
                "brokers",
                "a_broker_that_is_lost_in_the_middle_of_a_transaction",
                "a_coordinator_killed_between_prepare_commit_and_its_markers",
                "a_pipeline_goes_on_while_each_broker_in_turn_is_lost",
                "a_start_while_a_broker_is_down",
            ),
            *_in("reading", "reading_goes_on_at_another_broker"),
        ),
    ),
    Row(
        "11",
        "all brokers down in the middle of a transaction",
        ONCE,
        _in("brokers", "all_brokers_down_in_the_middle_of_a_transaction"),
    ),
    Row(
        "12",
        "the driver cut off from one broker or from all; a slow link; a stream in small pieces",
        f"it goes on, or ends with 5 and is started again; {ONCE}",
        (
            *_in("brokers", "a_driver_cut_off_from_one_broker"),
            *_in("reading", "brokers_that_are_silent_are_named_when_the_time_is_over"),
            *_in(
                "requests",
                "a_driver_cut_off_in_mid_transaction_cannot_tell_and_stops",
                "a_slow_link",
                "a_stream_in_small_pieces",
            ),
        ),
    ),
    Row(
        "13",
        "leaders of the output and of Kafka's own topics move during a transaction (KAFKA-21181)",
        ONCE,
        _in("brokers", "leaders_that_move_in_the_middle_of_a_transaction"),
    ),
    Row(
        "14",
        "fewer replicas in sync than demanded; a disk full under a broker",
        f"nothing is acknowledged that could be lost; {ONCE} afterwards",
        (
            *_in("brokers", "fewer_replicas_in_sync_than_the_topic_demands"),
            *_in("disks_and_clocks", "a_disk_that_is_full_under_a_broker"),
        ),
    ),
    Row(
        "15",
        "a transaction that takes longer than its time-out",
        ONCE,
        _in("rivals", "kafka_aborts_a_transaction_that_takes_too_long"),
    ),
    Row(
        "16",
        "a record too large in the middle of a batch",
        REFUSED,
        _in(
            "topics", "a_record_too_large_in_the_middle_of_a_batch_is_named_and_nothing_is_written"
        ),
    ),
    Row(
        "17",
        "the ledger deleted under a driver; `__consumer_offsets` deleted",
        f"ledger: {REFUSED}; offsets: {ONCE}",
        _in(
            "topics",
            "a_ledger_deleted_under_a_driver_stops_it_with_nothing_written",
            "consumer_offsets_deleted_under_a_driver_change_nothing",
        ),
    ),
    Row(
        "19",
        "each file of the checkpoint deleted, truncated, falsified or restored from before; the"
        " checkpoint of another query",
        f"{ONCE}, or refused by an error that names the file and the cure",
        (
            *_in(
                "checkpoint_files",
                "a_start_is_refused_before_it_stops_anybody",
                "what_spark_loads_is_right_or_refused",
                "what_no_start_needs_hinders_none",
            ),
            *_in("drivers", "a_driver_that_would_be_refused_has_written_nothing_but_its_claim"),
        ),
    ),
    Row(
        "20",
        "partitions added to the input and to the output; the output topic deleted, or replaced",
        f"{ONCE}; an output topic that is another one is {REFUSED}",
        _in(
            "topics",
            "partitions_added_to_the_input_are_read_from_their_beginning",
            "partitions_added_to_the_output_move_no_key",
            "an_output_topic_made_anew_is_refused_at_the_next_start",
            "an_output_topic_that_goes_while_a_pipeline_runs_halts_it",
        ),
    ),
    Row(
        "21",
        "a foreign transaction that is left open on the output topic",
        f"readers wait for it, the pipeline does not; {ONCE}",
        _in("topics", "a_foreign_transaction_on_the_output_delays_readers_and_nothing_else"),
    ),
    Row(
        "25",
        "the last epoch of a transactional id, idle and in the middle of a transaction (written"
        " into Kafka's log instead of initialising 32,765 times); ids that expire while nothing"
        " comes in",
        f"another producer id, and zombies stay fenced; {ONCE}",
        _in(
            "transactional_ids",
            "ids_that_expire_while_nothing_comes_in",
            "ids_whose_epochs_are_used_up",
        ),
    ),
    Row(
        "26",
        "a broker's clock jumps by an hour, forward and back, in the middle of transactions",
        ONCE,
        _in("disks_and_clocks", "a_brokers_clock_that_jumps_in_the_middle_of_transactions"),
    ),
    Row(
        "M",
        "every delivery mode: a driver that dies at each point of a commit, answers and requests"
        " that are lost, records refused, a zombie at each point after its successor",
        "exactly_once: nothing; at_least_once: repeats with the same sequences, which the consumer"
        " library discards; at_most_once: losses that the ledger names",
        _in(
            "delivery_modes",
            "exactly_once_allows_nothing",
            "at_least_once_repeats_with_the_same_sequences_and_loses_nothing",
            "at_most_once_repeats_nothing_and_names_what_may_be_lost",
            "a_batch_that_its_writer_saw_written_is_not_named_by_the_next",
        ),
    ),
    Row(
        "A",
        "SIGTERM or SIGINT in the middle of a batch",
        f"the batch is committed, nothing is left open; {ONCE}",
        _in("processes", "instances_that_stand_by_take_over_from_one_killed_frozen_and_drained"),
    ),
    Row(
        "N",
        "a second SIGTERM while the first is obeyed",
        f"the process ends at once; {ONCE}",
        _in("processes", "instances_that_stand_by_take_over_from_one_killed_frozen_and_drained"),
    ),
    Row(
        "O",
        "the driver killed, frozen or drained while another one stands by",
        f"that one takes over by itself, and one that comes back ends with 4; {ONCE}",
        _in(
            "processes",
            "instances_that_stand_by_take_over_from_one_killed_frozen_and_drained",
        ),
    ),
    Row(
        "P",
        "one pipeline of many in a process fails, for good or for a while; two of one name",
        f"the others go on, and so does that one if it may; {ONCE}",
        _in(
            "services",
            "what_happens_to_one_pipeline_is_not_felt_by_the_others",
            "when_no_pipeline_is_left_the_process_ends_with_the_reason",
        ),
    ),
    Row(
        "J",
        "SIGKILL or SIGTERM for Spark's JVM under a driver that lives, at its start or later",
        f"the driver ends at once with 3 and says why; {ONCE}",
        _in(
            "jvms",
            "without_its_jvm_a_service_ends_to_be_started_again_and_loses_nothing",
        ),
    ),
    Row(
        "B",
        "a disk full under the checkpoint",
        f"the process ends and says so; {ONCE} when there is room",
        _in(
            "checkpoint_disks",
            "a_full_disk_stops_a_running_pipeline_and_nothing_is_lost",
            "a_new_pipeline_on_a_full_disk_is_refused_and_starts_when_there_is_room",
        ),
    ),
    Row(
        "L",
        "ledger and checkpoint lost, the output kept, or trimmed as well",
        f"{REFUSED}, and the remedy numbers on; or readers raise an error that names the pipeline",
        tuple(
            f"{_LOST_LEDGER}::test_{name}"
            for name in (
                "what_is_written_after_ledger_and_checkpoint_were_lost_is_delivered",
                "of_partitions_of_which_one_was_trimmed_all_begin_another_lineage",
            )
        ),
    ),
    Row(
        "R",
        "the ledger lost, two generations in the output",
        f"rebuilt for the newest generation; {ONCE}",
        (f"{_LOST_LEDGER}::test_a_ledger_is_rebuilt_for_the_newest_of_two_generations",),
    ),
    Row(
        "C",
        "kill -9 during the upload of a snapshot of the state",
        ONCE,
        _in("checkpoint_disks", "a_death_during_the_upload_of_a_snapshot"),
    ),
    Row(
        "D",
        "a pipeline stopped for ten minutes while 5,000 records a second come in (with 20"
        " seeds: 3 seconds)",
        f"no producer notices, and no record is late when it catches up; {ONCE}",
        _in("outages", "a_stopped_pipeline_under_load_loses_nothing_and_hinders_no_producer"),
    ),
    Row(
        "E",
        "all brokers gone for 60 seconds under load, four times as long as a transaction may last"
        " (with 20 seeds: 4 seconds)",
        f"the pipeline goes on by itself; {ONCE}",
        _in("outages", "a_pipeline_goes_on_by_itself_after_an_outage_of_all_brokers"),
    ),
    Row(
        "F",
        "a death at any point of a take-over or a commit, or of all executors, while references"
        " change",
        f"each batch has the versions that the ledger names; {ONCE}",
        _in(
            "references",
            "a_death_at_every_crash_point_leaves_each_batch_its_version",
            "a_kill_in_mid_run_leaves_each_batch_its_version",
            "rows_that_are_lost_with_all_executors_are_made_again",
        ),
    ),
    Row(
        "S",
        "clients that write into a driver's transaction: killed, frozen, late, or writing after its"
        " end; a driver that was replaced, a transaction that timed out, brokers that change. No"
        " pipeline writes so yet",
        "what the driver has committed is read, and nothing else",
        (
            *_in(
                "joined_writers",
                "several_write_and_the_driver_commits",
                "nothing_is_committed_without_a_record_of_the_driver",
                "a_zombie_between_the_end_and_the_next_initialisation",
                "a_zombie_after_the_next_initialisation",
                "a_driver_that_was_replaced",
                "a_writer_that_is_killed_while_it_writes",
                "a_writer_that_is_frozen_before_it_reports",
                "a_transaction_that_does_not_exist",
                "a_request_that_was_held_and_sent_again",
                "a_transaction_that_times_out_while_a_writer_writes",
                "a_cluster_that_changes_in_the_middle",
            ),
            *_in("writer_tasks", "a_batch_whose_writers_are_killed"),
        ),
    ),
    *BEYOND_PIPELINES,
)

NOT_HERE: tuple[Absent, ...] = (
    Absent(
        "18",
        "a ledger entry that expires",
        "The ledger is a compacted topic, of which the newest entry of each key never expires. The"
        " committed offsets do, and decide nothing: row 17 deletes them.",
    ),
    Absent(
        "22",
        "speculative execution, a stage that runs again",
        "Tasks write nothing: one writer, on the driver. Speculation is refused at the start"
        " (`tests/faults/mutants/test_settings.py`); tasks that run again are rows 1 and 2.",
    ),
    Absent(
        "23",
        "a query that is not deterministic",
        "Needs no cluster: refused by name before a start, or caught by the digest of a replay"
        " (`tests/spark/test_pipeline_analysis.py`, `tests/unit/protocol/test_digest.py`).",
    ),
    Absent(
        "24",
        "a consumer that is killed, expelled or moved back",
        "A fault of readers, played with both consumer libraries on a real broker"
        " (`tests/integration/test_consumer_crash.py`, `test_consumer_contract.py`).",
    ),
    Absent(
        "26, driver",
        "the clock of the driver jumps",
        "Not played: under libfaketime, which would have to do it, a running librdkafka may wait"
        " for an hour by itself. That a clock which is set back is noticed, and ends the process,"
        " is shown with a simulated clock (`tests/unit/runtime/test_clock_watch.py`).",
    ),
    Absent("27", "a random mix of all of it for an hour", "The storm, below."),
)
