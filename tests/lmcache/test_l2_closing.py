# SPDX-License-Identifier: Apache-2.0
"""The end of the plugin adapter, and ends of servers under it."""

from __future__ import annotations

import gc
import os
import select
import threading
import time

import pytest
from lmcache_driver import (
    AdapterDriver,
    GuardedObject,
    create_adapter,
    object_key,
    plugin_spec,
    random_bytes,
)

from lmcache_aerospike import _native
from lmcache_aerospike.errors import AerospikeConfigError, AerospikeConnectionError, ClosedError

MIB = 1 << 20


@pytest.fixture
def adapter_kind() -> str:
    return "plugin"


def test_close_ends_what_is_in_flight_and_nothing_is_written_later(make_adapter, server):
    driver = make_adapter(read_timeout_ms=60_000, request_timeout_ms=60_000)
    adapter = driver.adapter
    size, count = 2 * MIB, 16
    keys = [object_key(i) for i in range(count)]
    content = random_bytes(0, size)
    assert driver.store_many(keys, [content] * count).is_successful()
    fault = server.add_fault(action="latency", delay_ms=300, kinds=["get"])
    objects = [GuardedObject(size) for _ in keys]
    load = adapter.submit_load_task(keys, [o.memory for o in objects])
    server.await_fault(fault)
    before = server.stats()["connections_now"]
    started = time.monotonic()
    adapter.close()
    assert time.monotonic() - started < 5
    pattern = random_bytes(1, size)
    for item in objects:
        item.write(pattern)
    # The task has its answer, once: nothing was loaded.
    assert adapter.query_load_result(load).popcount() == 0
    assert adapter.query_load_result(load) is None
    while server.stats()["connections_now"] >= before:
        assert time.monotonic() - started < 20
        select.select([], [], [], 0.02)  # the server's counters have no event
    assert all(item.bytes() == pattern for item in objects)


def test_a_closed_adapter_refuses_and_answers(make_adapter, server):
    driver = make_adapter()
    adapter, key = driver.adapter, object_key()
    assert driver.store(key, b"x")
    lookup = adapter.submit_lookup_and_lock_task([key], {})
    for _ in range(3):
        adapter.close()
    assert adapter.query_lookup_and_lock_result(lookup) is not None
    assert adapter.pop_completed_store_tasks() == {}
    memory = [GuardedObject(1).memory]
    for submit in (
        lambda: adapter.submit_store_task([key], memory),
        lambda: adapter.submit_load_task([key], memory),
        lambda: adapter.submit_lookup_and_lock_task([key], {}),
    ):
        with pytest.raises(ClosedError):
            submit()
    adapter.delete([key])
    adapter.submit_unlock([key])
    assert adapter.get_usage().total_bytes_used >= 0
    assert adapter.report_status()["is_healthy"] is False
    assert adapter.report_status()["locked_key_count"] == 0


def test_many_threads_use_and_close_at_once(make_adapter):
    driver = make_adapter()
    adapter = driver.adapter
    keys = [object_key(i) for i in range(20)]
    driver.store_many(keys, [b"x"] * 20)
    unexpected = []

    def use() -> None:
        try:
            while True:
                task = adapter.submit_lookup_and_lock_task(keys, {})
                adapter.query_lookup_and_lock_result(task)
                adapter.submit_unlock(keys)
                adapter.delete(keys[:3])
                adapter.get_usage()
                adapter.report_status()
        except ClosedError:
            pass
        except BaseException as error:
            unexpected.append(error)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    select.select([], [], [], 0.2)
    closers = [threading.Thread(target=adapter.close) for _ in range(4)]
    for thread in closers:
        thread.start()
    for thread in closers + threads:
        thread.join(20)
        assert not thread.is_alive()
    assert unexpected == []


def test_a_hundred_adapters_leave_nothing(server, set_name):
    def count() -> tuple[int, int]:
        gc.collect()
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    def once() -> None:
        driver = AdapterDriver(plugin_spec(server.hosts, set_name))
        assert driver.store(object_key(), b"content")
        assert driver.load(object_key(), 7) == b"content"
        driver.close()

    once()
    before = count()
    for _ in range(100):
        once()
    deadline = time.monotonic() + 10
    while count() > before:  # the server closes its ends of the connections when it sees the others
        assert time.monotonic() < deadline, f"{before} became {count()}"
        select.select([], [], [], 0.02)


def test_ten_thousand_failing_tasks_leave_nothing(make_adapter):
    driver = make_adapter()
    adapter = driver.adapter
    keys = [object_key(i) for i in range(10)]
    memory = [GuardedObject(1000) for _ in keys]

    def fail(count: int) -> None:
        for _ in range(count):
            assert not any(driver.load_into(keys, memory))
            assert not any(driver.lookup(keys))

    def count() -> tuple[int, int, int]:
        gc.collect()
        fds, threads = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))
        return fds, threads, len(gc.get_objects())

    fail(50)
    before = count()
    fail(1000)
    fds, threads, objects = count()
    # The engine may open a connection more when the machine is busy; here both ends are counted.
    assert fds <= before[0] + 20
    assert threads == before[1]
    assert objects < before[2] + 500
    status = adapter.report_status()
    assert status["tasks"] == {"store": 0, "lookup": 0, "load": 0}
    assert (status["locked_key_count"], status["known_object_count"]) == (0, 0)
    assert all(item.is_untouched() for item in memory)


def test_what_cannot_start_leaves_nothing(server):
    before = len(os.listdir("/proc/self/task"))
    with pytest.raises(AerospikeConnectionError):
        create_adapter(plugin_spec("127.0.0.1:1", "s", connect_timeout_ms=100))
    with pytest.raises(AerospikeConfigError, match="hosts"):
        create_adapter(plugin_spec("", "s"))
    gc.collect()
    assert len(os.listdir("/proc/self/task")) <= before


def test_a_server_that_restarts_empty(make_adapter):
    with _native.DevServer(namespaces=[{"name": "lmcache"}]) as alone:
        driver = make_adapter(
            hosts=alone.hosts, batch_timeout_ms=300, tend_interval_ms=100, usage_refresh_seconds=0.1
        )
        keys = [object_key(i) for i in range(5)]
        assert driver.store_many(keys, [b"content"] * 5).is_successful()
        alone.stop_node(0)
        assert driver.lookup(keys) == [False] * 5
        assert driver.load_many(keys, [7] * 5) == [None] * 5
        assert not driver.store(keys[0], b"content")
        alone.start_node(0)
        deadline = time.monotonic() + 15
        while not driver.store(keys[0], b"again"):
            assert time.monotonic() < deadline, "the adapter did not recover"
        assert driver.lookup(keys) == [True, False, False, False, False]
        assert driver.load(keys[0], 5) == b"again"
        # What the restart took away has left the account with the lookup.
        assert dict(driver.adapter.get_usage().bytes_by_cache_salt) == {"": 5}


@pytest.mark.parametrize("replication", [1, 2])
def test_a_node_of_three_that_dies(make_adapter, replication):
    with _native.DevServer(
        nodes=3, replication=replication, namespaces=[{"name": "lmcache"}]
    ) as cluster:
        driver = make_adapter(
            hosts=cluster.hosts, batch_timeout_ms=2000, tend_interval_ms=100, connect_timeout_ms=300
        )
        keys = [object_key(i) for i in range(60)]
        contents = [random_bytes(i, 5000) for i in range(60)]
        assert driver.store_many(keys, contents).is_successful()
        cluster.stop_node(1)
        deadline = time.monotonic() + 15
        while True:
            there = driver.lookup(keys)
            loaded = driver.load_many(keys, [5000] * 60)
            if driver.store_many(keys, contents).is_successful():
                break
            assert time.monotonic() < deadline, "the adapter did not recover"
        assert all(c in (None, good) for c, good in zip(loaded, contents, strict=True))
        assert sum(there) >= 20  # two nodes of three answered all the time
        assert driver.lookup(keys) == [True] * 60
        assert driver.load_many(keys, [5000] * 60) == contents
        assert driver.adapter.report_status()["is_healthy"] is True


def test_close_waits_for_no_silent_cluster(make_adapter):
    """Questions about the usage go to one node after the other; the first silence is the last."""
    with _native.DevServer(nodes=3, namespaces=[{"name": "lmcache"}]) as cluster:
        driver = make_adapter(
            hosts=cluster.hosts, usage_refresh_seconds=0.05, connect_timeout_ms=1500
        )
        for node in range(3):
            cluster.pause_node(node)
        select.select([], [], [], 0.3)  # a question is under way now
        started = time.monotonic()
        driver.adapter.close()
        assert time.monotonic() - started < 4
        assert not driver.adapter._keeper.is_alive()
