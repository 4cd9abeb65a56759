# SPDX-License-Identifier: Apache-2.0
"""Events and the end: no lost wake-up, no write after close(), no call that never returns."""

from __future__ import annotations

import gc
import select
import threading
import time

import pytest
from lmcache_driver import GuardedObject, object_key, random_bytes, wire_key

from lmcache_aerospike import AerospikeNativeConnector
from lmcache_aerospike.errors import ClosedError


def is_signalled(fd: int, timeout_ms: int = 0) -> bool:
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(timeout_ms))


def test_the_event_is_a_level_that_draining_takes_down(server, set_name):
    connector = AerospikeNativeConnector(server.hosts, set_name=set_name)
    fd = connector.event_fd()
    assert not is_signalled(fd)
    assert connector.drain_completions() == []
    connector.submit_batch_exists(["a"])
    assert is_signalled(fd, 10_000)
    assert is_signalled(fd)  # still: nothing has been drained
    assert len(connector.drain_completions()) == 1
    assert not is_signalled(fd)
    assert connector.drain_completions() == []
    connector.close()


def test_ten_completions_need_one_wake_up(server, set_name):
    connector = AerospikeNativeConnector(server.hosts, set_name=set_name)
    futures = [connector.submit_batch_exists([f"key {i}"]) for i in range(10)]
    assert len(set(futures)) == 10
    deadline = time.monotonic() + 10
    completions = []
    while len(completions) < 10:
        assert time.monotonic() < deadline
        assert is_signalled(connector.event_fd(), 10_000)
        completions += connector.drain_completions()
    assert sorted(c[0] for c in completions) == sorted(futures)
    assert all(c[1:] == (True, "", [False]) for c in completions)
    assert not is_signalled(connector.event_fd())
    connector.close()


def test_no_wake_up_is_lost_between_submit_and_drain(server, set_name):
    connector = AerospikeNativeConnector(server.hosts, set_name=set_name)
    count = 3000
    finished: list[int] = []

    def drain() -> None:
        while len(finished) < count:
            if not is_signalled(connector.event_fd(), 10_000):
                return
            finished.extend(c[0] for c in connector.drain_completions())

    thread = threading.Thread(target=drain)
    thread.start()
    futures = [connector.submit_batch_exists([f"key {i}"]) for i in range(count)]
    thread.join(60)
    assert sorted(finished) == futures == sorted(futures)
    connector.close()


def test_close_ends_what_is_in_flight_and_nothing_is_written_later(make_adapter, server):
    driver = make_adapter(read_timeout_ms=60_000, request_timeout_ms=60_000)
    size, count = 2 << 20, 16
    keys = [object_key(i) for i in range(count)]
    content = random_bytes(0, size)
    assert driver.store_many(keys, [content] * count).is_successful()
    fault = server.add_fault(action="latency", delay_ms=300, kinds=["get"])
    objects = [GuardedObject(size) for _ in keys]
    driver.adapter.submit_load_task(keys, [o.memory for o in objects])
    server.await_fault(fault)
    before = server.stats()["connections_now"]
    started = time.monotonic()
    driver.close()
    assert time.monotonic() - started < 5
    # The buffers are LMCache's again, which puts something else into them.
    pattern = random_bytes(1, size)
    for item in objects:
        item.write(pattern)
    while server.stats()["connections_now"] >= before:
        assert time.monotonic() - started < 20
        select.select([], [], [], 0.02)  # the server's counters have no event
    assert all(item.bytes() == pattern for item in objects)


def test_close_completes_open_batches_and_is_idempotent(server, set_name):
    connector = AerospikeNativeConnector(
        server.hosts, set_name=set_name, read_timeout_ms=60_000, request_timeout_ms=60_000
    )
    server.add_fault(action="drop", kinds=["get", "batch"], set=set_name)
    buffers = [bytearray(b"\xa5" * 1000) for _ in range(3)]
    load = connector.submit_batch_get(["a", "b", "c"], [memoryview(b) for b in buffers])
    lookup = connector.submit_batch_exists(["a"])
    for _ in range(3):
        connector.close()
    completions = {c[0]: c for c in connector.drain_completions()}
    assert sorted(completions) == sorted([load, lookup])
    assert completions[load][1:] == (False, completions[load][2], [False] * 3)
    assert "clos" in completions[load][2]
    assert all(b == b"\xa5" * 1000 for b in buffers)
    assert connector.drain_completions() == []
    for submit in (
        lambda: connector.submit_batch_exists(["a"]),
        lambda: connector.submit_batch_delete(["a"]),
        lambda: connector.submit_batch_get(["a"], [memoryview(bytearray(1))]),
        lambda: connector.submit_batch_set(["a"], [memoryview(b"x")]),
    ):
        with pytest.raises(ClosedError):
            submit()


def test_many_threads_may_close_at_once(server, set_name):
    connector = AerospikeNativeConnector(server.hosts, set_name=set_name)
    threads = [threading.Thread(target=connector.close) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


def test_dropping_the_last_reference_waits_for_nobody(server, set_name):
    """A destructor that joined threads with the GIL held would hang here."""
    server.add_fault(action="latency", delay_ms=50, kinds=["get", "batch"], set=set_name)
    stop = threading.Event()

    def compete() -> None:
        while not stop.is_set():
            sum(range(100))

    thread = threading.Thread(target=compete)
    thread.start()
    started = time.monotonic()
    try:
        for i in range(50):
            connector = AerospikeNativeConnector(server.hosts, set_name=set_name)
            connector.submit_batch_get([f"key {i}"], [memoryview(bytearray(100_000))])
            del connector
    finally:
        stop.set()
        thread.join()
    gc.collect()
    assert time.monotonic() - started < 30


def test_a_failing_load_keeps_no_reference_to_its_buffers(server, set_name):
    connector = AerospikeNativeConnector(server.hosts, set_name=set_name)
    buffer = bytearray(1000)
    for i in range(500):
        connector.submit_batch_get([f"key {i}"], [memoryview(buffer)])
        assert is_signalled(connector.event_fd(), 10_000)
        connector.drain_completions()
    buffer.append(0)  # raises BufferError while anyone holds it
    connector.close()


def test_bad_arguments_start_nothing(server, set_name):
    connector = AerospikeNativeConnector(server.hosts, set_name=set_name)
    one = memoryview(bytearray(10))
    for call in (
        lambda: connector.submit_batch_exists([]),
        lambda: connector.submit_batch_get([], []),
        lambda: connector.submit_batch_get(["a", "b"], [one]),
        lambda: connector.submit_batch_set(["a"], [one, one]),
        lambda: connector.submit_batch_get(["a"], [memoryview(b"read only")]),
        lambda: connector.submit_batch_set(["a"], [memoryview(bytearray(16)).cast("I")]),
        lambda: connector.submit_batch_set(["a"], [memoryview(bytearray(16))[::2]]),
    ):
        with pytest.raises(RuntimeError):
            call()
    assert connector.drain_completions() == []
    assert not is_signalled(connector.event_fd())
    key = wire_key(object_key())
    connector.submit_batch_set([key], [one])
    assert is_signalled(connector.event_fd(), 10_000)
    ((_, ok, error, bits),) = connector.drain_completions()
    assert (ok, error, bits) == (True, "", [True])
    connector.close()
