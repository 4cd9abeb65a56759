# SPDX-License-Identifier: Apache-2.0
"""The library: round trips of every size class, results per key, expiry, listing, errors."""

from __future__ import annotations

import hashlib
import random
import threading
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lmcache_aerospike import Store, _native
from lmcache_aerospike.errors import (
    AerospikeBusyError,
    AerospikeTimeoutError,
    ClosedError,
    CorruptionError,
    InvalidArgumentError,
)

CAP = 983040
SIZES = [0, 1, CAP - 1, CAP, CAP + 1, 3 * CAP + 7]


def digest(user_key: str, set_name: str = "kv_chunks") -> bytes:
    """What names a record on the wire: set, type of the key (3 = text) and key."""
    return hashlib.new("ripemd160", f"{set_name}\x03{user_key}".encode()).digest()


def content(size: int, seed: int = 0) -> bytes:
    return random.Random(size * 1000 + seed).randbytes(size)


@pytest.mark.parametrize("size", SIZES)
def test_round_trip(store: Store, size: int) -> None:
    data = content(size)
    assert store.put("round", data) == size
    assert store.exists("round")
    assert store.get("round") == data
    whole = bytearray(b"\xa5" * (size + 100))
    assert store.get_into("round", memoryview(whole)[: size + 3]) == size
    assert whole[:size] == data
    assert whole[size + 3 :] == b"\xa5" * 97
    details = store.inspect("round")
    assert details is not None
    assert details["bytes"] == size
    assert details["has_sums"]
    assert all(record["present"] for record in details["records"])
    assert len(details["records"]) == 1 + (details["segment_count"] if size > CAP else 0)
    assert store.delete("round")
    assert not store.exists("round")
    assert store.get("round") is None
    assert not store.delete("round")


def test_growing_and_shrinking_leaves_no_records(server: _native.DevServer, store: Store) -> None:
    before = server.stats(0)["records"]
    for size in (5 * CAP, 1, 3 * CAP, 0, 2 * CAP, 4 * CAP, CAP):
        data = content(size)
        store.put("resized", data)
        assert store.get("resized") == data
    assert server.stats(0)["records"] == before + 1
    store.delete("resized")
    assert server.stats(0)["records"] == before


def test_small_buffer_is_a_miss_and_is_not_overrun(store: Store) -> None:
    store.put("wide", content(3 * CAP))
    whole = bytearray(b"\xa5" * (2 * CAP))
    assert store.get_into("wide", memoryview(whole)[:CAP]) is None
    assert whole[CAP:] == b"\xa5" * CAP


def test_many_keys_with_duplicates(store: Store) -> None:
    keys = ["dup@1", "dup@2", "dup@1", "dup@3"]
    data = [b"first", content(CAP + 5), b"first", b""]
    assert store.put_many(keys, data) == [5, CAP + 5, 5, 0]
    targets = [bytearray(CAP + 5) for _ in range(6)]
    results = store.get_many_into([*keys, "dup@absent", "dup@2"], targets)
    assert results == [5, CAP + 5, 5, 0, None, CAP + 5]
    assert targets[1] == targets[5] == data[1]
    assert targets[0][:5] == targets[2][:5] == b"first"
    assert store.exists_many(["dup@3", "dup@absent"]) == [True, False]
    assert store.delete_many(["dup@1", "dup@absent", "dup@2"]) == [True, False, True]
    assert store.exists_many(keys) == [False, False, False, True]


def test_one_key_fails_alone(server: _native.DevServer, store: Store) -> None:
    fault = server.add_fault(action="result_code", code=18, kinds=["put"], key_contains="alone@2")
    results = store.put_many(["alone@1", "alone@2", "alone@3"], [b"1", b"22", b"333"])
    assert results[0] == 1
    assert results[2] == 3
    error = results[1]
    assert isinstance(error, AerospikeBusyError)
    assert (error.code, error.server_result) == ("overloaded", 18)
    assert "alone@2" not in str(error)
    with pytest.raises(AerospikeBusyError):
        store.put("alone@2", b"22")
    server.remove_fault(fault)
    assert store.exists_many(["alone@1", "alone@2", "alone@3"]) == [True, False, True]
    assert store.put("alone@2", b"22") == 2


def test_any_buffer_is_data(store: Store) -> None:
    numbers = np.arange(1000, dtype=np.uint8).reshape(10, 100)
    for data in (numbers, memoryview(numbers), bytearray(numbers.tobytes())):
        assert store.put("any", data) == 1000
        assert store.get("any") == numbers.tobytes()
    target = np.zeros((10, 100), dtype=np.uint8)
    assert store.get_into("any", target) == 1000
    assert (target == numbers).all()
    with pytest.raises(InvalidArgumentError, match=r"data\[0\]: items of several bytes"):
        store.put("any", np.zeros(4, dtype=np.float32))
    with pytest.raises(InvalidArgumentError, match=r"buffer\[0\]: not contiguous"):
        store.get_into("any", numbers.T)
    with pytest.raises(TypeError, match=r"data\[0\]: str"):
        store.put("any", "text")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"key\[0\]: int"):
        store.get(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["", "k" * 4097, "\udcff"])
def test_bad_keys(store: Store, key: str) -> None:
    for call in (store.get, store.exists, store.delete, store.touch, store.inspect):
        with pytest.raises(InvalidArgumentError, match="key"):
            call(key)


@pytest.mark.parametrize(
    "key",
    ["k" * 4096, "\u00fc\U0001f600", "a|m", "a|s|0", "a b\n", "org/m@01000100@0@ff@salt", "%00"],
)
def test_every_other_key_is_opaque(store: Store, key: str) -> None:
    other = key[:-1] + "x"
    store.put(key, b"mine")
    assert store.get(key) == b"mine"
    assert store.get(other) is None
    assert store.delete(key)


def test_expiry(store: Store) -> None:
    def expires_in(key: str) -> int | None:
        details = store.inspect(key)
        assert details is not None
        return details["expires_in"]

    store.put("ttl", b"x")
    assert 86_390 <= (expires_in("ttl") or 0) <= 86_400
    store.put("ttl", b"x", ttl=500)
    assert 490 <= (expires_in("ttl") or 0) <= 500
    assert store.touch("ttl", 1000)
    assert 990 <= (expires_in("ttl") or 0) <= 1000
    assert store.touch("ttl")
    assert 86_390 <= (expires_in("ttl") or 0) <= 86_400
    assert not store.touch("ttl@absent")
    store.put("ttl", b"x", ttl=-1)
    assert expires_in("ttl") is None
    store.put("ttl", b"x", pin=True)
    assert expires_in("ttl") is None
    details = store.inspect("ttl")
    assert details is not None
    assert details["pin"]


def test_segments_outlive_their_meta_record(store: Store) -> None:
    store.put("grace", content(2 * CAP), ttl=1000)
    details = store.inspect("grace")
    assert details is not None
    meta, *segments = (record["expires_in"] or 0 for record in details["records"])
    assert meta <= 1000
    assert all(meta + 50 <= segment <= 1070 for segment in segments)


def test_list_finds_every_object_once(server: _native.DevServer) -> None:
    with Store(server.hosts, set_name="listed") as store:
        expected = {f"list@{i}": i * 10 for i in range(300)}
        store.put_many(list(expected), [bytes(size) for size in expected.values()])
        store.put("list@big", content(2 * CAP + 1))
        found: dict[str | None, int] = {}
        cursor = 0
        pages = 0
        while cursor < 4096:
            page, cursor = store.list(cursor, 50)
            assert not found.keys() & {entry["key"] for entry in page}
            found |= {entry["key"]: entry["bytes"] for entry in page}
            pages += 1
        assert pages > 1
        assert found == {**expected, "list@big": 2 * CAP + 1}
        entry = next(e for e in store.list(0, 1000)[0] if e["key"] == "list@big")
        assert entry["segment_count"] == 3
        assert entry["ready"]
        assert abs(entry["created_at"] - time.time()) < 60


def test_objects_without_keys_are_listed_by_digest(server: _native.DevServer) -> None:
    with Store(server.hosts, set_name="silent", send_key=False) as store:
        store.put("secret name", b"x")
        ((entry,), cursor) = store.list(0, 10)
        assert cursor == 4096
        assert entry["key"] is None
        assert len(entry["digest"]) == 40
        assert store.get("secret name") == b"x"


def test_lost_segment_is_a_clean_miss_and_a_new_store_heals(
    server: _native.DevServer, store: Store
) -> None:
    data = content(3 * CAP + 1)
    store.put("damaged", data)
    server.add_fault(action="damage", damage="shorter_value", digests=[digest("damaged|s|1")])
    assert store.get_into("damaged", bytearray(len(data))) is None
    assert not store.exists("damaged"), "what cannot be loaded is reported absent"
    server.clear_faults()
    store.put("damaged", data)
    assert store.exists("damaged")
    assert store.get("damaged") == data


def test_full_verification_finds_flipped_bits(server: _native.DevServer) -> None:
    with Store(server.hosts, verify="full", enable_crc32=True) as store:
        data = content(CAP + 100)
        store.put("flipped", data)
        assert store.get("flipped") == data
        server.add_fault(action="damage", damage="flip_value_bit", digests=[digest("flipped|s|1")])
        assert store.get_into("flipped", bytearray(len(data))) is None
        assert store.stats()["misses_by_reason"]["payload_hash"] == 1


def test_timeout_is_an_error_with_doubt(server: _native.DevServer) -> None:
    with Store(server.hosts, batch_timeout_ms=200) as store:
        server.add_fault(action="drop", kinds=["put", "get"])
        started = time.monotonic()
        with pytest.raises(AerospikeTimeoutError) as caught:
            store.put("late", b"x")
        assert time.monotonic() - started < 5
        assert isinstance(caught.value, TimeoutError)
        assert caught.value.code == "timeout"


def test_calls_release_the_interpreter_lock(server: _native.DevServer, store: Store) -> None:
    server.add_fault(action="latency", kinds=["put"], delay_ms=300)
    ended = threading.Event()

    def put() -> None:
        store.put("slow", b"x")
        ended.set()

    thread = threading.Thread(target=put)
    thread.start()
    turns = 0
    while not ended.is_set():
        turns += 1
    thread.join()
    assert turns > 1000


def test_close_while_calls_wait(server: _native.DevServer) -> None:
    store = Store(server.hosts, batch_timeout_ms=60_000)
    server.add_fault(action="drop", kinds=["get"])
    errors: list[BaseException] = []

    def get() -> None:
        try:
            store.get("waits")
        except ClosedError as error:
            errors.append(error)

    threads = [threading.Thread(target=get) for _ in range(4)]
    for thread in threads:
        thread.start()
    while store.stats()["operations"]["get"]["items"] == 0 and any(t.is_alive() for t in threads):
        fault = server.fault_counters()[-1]
        if fault["matched"] >= 4:
            break
    started = time.monotonic()
    store.close()
    for thread in threads:
        thread.join(10)
    assert time.monotonic() - started < 5
    assert len(errors) == 4


def test_after_close(store: Store) -> None:
    store.close()
    store.close()
    for call in (store.get, store.exists, store.inspect):
        with pytest.raises(ClosedError):
            call("a")
    with pytest.raises(ClosedError):
        store.put("a", b"x")
    with pytest.raises(ClosedError):
        store.list()
    assert store.stats()["requests"] >= 0
    assert store.limits()["record_bytes_max"] == 1 << 20


def test_corruption_error_is_exported() -> None:
    assert CorruptionError.default_code == "corruption"


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["put", "delete", "get", "exists"]),
            st.sampled_from(["p", "q", "r"]),
            st.sampled_from([0, 1, 70_000, 140_000]),
        ),
        max_size=12,
    )
)
def test_behaves_like_a_dict(small_store: Store, steps: list[tuple[str, str, int]]) -> None:
    small_store.delete_many(["p", "q", "r"])
    model: dict[str, bytes] = {}
    for number, (call, key, size) in enumerate(steps):
        if call == "put":
            model[key] = content(size, number)
            assert small_store.put(key, model[key]) == size
        elif call == "delete":
            assert small_store.delete(key) == (model.pop(key, None) is not None)
        elif call == "get":
            assert small_store.get(key) == model.get(key)
        else:
            assert small_store.exists(key) == (key in model)


@pytest.fixture(scope="module")
def small_store() -> Store:  # type: ignore[misc]
    """Over a server with the smallest records, so that small objects have segments."""
    with (
        _native.DevServer(
            namespaces=[{"name": "lmcache", "max_record_bytes": 128 << 10}]
        ) as server,
        Store(server.hosts) as store,
    ):
        yield store
