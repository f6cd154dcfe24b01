"""State of many keys at a time, by the messages that PySpark itself sends for one.

Calls wait for one answer only when a window of them has been sent. The other side answers them in
turn, each before it reads the next. So the two sides never wait for each other: a window fits into
what a socket holds, or is one call; and while answers come, this side only reads.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql.streaming.proto import StateMessage_pb2 as message
from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorApiClient
from pyspark.sql.types import TimestampType

from onceflow.errors import RetriableError
from onceflow.pipeline.process.rows import Key, plain_key
from onceflow.pipeline.process.stock import STATE
from onceflow.processing.runner import Handled

WINDOW_BYTES = 8_000
_HEAD = struct.Struct(">ii")
_SIZE = struct.Struct(">i")
_VERSION = 0
_DONE, _NONE_LEFT = 0, 2


class States:
    """State and timers of the keys of a task.

    Args:
        client: of the task.
    """

    def __init__(self, client: StatefulProcessorApiClient) -> None:
        self._client = client
        kinds = [field.dataType for field in client.key_schema]
        self._zoned = [isinstance(kind, TimestampType) for kind in kinds]
        # Not typed, or for text and bytes alike.
        self._pickle: Any = client.pickleSer
        self._socket: Any = client.sockfile
        # One object, filled in for each key: to make one for each takes ten times as long.
        self._to_key: Any = message.StateRequest()
        self._update: Any = message.StateRequest()
        self._update.stateVariableRequest.valueStateCall.stateName = STATE

    def get(self, keys: Iterable[Key]) -> list[bytes | None]:
        """The state of each key; None if it has none."""
        calls = (call for key in keys for call in (self._at(key), _GET))
        return [self._state(answer) for answer in self._answers(calls)][1::2]

    def put(self, changes: Iterable[tuple[Key, bytes | None, Handled]]) -> None:
        """Keep what was handled: for each key, with its state before."""
        for answer in self._answers(c for change in changes for c in self._changes(*change)):
            _checked(message.StateResponse, answer)

    def expired(self, watermark_ms: int) -> Iterator[Sequence[tuple[Key, int]]]:
        """Keys with timers that have expired, with their times: some thousands at once, by time."""
        expiry = message.ExpiryTimerRequest(expiryTimestampMs=watermark_ms, iteratorId=STATE)
        call = _request(timerRequest=message.TimerRequest(expiryTimerRequest=expiry))
        while True:
            [content] = self._answers([call])
            answer = _checked(message.StateResponseWithTimer, content)
            if answer.statusCode == _NONE_LEFT:
                return
            yield [(self._key(each.key), each.timestampMs) for each in answer.timer]
            if not answer.requireNextFetch:
                return

    def _changes(self, key: Key, before: bytes | None, handled: Handled) -> Iterator[bytes]:
        calls = []
        if handled.state is None and before is not None:
            calls.append(_CLEAR)
        elif handled.state != before:
            update = self._update.stateVariableRequest.valueStateCall.valueStateUpdate
            update.value = _pickled((handled.state,))
            calls.append(_framed(self._update))
        if handled.wake_ms != handled.wake_before_ms:
            if handled.wake_before_ms is not None:
                delete = message.DeleteTimer(expiryTimestampMs=handled.wake_before_ms)
                calls.append(_timer_call(delete=delete))
            if handled.wake_ms is not None:
                register = message.RegisterTimer(expiryTimestampMs=handled.wake_ms)
                calls.append(_timer_call(register=register))
        if calls:
            yield self._at(key)
            yield from calls

    def _at(self, key: Key) -> bytes:
        """The call that makes this the key of those that follow."""
        to_key = self._to_key.implicitGroupingKeyRequest.setImplicitKey
        to_key.key = _pickled(self._client.key_schema.toInternal(key))
        return _framed(self._to_key)

    def _key(self, content: bytes) -> Key:
        return plain_key(self._pickle.loads(content), self._zoned)

    def _state(self, content: bytes) -> bytes | None:
        answer = _checked(message.StateResponse, content)
        return bytes(self._pickle.loads(answer.value)[0]) if answer.value else None

    def _answers(self, calls: Iterable[bytes]) -> Iterator[bytes]:
        window: list[bytes] = []
        size = 0
        for call in calls:
            if window and size + len(call) > WINDOW_BYTES:
                yield from self._exchanged(window)
                window, size = [], 0
            window.append(call)
            size += len(call)
        yield from self._exchanged(window)

    def _exchanged(self, window: Sequence[bytes]) -> Iterator[bytes]:
        self._socket.write(b"".join(window))
        self._socket.flush()
        for _ in window:
            [length] = _SIZE.unpack(self._read(_SIZE.size))
            yield self._read(length)

    def _read(self, length: int) -> bytes:
        content: bytes = self._socket.read(length)
        if len(content) < length:
            raise RetriableError("Spark has closed the connection to the state of this task")
        return content


def _pickled(plain: tuple[Any, ...]) -> bytes:
    """As PySpark's serializer does it, whose provisions for functions and classes take 7 us."""
    return pickle.dumps(plain, pickle.HIGHEST_PROTOCOL)


def _request(**call: Any) -> bytes:
    return _framed(message.StateRequest(**call))


def _framed(request: Any) -> bytes:
    content: bytes = request.SerializeToString()
    return _HEAD.pack(_VERSION, len(content)) + content


def _value_call(**call: Any) -> bytes:
    value_call = message.ValueStateCall(stateName=STATE, **call)
    variable = message.StateVariableRequest(valueStateCall=value_call)
    return _request(stateVariableRequest=variable)


def _timer_call(**call: Any) -> bytes:
    timer_call = message.TimerStateCallCommand(**call)
    return _request(statefulProcessorCall=message.StatefulProcessorCall(timerStateCall=timer_call))


_GET = _value_call(get=message.Get())
_CLEAR = _value_call(clear=message.Clear())


def _checked(kind: Any, content: bytes) -> Any:
    answer = kind.FromString(content)
    if answer.statusCode not in {_DONE, _NONE_LEFT}:
        raise RetriableError("Spark could not read or write state", found=answer.errorMessage)
    return answer
