# SPDX-License-Identifier: Apache-2.0
"""Memory is released exactly once: after cancellation, close, and thousands of failing loads."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import select
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fakes import FakeKey, FakeMemoryObj
from unit_world import World, content

from lmcache_aerospike import _native
from lmcache_aerospike.errors import AerospikeConnectorError

Worlds = Callable[..., World]
FAILING_LOADS = 10_000
KEYS_OF_ONE_CALL = 10
FAULTS: list[tuple[str, dict[str, int]]] = [
    ("delay", {"delay_ms": 5}),
    ("result_code", {"code": 18}),
    ("close", {}),
    ("drop", {}),
]


async def ended(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - nothing else tells
            await asyncio.sleep(0)


async def started(made: World, operation: str, items: int) -> None:
    """Until the engine has taken a batch."""
    await ended(
        lambda: made.connector._store.native.stats()["operations"][operation]["items"] >= items
    )


def test_a_cancelled_load_keeps_its_memory_until_the_engine_let_go(
    world: Worlds, server: _native.DevServer
) -> None:
    made = world(options={"read_timeout_ms": 5000, "request_timeout_ms": 4000})
    made.put("k")
    server.add_fault(action="delay", delay_ms=600, count=1)

    async def cancel() -> None:
        task = asyncio.ensure_future(made.connector.batched_get([FakeKey("k"), FakeKey("l")]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(made.backend.out) == 2
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(made.backend.out) == 2, "the engine still writes there"
        await ended(lambda: not made.backend.out)

    made.run(cancel())
    data = made.take("k")
    assert data is not None


def test_a_load_that_is_cancelled_as_it_ends_releases_its_memory(world: Worlds) -> None:
    made = world()
    made.put("k")
    done = 0

    async def cancel(turns: int) -> None:
        nonlocal done
        task = asyncio.ensure_future(made.connector.get(FakeKey("k")))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        try:
            (await task).ref_count_down()
            done += 1
        except asyncio.CancelledError:
            pass
        await ended(lambda: not made.backend.out)

    for turns in range(200):
        made.run(cancel(turns))
    assert not made.backend.out


def test_a_cancelled_store_keeps_its_memory_until_the_engine_let_go(
    world: Worlds, server: _native.DevServer
) -> None:
    made = world()
    memory = made.chunk()
    server.add_fault(action="delay", delay_ms=600, count=1)

    async def cancel() -> None:
        task = asyncio.ensure_future(made.connector.put(FakeKey("k"), memory))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert memory.refs == 2
        memory.ref_count_down()  # what LMCache does
        assert memory.refs == 1, "the engine still reads there"
        await ended(lambda: memory.refs == 0)

    made.run(cancel())
    assert made.take("k") is not None


def test_a_store_that_is_cancelled_as_it_ends_releases_its_memory(world: Worlds) -> None:
    made = world()
    memory = made.chunk()

    async def cancel() -> None:
        task = asyncio.ensure_future(made.connector.put_each([FakeKey("k")], [memory]))
        await asyncio.sleep(0)
        _, channel = made.connector._store._channel()
        assert select.select([channel.native.event_fd()], [], [], 10)[0]
        # In the next turn of the loop this line comes first, then the engine's completion, and the
        # cancellation reaches the store only after that.
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        memory.ref_count_down()  # what LMCache does
        await ended(lambda: memory.refs == 0)

    made.run(cancel())


def test_close_ends_what_is_under_way_and_releases_its_memory(
    world: Worlds, server: _native.DevServer
) -> None:
    made = world(options={"batch_timeout_ms": 60_000})
    other = world()
    made.put("k")
    server.add_fault(action="drop", count=100_000)

    async def close() -> list[Any]:
        loads = [
            asyncio.ensure_future(made.connector.batched_get([FakeKey("k")] * 3)),
            asyncio.ensure_future(made.connector.batched_get_non_blocking("", [FakeKey("k")])),
        ]
        await asyncio.sleep(0)
        assert len(made.backend.out) == 4
        async with asyncio.timeout(10):
            await made.connector.close()
        assert not made.backend.out
        return await asyncio.gather(*loads, return_exceptions=True)

    results = made.run(close())
    assert results == [[None] * 3, []]
    assert other.holder.refcount == 1
    server.clear_faults()
    assert other.take("k") is not None


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("how", ["absent", "refused", "no room", "other shape"])
def test_failing_loads_leak_nothing(world: Worlds, server: _native.DevServer, how: str) -> None:
    made = world(room=0 if how == "no room" else 1 << 30, save_chunk_meta=how != "other shape")
    some = [FakeKey(f"k{i}") for i in range(KEYS_OF_ONE_CALL)]
    if how != "absent":
        for key in some:
            if how == "other shape":
                made.put_bytes(key.text, 10)  # no whole number of tokens
            else:
                made.put(key.text)
    if how == "refused":
        server.add_fault(action="result_code", code=4, kinds=["get", "batch_row"], count=1 << 30)

    def fail(times: int) -> None:
        for _ in range(times):
            loaded = made.run(made.connector.batched_get(some))
            assert loaded == [None] * KEYS_OF_ONE_CALL

    fail(200)
    gc.collect()
    before = open_descriptors(), threading.active_count(), len(gc.get_objects())
    threads = len(os.listdir("/proc/self/task"))
    resident = resident_bytes()
    fail(FAILING_LOADS // KEYS_OF_ONE_CALL)
    gc.collect()
    assert not made.backend.out
    assert open_descriptors() <= before[0]
    assert threading.active_count() <= before[1]
    assert len(os.listdir("/proc/self/task")) <= threads
    made.backend.allocations.clear()
    gc.collect()
    assert len(gc.get_objects()) < before[2] + 500
    assert resident_bytes() < resident + (16 << 20)


def test_connectors_come_and_go(world: Worlds, loop: asyncio.AbstractEventLoop) -> None:
    keeper = world()
    options = {"hosts": keeper.cfg.options().values["hosts"]}

    def come_and_go(times: int) -> None:
        for _ in range(times):
            made = World(loop, {**options, "set_name": "come_and_go"})
            made.put("k")
            assert made.take("k") is not None
            made.close()

    come_and_go(5)
    before = open_descriptors(), len(os.listdir("/proc/self/task"))
    come_and_go(50)
    gc.collect()
    assert open_descriptors() <= before[0]
    assert len(os.listdir("/proc/self/task")) <= before[1]


def test_random_traffic_with_faults_and_cancellations(
    world: Worlds, server: _native.DevServer
) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    numbers = random.Random(seed)
    made = world(options={"read_timeout_ms": 300, "write_timeout_ms": 300})
    texts = [f"k{i}" for i in range(12)]
    # One content for each key, in one record or in several, so that what is loaded can be checked.
    shapes = {t: torch.Size((1, 1, 1, numbers.choice([64, 30_000, 70_000]))) for t in texts}
    stored: list[FakeMemoryObj] = []
    for action, how in FAULTS:
        for _ in range(20):
            server.add_fault(action=action, skip=numbers.randrange(400), count=1, **how)

    def check(text: str, memory: Any) -> None:
        if memory is not None:
            expected = content(shapes[text].numel() * 2, texts.index(text))
            assert bytes(memory.byte_array) == expected, text
            memory.ref_count_down()

    async def one() -> None:
        some = [numbers.choice(texts) for _ in range(numbers.randrange(1, 6))]
        keys = [FakeKey(text) for text in some]
        what = numbers.randrange(5)
        if what == 0:
            objects = [made.chunk(fill=texts.index(t), shapes=[shapes[t]]) for t in some]
            stored.extend(objects)
            await made.connector.batched_put(keys, objects)
        elif what == 1:
            check(some[0], await made.connector.get(keys[0]))
        elif what == 2:
            loaded = await made.connector.batched_get(keys)
            for text, memory in zip(some, loaded, strict=True):
                check(text, memory)
        elif what == 3:
            loaded = await made.connector.batched_get_non_blocking("", keys)
            for text, memory in zip(some, loaded, strict=False):
                check(text, memory)
        else:
            assert 0 <= await made.connector.batched_async_contains("", keys) <= len(keys)

    async def traffic() -> int:
        failed = 0
        for _ in range(20):
            tasks = [asyncio.ensure_future(one()) for _ in range(20)]
            for task in tasks:
                if numbers.random() < 0.3:
                    await asyncio.sleep(numbers.choice([0, 0, 0.001]))
                    task.cancel()
            async with asyncio.timeout(30):
                ends = await asyncio.gather(*tasks, return_exceptions=True)
            for end in ends:
                if isinstance(end, BaseException):
                    assert isinstance(end, (AerospikeConnectorError, asyncio.CancelledError)), end
                    failed += 1
        await ended(lambda: not made.backend.out and all(one.refs == 1 for one in stored))
        return failed

    assert made.run(traffic()) > 0
    assert len(stored) > 100
    server.clear_faults()
    for text in texts:
        objects = [made.chunk(fill=texts.index(text), shapes=[shapes[text]])]
        made.run(made.connector.batched_put([FakeKey(text)], objects))
        check(text, made.get(text))
