# SPDX-License-Identifier: Apache-2.0
"""What the plugin adapter does beyond LMCache's native one: locks, accounts, events, status."""

from __future__ import annotations

import json
import os
import random
import select
import threading
import time

import pytest
from lmcache.v1.distributed.internal_api import L2AdapterListener
from lmcache_driver import (
    GuardedObject,
    create_adapter,
    meta_digest,
    object_key,
    plugin_spec,
    random_bytes,
    segment_digest,
    wire_key,
)

from lmcache_aerospike import Store, _native

MIB = 1 << 20
SEGMENTED = 3 * MIB
LOOKUPS = ["exists", "batch"]
DELETES = ["remove", "batch"]
REFUSED = 22  # a result of the server that is not tried again


@pytest.fixture
def adapter_kind() -> str:
    return "plugin"


class Listener(L2AdapterListener):
    """Remembers what the adapter tells."""

    def __init__(self) -> None:
        self.stored, self.sizes, self.accessed, self.deleted = [], [], [], []

    def on_l2_keys_stored(self, keys, sizes):
        self.stored += keys
        self.sizes += sizes

    def on_l2_keys_accessed(self, keys):
        self.accessed += keys

    def on_l2_keys_deleted(self, keys):
        self.deleted += keys


@pytest.fixture
def listener() -> Listener:
    return Listener()


def lock(driver, keys):
    """Looks up without giving the locks back."""
    return driver.wait_lookup(driver.adapter.submit_lookup_and_lock_task(keys, {}), len(keys))


def await_true(check, seconds=10.0):
    """Waits for what has no event."""
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline
        select.select([], [], [], 0.01)


# ---- events --------------------------------------------------------------------------------------


def test_the_descriptors_differ_and_are_not_inherited(driver):
    adapter = driver.adapter
    fds = {
        adapter.get_store_event_fd(),
        adapter.get_lookup_and_lock_event_fd(),
        adapter.get_load_event_fd(),
    }
    assert len(fds) == 3
    assert not any(os.get_inheritable(fd) or os.get_blocking(fd) for fd in fds)


def test_no_answer_is_lost_in_a_loop_that_only_follows_events(driver):
    """Queries come in another order than ends, as in LMCache's loop with many requests."""
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    keys = [object_key(i) for i in range(200)]
    assert driver.store_many(keys, [b"x" * 100] * len(keys)).is_successful()
    adapter = driver.adapter
    fds = {adapter.get_lookup_and_lock_event_fd(): "lookup", adapter.get_load_event_fd(): "load"}
    query = {"lookup": adapter.query_lookup_and_lock_result, "load": adapter.query_load_result}
    open_tasks = {"lookup": set(), "load": set()}
    buffers = [GuardedObject(100) for _ in keys]
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    left, answered = 600, 0
    while left or any(open_tasks.values()):
        for _ in range(min(left, chance.randrange(1, 8))):
            chosen = chance.sample(range(len(keys)), chance.randrange(1, 6))
            some = [keys[i] for i in chosen]
            if chance.random() < 0.5:
                open_tasks["lookup"].add(adapter.submit_lookup_and_lock_task(some, {}))
            else:
                memory = [buffers[i].memory for i in chosen]
                open_tasks["load"].add(adapter.submit_load_task(some, memory))
            left -= 1
        ready = poll.poll(5000)
        assert ready, "an answer was not announced"
        for fd, _ in ready:
            os.eventfd_read(fd)
            tasks = list(open_tasks[fds[fd]])
            chance.shuffle(tasks)
            for task in tasks:
                if query[fds[fd]](task) is not None:
                    open_tasks[fds[fd]].remove(task)
                    answered += 1
    assert answered == 600
    assert poll.poll(0) == [] or all(query["load"](0) is None for _ in range(1))


def test_a_task_without_keys_ends_at_once(driver):
    adapter = driver.adapter
    result = driver.wait_store(adapter.submit_store_task([], []))
    assert (result.is_successful(), result.bytes_transferred()) == (True, 0)
    assert lock(driver, []) == []
    assert driver.wait_load(adapter.submit_load_task([], []), 0) == []


def test_what_cannot_start_fails_and_does_not_raise(driver):
    class NoMemory:
        byte_array = memoryview(b"read only")

    task = driver.adapter.submit_load_task([object_key()], [NoMemory()])
    assert driver.wait_load(task, 1) == [False]
    (error,) = driver.adapter.report_status()["last_errors"]
    assert (error["operation"], error["keys"]) == ("load", 1)
    with pytest.raises(ValueError, match="0 memory objects, expected 1"):
        driver.adapter.submit_load_task([object_key()], [])


# ---- locks ---------------------------------------------------------------------------------------


def test_a_locked_object_is_not_deleted_before_its_last_unlock(driver, listener):
    adapter = driver.adapter
    adapter.register_listener(listener)
    held, free = object_key(1), object_key(2)
    assert driver.store_many([held, free], [b"held", b"free"]).is_successful()
    assert lock(driver, [held]) == [True]
    assert lock(driver, [held, object_key(3)]) == [True, False]
    adapter.delete([held, free])
    assert listener.deleted == [free]
    assert driver.load(held, 4) == b"held"
    adapter.submit_unlock([held])
    adapter.delete([held])
    assert driver.lookup([held]) == [True]  # takes and gives back a lock of its own
    status = adapter.report_status()
    assert (status["locked_key_count"], status["refused_delete_count"]) == (1, 2)
    adapter.submit_unlock([held])
    adapter.submit_unlock([held, object_key(99)])  # more than there are: nothing happens
    adapter.delete([held])
    assert listener.deleted == [free, held]
    assert driver.lookup([held]) == [False]
    assert adapter.report_status()["locked_key_count"] == 0


def test_a_lookup_under_way_holds_its_keys(make_adapter, server):
    driver = make_adapter(request_timeout_ms=5000, read_timeout_ms=10_000)
    key = object_key()
    assert driver.store(key, b"content")
    fault = server.add_fault(action="latency", delay_ms=300, kinds=LOOKUPS)
    task = driver.adapter.submit_lookup_and_lock_task([key], {})
    driver.adapter.delete([key])
    server.await_fault(fault)
    assert driver.wait_lookup(task, 1) == [True]
    assert driver.load(key, 7) == b"content"


def test_a_key_that_is_being_deleted_is_absent(driver, server):
    key = object_key()
    assert driver.store(key, b"content")
    fault = server.add_fault(action="latency", delay_ms=300, kinds=DELETES)
    thread = threading.Thread(target=driver.delete, args=([key],))
    thread.start()
    try:
        await_true(lambda: key_is_deleting(driver, key))
        assert lock(driver, [key, object_key(9)]) == [False, False]
        assert driver.adapter.report_status()["locked_key_count"] == 0
    finally:
        thread.join()
    server.await_fault(fault)
    assert driver.lookup([key]) == [False]


def key_is_deleting(driver, key):
    return wire_key(key) in driver.adapter._locks._deleting


def test_locks_of_a_failed_lookup_are_given_back(driver, server):
    keys = [object_key(i) for i in range(5)]
    assert driver.store_many(keys, [b"x"] * 5).is_successful()
    server.add_fault(action="result_code", code=REFUSED, kinds=["batch_row"])
    assert lock(driver, keys) == [False] * 5
    server.clear_faults()
    assert driver.adapter.report_status()["locked_key_count"] == 0
    driver.delete(keys)
    assert driver.lookup(keys) == [False] * 5


def test_many_deletes_end_when_the_server_is_away(make_adapter, server):
    driver = make_adapter(batch_timeout_ms=300)
    server.pause_node(0)
    try:
        started = time.monotonic()
        driver.adapter.delete([object_key(i) for i in range(20_000)])  # raises nothing
        assert time.monotonic() - started < 3
    finally:
        server.resume_node(0)
    assert driver.adapter.report_status()["last_errors"][-1]["operation"] == "delete"


# ---- accounts ------------------------------------------------------------------------------------


def test_only_what_was_stored_is_counted_and_told(make_adapter, server, set_name, listener):
    driver = make_adapter(usage="process")
    adapter = driver.adapter
    adapter.register_listener(listener)
    keys = [object_key(i, cache_salt=f"s{i % 2}") for i in range(4)]
    contents = [random_bytes(i, SEGMENTED + i) for i in range(4)]
    server.add_fault(
        action="result_code", code=REFUSED, digests=[segment_digest(set_name, keys[1], 1)]
    )
    result = driver.store_many(keys, contents)
    server.clear_faults()
    assert not result.is_successful()
    assert result.bytes_transferred() == 0
    assert listener.stored == [keys[0], keys[2], keys[3]]
    assert listener.sizes == [SEGMENTED, SEGMENTED + 2, SEGMENTED + 3]
    usage = adapter.get_usage()
    assert usage.total_bytes_used == 3 * SEGMENTED + 5
    assert dict(usage.bytes_by_cache_salt) == {"s0": 2 * SEGMENTED + 2, "s1": SEGMENTED + 3}
    assert driver.lookup(keys) == [True, False, True, True]
    # The second attempt: only the bytes of the one that was not there are new.
    result = driver.store_many(keys, contents)
    assert (result.is_successful(), result.bytes_transferred()) == (True, SEGMENTED + 1)
    assert listener.stored[3:] == keys
    assert listener.sizes[3:] == [0, SEGMENTED + 1, 0, 0]


def test_an_object_that_a_failed_store_took_away_leaves_the_account(
    make_adapter, server, set_name, listener
):
    driver = make_adapter(usage="process")
    driver.adapter.register_listener(listener)
    key = object_key()
    assert driver.store(key, b"first")
    server.add_fault(
        action="result_code", code=REFUSED, digests=[meta_digest(set_name, key)], kinds=["put"]
    )
    assert not driver.store(key, b"second")
    assert listener.deleted == [key]
    assert driver.adapter.get_usage().total_bytes_used == 0
    assert driver.lookup([key]) == [False]


@pytest.mark.parametrize("seen_by", ["lookup", "load", "delete"])
def test_what_another_process_removed_leaves_the_account(make_adapter, listener, seen_by):
    driver, other = make_adapter(usage="process"), make_adapter()
    driver.adapter.register_listener(listener)
    gone, stays = object_key(1), object_key(2)
    assert driver.store_many([gone, stays], [b"gone", b"stays"]).is_successful()
    other.delete([gone])
    if seen_by == "lookup":
        assert driver.lookup([gone, stays]) == [False, True]
    elif seen_by == "load":
        assert driver.load_many([gone, stays], [4, 5]) == [None, b"stays"]
    else:
        driver.delete([gone])
    assert listener.deleted == [gone]
    assert driver.adapter.get_usage().total_bytes_used == 5


def test_a_lookup_from_before_a_store_does_not_undo_it(make_adapter, server, set_name):
    driver = make_adapter(usage="process")
    key = object_key()
    task = driver.adapter.submit_lookup_and_lock_task([key], {})
    # Its answer, absent, has come; it is collected after the store.
    poll = select.poll()
    poll.register(driver.adapter.get_lookup_and_lock_event_fd(), select.POLLIN)
    assert poll.poll(10_000)
    assert driver.store(key, b"content")
    assert driver.wait_lookup(task, 1) == [False]
    assert driver.adapter.get_usage().total_bytes_used == 7


def test_a_larger_object_than_the_buffer_stays_in_the_account(make_adapter):
    driver = make_adapter(usage="process")
    key = object_key()
    assert driver.store(key, b"content")
    assert driver.load(key, 3) is None
    assert driver.adapter.get_usage().total_bytes_used == 7


def test_objects_leave_the_account_at_the_end_of_their_life(make_adapter, listener):
    driver = make_adapter(usage="process", default_ttl_seconds=1, usage_refresh_seconds=0.05)
    driver.adapter.register_listener(listener)
    keys = [object_key(i) for i in range(3)]
    assert driver.store_many(keys, [b"1234"] * 3).is_successful()
    assert driver.adapter.get_usage().total_bytes_used == 12
    await_true(lambda: driver.adapter.get_usage().total_bytes_used == 0)
    assert sorted(map(str, listener.deleted)) == sorted(map(str, keys))


def test_loads_are_told_and_can_renew_the_life(make_adapter, listener):
    driver = make_adapter(refresh_ttl_on_read=True, default_ttl_seconds=100)
    adapter = driver.adapter
    adapter.register_listener(listener)
    keys = [object_key(1), object_key(2)]
    assert driver.store_many(keys, [b"a", b"b"]).is_successful()
    ledger = adapter._ledger
    assert next(iter(ledger.names())) == wire_key(keys[0])
    assert driver.load(keys[0], 1) == b"a"
    assert driver.load(object_key(3), 1) is None
    assert listener.accessed == [keys[0]]
    assert next(iter(ledger.names())) == wire_key(keys[1])


def test_the_size_that_counts_is_the_one_before_the_serde(make_adapter):
    driver = make_adapter(usage="process", serde={"type": "fp8", "dtype": "bfloat16"})
    assert driver.store(object_key(), bytes(2000))
    assert driver.adapter.get_usage().total_bytes_used == 2000
    (entry,) = driver.adapter.list_l2_keys().entries
    assert entry.size_bytes == 1000  # in the cluster
    assert driver.load(object_key(), 2000) == bytes(2000)


def test_a_listener_that_fails_takes_no_results_away(driver):
    class Failing(Listener):
        def on_l2_keys_stored(self, keys, sizes):
            raise RuntimeError

        on_l2_keys_accessed = on_l2_keys_deleted = lambda *_: 1 / 0

    driver.adapter.register_listener(Failing())
    key = object_key()
    assert driver.store(key, b"content")
    assert driver.load(key, 7) == b"content"
    driver.delete([key])
    assert driver.lookup([key]) == [False]
    assert dict(driver.adapter.get_usage().bytes_by_cache_salt) == {}


# ---- life ----------------------------------------------------------------------------------------


def expires_in(store, key):
    return store.inspect(wire_key(key))["expires_in"]


def test_touch_and_pin(make_adapter, server, set_name):
    driver = make_adapter(default_ttl_seconds=1000)
    adapter = driver.adapter
    keys, absent = [object_key(1), object_key(2)], object_key(3)
    assert driver.store_many(keys, [b"a", b"b"]).is_successful()
    with Store(server.hosts, set_name=set_name) as store:
        assert adapter.touch([keys[0], absent], ttl_seconds=5000) == [True, False]
        assert 4000 < expires_in(store, keys[0]) <= 5000
        assert adapter.pin([keys[0], absent]) == [True, False]
        assert expires_in(store, keys[0]) is None
        adapter.delete(keys)
        assert driver.lookup(keys) == [True, False]
        assert adapter.unpin([keys[0]]) == [True]
        assert 900 < expires_in(store, keys[0]) <= 1000
    adapter.delete(keys)
    assert driver.lookup(keys) == [False, False]
    assert adapter.touch([]) == []


# ---- status and options --------------------------------------------------------------------------


def test_the_status_is_json_and_follows_the_health_of_the_server(make_adapter, set_name):
    with _native.DevServer(namespaces=[{"name": "lmcache"}]) as alone:
        driver = make_adapter(
            hosts=alone.hosts,
            batch_timeout_ms=300,
            tend_interval_ms=100,
            connect_timeout_ms=200,
            usage_refresh_seconds=0.05,
        )
        adapter = driver.adapter
        assert driver.store(object_key(), b"content")
        status = json.loads(json.dumps(adapter.report_status()))
        assert status["is_healthy"] is True
        assert (status["type"], status["set_name"]) == ("AerospikeL2Plugin", set_name)
        assert status["nodes_up"] == len(status["nodes"]) == 1
        assert status["stats"]["put"]["hits"] == 1
        assert status["last_errors"] == []
        alone.stop_node(0)
        assert not driver.store(object_key(1), b"content")
        await_true(lambda: not adapter.report_status()["is_healthy"])
        error = adapter.report_status()["last_errors"][-1]
        assert error["operation"] == "store"
        assert error["code"] in ("unavailable", "timeout", "connection")
        alone.start_node(0)
        await_true(lambda: adapter.report_status()["is_healthy"])
        await_true(lambda: driver.store(object_key(1), b"content"))
    adapter.close()
    status = json.loads(json.dumps(adapter.report_status()))
    assert (status["is_healthy"], status["closed"]) == (False, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_capacity_gb": -1}, "max_capacity_gb.*-1.*number of GiB"),
        ({"max_capacity_gb": "ten"}, "max_capacity_gb.*ten"),
        ({"max_capacity_gb": True}, "max_capacity_gb"),
        ({"usage": "mine"}, "usage.*mine.*server or process"),
        ({"usage_refresh_seconds": 0}, "usage_refresh_seconds.*0.05 to 3600"),
        ({"adopt_seconds": float("inf")}, "adopt_seconds"),
        ({"adopt_seconds": 5, "send_key": False}, "adopt_seconds.*send_key"),
        ({"max_capacity": 5}, "did you mean 'max_capacity_gb'"),
        ({"num_wokers": 5}, "did you mean 'num_workers'"),
    ],
)
def test_a_bad_option_is_named(server, options, message):
    with pytest.raises(ValueError, match=message):
        create_adapter(plugin_spec(server.hosts, "s", **options))


def test_options_as_a_dict_and_the_help(server, set_name):
    from lmcache_aerospike.l2_plugin import AerospikeL2Plugin, AerospikeL2PluginConfig

    adapter = AerospikeL2Plugin({"hosts": server.hosts, "set_name": set_name}, l1_memory_desc=None)
    assert adapter.report_status()["set_name"] == set_name
    adapter.close()
    text = AerospikeL2PluginConfig.help()
    assert all(word in text for word in ("hosts", "max_capacity_gb", "usage", "adopt_seconds"))


def test_no_secret_is_shown(server, set_name):
    from lmcache_aerospike.l2_plugin import AerospikeL2PluginConfig

    config = AerospikeL2PluginConfig.from_dict(
        {"hosts": server.hosts, "username": "u", "password": "geheim"}
    )
    assert "geheim" not in repr(config) + repr(config.options) + repr(vars(config))


def test_the_page_has_every_option_as_it_is():
    from pathlib import Path

    from lmcache_aerospike._l2_config import OWN_OPTIONS

    page = (Path(__file__).resolve().parents[2] / "docs/reference/l2.md").read_text()
    for option in OWN_OPTIONS:
        row = f"| `{option.name}` | {option.default} | {option.expected} | {option.effect} |"
        assert row in page
