# SPDX-License-Identifier: Apache-2.0
"""The native contract: submits, completions, buffers, close, fork, the interpreter lock."""

from __future__ import annotations

import array
import ctypes
import gc
import itertools
import os
import random
import select
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable

import pytest
from completions import Completions

from lmcache_aerospike import AerospikeNativeConnector, Store, _native
from lmcache_aerospike.errors import (
    AerospikeConnectionError,
    AerospikeNamespaceProbeError,
    AerospikeTTLConfigError,
    ClosedError,
    InvalidArgumentError,
)

Connect = Callable[..., AerospikeNativeConnector]


def view_like_lmcache(size: int) -> memoryview:
    """A buffer as LMCache makes it: format "<B", over memory that it owns."""
    return memoryview((ctypes.c_ubyte * size)())


def test_fd_is_non_blocking_and_closed_on_exec(connector: AerospikeNativeConnector) -> None:
    fd = connector.event_fd()
    assert fd == connector.event_fd()
    assert not os.get_blocking(fd)
    assert not os.get_inheritable(fd)


def test_round_trip_of_mixed_sizes_in_one_batch(completions: Completions) -> None:
    sizes = [0, 1, 4095, 4096, 983040, 983041, 3 * 983040 + 7]
    keys = [f"mixed@{size}" for size in sizes]
    connector = completions.connector
    sources = [view_like_lmcache(size) for size in sizes]
    for source in sources:
        source.cast("B")[:] = random.Random(source.nbytes).randbytes(source.nbytes)
    batch = connector.submit_batch_set(keys, sources)
    assert completions.wait(batch) == (batch, True, "", [True] * len(keys))
    targets = [view_like_lmcache(size) for size in sizes]
    batch = connector.submit_batch_get(keys, targets)
    assert completions.wait(batch) == (batch, True, "", [True] * len(keys))
    for source, target in zip(sources, targets, strict=True):
        assert source.cast("B") == target.cast("B")


def test_bits_are_per_key_and_misses_are_no_errors(completions: Completions) -> None:
    connector = completions.connector
    completions.wait(connector.submit_batch_set(["bits@1", "bits@3"], [b"one", b"three"]))
    keys = ["bits@1", "bits@2", "bits@3", "bits@1"]
    targets = [bytearray(b"\xa5" * 8) for _ in keys]
    batch = connector.submit_batch_get(keys, targets)
    assert completions.wait(batch) == (batch, True, "", [True, False, True, True])
    assert targets[1] == b"\xa5" * 8
    assert targets[0] == targets[3] == b"one" + b"\xa5" * 5
    batch = connector.submit_batch_exists(keys)
    assert completions.wait(batch) == (batch, True, "", [True, False, True, True])
    batch = connector.submit_batch_touch(keys[:3], ttl_seconds=1000)
    assert completions.wait(batch) == (batch, True, "", [True, False, True])
    batch = connector.submit_batch_delete(keys[:3])
    assert completions.wait(batch) == (batch, True, "", [True, False, True])
    batch = connector.submit_batch_exists(keys)
    assert completions.wait(batch) == (batch, True, "", [False] * 4)


def test_object_longer_than_its_buffer_is_a_miss(completions: Completions) -> None:
    connector = completions.connector
    completions.wait(connector.submit_batch_set(["long"], [b"x" * 512]))
    whole = bytearray(b"\xa5" * 512)
    batch = connector.submit_batch_get(["long"], [memoryview(whole)[:128]])
    assert completions.wait(batch) == (batch, True, "", [False])
    assert whole[128:] == b"\xa5" * 384


def test_failure_is_reported_once_with_bits(
    server: _native.DevServer, completions: Completions
) -> None:
    server.add_fault(action="result_code", code=18, kinds=["put"], key_contains="bad")
    batch = completions.connector.submit_batch_set(
        ["fails@good", "fails@bad", "fails@fine"], [b"1", b"2", b"3"]
    )
    number, ok, error, bits = completions.wait(batch)
    assert (number, ok, bits) == (batch, False, [True, False, True])
    assert "1 of 3 keys failed: overloaded" in error
    assert "fails@bad" not in error


def test_many_keys_in_one_lookup(completions: Completions) -> None:
    keys = [f"many@{i}" for i in range(10_000)]
    stored = keys[::7]
    connector = completions.connector
    assert completions.wait(connector.submit_batch_set(stored, [b"x"] * len(stored)))[1]
    bits = completions.wait(connector.submit_batch_exists(keys))[3]
    assert bits == [i % 7 == 0 for i in range(len(keys))]


def test_wake_up_announces_and_drain_quiets(completions: Completions) -> None:
    connector = completions.connector
    assert connector.drain_completions() == []
    batches = {connector.submit_batch_exists([f"wake@{i}"]) for i in range(10)}
    while batches - completions.waiting.keys():
        assert select.select([connector.event_fd()], [], [], 20)[0]
        completions.drain()
    assert completions.waiting.keys() == batches
    assert select.select([connector.event_fd()], [], [], 0)[0] == []


def test_thousands_of_small_batches_complete_once_each(completions: Completions) -> None:
    connector = completions.connector
    batches = [connector.submit_batch_exists([f"small@{i}"]) for i in range(5000)]
    assert batches == sorted(set(batches))
    for batch in batches:
        assert completions.wait(batch) == (batch, True, "", [False])
    assert completions.waiting == {}
    assert connector.drain_completions() == []


# ---- misuse: the error names the place, nothing starts ------------------------------------------


@pytest.mark.parametrize("submit", ["get", "set", "exists", "delete", "touch"])
def test_empty_batch(connector: AerospikeNativeConnector, submit: str) -> None:
    arguments = ([], []) if submit in {"get", "set"} else ([],)
    with pytest.raises(InvalidArgumentError, match="keys: empty") as caught:
        getattr(connector, f"submit_batch_{submit}")(*arguments)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, RuntimeError)
    assert caught.value.code == "invalid"


@pytest.mark.parametrize(
    ("keys", "buffers", "error", "words"),
    [
        (["a", "b"], [bytearray(1)], ValueError, "memoryviews: 1, expected 2"),
        (["a"], [bytearray(1), bytearray(1)], RuntimeError, "memoryviews: 2, expected 1"),
        (["a", 5], [bytearray(1)] * 2, TypeError, r"keys\[1\]: int, expected str"),
        (["a", b"b"], [bytearray(1)] * 2, TypeError, r"keys\[1\]: bytes, expected str"),
        ("ab", [bytearray(1)] * 2, TypeError, "keys: str, expected a list of str"),
        (None, [bytearray(1)], TypeError, "keys: NoneType, expected a list of str"),
        (["\ud800"], [bytearray(1)], ValueError, r"keys\[0\]: text with lone surrogates"),
        ([""], [bytearray(1)], ValueError, "key"),
        (["k" * 4097], [bytearray(1)], ValueError, "4096"),
        (
            ["a", "b"],
            [bytearray(1), None],
            TypeError,
            r"memoryviews\[1\]: NoneType",
        ),
        (["a"], bytearray(1), TypeError, "memoryviews"),
        (
            ["a"],
            [array.array("H", [1, 2])],
            ValueError,
            r"\[0\]: items of several bytes",
        ),
        (["a"], [memoryview(bytearray(8))[::2]], ValueError, r"memoryviews\[0\]: not contiguous"),
        (["a"], [memoryview(bytearray(8))[::-1]], ValueError, r"memoryviews\[0\]: not contiguous"),
    ],
)
def test_bad_arguments(
    connector: AerospikeNativeConnector,
    keys: object,
    buffers: object,
    error: type[Exception],
    words: str,
) -> None:
    for submit in (connector.submit_batch_get, connector.submit_batch_set):
        with pytest.raises(error, match=words):
            submit(keys, buffers)  # type: ignore[arg-type]
    assert connector.stats()["operations"]["put"]["items"] == 0
    assert connector.drain_completions() == []


def test_read_only_target(connector: AerospikeNativeConnector) -> None:
    with pytest.raises(InvalidArgumentError, match=r"memoryviews\[1\]: read-only"):
        connector.submit_batch_get(["a", "b"], [bytearray(1), b"x"])


def test_buffers_of_a_refused_batch_are_free(connector: AerospikeNativeConnector) -> None:
    first = bytearray(4)
    with pytest.raises(TypeError):
        connector.submit_batch_get(["a", "b"], [first, None])  # type: ignore[list-item]
    first.extend(b"grows, so nothing holds it")


def test_two_dimensions_and_tuples_are_fine(completions: Completions) -> None:
    square = memoryview(bytearray(b"abcdefgh")).cast("B", shape=[2, 4])
    batch = completions.connector.submit_batch_set(("square",), (square,))
    assert completions.wait(batch)[1]
    target = bytearray(8)
    completions.wait(completions.connector.submit_batch_get(["square"], [target]))
    assert target == b"abcdefgh"


# ---- buffers are held as long as the engine may touch them ---------------------------------------


class Buffer(bytearray):
    """A bytearray that can be watched."""


def test_buffers_outlive_their_last_reference_until_drained(
    server: _native.DevServer, completions: Completions
) -> None:
    connector = completions.connector
    completions.wait(connector.submit_batch_set(["pinned"], [b"y" * 100_000]))
    server.add_fault(action="latency", kinds=["get"], delay_ms=100)
    target = Buffer(100_000)
    watch = weakref.ref(target)
    batch = connector.submit_batch_get(["pinned"], [target])
    with pytest.raises(BufferError):
        target.extend(b"the engine holds it")
    del target
    gc.collect()
    assert watch() is not None
    assert completions.wait(batch)[3] == [True]
    assert watch() is None


def test_sources_outlive_their_last_reference(
    server: _native.DevServer, completions: Completions
) -> None:
    server.add_fault(action="latency", kinds=["put"], delay_ms=100)
    content = random.Random(1).randbytes(2_000_000)
    batch = completions.connector.submit_batch_set(["temporary"], [memoryview(Buffer(content))])
    gc.collect()
    junk = [bytearray(2_000_000) for _ in range(4)]
    assert completions.wait(batch)[1]
    del junk
    target = bytearray(2_000_000)
    completions.wait(completions.connector.submit_batch_get(["temporary"], [target]))
    assert target == content


def test_close_releases_buffers_and_completes_every_batch(
    server: _native.DevServer, connect: Connect
) -> None:
    connector = connect()
    completions = Completions(connector)
    completions.wait(connector.submit_batch_set(["closing"], [b"z" * 1000]))
    server.add_fault(action="drop", kinds=["get", "put", "batch"])
    target = Buffer(1000)
    batches = [
        connector.submit_batch_get(["closing"], [target]),
        connector.submit_batch_set(["closing"], [target]),
        connector.submit_batch_exists(["closing"] * 50),
    ]
    started = time.monotonic()
    connector.close()
    assert time.monotonic() - started < 2
    target.extend(b"free again")
    connector.close()
    for batch in batches:
        _, ok, error, bits = completions.wait(batch)
        assert not ok
        assert "closed" in error
        assert bits is not None
        assert not any(bits)
    assert connector.drain_completions() == []


def test_submit_after_close(connect: Connect) -> None:
    connector = connect()
    connector.close()
    target = bytearray(1)
    with pytest.raises(ClosedError) as caught:
        connector.submit_batch_get(["a"], [target])
    assert caught.value.code == "closed"
    target.extend(b"free")
    assert connector.stats()["nodes"] is not None
    assert "AerospikeNativeConnector" in repr(connector)


def test_destructor_without_close_while_buffers_are_under_way(
    server: _native.DevServer,
) -> None:
    server.add_fault(action="drop", kinds=["get"])
    connector = AerospikeNativeConnector(server.hosts)
    target = Buffer(10)
    watch = weakref.ref(target)
    connector.submit_batch_get(["a"], [target])
    del target
    started = time.monotonic()
    del connector
    gc.collect()
    assert time.monotonic() - started < 2
    assert watch() is None


# ---- threads and the interpreter lock ------------------------------------------------------------


def test_submit_drain_and_close_from_many_threads(connect: Connect) -> None:
    connector = connect()
    seen: list[int] = []
    submitted: list[int] = []
    refused = threading.Event()
    stop = threading.Event()

    def submit(name: str) -> None:
        for i in itertools.count():
            buffers = [bytearray(b"x" * 1000) for _ in range(4)]
            keys = [f"{name}@{i % 7}@{k}" for k in range(4)]
            try:
                submitted.append(connector.submit_batch_set(keys, buffers))
                submitted.append(connector.submit_batch_get(keys, buffers))
                submitted.append(connector.submit_batch_exists(keys))
            except ClosedError:
                refused.set()
                return

    def drain() -> None:
        while not stop.is_set():
            seen.extend(completion[0] for completion in connector.drain_completions())

    threads = [threading.Thread(target=submit, args=(f"t{i}",)) for i in range(3)]
    threads += [threading.Thread(target=drain) for _ in range(2)]
    for thread in threads:
        thread.start()
    while len(seen) < 300:
        time.sleep(0.001)
    closers = [threading.Thread(target=connector.close) for _ in range(2)]
    for thread in closers:
        thread.start()
    for thread in [*closers, *threads[:3]]:
        thread.join(30)
        assert not thread.is_alive()
    assert refused.is_set()
    stop.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    seen.extend(completion[0] for completion in connector.drain_completions())
    assert sorted(seen) == sorted(submitted)


# A destructor that joined threads while it held the interpreter lock would hang here (a thread that
# wants the lock is always there, and completions come at all times).
def test_a_thousand_destructors_do_not_deadlock(server: _native.DevServer) -> None:
    stop = threading.Event()

    def want_the_lock() -> None:
        while not stop.is_set():
            sum(range(50))

    thread = threading.Thread(target=want_the_lock)
    thread.start()
    try:
        for i in range(1000):
            connector = AerospikeNativeConnector(server.hosts, num_io_threads=1)
            connector.submit_batch_set([f"gone@{i}"], [bytearray(100)])
            if i % 3 == 0:
                connector.close()
            del connector
    finally:
        stop.set()
        thread.join()


FORK = """
import os, signal, sys, threading
from lmcache_aerospike import AerospikeNativeConnector, Store, errors
hosts = sys.argv[1]
connector = AerospikeNativeConnector(hosts)
store = Store(hosts)
store.put("forked", b"parent")
target = bytearray(6)
connector.submit_batch_get(["forked"], [target])
sys.stdout.flush()
child = os.fork()
if child == 0:
    signal.alarm(30)
    for use in (
        lambda: connector.submit_batch_exists(["forked"]),
        lambda: connector.submit_batch_set(["forked"], [b"child"]),
        lambda: connector.drain_completions(),
        lambda: connector.stats(),
        lambda: repr(connector),
        lambda: store.get("forked"),
        lambda: store.list(),
        lambda: store.inspect("forked"),
    ):
        try:
            use()
        except errors.ClosedError as error:
            assert "fork" in str(error), error
        else:
            os._exit(3)
    connector.close()
    store.close()
    del connector, store
    fresh = Store(hosts)
    assert fresh.get("forked") == b"parent"
    fresh.close()
    os._exit(0)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert store.get("forked") == b"parent"
connector.close()
connector.drain_completions()
print("ok")
"""


def run_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        # Python 3.12 and later warn of every fork of a process with threads.
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_forked_child_gets_clear_errors_and_can_start_anew(server: _native.DevServer) -> None:
    done = run_python(FORK, server.hosts)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


EXIT = """
import sys, threading
from lmcache_aerospike import AerospikeNativeConnector, Store, _native
server = _native.DevServer()
connector = AerospikeNativeConnector(server.hosts)
store = Store(server.hosts)
buffers = [bytearray(1_000_000) for _ in range(20)]
for i in range(20):
    connector.submit_batch_set([f"{i}@{k}" for k in range(20)], buffers)
threading.Thread(target=lambda: [connector.drain_completions() for _ in range(10**9)],
                 daemon=True).start()
print("leaving")
"""


def test_interpreter_exit_with_everything_open() -> None:
    for _ in range(5):
        done = run_python(EXIT)
        assert (done.returncode, done.stdout, done.stderr) == (0, "leaving\n", "")


# ---- opening ------------------------------------------------------------------------------------


def test_no_server() -> None:
    with pytest.raises(AerospikeConnectionError) as caught:
        AerospikeNativeConnector("127.0.0.1:1", connect_timeout_ms=200)
    assert isinstance(caught.value, ConnectionError)
    assert caught.value.code == "unavailable"


def test_unknown_namespace(server: _native.DevServer) -> None:
    with pytest.raises(AerospikeNamespaceProbeError, match="nowhere"):
        AerospikeNativeConnector(server.hosts, "nowhere")


def test_namespace_that_refuses_ttls() -> None:
    with _native.DevServer(namespaces=[{"name": "lmcache", "nsup_period_s": 0}]) as server:
        with pytest.raises(AerospikeTTLConfigError, match="nsup-period") as caught:
            AerospikeNativeConnector(server.hosts)
        assert caught.value.server_result == 22
        AerospikeNativeConnector(server.hosts, default_ttl_seconds=-1).close()


def test_limits_and_stats(completions: Completions) -> None:
    connector = completions.connector
    limits = connector.limits()
    assert limits["record_bytes_max"] == 1 << 20
    assert limits["record_bytes_source"] == "max-record-size"
    assert limits["target_segment_bytes"] == 983040
    completions.wait(connector.submit_batch_set(["stats"], [b"12345"]))
    completions.wait(connector.submit_batch_exists(["stats", "absent"]))
    operations = connector.stats()["operations"]
    put = {name: operations["put"][name] for name in ("items", "hits", "misses", "errors", "bytes")}
    assert put == {"items": 1, "hits": 1, "misses": 0, "errors": 0, "bytes": 5}
    assert operations["exists"]["misses"] == 1
    assert connector.stats()["bytes_in_flight"] == 0


def test_constructor_is_as_documented(server: _native.DevServer) -> None:
    connector = AerospikeNativeConnector(server.hosts, "lmcache", "kv_chunks", num_io_threads=1)
    assert repr(connector) == (
        f"<AerospikeNativeConnector hosts='{server.hosts}' namespace='lmcache' "
        "set_name='kv_chunks'>"
    )
    assert "submit_batch_get" not in vars(AerospikeNativeConnector), "no Python on the hot path"
    connector.close()


def results_of(connector: AerospikeNativeConnector, batch: int) -> list[tuple[object, ...]]:
    """Waits for one batch and takes its results."""
    while True:
        assert select.select([connector.event_fd()], [], [], 10)[0]
        for completed, results in connector.drain_results():
            if completed == batch:
                return list(results)


def test_results_tell_sizes_metadata_and_errors(connector: AerospikeNativeConnector) -> None:
    payloads = [b"one", bytes(3_000_000)]
    batch = connector.submit_batch_set(["r/1", "r/2"], payloads, metadata=[b"about one", None])
    assert results_of(connector, batch) == [("hit", 3, None, None), ("hit", 3_000_000, None, None)]
    targets = [bytearray(8), bytearray(10), bytearray(8)]
    batch = connector.submit_batch_get(["r/1", "r/2", "r/3"], targets)
    assert results_of(connector, batch) == [
        ("hit", 3, b"about one", None),
        ("miss", 3_000_000, None, None),
        ("miss", 0, None, None),
    ]
    assert targets[0][:3] == b"one"
    empty = [bytearray(0)]
    batch = connector.submit_batch_get(["r/1"], empty)
    assert results_of(connector, batch) == [("miss", 3, b"about one", None)]


def test_pinned_objects_and_times_to_live(server: _native.DevServer) -> None:
    connector = AerospikeNativeConnector(server.hosts)
    batch = connector.submit_batch_set(["pinned"], [b"x"], ttl_seconds=5, pin=True)
    assert results_of(connector, batch)[0][0] == "hit"
    batch = connector.submit_batch_set(["short"], [b"x"], ttl_seconds=500)
    assert results_of(connector, batch)[0][0] == "hit"
    batch = connector.submit_batch_set(["bad"], [b"x"], ttl_seconds=-7)
    (outcome, _, _, error), *_ = results_of(connector, batch)
    assert outcome == "error"
    assert isinstance(error, InvalidArgumentError)
    connector.close()
    with Store(server.hosts) as store:
        pinned, short = store.inspect("pinned"), store.inspect("short")
        assert pinned is not None
        assert pinned["pin"]
        assert pinned["expires_in"] is None
        assert short is not None
        assert not short["pin"]
        assert short["expires_in"] is not None
        assert 490 <= short["expires_in"] <= 500


def test_metadata_must_fit_the_keys(connector: AerospikeNativeConnector) -> None:
    with pytest.raises(InvalidArgumentError, match="metadata: 1, expected 2"):
        connector.submit_batch_set(["a", "b"], [b"x", b"y"], metadata=[b"m"])
    with pytest.raises(TypeError, match=r"metadata\[0\]: str"):
        connector.submit_batch_set(["a"], [b"x"], metadata=["text"])
    batch = connector.submit_batch_set(["a"], [b"x"], metadata=[bytes((64 << 10) + 1)])
    assert results_of(connector, batch)[0][0] == "error"


def test_stats_have_distributions(connector: AerospikeNativeConnector) -> None:
    before = connector.stats()
    batch = connector.submit_batch_set(["h"], [bytes(3_000_000)])
    results_of(connector, batch)
    batch = connector.submit_batch_get(["h"], [bytearray(3_000_000)])
    results_of(connector, batch)
    after = connector.stats()
    for operation, round_trips in (("put", 2), ("get", 1)):
        old, new = before["operations"][operation], after["operations"][operation]
        assert new["round_trips"] - old["round_trips"] == round_trips
        assert (
            sum(new["batch_microseconds"]["counts"]) == sum(old["batch_microseconds"]["counts"]) + 1
        )
        assert new["batch_microseconds"]["sum"] > old["batch_microseconds"]["sum"]
    assert after["stored_segment_counts"]["counts"][2] == 1  # 4 segments: above 2, up to 4
