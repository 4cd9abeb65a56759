# SPDX-License-Identifier: Apache-2.0
"""The processor: the engine's for its own formats, threads of Python for those of others."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Sequence
from typing import NoReturn

from lmcache_aerospike import _log, _native
from lmcache_aerospike.serde._base import (
    Deserializer,
    KeyLike,
    SerdeFailure,
    SerdeProcessor,
    SerdeTaskId,
    Serializer,
)
from lmcache_aerospike.serde._formats import Stage, native_config
from lmcache_aerospike.serde._threads import ThreadedProcessor


def _backend(
    serializer: Serializer, deserializer: Deserializer, workers: int
) -> _native.SerdeProcessor | ThreadedProcessor:
    first = getattr(serializer, "_native", None)
    second = getattr(deserializer, "_native", None)
    if isinstance(first, _native.Serializer) and isinstance(second, _native.Deserializer):
        return _native.SerdeProcessor(first, second, workers)
    return ThreadedProcessor(serializer, deserializer, workers)


class AsyncSerdeProcessor(SerdeProcessor):
    """Runs a serializer and a deserializer on `max_workers` threads that serve both directions.

    Pairs of this package run in the engine, without the GIL: a task is spread over the threads by
    object, and a large object by slice. Pairs that are written in Python run in a pool of Python's
    threads, by object.

    Args:
        serializer: Of this package, of LMCache, or anything with its methods.
        deserializer: The same.
        max_workers: 1 to 256.
    """

    def __init__(
        self, serializer: Serializer, deserializer: Deserializer, max_workers: int = 1
    ) -> None:
        self._adopt(_backend(serializer, deserializer, max_workers), repr(serializer))

    @classmethod
    def from_config(cls, config: Stage) -> AsyncSerdeProcessor:
        """Makes the processor of a built-in format.

        Args:
            config: As in JSON: its type, its parameters, and `max_workers`.

        Raises:
            InvalidArgumentError: The type or a parameter is unknown, missing or out of range.
        """
        native = native_config(config)
        made = cls.__new__(cls)
        made._adopt(_native.SerdeProcessor.create(native), str(native.get("type")))  # noqa: SLF001
        return made

    def _adopt(self, backend: _native.SerdeProcessor | ThreadedProcessor, name: str) -> None:
        self._impl = backend
        self._name = name
        _log.start()
        _open.add(self)

    def get_serialize_event_fd(self) -> int:
        """The eventfd that is signalled once for each serialize task."""
        return self._impl.get_serialize_event_fd()

    def get_deserialize_event_fd(self) -> int:
        """The eventfd that is signalled once for each deserialize task."""
        return self._impl.get_deserialize_event_fd()

    def submit_serialize(
        self,
        src_objs: Sequence[object],
        dst_objs: Sequence[object],
        keys: Sequence[KeyLike | None] | None = None,
    ) -> SerdeTaskId:
        """Starts to serialize each of `src_objs` into the one of `dst_objs` beside it.

        Raises:
            InvalidArgumentError: A buffer or tensor that cannot be used, or lists of different
                lengths. Nothing was started.
            TypeError: An object without memory.
            ClosedError: After close(), or in a forked child.
        """
        return self._impl.submit_serialize(src_objs, dst_objs, keys)

    def query_serialize_result(self, task_id: SerdeTaskId) -> bool | None:
        """Whether all objects of the task were serialized: once for each task, None before."""
        return self._impl.query_serialize_result(task_id)

    def submit_deserialize(
        self,
        src_objs: Sequence[object],
        dst_objs: Sequence[object],
        keys: Sequence[KeyLike | None] | None = None,
    ) -> SerdeTaskId:
        """Starts to deserialize each of `src_objs` into the one of `dst_objs` beside it.

        Raises:
            InvalidArgumentError: As submit_serialize().
            TypeError: As submit_serialize().
            ClosedError: As submit_serialize().
        """
        return self._impl.submit_deserialize(src_objs, dst_objs, keys)

    def query_deserialize_result(self, task_id: SerdeTaskId) -> bool | None:
        """Whether all objects of the task were deserialized: once for each task, None before."""
        return self._impl.query_deserialize_result(task_id)

    def estimate_serialized_size(self, layout_desc: object) -> int:
        """An upper bound of what is written for tensors of this layout."""
        return self._impl.estimate_serialized_size(layout_desc)

    def last_errors(self) -> list[SerdeFailure]:
        """The newest failures, oldest first; the last 64 are kept."""
        return [SerdeFailure(*failure) for failure in self._impl.last_errors()]

    def close(self) -> None:
        """Ends what has not begun, waits for what has, frees threads and descriptors.

        Idempotent. Results can still be asked for.
        """
        self._impl.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name}>"

    def __reduce__(self) -> NoReturn:
        msg = f"cannot pickle {type(self).__name__}: it has threads; make another one"
        raise TypeError(msg)


# Threads must not be at work while the process takes its libraries down.
_open: weakref.WeakSet[AsyncSerdeProcessor] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for processor in list(_open):
        processor.close()
