"""Steps of Kafka itself: messages arrive, markers are written, transactions time out."""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.explorer.checks import Truth, on_commit
from tests.support.explorer.kafka import HeadLog, Lane, Owner, Status
from tests.support.explorer.run import Outcome, Outcomes
from tests.support.explorer.scope import Fault, Scope


@dataclass(frozen=True)
class KafkaSteps:
    """The coordinators."""

    scope: Scope

    def coordinate_owner(self, owner: Owner) -> Outcomes:
        if owner.id.is_unmarked:
            yield Outcome("kafka: markers of a claim are written", (owner.marked(),))
        if owner.id.commits:
            after = owner._replace(id=owner.id.commit_arrives())
            yield Outcome("kafka: EndTxn(commit) of a claim arrives", (after,))
        if owner.id.status is Status.ONGOING and Fault.OWNER_TIMEOUT in self.scope.faults:
            after = owner._replace(id=owner.id.timed_out())
            yield Outcome("kafka: a claim times out", (after,))

    def coordinate_lane(self, lane: Lane, heads: HeadLog, truth: Truth, number: int) -> Outcomes:
        what = f"of lane {number}"
        if lane.id.is_unmarked:
            is_commit = lane.id.status is Status.PREPARE_COMMIT
            kind = "commit" if is_commit else "abort"
            after = lane._replace(id=lane.id.marked())
            marked = heads.marked(number, is_commit)
            yield Outcome(f"kafka: {kind} markers {what} are written", (after, marked, truth))
        if lane.id.commits:
            violation, decided = None, truth
            if lane.id.status is Status.ONGOING:
                violation, decided = on_commit(lane.id.content, truth, self.scope.delivery)
            after = lane._replace(id=lane.id.commit_arrives())
            label = f"kafka: EndTxn(commit) {what} arrives"
            yield Outcome(label, (after, heads, decided), violation)
        if lane.id.aborts:
            after = lane._replace(id=lane.id.abort_arrives())
            yield Outcome(f"kafka: EndTxn(abort) {what} arrives", (after, heads, truth))
        if lane.id.has_late_init:
            after = lane._replace(id=lane.id.late_init_arrives())
            yield Outcome(f"kafka: a late init {what} arrives", (after, heads, truth))
        if lane.id.status is Status.ONGOING and Fault.LANE_TIMEOUT in self.scope.faults:
            after = lane._replace(id=lane.id.timed_out())
            yield Outcome(f"kafka: the transaction {what} times out", (after, heads, truth))
