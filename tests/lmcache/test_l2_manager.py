# SPDX-License-Identifier: Apache-2.0
"""Eviction, quotas, prefetch and changes at run time in LMCache's StorageManager."""

from __future__ import annotations

import select
import time

import pytest
from lmcache.v1.distributed.l2_adapters.config import get_l2_adapter_config_class
from lmcache_driver import SPECS, object_key, wire_key
from test_storage_manager import (
    ELEMENTS,
    await_stored,
    check,
    chunks,
    prefetch,
    storage_manager,
    store,  # noqa: F401 - a fixture
    write,
)

BOTH_ADAPTERS = True
NATIVE_ONLY = ()

CHUNK = 2 * ELEMENTS  # bytes in L2
SECONDS_MAX = 20.0


def spec_of(kind, server, set_name, chunks_max=None, **eviction):
    """The adapter's JSON with an eviction policy and a capacity of some chunks."""
    capacity = {"max_capacity_gb": chunks_max * CHUNK / (1 << 30)} if chunks_max else {}
    if kind == "plugin":
        spec = SPECS[kind](server.hosts, set_name, usage_refresh_seconds=0.1, **capacity)
    else:
        spec = {**SPECS[kind](server.hosts, set_name), **capacity}
    return {**spec, "eviction": eviction} if eviction else spec


def present(client, keys):
    return client.exists_many([wire_key(key) for key in keys])


def await_true(check):
    deadline = time.monotonic() + SECONDS_MAX
    while not check():
        assert time.monotonic() < deadline
        select.select([], [], [], 0.05)


def adapter_of(manager):
    ((_, adapter),) = manager.l2_adapters()
    return adapter


def test_eviction_keeps_what_was_used_last(server, store, set_name, adapter_kind):  # noqa: F811
    spec = spec_of(
        adapter_kind,
        server,
        set_name,
        chunks_max=8,
        eviction_policy="LRU",
        trigger_watermark=0.7,
        eviction_ratio=0.3,
    )
    keys, tensors = [object_key(i) for i in range(6)], chunks(6)
    with storage_manager(spec) as manager:
        for key, tensor in zip(keys[:5], tensors[:5], strict=True):  # 5 of 8: below the watermark
            write(manager, [key], [tensor])
            await_stored(store, [key])
        manager.delete_l1_keys(keys[:5], force=True)
        assert prefetch(manager, keys[:1])[0] == 1  # the oldest is used again
        write(manager, keys[5:], tensors[5:])
        await_true(lambda: present(store, keys)[1] is False)
        assert present(store, keys) == [True, False, True, True, True, True]
        await_true(lambda: adapter_of(manager).get_usage().usage_fraction < 0.7)
        select.select([], [], [], 1.5)  # another round of the controller: nothing more is evicted
        assert present(store, keys) == [True, False, True, True, True, True]
        assert manager.report_status()["is_healthy"] is True
        manager.delete_l1_keys(keys, force=True)
        hits, loaded = prefetch(manager, [keys[0], *keys[2:]])
        assert hits == 5
        check(loaded, [keys[0], *keys[2:]], [tensors[0], *tensors[2:]], lossy=False)


def test_quotas_of_salts_are_kept(server, store, set_name, adapter_kind):  # noqa: F811
    spec = spec_of(
        adapter_kind,
        server,
        set_name,
        eviction_policy="IsolatedLRU",
        trigger_watermark=1.0,
        eviction_ratio=0.5,
    )
    rich = [object_key(i, cache_salt="rich") for i in range(3)]
    poor = [object_key(i, cache_salt="poor") for i in range(4)]
    unknown = [object_key(9, cache_salt="unknown")]
    with storage_manager(spec) as manager:
        manager.quota_manager.set_quota("rich", 100 * CHUNK)
        manager.quota_manager.set_quota("poor", 3 * CHUNK)
        keys = rich + poor + unknown
        write(manager, keys, chunks(len(keys)))
        # An unregistered salt keeps nothing, one over its quota half.
        await_true(lambda: present(store, unknown) == [False])
        await_true(lambda: sum(present(store, poor)) == 2)
        assert present(store, rich) == [True] * 3
        usage = manager.get_usage_bytes_by_cache_salt()
        assert usage == {"rich": 3 * CHUNK, "poor": 2 * CHUNK}


def test_adapters_come_and_go_at_run_time(server, store, set_name, adapter_kind):  # noqa: F811
    spec = spec_of(adapter_kind, server, set_name)
    keys, tensors = [object_key(i) for i in range(3)], chunks(3)
    with storage_manager(spec) as manager:
        write(manager, keys, tensors)
        await_stored(store, keys)
        manager.delete_l1_keys(keys, force=True)
        ((descriptor, _),) = manager.l2_adapters()
        manager.delete_l2_adapter(descriptor.index)
        assert prefetch(manager, keys)[0] == 0
        again = {k: v for k, v in spec.items() if k != "type"}
        config = get_l2_adapter_config_class(spec["type"]).from_dict(again)
        manager.add_l2_adapter(config)
        hits, loaded = prefetch(manager, keys)
        assert hits == 3
        check(loaded, keys, tensors, lossy=False)


def test_both_kinds_at_once_share_the_objects(server, store, set_name):  # noqa: F811
    keys, tensors = [object_key(i) for i in range(4)], chunks(4)
    with storage_manager(SPECS["plugin"](server.hosts, set_name)) as manager:
        write(manager, keys, tensors)
        await_stored(store, keys)
    with storage_manager(SPECS["native_plugin"](server.hosts, set_name)) as manager:
        hits, loaded = prefetch(manager, keys)
        assert hits == 4
        check(loaded, keys, tensors, lossy=False)


@pytest.mark.parametrize("serde", ["aerospike_fp8", "aerospike_checksum"])
def test_our_serdes_around_the_plugin(server, store, set_name, serde):  # noqa: F811
    spec = {**SPECS["plugin"](server.hosts, set_name), "serde": {"type": serde}}
    keys, tensors = [object_key(i) for i in range(3)], chunks(3)
    with storage_manager(spec) as manager:
        write(manager, keys, tensors)
        await_stored(store, keys)
        manager.delete_l1_keys(keys, force=True)
        hits, loaded = prefetch(manager, keys)
        assert hits == 3
        check(loaded, keys, tensors, lossy="fp8" in serde)
        assert manager.report_status()["l2_adapters"][0]["serde_wrapped"] is True


def test_locks_are_all_given_back_after_prefetches(server, store, set_name):  # noqa: F811
    keys, tensors = [object_key(i) for i in range(6)], chunks(6)
    with storage_manager(SPECS["plugin"](server.hosts, set_name)) as manager:
        write(manager, keys, tensors)
        await_stored(store, keys)
        manager.delete_l1_keys(keys, force=True)
        assert store.delete(wire_key(keys[3]))
        for _ in range(3):
            assert prefetch(manager, keys)[0] == 3
            manager.delete_l1_keys(keys, force=True)
        await_true(lambda: adapter_of(manager).report_status()["locked_key_count"] == 0)


def test_a_process_evicts_what_another_one_stored_if_it_adopts(server, store, set_name):  # noqa: F811
    keys, tensors = [object_key(i) for i in range(6)], chunks(6)
    with storage_manager(SPECS["plugin"](server.hosts, set_name)) as manager:
        write(manager, keys, tensors)
        await_stored(store, keys)
    spec = spec_of(
        "plugin",
        server,
        set_name,
        chunks_max=6,
        eviction_policy="LRU",
        trigger_watermark=0.7,
        eviction_ratio=0.5,
    )
    spec["adapter_params"]["adopt_seconds"] = 0.1
    with storage_manager(spec) as manager:
        await_true(lambda: sum(present(store, keys)) == 3)
        await_true(lambda: adapter_of(manager).get_usage().usage_fraction < 0.7)
        left = [key for key, is_there in zip(keys, present(store, keys), strict=True) if is_there]
        assert prefetch(manager, left)[0] == 3
