"""Sends the dead letters of a pipeline of a service again."""

from __future__ import annotations

from onceflow.clock import Deadline
from onceflow.errors import ConfigError
from onceflow.ops.dead_letters import Resender, Resent
from onceflow.serving import Service

REPLAY_TIMEOUT_S = 300.0
"""What was not sent by then is sent by the next replay."""


def replay_letters(service: Service, name: str) -> Resent:
    """Send those that were not sent before to the topics that they came from, each once.

    Args:
        service: runs the pipeline.
        name: of the pipeline there.

    Raises:
        ConfigError: its file is faulty, or there is no topic of dead letters.
        OnceflowError: as `Resender.resend`.
    """
    pipeline = service.load(name).pipeline
    if pipeline.dead_letter is None:
        raise ConfigError(
            "the pipeline has no dead-letter topic", expected="`dead_letter: {topic: ...}`"
        )
    around = service.around
    deadline = Deadline.after(around.clock, REPLAY_TIMEOUT_S)
    broker = around.connector.broker(around.connection)
    try:
        # Whoever asks for a topic waits much longer for brokers that are not there.
        broker.brokers(deadline)
        resender = Resender(
            pipeline.name,
            pipeline.dead_letter.topic,
            broker,
            lambda writer: around.connector.incarnation(writer, around.connection),
        )
        return resender.resend(deadline)
    finally:
        broker.close()
