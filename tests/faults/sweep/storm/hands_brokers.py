"""Causes faults on brokers, chosen by what they do at that moment. Each proves that it fired."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from confluent_kafka import KafkaException
from kafka.errors import KafkaError

from onceflow.devkit.broker_start import answers
from onceflow.errors import DeadlineError, OnceflowError
from tests.faults.sweep.storm.draw import CONTROLLER, GROUPS, OUTPUT_LEADER, Fault
from tests.faults.sweep.storm.hands import (
    LANES,
    Hand,
    NotFiredError,
    Proof,
    Stage,
    require,
)
from tests.faults.sweep.storm.workload import INPUT_PARTITIONS, OUTPUT_PARTITIONS
from tests.support.brokers.cluster import (
    CONSUMER_OFFSETS,
    TRANSACTION_STATE,
    FaultyBroker,
    FaultyCluster,
    controller_of,
    coordinator_of,
    group_coordinator_of,
    leader_of,
    move_leader,
    partition_of_group,
    partition_of_transactional_id,
)

MAX_HEALS = 4


def kill_broker(stage: Stage, fault: Fault) -> Proof:
    broker = _met(stage, fault)
    broker.kill()
    return _gone(stage, fault, broker)


def stop_broker(stage: Stage, fault: Fault) -> Proof:
    broker = _met(stage, fault)
    try:
        broker.stop()
    except DeadlineError:
        # On a busy machine it may not hand over in time; its supervisor then kills it.
        broker.kill()
    return _gone(stage, fault, broker)


def freeze_broker(stage: Stage, fault: Fault) -> Proof:
    broker = _met(stage, fault)
    broker.freeze()
    try:
        is_frozen = broker.is_running and not answers(broker.address, 1)
        stage.clock.sleep(fault.hold_s)
    finally:
        broker.thaw()
    require(is_frozen, "it still answered")
    return {"broker": broker.node_id, "role": fault.role, "for_s": fault.hold_s}


def move_leaders(stage: Stage, fault: Fault) -> Proof:
    """The brokers of the role's partition; of all that we use, if the fault is a hard one."""
    places = _places(stage, fault)
    chosen = places if fault.is_hard else [places[int(fault.pick * len(places))]]
    moved = []
    for topic, partition in chosen:
        before = leader_of(stage.cluster, topic, partition)
        others = [each for each in stage.cluster.brokers if each.node_id != before.node_id]
        to = others[int(fault.pick * len(others))]
        move_leader(stage.cluster, topic, partition, to)
        moved.append(f"{topic}-{partition}: {before.node_id} -> {to.node_id}")
    return {"moved": moved}


def _met(stage: Stage, fault: Fault) -> FaultyBroker:
    if fault.role == CONTROLLER:
        return controller_of(stage.cluster)
    if fault.role == GROUPS:
        return group_coordinator_of(stage.cluster, _group(stage))
    if fault.role == OUTPUT_LEADER:
        partition = int(fault.pick * OUTPUT_PARTITIONS)
        return leader_of(stage.cluster, stage.names.output_topic, partition)
    return coordinator_of(stage.cluster, _lane(stage, fault))


def _gone(stage: Stage, fault: Fault, broker: FaultyBroker) -> Proof:
    is_gone = not broker.is_running
    stage.clock.sleep(fault.hold_s)
    broker.restart()
    require(is_gone, "it was still running")
    return {"broker": broker.node_id, "role": fault.role, "for_s": fault.hold_s}


def _places(stage: Stage, fault: Fault) -> list[tuple[str, int]]:
    names = stage.names
    lane = partition_of_transactional_id(stage.cluster, _lane(stage, fault))
    return [
        (TRANSACTION_STATE, lane),
        (CONSUMER_OFFSETS, partition_of_group(stage.cluster, _group(stage))),
        (names.ledger, 0),
        (names.ledger, 1),
        *((names.output_topic, partition) for partition in range(OUTPUT_PARTITIONS)),
        *((names.input_topic, partition) for partition in range(INPUT_PARTITIONS)),
    ]


def _group(stage: Stage) -> str:
    return f"onceflow.{stage.names.pipeline}"


def _lane(stage: Stage, fault: Fault) -> str:
    return f"onceflow.{stage.names.pipeline}.s0.l{int(fault.pick * LANES)}"


def heal(cluster: FaultyCluster) -> None:
    """Until it is whole. A broker of a busy machine may need longer than one wait has patience.

    Raises:
        AssertionError, OnceflowError: it does not become whole.
    """
    for _ in range(MAX_HEALS - 1):
        with suppress(AssertionError, OnceflowError):
            cluster.heal()
            return
    cluster.heal()


def _healed(hand: Hand) -> Hand:
    """Whatever becomes of a fault, the cluster is whole before the next one comes."""

    def play(stage: Stage, fault: Fault) -> Proof:
        try:
            return hand(stage, fault)
        except (OnceflowError, KafkaException, KafkaError) as error:
            raise NotFiredError(repr(error)) from error
        finally:
            heal(stage.cluster)

    return play


BROKER_HANDS: Mapping[str, Hand] = {
    "kill-broker": _healed(kill_broker),
    "stop-broker": _healed(stop_broker),
    "freeze-broker": _healed(freeze_broker),
    "move-leaders": _healed(move_leaders),
}
