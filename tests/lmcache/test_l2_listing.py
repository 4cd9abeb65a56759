# SPDX-License-Identifier: Apache-2.0
"""Listings and usage of the plugin adapter: from the server, whoever stored the objects."""

from __future__ import annotations

import random
import select
import time

import pytest
from lmcache.v1.distributed.internal_api import L2AdapterListener
from lmcache_driver import object_key, random_bytes, wire_key

from lmcache_aerospike import Store, _native
from lmcache_aerospike._l2_usage import pairs_of, usage_of

MIB = 1 << 20


@pytest.fixture
def adapter_kind() -> str:
    return "plugin"


def await_true(check, seconds=10.0):
    """Waits for what has no event."""
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline
        select.select([], [], [], 0.01)


def walk(adapter, page_size, model_name=None, between=None):
    """All pages: keys and sizes."""
    found, cursor = [], None
    while True:
        page = adapter.list_l2_keys(model_name=model_name, page_size=page_size, cursor=cursor)
        assert len(page.entries) <= page_size
        found += [(entry.key.to_object_key(), entry.size_bytes) for entry in page.entries]
        cursor = page.next_page_token
        if cursor is None:
            return found
        assert len(page.entries) == page_size
        if between:
            between()


# ---- listings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("page_size", [1, 7, 100, 5000])
def test_pages_hold_every_object_once(driver, page_size):
    keys = [object_key(i, cache_salt=("", "tenant")[i % 2]) for i in range(150)]
    driver.store_many(keys, [b"x" * (i + 1) for i in range(150)])
    found = walk(driver.adapter, page_size)
    assert dict(found) == {key: i + 1 for i, key in enumerate(keys)}
    assert len(found) == 150


def test_only_one_models_objects(driver):
    names = ["a/model", "b/model", "a/mode", "a/model-2"]
    keys = [object_key(i, model_name=names[i % 4]) for i in range(80)]
    driver.store_many(keys, [b"x"] * 80)
    found = walk(driver.adapter, 6, model_name="a/model")
    assert sorted(str(k) for k, _ in found) == sorted(map(str, keys[::4]))
    assert walk(driver.adapter, 6, model_name="nobody's") == []


def test_an_empty_set_is_one_empty_page(driver):
    page = driver.adapter.list_l2_keys()
    assert (page.entries, page.next_page_token) == ((), None)


def test_what_is_stored_and_removed_meanwhile_moves_nothing_else(driver):
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    stay = [object_key(i) for i in range(120)]
    go = [object_key(i) for i in range(1000, 1120)]
    come = [object_key(i) for i in range(2000, 2060)]
    driver.store_many(stay + go, [b"x"] * 240)
    chance.shuffle(go)

    def between():
        driver.delete([go.pop() for _ in range(min(5, len(go)))])
        driver.adapter._listing._part = None  # as after a while
        if come:
            driver.store(come.pop(), b"x")

    found = [key for key, _ in walk(driver.adapter, 9, between=between)]
    assert len(found) == len(set(found))
    assert set(stay) <= set(found)


def test_objects_of_others_are_passed_over(driver, server, set_name):
    keys = [object_key(i) for i in range(10)]
    driver.store_many(keys, [b"x"] * 10)
    with Store(server.hosts, set_name=set_name) as store:
        for i in range(10):
            store.put(f"somebody's {i}", b"else")
            store.put(f"vllm@model@1@0@{i:032x}@bfloat16", b"the other mode's")
    with Store(server.hosts, set_name=set_name, send_key=False) as store:
        store.put(wire_key(object_key(77)), b"without its key")
    assert {key for key, _ in walk(driver.adapter, 3)} == set(keys)
    assert driver.adapter._listing.nameless > 0


@pytest.mark.parametrize("cursor", ["", "1", "2.p1", "1.p4096", "1.pp", "1." + "g" * 40, "1.p1 "])
def test_a_bad_cursor_is_refused(driver, cursor):
    with pytest.raises(ValueError, match="cursor"):
        driver.adapter.list_l2_keys(cursor=cursor)


@pytest.mark.parametrize("page_size", [0, -1])
def test_a_bad_page_size_is_refused(driver, page_size):
    with pytest.raises(ValueError, match="page_size"):
        driver.adapter.list_l2_keys(page_size=page_size)


def test_without_keys_in_the_records_listing_is_refused_in_words(make_adapter):
    driver = make_adapter(send_key=False)
    assert driver.store(object_key(), b"x")
    with pytest.raises(NotImplementedError, match="send_key"):
        driver.adapter.list_l2_keys()


# ---- usage ---------------------------------------------------------------------------------------


def test_usage_is_the_servers_for_every_process(make_adapter):
    with _native.DevServer(namespaces=[{"name": "lmcache", "size_bytes": 64 * MIB}]) as small:
        options = {"hosts": small.hosts, "usage_refresh_seconds": 0.05}
        writer, reader = make_adapter(**options), make_adapter(**options)
        assert reader.adapter.supports_global_eviction
        keys = [object_key(i) for i in range(8)]
        writer.store_many(keys, [random_bytes(i, 2 * MIB) for i in range(8)])
        await_true(lambda: reader.adapter.get_usage().total_bytes_used > 16 * MIB)
        await_true(lambda: 0.25 <= reader.adapter.get_usage().usage_fraction < 0.27)
        usage = reader.adapter.get_usage()
        assert usage.total_capacity_bytes == 64 * MIB
        assert dict(usage.bytes_by_cache_salt) == {}  # nothing was stored by this process
        writer.delete(keys)
        await_true(lambda: reader.adapter.get_usage().total_bytes_used == 0)


def test_a_capacity_of_our_own_bounds_the_set(make_adapter):
    with _native.DevServer(namespaces=[{"name": "lmcache", "size_bytes": 64 * MIB}]) as small:
        options = {"hosts": small.hosts, "usage_refresh_seconds": 0.05}
        ours = make_adapter(**options, max_capacity_gb=16 / 1024)
        others = make_adapter(**options, set_name="others")
        ours.store(object_key(), bytes(4 * MIB))
        await_true(lambda: ours.adapter._usage.set_used > 4 * MIB)
        # An object that is stored while the server is asked counts twice until the next answer.
        await_true(lambda: 0.25 <= ours.adapter.get_usage().usage_fraction < 0.27)
        assert ours.adapter.get_usage().total_capacity_bytes == 16 * MIB
        # Nobody's capacity helps if others fill the namespace.
        for i in range(12):
            others.store(object_key(i), bytes(4 * MIB))
        await_true(lambda: ours.adapter.get_usage().usage_fraction > 0.8)
        assert ours.adapter.get_usage().total_capacity_bytes == 64 * MIB


def test_what_was_done_since_the_last_answer_counts_at_once(make_adapter):
    with _native.DevServer(namespaces=[{"name": "lmcache", "size_bytes": 64 * MIB}]) as small:
        driver = make_adapter(hosts=small.hosts, usage_refresh_seconds=3600)
        keys = [object_key(i) for i in range(8)]
        driver.store_many(keys, [bytes(2 * MIB)] * 8)
        assert driver.adapter.get_usage().total_bytes_used == 16 * MIB
        driver.delete(keys[:6])
        assert driver.adapter.get_usage().total_bytes_used == 4 * MIB


def test_the_process_alone_counts_if_it_is_told_to(make_adapter):
    driver = make_adapter(usage="process")
    assert driver.adapter.supports_global_eviction is False
    driver.store(object_key(), b"12345")
    usage = driver.adapter.get_usage()
    assert (usage.total_bytes_used, usage.total_capacity_bytes) == (5, 0)
    assert usage.usage_fraction == -1.0
    limited = make_adapter(usage="process", max_capacity_gb=1)
    assert limited.adapter.supports_global_eviction
    assert limited.adapter.get_usage().total_capacity_bytes == 1 << 30


def test_replicas_count_once(make_adapter):
    namespaces = [{"name": "lmcache", "size_bytes": 64 * MIB}]
    with _native.DevServer(nodes=3, replication=2, namespaces=namespaces) as cluster:
        driver = make_adapter(hosts=cluster.hosts, usage_refresh_seconds=0.05)
        driver.store_many([object_key(i) for i in range(12)], [bytes(MIB)] * 12)
        await_true(lambda: driver.adapter._usage.set_used > 12 * MIB)
        usage = driver.adapter.get_usage()
        assert usage.total_capacity_bytes == 96 * MIB
        assert 12 * MIB < driver.adapter._usage.set_used < 13 * MIB
        assert driver.adapter.report_status()["nodes_up"] == 3


def test_usage_never_waits_and_stays_at_what_is_known(make_adapter, server):
    driver = make_adapter(usage_refresh_seconds=0.05, connect_timeout_ms=1000)
    driver.store(object_key(), bytes(MIB))
    before = driver.adapter.get_usage()
    server.pause_node(0)
    try:
        for _ in range(20):
            started = time.monotonic()
            usage = driver.adapter.get_usage()
            assert time.monotonic() - started < 0.2
            assert usage.total_capacity_bytes == before.total_capacity_bytes
            select.select([], [], [], 0.01)
        await_true(lambda: driver.adapter.report_status()["usage"]["last_error"] != "")
    finally:
        server.resume_node(0)
    await_true(lambda: driver.adapter.report_status()["usage"]["last_error"] == "")


def test_answers_of_older_servers_are_understood():
    new = pairs_of(
        "objects=1;effective_replication_factor=2;data_used_bytes=10;data_total_bytes=90"
    )
    assert usage_of([new, new], []).namespace_total == 90
    device = pairs_of(
        "replication-factor=1;device_used_bytes=5;device_total_bytes=50;memory-size=9"
    )
    assert usage_of([device], []).namespace_total == 50
    memory = pairs_of("device_total_bytes=0;memory_used_bytes=5;memory-size=9;default-ttl=60")
    usage = usage_of([memory], [pairs_of("objects=3:tombstones=0:memory_data_bytes=4:x=y;")])
    assert (usage.namespace_used, usage.namespace_total, usage.set_used) == (5, 9, 4)
    assert usage.default_ttl_seconds == 60
    assert usage_of([pairs_of("")], [pairs_of("")]).namespace_total == 0


# ---- adoption ------------------------------------------------------------------------------------


class Listener(L2AdapterListener):
    """Knows what is there, as an eviction policy does."""

    def __init__(self) -> None:
        self.there = set()

    def on_l2_keys_stored(self, keys, sizes):
        self.there |= set(keys)

    def on_l2_keys_accessed(self, keys):
        pass

    def on_l2_keys_deleted(self, keys):
        self.there -= set(keys)


def test_objects_of_others_are_adopted_and_let_go(make_adapter):
    writer = make_adapter(default_ttl_seconds=-1)
    keys = [object_key(i, cache_salt="ab"[i % 2]) for i in range(30)]
    writer.store_many(keys[:20], [bytes(100)] * 20)
    adopter = make_adapter(usage="process", adopt_seconds=0.05, usage_refresh_seconds=0.05).adapter
    listener = Listener()
    adopter.register_listener(listener)
    await_true(lambda: adopter.get_usage().total_bytes_used == 2000)
    writer.store_many(keys[20:], [bytes(100)] * 10)
    await_true(lambda: adopter.get_usage().total_bytes_used == 3000)
    assert dict(adopter.get_usage().bytes_by_cache_salt) == {"a": 1500, "b": 1500}
    assert set(keys[20:]) <= listener.there
    writer.delete(keys[5:])
    await_true(lambda: adopter.get_usage().total_bytes_used == 500)
    assert not listener.there & set(keys[5:])
    adopter.delete(keys)
    assert adopter.get_usage().total_bytes_used == 0
    assert writer.lookup(keys) == [False] * 30
