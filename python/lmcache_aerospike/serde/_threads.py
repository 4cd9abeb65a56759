# SPDX-License-Identifier: Apache-2.0
"""The processor of pairs that are written in Python: a pool of threads."""

from __future__ import annotations

import collections
import inspect
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from lmcache_aerospike import _log, metrics
from lmcache_aerospike.errors import ClosedError, InvalidArgumentError
from lmcache_aerospike.serde._base import (
    Deserializer,
    KeyLike,
    SerdeTaskId,
    Serializer,
)

_WORKERS_MAX: Final = 256
_ERRORS_KEPT: Final = 64
_SERIALIZE: Final = "serialize"
_DESERIALIZE: Final = "deserialize"

_Transform = Callable[[object, object, KeyLike | None], object]


def with_key(method: Callable[..., object]) -> _Transform:
    """The method itself if it takes a key, else one that leaves the key out."""
    try:
        parameters = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):
        return method
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    takes_key = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
    if takes_key or sum(parameter.kind in positional for parameter in parameters) >= 3:
        return method
    return lambda src, dst, _key: method(src, dst)


class _Task:
    """Objects of one submit. The processor's lock guards it once it runs."""

    def __init__(
        self,
        direction: str,
        transform: _Transform,
        fd: int,
        objects: list[tuple[object, object, KeyLike | None]],
    ) -> None:
        self.direction = direction
        self.transform = transform
        self.fd = fd
        self.objects = objects
        self.results: list[object] = [None] * len(objects)
        self.left = len(objects)
        self.failed = False


class ThreadedProcessor:
    """Tasks on threads of Python, each object on one of them.

    The same methods as the engine's processor. Transforms that hold the GIL gain nothing from more
    threads.
    """

    def __init__(self, serializer: Serializer, deserializer: Deserializer, workers: int) -> None:
        if not 1 <= workers <= _WORKERS_MAX:
            msg = f"max_workers: {workers}, expected 1 to {_WORKERS_MAX}"
            raise InvalidArgumentError(msg)
        self._process = os.getpid()
        self._estimate = serializer.estimate_serialized_size
        self._serialize = with_key(serializer.serialize)
        self._deserialize = with_key(deserializer.deserialize)
        self._lock = threading.Lock()
        self._closed = False
        self._next_id: SerdeTaskId = 1
        self._tasks: dict[SerdeTaskId, _Task] = {}
        self._errors: collections.deque[tuple[SerdeTaskId, int, BaseException]] = collections.deque(
            maxlen=_ERRORS_KEPT
        )
        flags = os.EFD_NONBLOCK | os.EFD_CLOEXEC
        self._serialize_fd = os.eventfd(0, flags)
        self._deserialize_fd = os.eventfd(0, flags)
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="lmcache-aerospike-serde")

    def get_serialize_event_fd(self) -> int:
        self._check_process()
        return self._serialize_fd

    def get_deserialize_event_fd(self) -> int:
        self._check_process()
        return self._deserialize_fd

    def submit_serialize(
        self,
        src_objs: Sequence[object],
        dst_objs: Sequence[object],
        keys: Sequence[KeyLike | None] | None = None,
    ) -> SerdeTaskId:
        self._check_process()
        objects = _side_by_side(src_objs, dst_objs, keys)
        return self._submit(_Task(_SERIALIZE, self._serialize, self._serialize_fd, objects))

    def submit_deserialize(
        self,
        src_objs: Sequence[object],
        dst_objs: Sequence[object],
        keys: Sequence[KeyLike | None] | None = None,
    ) -> SerdeTaskId:
        self._check_process()
        objects = _side_by_side(src_objs, dst_objs, keys)
        return self._submit(_Task(_DESERIALIZE, self._deserialize, self._deserialize_fd, objects))

    def query_serialize_result(self, task_id: SerdeTaskId) -> bool | None:
        task = self._take(task_id, _SERIALIZE)
        if task is None:
            return None
        return not task.failed and self._set_sizes(task_id, task)

    def query_deserialize_result(self, task_id: SerdeTaskId) -> bool | None:
        task = self._take(task_id, _DESERIALIZE)
        return None if task is None else not task.failed

    def estimate_serialized_size(self, layout: object) -> int:
        return self._estimate(layout)

    def last_errors(self) -> list[tuple[SerdeTaskId, int, BaseException]]:
        self._check_process()
        with self._lock:
            return list(self._errors)

    def close(self) -> None:
        if self._process != os.getpid():
            return
        with self._lock:
            self._closed = True
        # Also for whoever comes second: it returns when the first has ended the work. Objects that
        # wait fail quickly now, so that each task ends as it would otherwise.
        self._pool.shutdown(wait=True)
        with self._lock:
            fds = (self._serialize_fd, self._deserialize_fd)
            self._serialize_fd = self._deserialize_fd = -1
        for fd in fds:
            if fd >= 0:
                os.close(fd)

    def _check_process(self) -> None:
        if self._process != os.getpid():
            msg = "SerdeProcessor: made before a fork, expected one made in this process"
            raise ClosedError(msg)

    def _submit(self, task: _Task) -> SerdeTaskId:
        with self._lock:
            if self._closed:
                msg = "submit: the processor is closed"
                raise ClosedError(msg)
            task_id = self._next_id
            self._next_id += 1
            self._tasks[task_id] = task
            for index in range(len(task.objects)):
                self._pool.submit(self._run, task_id, task, index)
            if not task.objects:
                os.eventfd_write(task.fd, 1)
        return task_id

    def _run(self, task_id: SerdeTaskId, task: _Task, index: int) -> None:
        error: BaseException | None = None
        try:
            if self._closed:
                msg = "the processor was closed before this object was begun"
                error = ClosedError(msg)
            elif not task.failed:
                task.results[index] = task.transform(*task.objects[index])
        except BaseException as caught:  # whatever it was, the task must end
            error = caught
            metrics.observe_serde_failure(task.direction)
            _log.warn(f"python {task.direction}", f"serde in Python: {task.direction}: {caught!r}")
        with self._lock:
            if error is not None:
                task.failed = True
                self._errors.append((task_id, index, error))
            task.left -= 1
            if task.left == 0:
                # Under the lock: close() cannot come between the result and its signal.
                os.eventfd_write(task.fd, 1)

    def _take(self, task_id: SerdeTaskId, direction: str) -> _Task | None:
        self._check_process()
        with self._lock:
            task = self._tasks.get(task_id)
            if task is None or task.left > 0 or task.direction != direction:
                return None
            return self._tasks.pop(task_id)

    def _set_sizes(self, task_id: SerdeTaskId, task: _Task) -> bool:
        for index, ((_, dst, _), size) in enumerate(zip(task.objects, task.results, strict=True)):
            set_used_size = getattr(dst, "set_used_size", None)
            if set_used_size is None or not isinstance(size, int):
                continue
            try:
                set_used_size(size)
            except Exception as error:  # another's code: the task has failed
                with self._lock:
                    self._errors.append((task_id, index, error))
                return False
        return True


def _side_by_side(
    src_objs: Sequence[object],
    dst_objs: Sequence[object],
    keys: Sequence[KeyLike | None] | None,
) -> list[tuple[object, object, KeyLike | None]]:
    sources, targets = list(src_objs), list(dst_objs)
    all_keys = [None] * len(sources) if keys is None else list(keys)
    for name, values in (("dst_objs", targets), ("keys", all_keys)):
        if len(values) != len(sources):
            msg = f"{name}: {len(values)}, expected {len(sources)} as there are src_objs"
            raise InvalidArgumentError(msg)
    return list(zip(sources, targets, all_keys, strict=True))
