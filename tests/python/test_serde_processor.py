# SPDX-License-Identifier: Apache-2.0
"""Processors: results, signals, sizes, failures, memory, close, fork; native and in Python."""

from __future__ import annotations

import fcntl
import gc
import os
import pickle
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator

import numpy as np
import pytest
from serde_waiting import WAIT_SECONDS, wait_deserialized, wait_readable, wait_serialized

from lmcache_aerospike import serde
from lmcache_aerospike.errors import ClosedError, CorruptionError, InvalidArgumentError

VALUES = np.linspace(-8, 8, 999, dtype=np.float32).reshape(3, 333)


class PythonSums(serde.Serializer):
    """The checksum format behind a class of Python's own."""

    def __init__(self) -> None:
        self.inner = serde.ChecksumSerializer()

    def serialize(self, src: object, dst: object, key: serde.KeyLike | None = None) -> int:
        return self.inner.serialize(src, dst, key)

    def estimate_serialized_size(self, layout_desc: object) -> int:
        return self.inner.estimate_serialized_size(layout_desc)


class PythonUnsum(serde.Deserializer):
    def __init__(self) -> None:
        self.inner = serde.ChecksumDeserializer()

    def deserialize(self, src: object, dst: object, key: serde.KeyLike | None = None) -> None:
        self.inner.deserialize(src, dst, key)


@pytest.fixture(params=["native", "python", "mixed"])
def processor(request: pytest.FixtureRequest) -> Iterator[serde.AsyncSerdeProcessor]:
    serializer = PythonSums() if request.param == "python" else serde.ChecksumSerializer()
    deserializer = serde.ChecksumDeserializer() if request.param == "native" else PythonUnsum()
    with serde.AsyncSerdeProcessor(serializer, deserializer, max_workers=2) as processor:
        yield processor


class Sized:
    """A target that wants to know its size, as LMCache's memory objects do."""

    def __init__(self, size: int, refuses: bool = False) -> None:
        self.byte_array = bytearray(size)
        self.sizes: list[int] = []
        self.refuses = refuses

    def get_shapes(self) -> list[tuple[int]]:
        return [(len(self.byte_array),)]

    def get_dtypes(self) -> list[str]:
        return ["uint8"]

    def set_used_size(self, size: int) -> None:
        if self.refuses:
            msg = "no such size"
            raise ValueError(msg)
        self.sizes.append(size)


def keys(count: int) -> list[serde.SerdeKey]:
    return [serde.SerdeKey(f"hash{i:04}".encode()) for i in range(count)]


def test_a_batch_there_and_back(processor: serde.AsyncSerdeProcessor) -> None:
    sources = [VALUES + i for i in range(7)]
    estimate = processor.estimate_serialized_size([(VALUES.shape, "float32")])
    assert estimate == VALUES.nbytes + 17
    buffers = [bytearray(estimate) for _ in sources]
    task = processor.submit_serialize(sources, buffers, keys(7))
    assert wait_serialized(processor, task) is True
    assert len({bytes(buffer) for buffer in buffers}) == 7
    targets = [np.zeros_like(VALUES) for _ in sources]
    other = processor.submit_deserialize(tuple(buffers), tuple(targets), keys(7))
    assert other != task
    assert wait_deserialized(processor, other) is True
    for source, target in zip(sources, targets, strict=True):
        assert np.array_equal(source, target)
    assert processor.last_errors() == []


def test_the_descriptors(processor: serde.AsyncSerdeProcessor) -> None:
    fds = processor.get_serialize_event_fd(), processor.get_deserialize_event_fd()
    assert fds[0] != fds[1]
    for fd in fds:
        assert fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK
        assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
        with pytest.raises(BlockingIOError):
            os.eventfd_read(fd)


def test_one_signal_and_one_result_for_each_task(processor: serde.AsyncSerdeProcessor) -> None:
    buffers = [bytearray(VALUES.nbytes + 17) for _ in range(60)]
    tasks = [processor.submit_serialize([VALUES], [buffer]) for buffer in buffers[:40]]
    signals = 0
    while signals < 40:
        signals += wait_readable(processor.get_serialize_event_fd())
    assert signals == 40
    assert [processor.query_deserialize_result(task) for task in tasks] == [None] * 40
    assert [processor.query_serialize_result(task) for task in tasks] == [True] * 40
    assert [processor.query_serialize_result(task) for task in tasks] == [None] * 40
    assert len(set(tasks)) == 40
    assert processor.query_serialize_result(10**9) is None
    with pytest.raises(BlockingIOError):
        os.eventfd_read(processor.get_deserialize_event_fd())


def test_an_empty_task_succeeds(processor: serde.AsyncSerdeProcessor) -> None:
    assert wait_serialized(processor, processor.submit_serialize([], [], [])) is True
    assert wait_deserialized(processor, processor.submit_deserialize([], [])) is True


def test_sizes_are_set_before_true_is_returned(processor: serde.AsyncSerdeProcessor) -> None:
    targets = [Sized(5000), Sized(6000)]
    task = processor.submit_serialize([VALUES, VALUES[:1]], targets)
    wait_readable(processor.get_serialize_event_fd())
    assert processor.query_serialize_result(task) is True
    assert [target.sizes for target in targets] == [[3996 + 17], [1332 + 17]]


def test_no_size_is_set_if_any_object_failed(processor: serde.AsyncSerdeProcessor) -> None:
    targets = [Sized(5000), Sized(100), Sized(5000)]
    task = processor.submit_serialize([VALUES] * 3, targets, keys(3))
    assert wait_serialized(processor, task) is False
    assert [target.sizes for target in targets] == [[], [], []]
    (failure,) = processor.last_errors()
    assert (failure.task_id, failure.index) == (task, 1)
    assert isinstance(failure.error, InvalidArgumentError)
    assert "100 bytes" in str(failure.error)


def test_a_target_that_refuses_its_size_fails_the_task(
    processor: serde.AsyncSerdeProcessor,
) -> None:
    targets = [Sized(5000), Sized(5000, refuses=True)]
    task = processor.submit_serialize([VALUES] * 2, targets)
    assert wait_serialized(processor, task) is False
    (failure,) = processor.last_errors()
    assert (failure.task_id, failure.index) == (task, 1)
    assert "no such size" in str(failure.error)


def test_one_damaged_object_fails_its_task_alone(processor: serde.AsyncSerdeProcessor) -> None:
    good = bytearray(VALUES.nbytes + 17)
    serde.ChecksumSerializer().serialize(VALUES, good)
    bad = bytearray(good)
    bad[-1] ^= 1
    targets = [np.zeros_like(VALUES) for _ in range(4)]
    failing = processor.submit_deserialize([good, bad], targets[:2])
    working = processor.submit_deserialize([good, good], targets[2:])
    signals = 0
    while signals < 2:
        signals += wait_readable(processor.get_deserialize_event_fd())
    assert processor.query_deserialize_result(failing) is False
    assert processor.query_deserialize_result(working) is True
    (failure,) = processor.last_errors()
    assert (failure.task_id, failure.index) == (failing, 1)
    assert isinstance(failure.error, CorruptionError)


def test_the_newest_failures_are_kept(processor: serde.AsyncSerdeProcessor) -> None:
    for _ in range(70):
        task = processor.submit_serialize([VALUES], [bytearray(10)])
        assert wait_serialized(processor, task) is False
    failures = processor.last_errors()
    assert len(failures) == 64
    assert [failure.task_id for failure in failures] == list(range(task - 63, task + 1))


def test_lists_of_different_lengths(processor: serde.AsyncSerdeProcessor) -> None:
    for submit in (processor.submit_serialize, processor.submit_deserialize):
        with pytest.raises(InvalidArgumentError, match="dst_objs: 1, expected 2"):
            submit([VALUES, VALUES], [bytearray(1)])
        with pytest.raises(InvalidArgumentError, match="keys: 1, expected 2"):
            submit([VALUES] * 2, [bytearray(1)] * 2, [None])
        with pytest.raises(TypeError):
            submit(5, [])
    for fd in (processor.get_serialize_event_fd(), processor.get_deserialize_event_fd()):
        with pytest.raises(BlockingIOError):
            os.eventfd_read(fd)


def test_objects_that_cannot_be_used_are_named_at_once() -> None:
    with serde.create_serde_processor({"type": "checksum"}) as processor:
        with pytest.raises(TypeError, match=r"src_objs\[1\]: str"):
            processor.submit_serialize([VALUES, "text"], [bytearray(5000), bytearray(5000)])
        with pytest.raises(InvalidArgumentError, match=r"dst_objs\[1\]: read-only"):
            processor.submit_serialize([VALUES] * 2, [bytearray(5000), bytes(5000)])
        with pytest.raises(TypeError, match=r"keys\[0\]: int"):
            processor.submit_serialize([VALUES], [bytearray(5000)], [5])
        with pytest.raises(InvalidArgumentError, match=r"dst_objs\[0\]: .*contiguous"):
            processor.submit_deserialize([bytes(5000)], [VALUES.T])
        with pytest.raises(TypeError):
            processor.query_serialize_result("1")


class Array(np.ndarray):
    """An array that can be watched."""


def test_memory_is_held_until_the_result_is_taken(processor: serde.AsyncSerdeProcessor) -> None:
    source = VALUES.copy().view(Array)
    target = np.zeros(5000, np.uint8).view(Array)
    watched = [weakref.ref(source), weakref.ref(target)]
    task = processor.submit_serialize([source], [target])
    del source, target
    gc.collect()
    assert all(watch() is not None for watch in watched)
    wait_readable(processor.get_serialize_event_fd())
    assert watched[1]()[:1].tobytes() == b"\x01"
    assert processor.query_serialize_result(task) is True
    gc.collect()
    # A worker of Python's pool may hold its last object until it takes the next.
    processor.close()
    assert [watch() for watch in watched] == [None, None]


def test_close_lets_go_of_memory_and_keeps_results(processor: serde.AsyncSerdeProcessor) -> None:
    target = Sized(5000)
    task = processor.submit_serialize([VALUES], [target])
    wait_readable(processor.get_serialize_event_fd())
    fds = processor.get_serialize_event_fd(), processor.get_deserialize_event_fd()
    processor.close()
    processor.close()
    assert processor.query_serialize_result(task) is True
    assert target.sizes == [3996 + 17]
    for submit in (processor.submit_serialize, processor.submit_deserialize):
        with pytest.raises(ClosedError, match="closed"):
            submit([], [])
    assert (processor.get_serialize_event_fd(), processor.get_deserialize_event_fd()) == (-1, -1)
    for fd in fds:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


class Slow(PythonSums):
    """Waits in the middle of an object."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Event()

    def serialize(self, src: object, dst: object, key: serde.KeyLike | None = None) -> int:
        self.begun.release()
        assert self.go_on.wait(WAIT_SECONDS)
        return super().serialize(src, dst, key)


def test_close_in_python_waits_for_what_has_begun_and_ends_the_rest() -> None:
    slow = Slow()
    processor = serde.AsyncSerdeProcessor(slow, PythonUnsum(), 1)
    first = processor.submit_serialize([VALUES], [bytearray(5000)])
    rest = [processor.submit_serialize([VALUES] * 3, [bytearray(5000)] * 3) for _ in range(5)]
    assert slow.begun.acquire(timeout=WAIT_SECONDS)
    assert processor.query_serialize_result(first) is None
    closers = [threading.Thread(target=processor.close) for _ in range(2)]
    for closer in closers:
        closer.start()
    while True:  # close() has been seen as soon as submits are refused
        try:
            rest.append(processor.submit_serialize([VALUES], [bytearray(5000)]))
        except ClosedError:
            break
    assert all(closer.is_alive() for closer in closers)
    slow.go_on.set()
    for closer in closers:
        closer.join(WAIT_SECONDS)
        assert not closer.is_alive()
    assert processor.query_serialize_result(first) is True
    assert [processor.query_serialize_result(task) for task in rest] == [False] * len(rest)
    assert all(isinstance(failure.error, ClosedError) for failure in processor.last_errors())


def test_close_during_flight_answers_every_task_once() -> None:
    processor = serde.AsyncSerdeProcessor(
        serde.ChecksumSerializer(), serde.ChecksumDeserializer(), 2
    )
    source = np.zeros(1 << 20, np.float32)
    buffers = [bytearray(source.nbytes + 17) for _ in range(8)]
    tasks = [processor.submit_serialize([source] * 8, buffers) for _ in range(10)]
    processor.close()
    results = [processor.query_serialize_result(task) for task in tasks]
    assert set(results) <= {True, False}
    assert [processor.query_serialize_result(task) for task in tasks] == [None] * 10


def test_many_threads_submit_and_ask() -> None:
    with serde.AsyncSerdeProcessor(
        serde.ChecksumSerializer(), serde.ChecksumDeserializer(), 3
    ) as processor:
        answered: list[int] = []

        def work() -> None:
            small = VALUES[0, :4].copy()
            for _ in range(300):
                task = processor.submit_serialize([small] * 2, [bytearray(33), bytearray(33)])
                result = None
                while result is None:
                    result = processor.query_serialize_result(task)
                assert result is True
                answered.append(task)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(answered) == list(range(1, 1201))
        assert os.eventfd_read(processor.get_serialize_event_fd()) == 1200


class Failing(serde.Serializer):
    """Fails as no transform should."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def serialize(self, src: object, dst: object) -> int:
        raise self.error

    def estimate_serialized_size(self, layout_desc: object) -> int:
        raise self.error


@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(3), KeyboardInterrupt()])
def test_whatever_python_raises_fails_the_task(error: BaseException) -> None:
    with serde.AsyncSerdeProcessor(Failing(error), PythonUnsum()) as processor:
        task = processor.submit_serialize([VALUES], [bytearray(10)])
        assert wait_serialized(processor, task) is False
        assert processor.last_errors() == [serde.SerdeFailure(task, 0, error)]
        with pytest.raises(type(error)):
            processor.estimate_serialized_size([])


def test_a_serializer_without_a_size_sets_none() -> None:
    class Silent(PythonSums):
        def serialize(self, *arguments: object) -> None:
            super().serialize(*arguments)

    target = Sized(5000)
    with serde.AsyncSerdeProcessor(Silent(), PythonUnsum()) as processor:
        task = processor.submit_serialize([VALUES], [target], keys(1))
        assert wait_serialized(processor, task) is True
    assert target.sizes == []


@pytest.mark.parametrize("workers", [0, -1, 257])
def test_the_number_of_threads_has_limits(workers: int) -> None:
    for serializer in (serde.ChecksumSerializer(), PythonSums()):
        with pytest.raises((InvalidArgumentError, TypeError), match=r"workers|incompatible"):
            serde.AsyncSerdeProcessor(serializer, serde.ChecksumDeserializer(), workers)


def test_what_a_processor_shows(processor: serde.AsyncSerdeProcessor) -> None:
    assert "AsyncSerdeProcessor" in repr(processor)
    with pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(processor)


def test_threads_end_with_their_processor() -> None:
    def threads() -> int:
        return len(os.listdir("/proc/self/task"))

    serde.AsyncSerdeProcessor(PythonSums(), PythonUnsum(), 4).close()
    serde.create_serde_processor({"type": "checksum", "max_workers": 4}).close()
    before, fds = threads(), len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        processor = serde.create_serde_processor({"type": "checksum", "max_workers": 4})
        processor.submit_serialize([VALUES], [bytearray(5000)])
        del processor  # without close()
    gc.collect()
    assert threads() == before
    assert len(os.listdir("/proc/self/fd")) == fds


FORK = """
import os, signal, warnings
warnings.simplefilter("ignore")
from lmcache_aerospike import errors, serde

class Upper(serde.Serializer):
    def serialize(self, src, dst): return 0
    def estimate_serialized_size(self, layout): return 0
class Lower(serde.Deserializer):
    def deserialize(self, src, dst): pass

made = [
    serde.create_serde_processor({"type": "checksum", "max_workers": 2}),
    serde.AsyncSerdeProcessor(Upper(), Lower()),
]
for processor in made:
    processor.submit_serialize([b"before"], [bytearray(100)])
child = os.fork()
if child == 0:
    signal.alarm(30)
    for processor in made:
        for use in (
            lambda: processor.submit_serialize([b"x"], [bytearray(100)]),
            lambda: processor.submit_deserialize([b"x"], [bytearray(100)]),
            lambda: processor.query_serialize_result(1),
            lambda: processor.query_deserialize_result(1),
            lambda: processor.last_errors(),
            lambda: processor.get_serialize_event_fd(),
        ):
            try:
                use()
            except errors.ClosedError as error:
                assert "fork" in str(error), error
            else:
                os._exit(3)
        processor.close()
    del made[0]
    with serde.create_serde_processor({"type": "checksum"}) as fresh:
        task = fresh.submit_serialize([b"x"], [bytearray(100)])
        while fresh.query_serialize_result(task) is None:
            pass
    os._exit(0)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
print("ok")
"""


def test_forked_child_gets_clear_errors_and_can_start_anew() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


END = """
import numpy as np
from lmcache_aerospike import serde
processor = serde.create_serde_processor({"type": "checksum", "max_workers": 2})
source = np.zeros(1 << 22, np.float32)
for _ in range(10):
    processor.submit_serialize([source], [bytearray(source.nbytes + 17)])
"""


def test_nothing_needs_to_be_closed_before_the_interpreter_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-c", END], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
