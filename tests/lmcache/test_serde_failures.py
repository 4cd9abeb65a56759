# SPDX-License-Identifier: Apache-2.0
"""Serdes and stores that fail inside LMCache's wrapper: one result for each task, nothing held."""

from __future__ import annotations

import os
import random
import select
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from lmcache.v1.distributed.l1_manager import L1Manager
from lmcache.v1.distributed.serde import (
    AsyncSerdeProcessor,
    get_registered_serde_types,
    register_serde_factory,
)
from lmcache.v1.platform import consume_fd
from lmcache_driver import adapter_spec, meta_digest, object_key, wire_key
from serde_driver import (
    BF16,
    NOTHING_HELD,
    KvObject,
    Layout,
    WrappedDriver,
    l1_balance,
    make_l1_manager,
    numbers,
    overwrite_l1,
    wrapped,
)

from lmcache_aerospike import Store
from lmcache_aerospike.lmcache_serde import AerospikeDeserializer, AerospikeSerializer

KV: Layout = [((2, 3, 16, 64), BF16)]
REFUSED = 22  # not retried
PLANS = 60


@pytest.fixture(scope="module")
def l1() -> Iterator[L1Manager]:
    """The L1 that temporary buffers come from."""
    manager = make_l1_manager()
    yield manager
    manager.close()


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A master key that only its owner can read."""
    path = tmp_path_factory.mktemp("key") / "master.key"
    path.touch(mode=0o600)
    path.write_bytes(os.urandom(32))
    return str(path)


@pytest.fixture
def store(server: Any, set_name: str) -> Iterator[Store]:
    """Another client, to look at what lies in the database."""
    with Store(server.hosts, set_name=set_name) as client:
        yield client


def stored_keys(store: Store) -> list[str]:
    """The keys of all objects of the set."""
    return sorted(item["key"] for item in store.list(count=1000)[0])


def names(keys: Any) -> list[str]:
    """As stored_keys() returns them."""
    return sorted(wire_key(key) for key in keys)


class Picky(AerospikeSerializer):
    """Ours, but for keys whose model is called bad."""

    def serialize(self, src: object, dst: object, key: Any = None) -> int:
        if key.model_name == "bad":
            msg = "refused"
            raise RuntimeError(msg)
        return super().serialize(src, dst, key)


class PickyBack(AerospikeDeserializer):
    """Ours, but for keys whose model is called worse."""

    def deserialize(self, src: object, dst: object, key: Any = None) -> None:
        if key.model_name == "worse":
            msg = "refused"
            raise RuntimeError(msg)
        super().deserialize(src, dst, key)


@pytest.fixture(scope="module")
def picky() -> dict[str, Any]:
    """A serde of the user's own, in LMCache's own processor."""
    if "picky_of_the_tests" not in get_registered_serde_types():
        register_serde_factory(
            "picky_of_the_tests",
            lambda _: AsyncSerdeProcessor(Picky("fp8"), PickyBack("fp8"), max_workers=2),
        )
    return {"type": "picky_of_the_tests"}


def test_a_serializer_that_throws_is_a_failed_store(l1, server, set_name, store, picky):
    with wrapped({**adapter_spec(server.hosts, set_name), "serde": picky}, l1) as driver:
        keys = [object_key(i, model_name=m) for i, m in enumerate(("good", "bad", "good"))]
        objects = [KvObject(KV, numbers(KV, i)) for i in range(3)]
        assert not driver.store_objects(keys, objects).is_successful()
        assert stored_keys(store) == []
        assert driver.store_objects(keys[::2], objects[::2]).is_successful()
        assert stored_keys(store) == names(keys[::2])


def test_a_deserializer_that_throws_fails_its_batch(l1, server, set_name, picky):
    """LMCache's rule: one object that cannot be read makes misses of all of its task."""
    with wrapped({**adapter_spec(server.hosts, set_name), "serde": picky}, l1) as driver:
        keys = [object_key(i, model_name=m) for i, m in enumerate(("good", "worse", "good"))]
        objects = [KvObject(KV, numbers(KV, i)) for i in range(3)]
        assert driver.store_objects(keys, objects).is_successful()
        targets = [KvObject(KV) for _ in keys]
        assert driver.load_into(keys, targets) == [False] * 3
        assert driver.load_into(keys[::2], targets[::2]) == [True] * 2


@pytest.mark.parametrize("type_name", ["fp8", "k16v8", "int8", "lossless", "checksum"])
def test_what_a_native_serde_refuses_is_a_failed_store(l1, server, set_name, store, type_name):
    """The second object is larger than the first, by which LMCache reserved the buffers."""
    spec = {**adapter_spec(server.hosts, set_name), "serde": {"type": f"aerospike_{type_name}"}}
    with wrapped(spec, l1) as driver:
        keys = [object_key(i) for i in range(2)]
        layouts: list[Layout] = [KV, [((2, 3, 64, 64), BF16)]]
        objects = [KvObject(layout, numbers(layout, 1)) for layout in layouts]
        assert not driver.store_objects(keys, objects).is_successful()
        assert stored_keys(store) == []
        reasons = [str(failure.error) for failure in driver.serde.last_errors()]
        assert len(reasons) == 1
        assert type_name in reasons[0]


def test_a_refused_store_of_one_object_fails_its_task(l1, server, set_name, store):
    spec = {**adapter_spec(server.hosts, set_name), "serde": {"type": "aerospike_fp8"}}
    with wrapped(spec, l1) as driver:
        keys = [object_key(i) for i in range(3)]
        objects = [KvObject(KV, numbers(KV, i)) for i in range(3)]
        fault = server.add_fault(
            action="result_code", code=REFUSED, digests=[meta_digest(set_name, keys[1])]
        )
        assert not driver.store_objects(keys, objects).is_successful()
        server.await_fault(fault)
        server.clear_faults()
        assert stored_keys(store) == names([keys[0], keys[2]])
        assert driver.store_objects(keys, objects).is_successful()
        assert stored_keys(store) == names(keys)


def test_a_server_that_does_not_answer_fails_both_ways(l1, server, set_name):
    spec = adapter_spec(server.hosts, set_name, write_timeout_ms=300, read_timeout_ms=300)
    with wrapped({**spec, "serde": {"type": "aerospike_lossless"}}, l1) as driver:
        keys = [object_key(i) for i in range(2)]
        objects = [KvObject(KV, numbers(KV, i)) for i in range(2)]
        assert driver.store_objects(keys, objects).is_successful()
        server.pause_node(0)
        try:
            assert not driver.store_objects(keys, objects).is_successful()
            targets = [KvObject(KV) for _ in keys]
            assert driver.load_into(keys, targets) == [False, False]
            assert all(target.is_untouched() for target in targets)
        finally:
            server.resume_node(0)


def test_misses_are_misses_and_hits_beside_them_hits(l1, server, set_name):
    spec = {**adapter_spec(server.hosts, set_name), "serde": {"type": "aerospike_checksum"}}
    with wrapped(spec, l1) as driver:
        keys = [object_key(i) for i in range(4)]
        contents = [numbers(KV, i) for i in range(4)]
        hits = [KvObject(KV, contents[i]) for i in (0, 3)]
        assert driver.store_objects([keys[0], keys[3]], hits).is_successful()
        targets = [KvObject(KV) for _ in keys]
        assert driver.load_into(keys, targets) == [True, False, False, True]
        assert [targets[i].bytes() for i in (0, 3)] == [contents[0], contents[3]]
        assert targets[1].is_untouched()
        assert targets[2].is_untouched()
        assert driver.load_into(keys[1:3], targets[1:3]) == [False, False]


@pytest.mark.parametrize("type_name", ["lossless", "checksum", "aesgcm", "k16v8", "chain"])
def test_a_record_that_somebody_changed_is_a_miss(l1, server, set_name, store, key_file, type_name):
    serde: dict[str, Any] = {"type": f"aerospike_{type_name}"}
    if type_name == "aesgcm":
        serde["master_key_path"] = key_file
    if type_name == "chain":
        serde["stages"] = [{"type": "fp8"}, {"type": "checksum"}]
    spec = {**adapter_spec(server.hosts, set_name), "serde": serde}
    with wrapped(spec, l1) as driver:
        keys = [object_key(i) for i in range(2)]
        objects = [KvObject(KV, numbers(KV, i)) for i in range(2)]
        assert driver.store_objects(keys, objects).is_successful()
        frame = bytearray(store.get(wire_key(keys[1])))
        for at in (0, len(frame) // 2, len(frame) - 1):
            frame[at] ^= 0x10
            store.put(wire_key(keys[1]), bytes(frame))
            frame[at] ^= 0x10
            targets = [KvObject(KV), KvObject(KV)]
            assert driver.load_into(keys, targets) == [False, False]
            for target in targets:
                target.bytes()  # checks the guard zones
            assert driver.load_into(keys[:1], targets[:1]) == [True]
        for cut in (1, len(frame) // 2, len(frame) - 8):
            store.put(wire_key(keys[1]), bytes(frame[:cut]))
            overwrite_l1(l1)  # or the rest of the object might still lie behind the piece
            assert driver.load_into(keys[1:], [KvObject(KV)]) == [False]
        store.put(wire_key(keys[1]), bytes(frame))
        assert driver.load_into(keys, [KvObject(KV), KvObject(KV)]) == [True, True]


def test_l1_without_room_fails_the_task_and_takes_nothing(server, set_name, store):
    manager = make_l1_manager()
    try:
        layout: Layout = [((2, 8, 256, 512), BF16)]  # 4 MiB, of 64
        spec = {**adapter_spec(server.hosts, set_name), "serde": {"type": "aerospike_checksum"}}
        with wrapped(spec, manager) as driver:
            keys = [object_key(i) for i in range(20)]
            objects = [KvObject(layout, numbers(layout, 1))] * len(keys)
            assert not driver.store_objects(keys, objects).is_successful()
            assert driver.load_into(keys, objects) == [False] * 20
            assert stored_keys(store) == []
            assert driver.store_objects(keys[:4], objects[:4]).is_successful()
        assert l1_balance(manager) == NOTHING_HELD
    finally:
        manager.close()


def test_a_close_in_the_middle_gives_everything_back(server, set_name):
    """Tasks wait for the serde, for the server, and for the poll thread, when the end comes."""
    for turn in range(4):
        manager = make_l1_manager()
        spec = adapter_spec(server.hosts, set_name, write_timeout_ms=500, read_timeout_ms=500)
        driver = WrappedDriver({**spec, "serde": {"type": "aerospike_lossless"}}, manager)
        keys = [object_key(i) for i in range(4)]
        objects = [KvObject(KV, numbers(KV, i)) for i in range(4)]
        assert driver.store_objects(keys, objects).is_successful()
        server.pause_node(0)
        try:
            targets = [KvObject(KV) for _ in keys]
            for _ in range(8):
                driver.adapter.submit_store_task(keys, [o.memory for o in objects])
                driver.adapter.submit_load_task(keys, [o.memory for o in targets])
            if turn % 2:
                select.select([], [], [], 0.02)  # until the stores are on their way
            driver.close()
            assert l1_balance(manager) == NOTHING_HELD
        finally:
            server.resume_node(0)
            manager.close()


def test_each_of_many_tasks_is_answered_once(l1, server, set_name, store, picky):
    """Two threads submit what works and what does not, as LMCache's two controllers do."""
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    with wrapped({**adapter_spec(server.hosts, set_name), "serde": picky}, l1) as driver:
        known = [object_key(i, model_name="good") for i in range(4)]
        content = numbers(KV, 1)
        assert driver.store_objects(known, [KvObject(KV, content)] * 4).is_successful()
        worse = object_key(77, model_name="worse")
        assert driver.store_objects([worse], [KvObject(KV, content)]).is_successful()
        failures: list[str] = []

        def run(what: Any) -> None:
            try:
                what(driver, random.Random(seed), known, worse)
            except BaseException as error:
                failures.append(repr(error))

        threads = [threading.Thread(target=run, args=(what,)) for what in (many_stores, many_loads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert failures == []
    expected = {wire_key(key) for key in [*known, worse]}
    assert expected <= set(stored_keys(store))
    assert not any(key.startswith("bad@") for key in stored_keys(store))


def many_stores(driver: WrappedDriver, numbers_of: random.Random, known: Any, _: Any) -> None:
    """Stores, of which some have a refused object."""
    planned = {}
    results: dict[int, bool] = {}
    content = numbers(KV, 2)
    for i in range(PLANS):
        bad = numbers_of.random() < 0.3
        keys = [object_key(100 + i, model_name="good"), object_key(i, model_name="bad")]
        objects = [KvObject(KV, content).memory for _ in range(2)]
        count = 2 if bad else 1
        planned[driver.adapter.submit_store_task(keys[:count], objects[:count])] = not bad
    poller = select.poll()
    poller.register(driver.adapter.get_store_event_fd(), select.POLLIN)
    while len(results) < len(planned):
        assert poller.poll(20_000), f"{len(results)} of {len(planned)} stores"
        consume_fd(driver.adapter.get_store_event_fd())
        for task, result in driver.adapter.pop_completed_store_tasks().items():
            assert task not in results
            results[task] = bool(result.is_successful())
    assert results == planned


def many_loads(driver: WrappedDriver, numbers_of: random.Random, known: Any, worse: Any) -> None:
    """Loads of hits, misses, and of one that cannot be read."""
    planned = {}
    targets = []
    for i in range(PLANS):
        kind = numbers_of.choice(("hit", "miss", "worse"))
        keys = [known[i % 4], {"hit": known[0], "miss": object_key(5000), "worse": worse}[kind]]
        targets.append([KvObject(KV), KvObject(KV)])
        task = driver.adapter.submit_load_task(keys, [o.memory for o in targets[-1]])
        planned[task] = {"hit": [True, True], "miss": [True, False], "worse": [False, False]}[kind]
    poller = select.poll()
    poller.register(driver.adapter.get_load_event_fd(), select.POLLIN)
    results: dict[int, list[bool]] = {}
    while len(results) < len(planned):
        assert poller.poll(20_000), f"{len(results)} of {len(planned)} loads"
        consume_fd(driver.adapter.get_load_event_fd())
        for task in planned:
            bitmap = driver.adapter.query_load_result(task)
            if bitmap is not None:
                assert task not in results
                results[task] = [bool(bitmap.test(bit)) for bit in range(2)]
    assert results == planned
