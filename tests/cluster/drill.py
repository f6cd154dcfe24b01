"""Releases in several modes, under load, that meet the same fault at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Event
from typing import TypeAlias

from onceflow.clock import SystemClock
from tests.cluster.cluster import Cluster
from tests.cluster.node import Node
from tests.cluster.release import READY_TIMEOUT_S, Release
from tests.support.eventually import eventually

Took: TypeAlias = dict[tuple[str, str], float]
"""Mode and fault -> seconds from its end until the next batch was committed."""
CLOCK = SystemClock()
FEED_EVERY_S = 0.5
OUTAGE_S = 120.0


@dataclass(frozen=True)
class Drill:
    """Releases that are drilled together."""

    cluster: Cluster
    releases: Mapping[str, Release]
    took: Took

    def only(self, mode: str) -> Drill:
        """The release of one mode."""
        return replace(self, releases={mode: self.releases[mode]})

    def befall(self, fault: str, strike: Callable[[Release], object]) -> None:
        """Let it happen to each release, in mid-stream."""
        self.befall_all(fault, lambda: [strike(each) for each in self.releases.values()])

    def befall_all(self, fault: str, strike: Callable[[], object]) -> None:
        """Let it happen once, to all of them in mid-stream; wait until all have committed again.

        Args:
            fault: how the table calls it.
            strike: returns when it is over, or when all has been done about it that people do.
        """
        for release in self.releases.values():
            release.wait_ready()
        with self._load():
            strike()
            over_s = CLOCK.monotonic_s()
            waiting = {mode: release.committed() for mode, release in self.releases.items()}

            def recovered() -> bool:
                for mode, before in list(waiting.items()):
                    if self.releases[mode].committed() > before:
                        self.took[mode, fault] = CLOCK.monotonic_s() - over_s
                        del waiting[mode]
                return not waiting

            try:
                eventually(recovered, timeout_s=READY_TIMEOUT_S)
            except AssertionError as error:
                told = [self.releases[mode].told() for mode in waiting]
                raise AssertionError("\n".join(told)) from error

    def finish(self) -> None:
        """Recompute the whole output of each here, and compare."""
        with ThreadPoolExecutor() as side_by_side:
            list(side_by_side.map(Release.finish, self.releases.values()))

    def node_of_drivers(self) -> Node:
        """Where all drivers run."""
        (name,) = {each.driver()["spec"]["nodeName"] for each in self.releases.values()}
        return self.cluster.node(name)

    def part_from_broker(self) -> Node:
        """Move all drivers to the node on which the broker is not; returns it."""
        broker = self.cluster.node_of_broker()
        (other,) = [node for node in self.cluster.nodes if node is not broker]

        def move(release: Release) -> None:
            if release.driver()["spec"]["nodeName"] != other.name:
                release.kubectl("delete", "pod", f"{release.name}-0", timeout_s=200)
            release.wait_ready()

        with self.cluster.cordoned(broker), ThreadPoolExecutor() as side_by_side:
            list(side_by_side.map(move, self.releases.values()))
        return other

    @contextmanager
    def _load(self) -> Iterator[None]:
        is_over = Event()

        def feed() -> None:
            while not is_over.wait(FEED_EVERY_S):
                for release in self.releases.values():
                    release.feed()

        with ThreadPoolExecutor(1) as thread:
            feeding = thread.submit(feed)
            try:
                yield
            finally:
                is_over.set()
                feeding.result()


def outage() -> None:
    """Two minutes pass."""
    end = CLOCK.within(OUTAGE_S)
    eventually(lambda: end.is_over, timeout_s=2 * OUTAGE_S)
