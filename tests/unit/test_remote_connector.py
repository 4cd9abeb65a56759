# SPDX-License-Identifier: Apache-2.0
"""The remote connector: construction, lookups, loads, stores, removal; one record and several."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from fakes import FakeKey
from unit_world import FAST, FULL, HIDDEN, LAYERS, TOKENS, World, content, metadata_of

from lmcache_aerospike import _native, keys
from lmcache_aerospike.errors import (
    AerospikeBusyError,
    AerospikeConnectionError,
    AerospikeRecordTooBigError,
    AerospikeTimeoutError,
    AerospikeTTLConfigError,
    ClosedError,
    InvalidArgumentError,
)

Worlds = Callable[..., World]
SEGMENT = 64 << 10  # of a server with records of 128 KiB
THREE = 3 * SEGMENT - 100


def names(*texts: str) -> list[FakeKey]:
    return [FakeKey(text) for text in texts]


def digest(record: keys.RecordKey) -> bytes:
    """What names a record on the wire: set, type of the key (3 = text) and key."""
    return hashlib.new("ripemd160", f"{record[1]}\x03{record[2]}".encode()).digest()


# ---- construction and end ----------------------------------------------------------------------


def test_limits_are_known_after_construction(world: Worlds, caplog: Any) -> None:
    with caplog.at_level(logging.INFO, "lmcache_aerospike"):
        made = world()
    assert made.connector._limits_ready
    assert made.connector._resolved.max_segment_bytes == (128 << 10) - 65536
    assert "max-record-size is 131072 bytes" in caplog.text
    assert "segments of up to 65536 bytes" in caplog.text


def test_post_init_has_nothing_left_to_do(world: Worlds) -> None:
    made = world()
    before = made.connector._resolved
    made.connector.post_init()
    assert made.connector._resolved is before


def test_close_is_idempotent_and_releases_the_holder(world: Worlds) -> None:
    made = world()
    assert made.holder.refcount == 1
    made.close()
    made.close()
    assert made.holder.refcount == 0
    with pytest.raises(ClosedError):
        made.get("k")
    with pytest.raises(ClosedError):
        made.connector.exists_sync(FakeKey("k"))
    assert made.connector.batched_contains(names("k")) == 0
    assert made.run(made.connector.batched_get_non_blocking("", names("k"))) == []
    assert made.run(made.connector.ping()) == 1


def test_a_namespace_that_refuses_ttls_fails_the_construction(set_name: str, loop: Any) -> None:
    with (
        _native.DevServer(namespaces=[{"name": "lmcache", "nsup_period_s": 0}]) as server,
        pytest.raises(AerospikeTTLConfigError, match="nsup-period"),
    ):
        World(loop, {"hosts": server.hosts})


# ---- loads -------------------------------------------------------------------------------------


@pytest.mark.parametrize("save_chunk_meta", [True, False])
@pytest.mark.parametrize("tokens", [1, 7, TOKENS])
def test_whole_and_partial_chunks(world: Worlds, save_chunk_meta: bool, tokens: int) -> None:
    made = world(save_chunk_meta=save_chunk_meta)
    data = made.put("k", tokens)
    loaded = made.get("k")
    assert loaded is not None
    assert bytes(loaded.byte_array) == data
    assert tuple(loaded.meta.shape) == (2, LAYERS, tokens, HIDDEN)
    assert loaded.get_shapes() == [loaded.meta.shape]
    loaded.ref_count_down()


@pytest.mark.parametrize("size", [2, SEGMENT, SEGMENT + 2, THREE])
def test_one_record_and_several_in_order(world: Worlds, raw: Any, size: int) -> None:
    made = world()
    data = made.put_bytes("k", size)
    assert made.take("k") == data
    expected = -(-size // SEGMENT)
    _, _, meta = raw.get(keys.meta_key("lmcache", made.cfg.set_name, "k"))
    assert (meta["nseg"], meta["tot_b"], meta["state"]) == (expected, size, "ready")
    assert ("b" in meta) == (expected == 1)
    segments = keys.segment_keys("lmcache", made.cfg.set_name, "k", expected if expected > 1 else 0)
    parts = [raw.get(key)[2]["b"] for key in segments]
    assert b"".join(parts) == (data if expected > 1 else b"")


def test_the_memory_that_was_allocated_receives_the_bytes(world: Worlds) -> None:
    made = world()
    made.put("k")
    loaded = made.get("k")
    assert loaded is not None
    assert len(made.backend.allocations) == 1
    loaded.ref_count_down()


def test_an_absent_chunk_is_none(world: Worlds) -> None:
    assert world().get("absent") is None


def test_a_missing_segment_is_a_miss(world: Worlds, raw: Any) -> None:
    made = world()
    made.put_bytes("k", THREE)
    raw.remove(keys.segment_key("lmcache", made.cfg.set_name, "k", 1))
    assert made.take("k") is None


def test_segments_without_a_meta_record_are_a_miss(world: Worlds, raw: Any) -> None:
    made = world()
    made.put_bytes("k", THREE)
    raw.remove(keys.meta_key("lmcache", made.cfg.set_name, "k"))
    assert made.take("k") is None
    assert not made.connector.exists_sync(FakeKey("k"))


def test_a_chunk_that_is_not_ready_is_a_miss(world: Worlds, raw: Any) -> None:
    made = world()
    made.put("k")
    raw.put(keys.meta_key("lmcache", made.cfg.set_name, "k"), {"state": "writing"})
    assert made.take("k") is None


def test_a_wrong_crc_is_a_miss(world: Worlds, raw: Any) -> None:
    made = world(options={"enable_crc32": True, "verify": "full"})
    data = made.put("k")
    assert made.take("k") == data
    raw.put(keys.meta_key("lmcache", made.cfg.set_name, "k"), {"crc32": 1})
    assert made.take("k") is None


def test_reshape_is_called_without_metadata_only(world: Worlds, monkeypatch: Any) -> None:
    for save_chunk_meta in (True, False):
        made = world(save_chunk_meta=save_chunk_meta)
        calls: list[int] = []
        real = made.connector.reshape_partial_chunk
        monkeypatch.setattr(
            made.connector,
            "reshape_partial_chunk",
            lambda memory, size, calls=calls, real=real: (calls.append(size), real(memory, size))[
                1
            ],
        )
        data = made.put("k", 5)
        assert made.take("k") == data
        assert calls == ([] if save_chunk_meta else [len(data)])


def test_a_chunk_of_no_whole_tokens_is_a_miss(world: Worlds) -> None:
    made = world(save_chunk_meta=False)
    made.put_bytes("k", 10)
    assert made.take("k") is None
    assert not made.backend.out


def test_records_without_metadata_are_read_by_shape(world: Worlds) -> None:
    plain = world(save_chunk_meta=False)
    data = plain.put("whole"), plain.put("partial", 3)
    made = world()
    made.connector._loader.expect(b"", 0)
    assert (made.take("whole"), made.take("partial")) == data


@pytest.mark.parametrize(
    "serde", [None, {"type": "checksum"}, {"type": "lossless", "dtype": "bfloat16"}]
)
def test_what_is_longer_than_expected_is_loaded_once_more(world: Worlds, serde: Any) -> None:
    made = world(options={"serde": serde})
    writer = world(options={"serde": serde})
    data = writer.put_bytes("long", 2 * FULL)
    assert made.take("long") == data
    assert made.connector._store.native.stats()["operations"]["get"]["items"] == 2
    assert made.take("long") == data
    assert made.connector._store.native.stats()["operations"]["get"]["items"] == 3


def test_wrong_metadata_are_a_miss(world: Worlds, raw: Any) -> None:
    made = world()
    made.put("k")
    record = keys.meta_key("lmcache", made.cfg.set_name, "k")
    md = raw.get(record)[2]["md"]
    for index in range(0, len(md), 4):
        damaged = bytearray(md)
        damaged[index : index + 4] = b"\xff\xff\xff\x7f"
        raw.put(record, {"md": damaged})
        assert made.take("k") is None, index
    for size in (0, 3, len(md) - 1, len(md) + 4):
        raw.put(record, {"md": bytearray((md + b"\x01\x01\x01\x01")[:size])})
        # Without metadata the shape of a chunk is what remains.
        assert made.take("k") is None or size == 0, size
    assert not made.backend.out


def test_no_room_is_none(world: Worlds) -> None:
    made = world(room=2)
    for key in "abc":
        made.put(key)
    loaded = made.run(made.connector.batched_get(names("a", "b", "c")))
    assert [one is not None for one in loaded] == [True, True, False]
    assert made.get("c") is None
    for one in loaded[:2]:
        one.ref_count_down()


def test_an_allocator_that_fails_leaves_nothing(world: Worlds, monkeypatch: Any) -> None:
    made = world()
    for key in "abc":
        made.put(key, 3)
    left = 0

    def allocate(shapes: Any, dtypes: Any, fmt: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            raise RuntimeError("allocate")  # noqa: EM101
        return type(made.backend).allocate(made.backend, shapes, dtypes, fmt)

    monkeypatch.setattr(made.backend, "allocate", allocate)
    for failing_call in range(1, 7):
        left = failing_call
        with pytest.raises(RuntimeError, match="allocate"):
            made.run(made.connector.batched_get(names("a", "b", "c")))
        assert not made.backend.out


# ---- many keys ---------------------------------------------------------------------------------


def test_batched_get_keeps_the_order_with_a_key_twice(world: Worlds) -> None:
    made = world()
    data = {key: made.put(key, fill=ord(key)) for key in "abc"}
    wanted = ["c", "a", "absent", "c", "b"]
    loaded = made.run(made.connector.batched_get(names(*wanted)))
    assert [one and bytes(one.byte_array) for one in loaded] == [data.get(key) for key in wanted]
    assert len({id(one) for one in loaded}) == len(wanted)
    for one in loaded:
        if one is not None:
            one.ref_count_down()


def test_many_keys_are_one_batch(world: Worlds) -> None:
    made = world()
    chunks = [made.chunk(fill=i) for i in range(9)]
    some = names(*(f"k{i}" for i in range(9)))
    made.run(made.connector.batched_put(some, chunks))
    for one in made.run(made.connector.batched_get(some)):
        one.ref_count_down()
    counters = made.connector._store.native.stats()["operations"]
    for operation in ("put", "get"):
        assert counters[operation]["items"] == 9
        assert sum(counters[operation]["batch_microseconds"]["counts"]) == 1
    assert not any(chunk.ref_count_downs for chunk in chunks)


def test_no_keys_are_nothing(world: Worlds) -> None:
    made = world()
    assert made.run(made.connector.batched_get([])) == []
    assert made.run(made.connector.batched_get_non_blocking("", [])) == []
    assert made.run(made.connector.batched_put([], [])) is None
    assert made.connector.batched_contains([]) == 0
    assert made.run(made.connector.batched_async_contains("", [])) == 0


def test_batched_put_needs_as_many_objects_as_keys(world: Worlds) -> None:
    made = world()
    with pytest.raises(InvalidArgumentError, match="1 objects, expected 2"):
        made.run(made.connector.batched_put(names("a", "b"), [made.chunk()]))


@pytest.mark.parametrize(
    ("present", "expected"),
    [("TTFT", 2), ("", 0), ("TTTT", 4), ("FTTT", 0), ("TF", 1), ("F", 0)],
)
def test_contains_is_the_length_of_the_prefix(world: Worlds, present: str, expected: int) -> None:
    made = world()
    some = names(*(f"{present}{i}" for i in range(len(present))))
    for key, there in zip(some, present, strict=True):
        if there == "T":
            made.put(key.text)
    assert made.connector.batched_contains(some) == expected
    assert made.run(made.connector.batched_async_contains("id", some, True)) == expected
    twice = [key for key in some for _ in range(2)]
    assert made.connector.batched_contains(twice) == 2 * expected


def test_non_blocking_get_keeps_the_prefix_and_releases_the_rest(world: Worlds) -> None:
    made = world()
    for key in "abde":
        made.put(key)
    kept = made.run(made.connector.batched_get_non_blocking("id", names(*"abcde")))
    assert len(kept) == 2
    assert len(made.backend.out) == 2
    for one in kept:
        one.ref_count_down()


# ---- stores ------------------------------------------------------------------------------------


def test_a_small_chunk_is_one_record(world: Worlds) -> None:
    made = world()
    made.put_bytes("k", 256)
    found = made.connector._store.native.inspect("k")
    assert [record["user_key"] for record in found["records"]] == ["k|m"]


@pytest.mark.parametrize(
    ("code", "error"),
    [(14, AerospikeBusyError), (18, AerospikeBusyError), (13, AerospikeRecordTooBigError)],
)
def test_a_refused_segment_fails_the_store(
    world: Worlds, server: _native.DevServer, code: int, error: type[Exception]
) -> None:
    made = world(options={"write_timeout_ms": 300})
    segment = digest(keys.segment_key("lmcache", made.cfg.set_name, "k", 1))
    server.add_fault(action="result_code", code=code, digests=[segment], count=1000)
    with pytest.raises(error, match="put"):
        made.put_bytes("k", THREE)
    server.clear_faults()
    assert not made.connector.exists_sync(FakeKey("k"))


def test_a_shed_store_is_busy_and_costs_nothing_else(
    set_name: str, loop: asyncio.AbstractEventLoop
) -> None:
    with _native.DevServer() as server:
        made = World(loop, {"hosts": server.hosts, "set_name": set_name})
        try:
            before = made.put_bytes("before", THREE)
            server.control("stop-writes 0 on")
            with pytest.raises(AerospikeBusyError, match=r"out of space \(stop-writes\)"):
                made.put_bytes("refused", THREE)
            # From now on the engine itself refuses, at once and without a request.
            shed = made.connector._store.native.stats
            for number in range(3):
                with pytest.raises(AerospikeBusyError, match="takes no more writes"):
                    made.put_bytes(f"shed-{number}", THREE)
            assert shed()["stores_shed_by_reason"]["stop_writes"] >= 3
            assert made.take("before") == before
            assert not made.connector.exists_sync(FakeKey("shed-0"))
        finally:
            made.close()


def test_batched_put_stores_the_others(world: Worlds, server: _native.DevServer) -> None:
    made = world(options={"write_timeout_ms": 300})
    chunks = [made.chunk(fill=i) for i in range(3)]
    record = digest(keys.meta_key("lmcache", made.cfg.set_name, "b"))
    server.add_fault(action="result_code", code=13, digests=[record], count=1000)
    with pytest.raises(AerospikeRecordTooBigError, match="1 of 3"):
        made.run(made.connector.batched_put(names("a", "b", "c"), chunks))
    assert sum(made.connector.exists_sync(key) for key in names("a", "b", "c")) == 2
    assert not any(chunk.ref_count_downs for chunk in chunks)


def test_a_pinned_chunk_never_expires(world: Worlds) -> None:
    made = world()
    made.run(made.connector._put("put", names("k"), [made.chunk()], pin=True))
    made.put("other")
    assert made.connector._store.native.inspect("k")["expires_in"] is None
    assert made.connector._store.native.inspect("other")["expires_in"] <= 86400


# ---- removal, listing, ping --------------------------------------------------------------------


def test_remove_takes_meta_record_and_segments(world: Worlds, raw: Any) -> None:
    made = world()
    made.put_bytes("k", THREE)
    assert made.connector.remove_sync(FakeKey("k"))
    assert not made.connector.remove_sync(FakeKey("k"))
    records = [
        keys.meta_key("lmcache", made.cfg.set_name, "k"),
        *keys.segment_keys("lmcache", made.cfg.set_name, "k", 3),
    ]
    deadline = time.monotonic() + 10
    while any(raw.exists(key)[1] is not None for key in records):
        assert time.monotonic() < deadline


def test_list_is_off_unless_enabled(world: Worlds, caplog: Any) -> None:
    made = world()
    made.put("k")
    assert made.run(made.connector.list()) == []
    assert made.run(made.connector.list()) == []
    assert caplog.text.count("enable_list") == 1
    enabled = world(options={"enable_list": True})
    enabled.put_bytes("l", THREE)
    assert sorted(made.run(enabled.connector.list())) == ["k", "l"]


def test_ping(world: Worlds) -> None:
    made = world()
    assert made.connector.support_ping()
    assert made.run(made.connector.ping()) == 0


def test_what_is_supported(world: Worlds) -> None:
    connector = world().connector
    assert connector.support_batched_get()
    assert connector.support_batched_put()
    assert connector.support_batched_contains()
    assert connector.support_batched_async_contains()
    assert connector.support_batched_get_non_blocking()
    assert "aerospike" in repr(connector)
    assert connector.cfg.set_name in repr(connector)


# ---- failures ----------------------------------------------------------------------------------


def test_a_read_that_times_out_is_a_miss_and_a_write_raises(
    world: Worlds, server: _native.DevServer, caplog: Any
) -> None:
    made = world(options={"read_timeout_ms": 80, "write_timeout_ms": 80})
    made.put("k")
    server.add_fault(action="drop", count=100_000)
    assert made.get("k") is None
    assert made.run(made.connector.batched_get(names("k", "l"))) == [None, None]
    assert made.run(made.connector.batched_get_non_blocking("", names("k"))) == []
    assert made.run(made.connector.exists(FakeKey("k"))) is False
    assert made.connector.exists_sync(FakeKey("k")) is False
    assert made.connector.batched_contains(names("k")) == 0
    with pytest.raises(AerospikeTimeoutError, match="put"):
        made.put("k")
    with pytest.raises(AerospikeTimeoutError):
        made.connector.remove_sync(FakeKey("k"))
    assert made.run(made.connector.ping()) == 1
    assert caplog.text.count("exists: ") == 1
    assert not made.backend.out


def test_no_node_is_an_error_and_it_comes_back(set_name: str, loop: Any) -> None:
    with _native.DevServer(timing=FAST) as server:
        made = World(loop, {"hosts": server.hosts, "tend_interval_ms": 50, "read_timeout_ms": 200})
        made.put("k")
        layers = World(loop, made.cfg.options().values, layerwise=True)
        server.stop_node(0)
        with pytest.raises(AerospikeConnectionError):
            for _ in range(50):
                made.get("k")
        with pytest.raises(AerospikeConnectionError):
            made.run(made.connector.exists(FakeKey("k")))
        with pytest.raises(AerospikeConnectionError):
            made.connector.exists_sync(FakeKey("k"))
        with pytest.raises(AerospikeConnectionError):
            made.run(made.connector.batched_get(names("k", "l")))
        with pytest.raises(AerospikeConnectionError):
            made.put("k")
        assert made.run(made.connector.batched_get_non_blocking("", names("k"))) == []
        assert made.connector.batched_contains(names("k")) == 0
        assert made.run(made.connector.ping()) == 1
        with pytest.raises(AerospikeConnectionError):
            layers.get("k")
        layers.close()
        server.start_node(0)
        deadline = time.monotonic() + 20
        while made.run(made.connector.ping()) != 0:
            assert time.monotonic() < deadline
        data = made.put("k")
        assert made.take("k") == data
        made.close()
        assert not made.backend.out


def test_a_slow_node_does_not_take_its_neighbours_along(set_name: str, loop: Any) -> None:
    with _native.DevServer(nodes=2, replication=1) as server:
        made = World(loop, {"hosts": server.hosts, "read_timeout_ms": 300})
        some = names(*(f"k{i}" for i in range(32)))
        made.run(made.connector.batched_put(some, [made.chunk(fill=i) for i in range(32)]))
        server.add_fault(action="drop", node=1, count=100_000)
        loaded = made.run(made.connector.batched_get(some))
        there = [one for one in loaded if one is not None]
        assert 0 < len(there) < 32
        for one in there:
            one.ref_count_down()
        server.clear_faults()
        made.close()
        assert not made.backend.out


# ---- threads and cancellation ------------------------------------------------------------------


def test_waiting_calls_work_on_the_thread_of_the_loop(world: Worlds) -> None:
    made = world()
    made.put("k")

    async def all_of_them() -> tuple[bool, int, bool]:
        return (
            made.connector.exists_sync(FakeKey("k")),
            made.connector.batched_contains(names("k", "l")),
            made.connector.remove_sync(FakeKey("k")),
        )

    assert made.run(all_of_them()) == (True, 1, True)


def test_waiting_calls_work_on_any_thread(world: Worlds) -> None:
    made = world()
    made.put("k")
    found: list[int] = []

    def look_up() -> None:
        for _ in range(50):
            found.append(made.connector.batched_contains(names("k", "k", "l")))

    threads = [threading.Thread(target=look_up) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [2] * 200


def test_two_loops_use_one_connector(world: Worlds) -> None:
    made = world()
    data = made.put("k")
    results: list[bytes | None] = []

    def on_another_loop() -> None:
        import asyncio

        async def load() -> None:
            memory = await made.connector.get(FakeKey("k"))
            results.append(bytes(memory.byte_array))
            memory.ref_count_down()

        asyncio.run(load())

    for _ in range(3):
        thread = threading.Thread(target=on_another_loop)
        thread.start()
        thread.join(30)
    assert results == [data] * 3
    assert made.take("k") == data


def test_metadata_of_groups(world: Worlds, monkeypatch: Any) -> None:
    import torch
    from lmcache.v1 import protocol

    shapes = [torch.Size((2, 1, TOKENS, 32)), torch.Size((2, 3, TOKENS, 64))]
    metadata = metadata_of()
    monkeypatch.setattr(metadata, "get_shapes", lambda: shapes)
    monkeypatch.setattr(metadata, "get_dtypes", lambda: [torch.bfloat16, torch.float32])
    monkeypatch.setattr(metadata, "get_num_groups", lambda: 2)
    try:
        for save_chunk_meta in (True, False):
            made = world(metadata=metadata, save_chunk_meta=save_chunk_meta)
            for tokens in (TOKENS, 5):
                cut = [torch.Size((*s[:2], tokens, *s[3:])) for s in shapes]
                memory = type(made.chunk())(
                    cut, [torch.bfloat16, torch.float32], made.connector.meta_fmt
                )
                memory.raw_data[:] = content(len(memory.raw_data), tokens)
                made.run(made.connector.put(FakeKey("k"), memory))
                loaded = made.get("k")
                assert loaded is not None
                assert bytes(loaded.byte_array) == bytes(memory.raw_data)
                assert loaded.get_shapes() == cut
                loaded.ref_count_down()
    finally:
        protocol.init_remote_metadata_info(1)
