# SPDX-License-Identifier: Apache-2.0
"""What LMCache sees when the server fails: clean misses, right bits, untouched neighbours."""

from __future__ import annotations

import time

import aerospike
import pytest
from lmcache_driver import (
    NAMESPACE,
    SPECS,
    AdapterDriver,
    GuardedObject,
    meta_digest,
    object_key,
    random_bytes,
    segment_digest,
    wire_key,
)

from lmcache_aerospike import _native

BOTH_ADAPTERS = True
NATIVE_ONLY = ("test_the_completion_of_a_store_tells_each_key",)

MIB = 1 << 20
SEGMENTED = 3 * MIB  # four segments on a server with records of 1 MiB
DEVICE_OVERLOAD = 18  # retried until the deadline, as is 14
REFUSED = 22  # not retried


@pytest.fixture(scope="session")
def official(node: _native.DevServer):
    """The official client, to look at records and to remove them."""
    client = aerospike.client({"hosts": node.endpoints()}).connect()
    yield client
    client.close()


def user_keys(set_name, key, segments):
    """The records of one object, as the official client names them."""
    names = [f"{wire_key(key)}|m", *(f"{wire_key(key)}|s|{i}" for i in range(segments))]
    return [(NAMESPACE, set_name, name) for name in names]


def store_again(driver, keys, contents):
    """Stores at a server that has room again, which the engine finds out within a second."""
    deadline = time.monotonic() + 20
    while not driver.store_many(keys, contents).is_successful():
        assert time.monotonic() < deadline, "stores are still shed"
        time.sleep(0.05)


@pytest.mark.parametrize("code", [4, 8, 13, 14, DEVICE_OVERLOAD, REFUSED])
def test_a_partly_failed_store_shows_only_what_is_whole(
    make_adapter, server, official, set_name, code
):
    driver = make_adapter(write_timeout_ms=1000)
    keys = [object_key(i) for i in range(3)]
    contents = [random_bytes(i, SEGMENTED) for i in range(3)]
    fault = server.add_fault(
        action="result_code", code=code, digests=[segment_digest(set_name, keys[1], 2)]
    )
    assert not driver.store_many(keys, contents).is_successful()
    server.await_fault(fault)
    assert driver.lookup(keys) == [True, False, True]
    assert driver.load_many(keys, [SEGMENTED] * 3) == [contents[0], None, contents[2]]
    _, meta = official.exists(user_keys(set_name, keys[1], 4)[0])
    assert meta is None, "a failed store left a meta record"
    server.clear_faults()
    store_again(driver, keys, contents)
    assert driver.load_many(keys, [SEGMENTED] * 3) == contents


def test_a_failed_overwrite_shows_the_old_object_or_none(driver, server, set_name):
    key = object_key()
    old, new = random_bytes(1, SEGMENTED), random_bytes(2, SEGMENTED)
    assert driver.store(key, old)
    for step in range(5):
        digest = segment_digest(set_name, key, step) if step < 4 else meta_digest(set_name, key)
        fault = server.add_fault(
            action="result_code", code=REFUSED, digests=[digest], kinds=["put"]
        )
        assert not driver.store(key, new)
        server.await_fault(fault)
        loaded = driver.load(key, SEGMENTED)
        assert loaded in (None, old), f"step {step}: neither the old object nor none"
        assert driver.lookup([key]) == [loaded is not None]
        server.clear_faults()
        assert driver.store(key, old)
        assert driver.load(key, SEGMENTED) == old


def test_one_failing_key_of_eight_fails_alone(driver, server, set_name):
    keys = [object_key(i) for i in range(8)]
    contents = [random_bytes(i, 2000) for i in range(8)]
    server.add_fault(action="result_code", code=REFUSED, digests=[meta_digest(set_name, keys[3])])
    assert not driver.store_many(keys, contents).is_successful()
    server.clear_faults()
    assert driver.lookup(keys) == [i != 3 for i in range(8)]
    assert driver.load_many(keys, [2000] * 8) == [*contents[:3], None, *contents[4:]]


def test_the_completion_of_a_store_tells_each_key(driver, server, set_name):
    texts = [wire_key(object_key(i)) for i in range(4)]
    server.add_fault(
        action="result_code", code=REFUSED, digests=[meta_digest(set_name, object_key(2))]
    )
    connector = driver.connector
    seen = []
    original = driver.adapter._client

    class Recorder:
        def __getattr__(self, name):
            return getattr(original, name)

        def drain_completions(self):
            completions = original.drain_completions()
            seen.extend(completions)
            return completions

    driver.adapter._client = Recorder()
    try:
        assert not driver.store_many([object_key(i) for i in range(4)], [b"x"] * 4).is_successful()
    finally:
        driver.adapter._client = original
    (completion,) = seen
    _, ok, error, bits = completion
    assert ok is False
    assert bits == [True, True, False, True]
    assert error
    assert texts[2] not in error
    assert connector.stats()["bytes_in_flight"] == 0


@pytest.mark.parametrize("lost", ["segment", "meta", "wrong segment"])
def test_an_object_that_loses_a_record_is_a_miss_until_it_is_stored_again(
    driver, official, set_name, lost
):
    keys = [object_key(i) for i in range(3)]
    contents = [random_bytes(i, SEGMENTED) for i in range(3)]
    assert driver.store_many(keys, contents).is_successful()
    records = user_keys(set_name, keys[1], 4)
    if lost == "wrong segment":
        _, _, bins = official.get(records[2])
        official.put(records[3], bins)  # the right size, the wrong content and sum
    else:
        official.remove(records[3 if lost == "segment" else 0])
    objects = [GuardedObject(SEGMENTED) for _ in keys]
    assert driver.load_into(keys, objects) == [True, False, True]
    assert [objects[0].bytes(), objects[2].bytes()] == [contents[0], contents[2]]
    assert driver.lookup(keys) == [True, False, True]
    assert driver.store(keys[1], contents[1])
    assert driver.lookup(keys) == [True] * 3
    assert driver.load_many(keys, [SEGMENTED] * 3) == contents


@pytest.mark.parametrize("action", ["drop", "latency", "delay"])
def test_a_hanging_key_is_a_miss_at_its_deadline_and_hangs_alone(
    make_adapter, server, set_name, action
):
    driver = make_adapter(batch_timeout_ms=600)
    keys = [object_key(i) for i in range(3)]
    contents = [random_bytes(i, 5000) for i in range(3)]
    assert driver.store_many(keys, contents).is_successful()
    fault = server.add_fault(
        action=action, delay_ms=10_000, kinds=["get"], digests=[meta_digest(set_name, keys[1])]
    )
    objects = [GuardedObject(5000) for _ in keys]
    started = time.monotonic()
    assert driver.load_into(keys, objects) == [True, False, True]
    assert time.monotonic() - started < 3
    server.await_fault(fault)
    assert objects[0].bytes() == contents[0]
    assert objects[2].bytes() == contents[2]
    assert objects[1].is_untouched()
    stats = driver.connector.stats()
    assert stats["bytes_in_flight"] == 0
    server.clear_faults()
    # The slow tier did no damage: the object is still there.
    assert driver.load(keys[1], 5000) == contents[1]
    assert objects[1].is_untouched(), "a late answer was written into the buffer"


def test_the_whole_server_frozen_is_a_miss_and_recovers(make_adapter, server):
    driver = make_adapter(batch_timeout_ms=400)
    keys = [object_key(i) for i in range(4)]
    contents = [random_bytes(i, 9000) for i in range(4)]
    assert driver.store_many(keys, contents).is_successful()
    server.pause_node(0)
    try:
        started = time.monotonic()
        assert driver.load_many(keys, [9000] * 4) == [None] * 4
        assert driver.lookup(keys) == [False] * 4
        assert not driver.store(object_key(9), b"x")
        assert time.monotonic() - started < 5
    finally:
        server.resume_node(0)
    deadline = time.monotonic() + 15
    while driver.load_many(keys, [9000] * 4) != contents:
        assert time.monotonic() < deadline, "the adapter did not recover"
    assert driver.lookup(keys) == [True] * 4


@pytest.mark.parametrize("kinds", [["batch"], ["batch_row"]])
def test_a_failing_lookup_is_no_hit_and_leaves_no_mark(driver, server, kinds):
    keys = [object_key(i) for i in range(40)]
    assert driver.store_many(keys, [b"content"] * 40).is_successful()
    server.add_fault(action="result_code", code=DEVICE_OVERLOAD, kinds=kinds)
    assert driver.lookup(keys) == [False] * 40
    server.clear_faults()
    assert driver.lookup(keys) == [True] * 40


def test_one_failing_row_of_a_lookup_fails_alone(driver, server, set_name):
    keys = [object_key(i) for i in range(10)]
    assert driver.store_many(keys, [b"content"] * 10).is_successful()
    server.add_fault(
        action="result_code",
        code=DEVICE_OVERLOAD,
        kinds=["batch_row"],
        digests=[meta_digest(set_name, keys[4])],
    )
    assert driver.lookup(keys) == [i != 4 for i in range(10)]


@pytest.mark.parametrize("bytes_sent", [0, 1, 8, 30, 40_000])
def test_a_connection_that_breaks_in_the_middle_of_a_value_costs_nothing(
    driver, server, bytes_sent
):
    keys = [object_key(i) for i in range(3)]
    contents = [random_bytes(i, SEGMENTED) for i in range(3)]
    assert driver.store_many(keys, contents).is_successful()
    fault = server.add_fault(action="close_after_bytes", bytes=bytes_sent, kinds=["get"], count=3)
    assert driver.load_many(keys, [SEGMENTED] * 3) == contents
    server.await_fault(fault, 3)


@pytest.mark.parametrize(
    "damage",
    ["flip_value_bit", "shorter_value", "longer_value", "wrong_bin_name", "wrong_particle"],
)
def test_a_damaged_answer_is_never_content(make_adapter, server, set_name, damage):
    driver = make_adapter(verify="full")
    keys = [object_key(i) for i in range(3)]
    contents = [random_bytes(i, SEGMENTED) for i in range(3)]
    assert driver.store_many(keys, contents).is_successful()
    fault = server.add_fault(
        action="damage",
        damage=damage,
        bytes=3,
        kinds=["get"],
        digests=[segment_digest(set_name, keys[1], 1)],
    )
    objects = [GuardedObject(SEGMENTED) for _ in keys]
    assert driver.load_into(keys, objects) == [True, False, True]
    server.await_fault(fault)
    objects[1].bytes()  # checks the guard zones
    assert [objects[0].bytes(), objects[2].bytes()] == [contents[0], contents[2]]


def test_a_full_server_refuses_and_keeps_what_it_has(adapter_kind):
    with _native.DevServer(namespaces=[{"name": NAMESPACE, "size_bytes": 8 * MIB}]) as small:
        driver = AdapterDriver(SPECS[adapter_kind](small.hosts, "full"))
        try:
            keys = [object_key(i) for i in range(12)]
            contents = [random_bytes(i, 900_000) for i in range(12)]
            stored = [driver.store(k, c) for k, c in zip(keys, contents, strict=True)]
            assert stored[0]
            assert not stored[-1]
            assert driver.lookup(keys) == stored
            loaded = driver.load_many(keys, [900_000] * 12)
            assert loaded == [c if s else None for c, s in zip(contents, stored, strict=True)]
            driver.delete(keys[:6])
            store_again(driver, keys[-1:], contents[-1:])
        finally:
            driver.close()


def test_a_shed_store_is_not_stored_and_loads_go_on(adapter_kind):
    with _native.DevServer(namespaces=[{"name": NAMESPACE, "size_bytes": 256 * MIB}]) as server:
        driver = AdapterDriver(SPECS[adapter_kind](server.hosts, "shed"))
        try:
            keys = [object_key(i) for i in range(4)]
            contents = [random_bytes(i, SEGMENTED) for i in range(4)]
            assert driver.store(keys[0], contents[0])
            server.control("stop-writes 0 on")
            assert not driver.store(keys[1], contents[1])
            requests = server.stats()["requests"]["put"]
            assert not driver.store_many(keys[2:], contents[2:]).is_successful()
            assert server.stats()["requests"]["put"] == requests, "a shed store was sent"
            assert driver.connector.stats()["stores_shed_by_reason"]["stop_writes"] >= 2
            assert driver.load(keys[0], SEGMENTED) == contents[0]
            assert driver.lookup(keys) == [True, False, False, False]
            server.control("stop-writes 0 off")
            store_again(driver, keys[1:], contents[1:])
            assert driver.load_many(keys, [SEGMENTED] * 4) == contents
        finally:
            driver.close()


@pytest.mark.parametrize("size", [5000, SEGMENTED])
def test_a_server_that_is_slow_for_every_request_is_not_taken_for_dead(driver, server, size):
    """Each answer takes longer than a node may be silent, and there is no other replica."""
    keys = [object_key(i) for i in range(3)]
    contents = [random_bytes(i, size) for i in range(3)]
    assert driver.store_many(keys, contents).is_successful()
    server.add_fault(action="latency", delay_ms=250, kinds=["get"])
    assert driver.load_many(keys, [size] * 3) == contents
