"""The proxy's listeners, connections and cuts, and what is left of it: nothing.

What the same does to real brokers and clients is in tests/integration/test_chaos_proxy.py.
"""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import pytest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

from tests.chaos import ChaosProxy, Rule
from tests.support.eventually import eventually
from tests.support.fakes.raw_kafka import (
    OF_BROKER,
    ListeningBroker,
    RawClient,
    heartbeat,
    request_frame,
)

NOBODY = "127.0.0.1:1"
"""Nothing listens on a port so low."""
THREAD = "onceflow-chaos"


def test_a_cut_closes_connections_and_refuses_new_ones_until_it_is_healed(
    proxy: ChaosProxy, client: RawClient
) -> None:
    client.send(heartbeat("before"))
    client.receive()

    proxy.cut(broker=1)

    assert client.receive() == b""
    with RawClient(proxy.bootstrap_servers) as refused:
        assert refused.receive() == b""
    proxy.heal()
    with RawClient(proxy.bootstrap_servers) as again:
        again.send(heartbeat("after"))
        assert again.receive()[OF_BROKER:] == heartbeat("after")


def test_another_broker_is_cut(proxy: ChaosProxy, client: RawClient) -> None:
    proxy.cut(broker=2)

    client.send(heartbeat("here"))

    assert client.receive()[OF_BROKER:] == heartbeat("here")


def test_a_silent_cut_keeps_connections_and_what_is_in_them(
    proxy: ChaosProxy, client: RawClient
) -> None:
    client.send(heartbeat("before"))
    client.receive()

    proxy.cut(is_silent=True)

    client.send(heartbeat("during"))
    assert client.is_silent()
    with RawClient(proxy.bootstrap_servers) as later:
        later.send(heartbeat("later"))
        assert later.is_silent()
        proxy.heal()
        assert later.receive()[OF_BROKER:] == heartbeat("later")
    assert client.receive()[OF_BROKER:] == heartbeat("during")


def test_what_is_no_kafka_ends_its_connection_alone(proxy: ChaosProxy, client: RawClient) -> None:
    with RawClient(proxy.bootstrap_servers) as stranger:
        stranger.send(b"GET")
        assert stranger.receive() == b""
    client.send(heartbeat("well"))

    assert client.receive()[OF_BROKER:] == heartbeat("well")


def test_a_broker_that_appears_moves_and_goes_is_reached_through_the_proxy(
    proxy: ChaosProxy, listening: ListeningBroker
) -> None:
    with ListeningBroker(node_id=2) as late, RawClient(proxy.bootstrap_servers) as client:
        assert addresses(client) == {1: proxy.bootstrap_servers}
        listening.others.append(late)

        found = addresses(client)

        assert found[1] == proxy.bootstrap_servers
        assert late.address not in found.values()
        with RawClient(found[2]) as of_late:
            of_late.send(heartbeat("late"))
            assert late.next_request() == heartbeat("late")
    with ListeningBroker(node_id=2) as moved, RawClient(proxy.bootstrap_servers) as client:
        listening.others[:] = [moved]
        assert addresses(client) == found
        with RawClient(found[2]) as of_moved:
            of_moved.send(heartbeat("moved"))
            assert moved.next_request() == heartbeat("moved")
    with RawClient(found[2]) as of_nobody:
        assert of_nobody.receive() == b""


def addresses(client: RawClient) -> dict[int, str]:
    answer = client.ask(MetadataRequest[9](topics=[]))
    return {broker.node_id: f"{broker.host}:{broker.port}" for broker in answer.brokers}


def test_nothing_is_left_behind(listening: ListeningBroker) -> None:
    sockets = open_sockets()
    with ChaosProxy(listening.address) as proxy:
        rule = proxy.add(Rule(on="request", action="hold"))
        address = proxy.bootstrap_servers
        with RawClient(address) as client:
            client.send(heartbeat("held forever"))
            rule.wait_fired()
        assert THREAD in thread_names()

    assert THREAD not in thread_names()
    # The broker's own ends of them go with its threads.
    eventually(lambda: len(open_sockets()) <= len(sockets))
    with pytest.raises(ConnectionRefusedError):
        RawClient(address)


def test_connections_that_come_as_it_ends_are_closed_too(listening: ListeningBroker) -> None:
    for _ in range(30):
        with ChaosProxy(listening.address) as proxy:
            client = RawClient(proxy.bootstrap_servers)
        client.close()
    gc.collect()  # what was left would warn now, which is an error


def test_an_answer_that_cannot_be_read_fails_the_proxy(listening: ListeningBroker) -> None:
    asked = request_frame(FindCoordinatorRequest[4](key_type=1, coordinator_keys=["t"]))

    proxy = ChaosProxy(listening.address)

    with proxy, RawClient(proxy.bootstrap_servers) as client:
        client.send(asked)
        assert client.receive() == b""
        with pytest.raises(RuntimeError, match="failed"):
            proxy.__exit__(None, None, None)


def thread_names() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def open_sockets() -> set[str]:
    links = (link for link in Path("/proc/self/fd").iterdir() if link.is_symlink())
    return {str(link) for link in links if str(link.readlink()).startswith("socket:")}


def test_a_proxy_without_brokers_does_not_start() -> None:
    with pytest.raises(ConnectionError, match="no broker answers") as refusal:
        ChaosProxy(NOBODY + ",nonsense").__enter__()

    assert NOBODY in str(refusal.value)
    assert THREAD not in thread_names()


def test_a_proxy_that_has_ended_takes_no_rules(listening: ListeningBroker) -> None:
    with ChaosProxy(listening.address) as proxy:
        pass

    with pytest.raises(RuntimeError, match="not entered"):
        proxy.add(Rule(on="request", action="pass"))
