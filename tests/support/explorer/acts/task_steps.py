"""Steps of Spark's tasks, which write into the transaction of a driver that may be gone."""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.explorer.checks import Truth
from tests.support.explorer.kafka import Lane, Status
from tests.support.explorer.run import Outcome, Outcomes


@dataclass(frozen=True)
class TaskSteps:
    """The writers that have joined the current epoch of a lane."""

    def write(self, lane: Lane, truth: Truth, number: int) -> Outcomes:
        """One of them writes, also after a commit or an abort: that opens another transaction.

        Whether the client adds partitions to the transaction, or the broker as records come
        (KIP-890), makes no difference to that.
        """
        if lane.id.is_unmarked:
            return
        for index, task in enumerate(lane.id.tasks):
            if task.has_written:
                continue
            is_open = lane.id.status is Status.ONGOING
            content = lane.id.content if is_open else task.write
            is_early = content.is_early or truth.committed < task.write.head.batch - 1
            content = content._replace(strays=content.strays + 1, is_early=is_early)
            left = (task._replace(has_written=True),) if not task.is_given_up else ()
            tasks = (*lane.id.tasks[:index], *left, *lane.id.tasks[index + 1 :])
            after = lane._replace(id=lane.id.opened(content)._replace(tasks=tasks))
            who = "a task that was given up" if task.is_given_up else "a task"
            label = f"{who} of R{task.write.run} writes on lane {number}"
            yield Outcome(
                label if is_open else f"{label}, which opens a transaction", (after, truth)
            )
