# SPDX-License-Identifier: Apache-2.0
"""The contract of LMCache's native L2 adapter, over one healthy node."""

from __future__ import annotations

import os
import select

import pytest
from lmcache_driver import (
    SPECS,
    GuardedObject,
    create_adapter,
    object_key,
    random_bytes,
    wire_key,
)

BOTH_ADAPTERS = True
NATIVE_ONLY = (
    "test_the_three_event_descriptors_differ_and_are_not_the_connectors",
    "test_the_adapter_says_that_it_is_healthy_and_can_delete",
)

KIB = 1 << 10
MIB = 1 << 20

# Around the limits of one record and of two, and what LMCache's chunks are like.
SIZES = [1, 4095, 4096, 64 * KIB, 983_040, 983_041, 961 * KIB, 2 * MIB + 1, 4 * MIB, 16 * MIB]


def test_the_three_event_descriptors_differ_and_are_not_the_connectors(driver):
    adapter = driver.adapter
    fds = [
        adapter.get_store_event_fd(),
        adapter.get_lookup_and_lock_event_fd(),
        adapter.get_load_event_fd(),
        driver.connector.event_fd(),
    ]
    assert len(set(fds)) == 4
    assert driver.connector.event_fd() == fds[3]
    assert not os.get_blocking(fds[3])
    assert not os.get_inheritable(fds[3])


def test_the_adapter_says_that_it_is_healthy_and_can_delete(driver):
    status = driver.adapter.report_status()
    assert status["is_healthy"] is True
    assert status["type"] == "AerospikeNativeConnector"
    assert driver.adapter._has_delete


@pytest.mark.parametrize("size", SIZES)
def test_an_object_of_any_size_comes_back_byte_by_byte(driver, size):
    key, content = object_key(size), random_bytes(size, size)
    assert driver.lookup([key]) == [False]
    assert driver.load(key, size) is None
    assert driver.store(key, content)
    assert driver.lookup([key]) == [True]
    assert driver.load(key, size) == content
    driver.delete([key])
    assert driver.lookup([key]) == [False]
    assert driver.load(key, size) is None


def test_one_batch_holds_objects_of_all_sizes(driver):
    sizes = [4096, 8192, 4095, 983_041, 1, 3 * MIB]
    keys = [object_key(i) for i in range(len(sizes))]
    contents = [random_bytes(i, size) for i, size in enumerate(sizes)]
    result = driver.store_many(keys, contents)
    assert result.is_successful()
    assert result.bytes_transferred() == sum(sizes)
    assert driver.load_many(keys, sizes) == contents


def test_bits_stand_at_the_places_of_their_keys(driver):
    keys = [object_key(i) for i in range(9)]
    present = [i for i in range(9) if i % 3 != 1]
    contents = {i: random_bytes(i, 5000 + i) for i in present}
    assert driver.store_many([keys[i] for i in present], list(contents.values())).is_successful()
    assert driver.lookup(keys) == [i in contents for i in range(9)]
    assert driver.load_many(keys, [5000 + i for i in range(9)]) == [
        contents.get(i) for i in range(9)
    ]


def test_a_miss_leaves_its_buffer_as_it_was(driver):
    hit, miss = object_key(1), object_key(2)
    content = random_bytes(1, 6000)
    assert driver.store(hit, content)
    objects = [GuardedObject(6000) for _ in range(3)]
    assert driver.load_into([hit, miss, hit], objects) == [True, False, True]
    assert objects[0].bytes() == objects[2].bytes() == content
    assert objects[1].is_untouched()


def test_a_key_may_stand_in_a_batch_twice(driver):
    key, other = object_key(1), object_key(2)
    content = random_bytes(1, 3000)
    assert driver.store_many([key, key], [content, content]).is_successful()
    assert driver.lookup([key, key, other]) == [True, True, False]
    assert driver.load_many([key, key], [3000, 3000]) == [content, content]


@pytest.mark.parametrize("size", [512, 2 * MIB])
def test_a_larger_buffer_is_filled_at_its_front(driver, size):
    key, content = object_key(), random_bytes(size, size)
    assert driver.store(key, content)
    larger = GuardedObject(size + size // 2)
    assert driver.load_into([key], [larger]) == [True]
    assert larger.bytes() == content + b"\xa5" * (size // 2)


@pytest.mark.parametrize(("size", "room"), [(512, 128), (512, 511), (3 * MIB, 3 * MIB - 1)])
def test_a_smaller_buffer_is_a_miss_and_nothing_is_written_behind_it(driver, size, room):
    key, neighbour, content = object_key(1), object_key(2), random_bytes(size, size)
    assert driver.store_many([key, neighbour], [content, content]).is_successful()
    small, fits = GuardedObject(room), GuardedObject(size)
    assert driver.load_into([key, neighbour], [small, fits]) == [False, True]
    small.bytes()  # checks the guard zones
    assert fits.bytes() == content
    # It was no damage: with a fitting buffer the object is there.
    assert driver.lookup([key]) == [True]
    assert driver.load(key, size) == content


@pytest.mark.parametrize(("before", "after"), [(3000, 3000), (3000, 3 * MIB), (4 * MIB, 700)])
def test_a_store_replaces_what_was_there(driver, before, after):
    key, content = object_key(), random_bytes(after, after)
    assert driver.store(key, random_bytes(before + 1, before))
    assert driver.store(key, content)
    assert driver.load(key, max(before, after))[:after] == content


def test_eight_tasks_of_eight_objects_at_once(driver):
    count, size = 8, 300 * KIB
    batches = [[object_key(b * count + i) for i in range(count)] for b in range(8)]
    keys = [key for batch in batches for key in batch]
    contents = {wire_key(k): random_bytes(n, size) for n, k in enumerate(keys)}
    sources = [[GuardedObject(size, contents[wire_key(k)]) for k in batch] for batch in batches]
    tasks = [
        driver.adapter.submit_store_task(batch, [o.memory for o in objects])
        for batch, objects in zip(batches, sources, strict=True)
    ]
    results = {}
    poller = select.poll()
    poller.register(driver.adapter.get_store_event_fd(), select.POLLIN)
    while len(results) < len(tasks):
        assert poller.poll(30_000)
        os.read(driver.adapter.get_store_event_fd(), 8)
        results.update(driver.adapter.pop_completed_store_tasks())
    assert sorted(results) == sorted(tasks)
    assert all(result.is_successful() for result in results.values())
    targets = [[GuardedObject(size) for _ in batch] for batch in batches]
    tasks = [
        driver.adapter.submit_load_task(batch, [o.memory for o in objects])
        for batch, objects in zip(batches, targets, strict=True)
    ]
    for task, batch, objects in zip(tasks, batches, targets, strict=True):
        assert driver.wait_load(task, count) == [True] * count
        assert [o.bytes() for o in objects] == [contents[wire_key(k)] for k in batch]


def test_delete_counts_only_what_was_there(make_adapter, adapter_kind):
    driver = make_adapter(**({"usage": "process"} if adapter_kind == "plugin" else {}))
    keys = [object_key(i) for i in range(3)]
    contents = [random_bytes(i, 1000) for i in range(3)]
    driver.store_many(keys, contents)
    usage = driver.adapter.get_usage()
    assert usage.total_bytes_used == 3000
    driver.store_many(keys[:1], contents[:1])  # a second time: counts nothing
    assert driver.adapter.get_usage().total_bytes_used == 3000
    driver.delete([keys[0], object_key(99)])
    assert driver.adapter.get_usage().total_bytes_used == 2000
    driver.delete([keys[0]])
    assert driver.adapter.get_usage().total_bytes_used == 2000
    driver.delete(keys)
    assert driver.adapter.get_usage().total_bytes_used == 0
    assert driver.lookup(keys) == [False] * 3


def test_a_lookup_of_many_thousand_keys(driver):
    keys = [object_key(i) for i in range(10_000)]
    present = set(range(0, 10_000, 97))
    driver.store_many([keys[i] for i in sorted(present)], [b"x"] * len(present))
    assert driver.lookup(keys) == [i in present for i in range(len(keys))]


def test_two_adapters_share_what_is_stored_but_not_another_set(make_adapter):
    writer, reader, stranger = make_adapter(), make_adapter(), make_adapter(set_name="other")
    key, content = object_key(), random_bytes(3, 2 * MIB)
    assert writer.store(key, content)
    assert reader.load(key, len(content)) == content
    assert stranger.lookup([key]) == [False]


def test_an_object_with_a_life_time_ends(make_adapter, server):
    short, endless = make_adapter(default_ttl_seconds=1), make_adapter(default_ttl_seconds=-1)
    assert short.store(object_key(1), b"short")
    assert endless.store(object_key(2), b"endless")
    assert short.lookup([object_key(1), object_key(2)]) == [True, True]
    for _ in range(100):
        if not short.lookup([object_key(1)])[0]:
            break
        select.select([], [], [], 0.05)  # the server's clock has no event
    assert short.lookup([object_key(1), object_key(2)]) == [False, True]
    assert short.load(object_key(1), 5) is None


def test_an_unknown_option_is_an_error_that_names_it(server, adapter_kind):
    spec = SPECS[adapter_kind](server.hosts, "s", num_wokers=3)
    with pytest.raises(ValueError, match=r"num_wokers.*num_workers"):
        create_adapter(spec)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("hosts", "127.0.0.1:99999"),
        ("read_timeout_ms", 0),
        ("num_workers", "many"),
        ("replica", "nearest"),
        ("default_ttl_seconds", -3),
        ("max_bytes_in_flight", 1),
        ("namespace", ""),
        ("tls_name", "server.example"),
    ],
)
def test_a_bad_value_is_an_error_that_names_its_option(
    server, adapter_kind, option, value, monkeypatch
):
    monkeypatch.delenv("LMCACHE_AEROSPIKE_NAMESPACE", raising=False)
    spec = SPECS[adapter_kind](server.hosts, "s", **{option: value} if option != "hosts" else {})
    if option == "hosts":
        spec["adapter_params"]["hosts"] = value
    if (option, value) == ("namespace", ""):
        create_adapter(spec).close()  # the same as not given
        return
    canonical = {"num_workers": "num_io_threads"}.get(option, option)
    with pytest.raises(ValueError, match=canonical):
        create_adapter(spec)
